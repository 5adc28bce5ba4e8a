//! `settee cell`: runs a command in a cell. The service starts external commands through it.
//!
//! SUMMARY   `settee cell [--users N | --no-users WHY] [--report-to N] SPEC -- PROGRAM [ARGUMENTS]`, where SPEC is
//!           a [`CellSpec`](child::cell::CellSpec) in JSON. Exits as the command does; with 125 if the cell cannot be
//!           made. `settee cell --report SPEC -- PROGRAM` starts nothing and prints the layers in effect, `settee
//!           cell --report-own MODE` those of the built-in server.
//! CALLED    By the service; hidden from the help. Parsed before clap, which takes longer to start than the cell.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::process::exit;

use child::cell::launcher::{self, Request};
use child::cell::{own, subordinate};
use child::parent_death;

/// The exit status for an invalid command line, the same as for a cell that cannot be made.
const USAGE_STATUS: i32 = 125;

/// Returns the arguments for `cell` if the program was called with that subcommand.
pub(crate) fn arguments_of(all: &[OsString]) -> Option<&[OsString]> {
    let (subcommand, arguments) = all.get(1..)?.split_first()?;
    (subcommand == "cell").then_some(arguments)
}

/// Runs the command in its cell.
pub(crate) fn run(arguments: &[OsString]) -> ! {
    // No known system refuses, and a trial ends soon anyway.
    let _ = parent_death::die_with_parent();
    // `--users N` or `--no-users WHY` may precede `--report-own`, which ignores it.
    if let [option, mode] | [_, _, option, mode] = arguments
        && option == "--report-own"
    {
        exit(report_own(&mode.to_string_lossy()));
    }
    if arguments
        .first()
        .is_some_and(|word| word == subordinate::HOLD)
    {
        exit(subordinate::hold());
    }
    match read(arguments) {
        Ok(request) => launcher::run(request),
        Err(problem) => {
            eprintln!("settee cell: {problem}");
            exit(USAGE_STATUS)
        }
    }
}

/// Prints the layers of the cell that the built-in server enters.
fn report_own(mode: &str) -> i32 {
    let mode = match serde_json::from_value(mode.into()) {
        Ok(mode) => mode,
        Err(error) => {
            eprintln!("settee cell: --report-own: {error}");
            return USAGE_STATUS;
        }
    };
    couchjs::limit_process(couchjs::DEFAULT_MEMORY_BYTES);
    let layers = serde_json::to_string(&own::report(mode)).unwrap_or_default();
    let printed = writeln!(io::stdout(), "{layers}");
    if printed.is_ok() { 0 } else { USAGE_STATUS }
}

fn descriptor(option: &str, word: Option<&OsStr>) -> Result<RawFd, String> {
    let number = word.and_then(|word| word.to_str()?.parse().ok());
    number.ok_or_else(|| format!("{option} needs the number of a descriptor"))
}

fn read(arguments: &[OsString]) -> Result<Request, String> {
    let mut words = arguments.iter().map(OsString::as_os_str);
    let (mut report_to, mut users, mut only_report) = (None, None, false);
    let spec = loop {
        let word = words
            .next()
            .and_then(OsStr::to_str)
            .ok_or("the cell's JSON is missing")?;
        match word {
            "--report" => only_report = true,
            "--report-to" => report_to = Some(descriptor(word, words.next())?),
            "--users" => users = Some(Ok(descriptor(word, words.next())?)),
            "--no-users" => {
                let why = words.next().unwrap_or_default();
                users = Some(Err(why.to_string_lossy().into_owned()));
            }
            json => {
                break serde_json::from_str(json)
                    .map_err(|error| format!("the cell's JSON: {error}"))?;
            }
        }
    };
    if words.next() != Some(OsStr::new("--")) {
        return Err("the command follows '--'".into());
    }
    let program = words.next().ok_or("the command is missing")?;
    Ok(Request {
        spec,
        program: program.into(),
        arguments: words.map(OsStr::to_owned).collect(),
        report_to,
        users,
        only_report,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = r#"{"mode":"standard","user":null,"user_range":null,"read_paths":[],"hidden_paths":[],"network":false,
        "refused_ports":[],"system_calls":[],"memory_max":0,"processes_max":0,"cpu_max":0}"#;

    fn request(words: &[&str]) -> Result<Request, String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        read(&words)
    }

    #[test]
    fn the_command_follows_the_cell_and_keeps_its_own_options() {
        let words = ["--report-to", "3", SPEC, "--", "sh", "--report", "--"];
        let read = request(&words).unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!((read.report_to, read.only_report), (Some(3), false));
        assert_eq!(read.program.to_str(), Some("sh"));
        assert_eq!(read.arguments, ["--report", "--"]);
    }

    #[test]
    fn missing_arguments_are_reported() {
        for (words, expected) in [
            (&[] as &[&str], "JSON is missing"),
            (&["{}", "--", "sh"], "missing field"),
            (&["--report-to", "x"], "number of a descriptor"),
            (&[SPEC, "sh"], "follows '--'"),
            (&[SPEC, "--"], "command is missing"),
        ] {
            let problem = request(words).err().unwrap_or_default();
            assert!(problem.contains(expected), "{words:?}: {problem}");
        }
    }
}
