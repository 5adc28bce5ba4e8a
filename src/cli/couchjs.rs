//! `settee couchjs`: the built-in JavaScript query server on standard input and output.
//!
//! SUMMARY   A drop-in for CouchDB's `couchjs`, including when invoked through a link of that name. Accepts
//!           the options of both CouchDB servers, so that existing start commands work; ignores scripts and unknown
//!           options.
//! SOURCE    The `couchjs` programs of CouchDB (SpiderMonkey's `-S`, `-V`, `-h`, `--eval`; QuickJS's `-M`). Here `-S`
//!           and `-M` both set the memory limit, and `eval` is always on.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::ExitCode;

use couchjs::{Options, ProcessStatus, Tenancy};

use crate::config::{SandboxMode, nearest};
use child::cell::own::{self, MissingLayer, OwnCell};
use child::parent_death;

/// Minimum memory limit, in bytes: less cannot hold the standard objects of one view's functions.
const MEMORY_BYTES_MIN: usize = 1 << 20;

const LINE_MAX: &str = "--line-max";

const SANDBOX: &str = "--sandbox";

/// Minimum of [`LINE_MAX`]: the error about a long line must fit.
const LINE_BYTES_MIN: usize = 4096;

/// Environment variables that enable isolates, both set by the service.
const ISOLATES_MAX: &str = "SETTEE_ISOLATES_MAX";
const TENANT_NONCE: &str = "SETTEE_TENANT_NONCE";

/// The exit status for invalid options, as in CouchDB's `couchjs`.
const BAD_OPTION_STATUS: u8 = 2;

/// The exit status when input or output fails (EX_IOERR).
const IO_STATUS: u8 = 74;

/// The exit status when the cell cannot be made.
const NO_CELL_STATUS: u8 = 125;

const USAGE: &str = "\
Usage: couchjs [-h] [-V] [-S BYTES] [-M BYTES] [SCRIPT..]

Answers CouchDB's query server protocol on standard input and output.

  -h, --help     print this text
  -V, --version  print the version
  -S BYTES       memory limit of all functions, with their documents, answers and
  -M BYTES       tables (default 67108864); the process takes 32 MiB more at most
  --line-max BYTES
                 longest answer line (default: no limit)
  --text-reasons always give the reason of an error as text, even where CouchDB's
                 couchjs answers {} or null, and say whose memory ran out (CouchDB:
                 InternalError); \"text_reasons\" in a reset overrides this
  --no-optimize-functions
                 freeze the document for every function, even for those that only
                 read it: slower, with the same answers
  --sandbox off|standard|strict
                 what the server may do once started: everything; only read, write,
                 allocate and exit, as far as this system can enforce it
                 (default); the same, or the server does not start
  --die-with-parent
                 end when the program that started the server ends
      --eval     accepted, and always on
  SCRIPT         accepted and ignored: the server is built in

Exit codes:
  0    the end of the input
  2    an option is invalid
  74   reading or writing failed
  125  the sandbox is strict and lacks a layer
  255  a fatal error was answered

Example:
  echo '[\"reset\"]' | couchjs
  printf '%s\\n' '[\"add_fun\",\"function(doc) { emit(doc._id, 1); }\"]' '[\"map_doc\",{\"_id\":\"a\"}]' | couchjs -S 134217728
";

/// The command line's request.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Help,
    Version,
    Serve(Serve),
}

/// How the server runs.
#[derive(Debug, PartialEq, Eq)]
struct Serve {
    options: Options,
    sandbox: SandboxMode,
    dies_with_parent: bool,
}

impl Default for Serve {
    fn default() -> Self {
        Serve {
            options: Options::default(),
            sandbox: SandboxMode::Standard,
            dies_with_parent: false,
        }
    }
}

/// The subcommand as clap knows it, for help and completions. Its options are parsed here, more leniently than
/// clap can.
#[derive(clap::Args)]
#[command(after_long_help = "\
Options: settee couchjs -h

Exit codes:
  0    the end of the input
  2    an option is invalid
  74   reading or writing failed
  125  the sandbox is strict and lacks a layer
  255  a fatal error was answered

Example:
  echo '[\"reset\"]' | settee couchjs")]
pub struct Args {
    /// couchjs's options and script paths.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// Returns the arguments for `couchjs` if the program was called by that name, or with that subcommand.
pub(crate) fn arguments_of(all: &[OsString]) -> Option<Vec<OsString>> {
    let (program, arguments) = all.split_first()?;
    if Path::new(program)
        .file_name()
        .is_some_and(|name| name == "couchjs")
    {
        return Some(arguments.to_vec());
    }
    let (subcommand, arguments) = arguments.split_first()?;
    (subcommand == "couchjs").then(|| arguments.to_vec())
}

/// Runs the query server with the arguments after the name of the program or subcommand.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let variables = [ISOLATES_MAX, TENANT_NONCE].map(|name| env::var(name).ok());
    let read = read(arguments).and_then(|request| Ok((request, tenancy(variables)?)));
    let (request, tenancy) = match read {
        Ok(read) => read,
        Err(problem) => {
            eprintln!("couchjs: {problem}");
            return ExitCode::from(BAD_OPTION_STATUS);
        }
    };
    let done = match request {
        Request::Help => io::stdout().write_all(USAGE.as_bytes()).map(|()| 0),
        Request::Version => {
            writeln!(io::stdout(), "settee {}", env!("CARGO_PKG_VERSION")).map(|()| 0)
        }
        Request::Serve(request) => serve(&request, tenancy),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("couchjs: {error}");
            let cause = error.get_ref();
            ExitCode::from(if cause.is_some_and(|cause| cause.is::<MissingLayer>()) {
                NO_CELL_STATUS
            } else {
                IO_STATUS
            })
        }
    }
}

fn serve(request: &Serve, tenancy: Option<Tenancy>) -> io::Result<u8> {
    if request.dies_with_parent {
        parent_death::die_with_parent()?;
    }
    own::set_allocator();
    let limit_bytes = request.options.memory_bytes;
    // Idle isolates may hold as much as the running one.
    let idle_bytes = tenancy.as_ref().map_or(0, |_| limit_bytes);
    couchjs::limit_process(limit_bytes.saturating_add(idle_bytes));
    // The standard library's streams would buffer lines.
    let own = |stream: BorrowedFd<'_>| stream.try_clone_to_owned().map(File::from);
    let open = || {
        let (input, output) = (own(io::stdin().as_fd())?, own(io::stdout().as_fd())?);
        let status = match &tenancy {
            Some(_) => ProcessStatus::open_for_isolates(),
            None => ProcessStatus::open(),
        };
        Ok::<_, io::Error>((status, input, output))
    };
    let (cell, opened) = OwnCell::enter(request.sandbox, open).map_err(io::Error::other)?;
    let (status, input, output) = opened?;
    let ready = || cell.seal().map(drop).map_err(io::Error::other);
    couchjs::run(request.options, tenancy, status, input, output, ready)
}

/// Reads the values of [`ISOLATES_MAX`] and [`TENANT_NONCE`]; `None` if one is missing.
fn tenancy(variables: [Option<String>; 2]) -> Result<Option<Tenancy>, String> {
    let [Some(isolates_max), Some(nonce)] = variables else {
        return Ok(None);
    };
    match isolates_max.parse() {
        Ok(isolates_max) if isolates_max > 0 => Ok(Some(Tenancy {
            isolates_max,
            nonce,
        })),
        _ => Err(format!(
            "{ISOLATES_MAX} is a number of at least 1, not '{isolates_max}'"
        )),
    }
}

/// Parses the arguments; of several limits the last one applies.
fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, String> {
    let mut serve = Serve::default();
    let options = &mut serve.options;
    let mut arguments = arguments
        .into_iter()
        .map(|text| text.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-h" | "--help" => return Ok(Request::Help),
            "-V" | "--version" => return Ok(Request::Version),
            "--" => break,
            text if text.starts_with("-S") || text.starts_with("-M") => {
                let (name, attached) = text.split_at(2);
                let value = match attached.trim_start_matches('=') {
                    "" => arguments.next().unwrap_or_default(),
                    attached => attached.to_owned(),
                };
                options.memory_bytes = bytes(name, &value, "memory", MEMORY_BYTES_MIN)?;
            }
            "--text-reasons" => options.text_reasons = true,
            "--no-optimize-functions" => options.optimize_functions = false,
            LINE_MAX => {
                let value = arguments.next().unwrap_or_default();
                options.line_bytes_max = bytes(LINE_MAX, &value, "line", LINE_BYTES_MIN)?;
            }
            "--die-with-parent" => serve.dies_with_parent = true,
            text if text.split('=').next() == Some(SANDBOX) => {
                let value = match text.split_once('=') {
                    Some((_, value)) => value.to_owned(),
                    None => arguments.next().unwrap_or_default(),
                };
                serve.sandbox = value
                    .parse()
                    .map_err(|_| format!("{SANDBOX} is off, standard or strict, not '{value}'"))?;
            }
            text => check_slip(text)?,
        }
    }
    Ok(Request::Serve(serve))
}

/// Refuses a misspelt option of ours; ignores other unknown options.
fn check_slip(option: &str) -> Result<(), String> {
    let ours = [
        LINE_MAX,
        "--text-reasons",
        "--no-optimize-functions",
        SANDBOX,
        "--die-with-parent",
    ];
    let meant = option
        .starts_with("--")
        .then(|| nearest::slip(option, &ours));
    meant.flatten().map_or(Ok(()), |meant| {
        Err(format!(
            "there is no option {option}: did you mean {meant}?"
        ))
    })
}

/// Parses a number of bytes; an error names `what` it limits.
fn bytes(name: &str, value: &str, what: &str, least: usize) -> Result<usize, String> {
    let bytes = value.trim().parse().ok().filter(|bytes| *bytes >= least);
    bytes.ok_or_else(|| {
        format!("{name} needs a {what} limit of at least {least} bytes, not '{value}'")
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn request(arguments: &[&str]) -> Result<Request, String> {
        read(arguments.iter().map(OsString::from))
    }

    fn serves_with(bytes: usize) -> Result<Request, String> {
        let mut serve = Serve::default();
        serve.options.memory_bytes = bytes;
        Ok(Request::Serve(serve))
    }

    #[test]
    fn start_commands_of_couchdb_are_accepted() {
        let default = couchjs::DEFAULT_MEMORY_BYTES;
        assert_eq!(request(&[]), serves_with(default));
        assert_eq!(
            request(&["/usr/share/couchdb/server/main.js"]),
            serves_with(default)
        );
        assert_eq!(
            request(&["--eval", "--no-such-option", "-x", "main.js"]),
            serves_with(default)
        );
        assert_eq!(
            request(&["-S", "134217728", "main.js"]),
            serves_with(128 << 20)
        );
        assert_eq!(request(&["-M8388608"]), serves_with(8 << 20));
        assert_eq!(
            request(&["-S", "2097152", "-M", "4194304"]),
            serves_with(4 << 20)
        );
        assert_eq!(request(&["--", "-h"]), serves_with(default));
    }

    #[test]
    fn a_typo_in_our_options_is_refused_and_an_unknown_option_ignored() {
        let slip = request(&["--text-reason"]).unwrap_err();
        assert!(slip.contains("did you mean --text-reasons?"), "{slip}");
        assert!(request(&["--some-option-of-couchjs", "-H"]).is_ok());
    }

    #[test]
    fn options_for_settees_own_children_are_read() {
        let told = request(&[
            "-S",
            "2097152",
            "--line-max",
            "5000",
            "--text-reasons",
            "--no-optimize-functions",
            "--sandbox",
            "strict",
            "--die-with-parent",
        ]);
        let serve = Serve {
            options: Options {
                memory_bytes: 2 << 20,
                line_bytes_max: 5000,
                text_reasons: true,
                optimize_functions: false,
            },
            sandbox: SandboxMode::Strict,
            dies_with_parent: true,
        };
        assert_eq!(told, Ok(Request::Serve(serve)));
        for value in ["", "0", "4095", "lots"] {
            let refused = request(&["--line-max", value]);
            assert!(
                refused.is_err_and(|text| text.contains("--line-max")),
                "{value}"
            );
        }
    }

    #[test]
    fn isolates_need_both_variables_and_a_number_of_at_least_one() {
        let of = |most: Option<&str>, nonce: Option<&str>| {
            let tenancy = tenancy([most, nonce].map(|text| text.map(str::to_owned)));
            tenancy.map(|tenancy| tenancy.map(|it| (it.isolates_max, it.nonce)))
        };
        assert_eq!(of(Some("32"), Some("n")), Ok(Some((32, "n".to_owned()))));
        for missing in [of(None, None), of(Some("32"), None), of(None, Some("n"))] {
            assert_eq!(missing, Ok(None));
        }
        for wrong in ["", "0", "-1", "many"] {
            let refused = of(Some(wrong), Some("hidden")).unwrap_err();
            assert!(refused.contains(ISOLATES_MAX) && !refused.contains("hidden"));
        }
    }

    #[test]
    fn the_sandbox_option_accepts_only_the_names_of_its_modes() {
        for (name, mode) in [
            ("off", SandboxMode::Off),
            ("standard", SandboxMode::Standard),
            ("strict", SandboxMode::Strict),
        ] {
            let serve = || Serve {
                sandbox: mode,
                ..Serve::default()
            };
            assert_eq!(request(&["--sandbox", name]), Ok(Request::Serve(serve())));
            let joined = format!("--sandbox={name}");
            assert_eq!(request(&[&joined]), Ok(Request::Serve(serve())));
            assert_eq!(mode.to_string(), name);
        }
        for name in ["", "none", "Strict"] {
            let refused = request(&["--sandbox", name]);
            assert!(refused.is_err_and(|text| text.contains("--sandbox")));
        }
    }

    #[test]
    fn help_and_version_come_first() {
        assert_eq!(request(&["main.js", "-h"]), Ok(Request::Help));
        assert_eq!(request(&["-V", "-h"]), Ok(Request::Version));
    }

    #[test]
    fn limits_that_are_too_low_are_refused_by_name() {
        for value in ["", "0", "-5", "lots", "1048575"] {
            assert!(
                request(&["-S", value]).is_err_and(|text| text.contains("-S")),
                "{value}"
            );
        }
    }

    #[test]
    fn a_link_named_couchjs_is_recognised() {
        let of = |words: &[&str]| {
            let all: Vec<OsString> = words.iter().map(Into::into).collect();
            arguments_of(&all)
        };
        assert_eq!(
            of(&["/opt/couchdb/bin/couchjs", "-S", "9"]),
            Some(vec!["-S".into(), "9".into()])
        );
        assert_eq!(of(&["settee", "couchjs", "-V"]), Some(vec!["-V".into()]));
        assert_eq!(of(&["/usr/bin/settee", "status"]), None);
        assert_eq!(of(&[]), None);
    }
}
