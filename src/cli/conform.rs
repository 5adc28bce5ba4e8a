//! `settee conform`: does a command answer as a query server should?
//!
//! SUMMARY   Runs the built-in cases against a command, or a language of this program, and prints a line for each and
//!           the results by ability; optionally as JSON, and as JUnit XML.

mod lines;

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use slog::{Discard, Logger, o};

use crate::actors::language::Registry;
use crate::config::{CellKeys, Config, PoolConfig, SandboxMode};
use crate::conform_target::Target;
use crate::query_server::cells::Cells;
use crate::query_server::language::LanguageName;
use child::cell::files::of_own_file;
use child::cell::{Cell, is_system_call};
use child::{CommandSpec, Spawner};
use conform::case::Case;
use conform::junit::junit;
use conform::report::Report;
use conform::run::Subject;
use conform::suite;

use super::exit::{CliError, CliResult, Exit, IoAt, own_program};
use super::map::pool::Pool;
use super::output::Output;
use lines::{headline, line, summary};

/// Options of `settee conform`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Each case starts the command anew. A line says `ok`, `FAIL` or `skip`, the ability, the case, and for
a failure the step, the expected and the actual answer. An ability of which no case passes is absent.
An optional one (ddoc, lib, index, reduce, ..) that the command refuses is not supported: a line with
`no`, not a failure. The cases cover all that CouchDB's own JavaScript server can do; `policy` goes
beyond it.

At the end come the abilities that a daemon will use, as its own probes find them, and a summary for a
badge: `conform: 41 of 44 cases, map reduce`, with the abilities of which all cases pass.

With --json, one object: command, language, known, applying, passed, failed, not_supported, not_run,
abilities (name, the same counts, verdict: able, partly, not_supported or absent), daemon (for each
ability: true if a daemon will use it, false if it will do without, null if its probes cannot decide),
badge and cases (id, ability, why, result: pass, fail, not_supported or not_run, and step, expected,
got, problem). See docs/conform.md.

The command runs in a cell, as in a pool. It may read its own directory, files that its arguments name
with their directories, its libraries and /usr; anything else needs a --read-path. If it works only
with --sandbox off, see docs/cells.md.

Exit codes:
  0   all cases passed, except for abilities that are not supported
  1   a case failed, none passed, or the command is not a query server
  64  the command line is wrong
  65  a file of cases is wrong
  74  writing standard output or the file of --junit failed
  77  the file of --junit may not be written

Example:
  settee conform -k map -- settee couchjs
  settee conform --junit conform.xml -- python3 my-server.py
  settee conform --language tcl --cases tcl.jsonl -- tclsh my-server.tcl
  settee conform --language javascript")]
pub struct Args {
    /// Only cases whose name or ability contains this: map, ddoc.shows, reduce/no-rows.
    #[arg(short = 'k', value_name = "NAME", default_value = "")]
    name: String,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
    /// Write the result as JUnit XML into this file too.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// The language of the functions in the cases: javascript, python, perl, ruby, lua, none, or any other of --cases;
    /// default: found by trying.
    #[arg(long, value_name = "NAME")]
    language: Option<String>,
    /// Further cases, one JSON object a line, in the format of docs/conform.md; may be given again.
    #[arg(long, value_name = "FILE")]
    cases: Vec<PathBuf>,
    /// How long a case may take.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    timeout: Duration,
    /// The cell of the command: strict, standard or off.
    #[arg(long, value_name = "MODE", default_value = "standard")]
    sandbox: SandboxMode,
    /// A file or directory that the command may read besides its program and libraries; may be given again.
    #[arg(long, value_name = "PATH")]
    read_path: Vec<PathBuf>,
    /// A system call that the command may make besides those that interpreters need; may be given again.
    #[arg(long, value_name = "NAME", value_parser = system_call)]
    system_call: Vec<String>,
    /// The command, after --: a program and its arguments. Without one, the built-in language named by --language is
    /// tested, through a pool.
    #[arg(
        last = true,
        required_unless_present = "language",
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// Maximum time for a case: an hour.
const SECONDS_MAX: f64 = 3600.0;

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!(
            "not a number of seconds above 0 and up to {SECONDS_MAX}"
        )),
    }
}

fn system_call(name: &str) -> Result<String, &'static str> {
    is_system_call(name)
        .then(|| name.to_owned())
        .ok_or("this machine's processor has no system call of this name")
}

/// Runs the subcommand. The exit code is [`Exit::Failed`] unless everything passed.
///
/// # Errors
/// See the exit codes above.
pub(super) fn run(args: &Args, languages: &Registry) -> CliResult {
    super::system()?.block_on(async {
        if let Some((program, arguments)) = args.command.split_first() {
            let command = CommandSpec {
                program: program.into(),
                arguments: arguments.to_vec(),
                environment: Vec::new(),
                cell: Cell::None,
            };
            let launcher = own_program()?;
            let command = Cells::of(&Arc::default(), &[])
                .of_pool(&args.section()?)
                .launched(&launcher, command);
            return test(args, Target::Command(command)).await;
        }
        let mut config = Config::default();
        let name = LanguageName::new(args.language.as_deref().unwrap_or_default());
        config
            .pools
            .insert(name.as_str().to_owned(), args.section()?);
        let pool = Pool::start(&config, languages, &Logger::root(Discard, o!()))?;
        let tested = match pool.target(&name) {
            Some(target) => test(args, target).await,
            None => Err(CliError::new(
                Exit::Usage,
                format!("this program has no language '{name}' of its own"),
                "give the command of a query server after --",
            )),
        };
        pool.stop().await;
        tested
    })
}

async fn test(args: &Args, target: Target) -> CliResult {
    let further = args.further()?;
    let spawner = Spawner::start().io_at("a thread for children")?;
    let subject = Subject {
        target,
        time: args.timeout,
        spawner,
    };
    let mut output = Output::standard();
    let given = args.language_of_cases();
    let mut report = Report::new(args.tested(), given.unwrap_or(suite::NO_LANGUAGE));
    if let Err(problem) = subject.greets().await {
        let tested = report.command.join(" ");
        let message = format!("'{tested}' does not answer [\"reset\"]: {problem}");
        report.problem = Some(problem);
        report.settle();
        args.deliver(&report, &mut output)?;
        return Err(failed(message, &args.hint()?));
    }
    if given.is_none()
        && let Some(language) = subject.language().await
    {
        (report.language, report.found) = (language.to_owned(), true);
    }
    let cases = args.cases(&further, &mut report)?;
    let played = args.play(&cases, &subject, &mut report, &mut output);
    if played.await?.is_break() && args.junit.is_none() {
        return Ok(());
    }
    report.settle();
    report.daemon = (subject.target)
        .abilities(&report.language, &subject.spawner, subject.time)
        .await
        .by_name();
    args.deliver(&report, &mut output)?;
    verdict(&report)
}

/// Fails unless everything passed.
fn verdict(report: &Report) -> CliResult {
    if report.is_success() {
        return Ok(());
    }
    let untold = report.counts.failed + report.counts.not_run;
    if untold == 0 {
        return Err(failed(
            "no case passed".to_owned(),
            "the command supports none of these abilities; run without -k to see the others",
        ));
    }
    Err(failed(
        format!("{untold} of {} cases did not pass", report.counts.all()),
        "the lines with FAIL show the expected and the actual answer",
    ))
}

fn failed(message: String, hint: &str) -> CliError {
    CliError::new(Exit::Failed, message, hint)
}

impl Args {
    /// Returns the language of the functions in the cases, if known.
    fn language_of_cases(&self) -> Option<&str> {
        self.language.as_deref().filter(|name| {
            !self.command.is_empty() || !self.cases.is_empty() || suite::LANGUAGES.contains(name)
        })
    }

    /// Returns the subject of the test, for display: the words of the command, or the language.
    fn tested(&self) -> Vec<String> {
        let words = self
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        let language = self.language.iter().filter(|_| self.command.is_empty());
        words.chain(language.cloned()).collect()
    }

    /// Returns the selected cases. Records in the report the numbers of all cases and of those that apply to the
    /// language.
    fn cases(&self, further: &[(&PathBuf, String)], report: &mut Report) -> CliResult<Vec<Case>> {
        let language = &report.language;
        let mut cases = suite::cases(language).map_err(|error| {
            CliError::new(
                Exit::Internal,
                error.to_string(),
                "this is a mistake in settee; please report it",
            )
        })?;
        for (file, text) in further {
            let more = suite::cases_of(text, language).map_err(|error| {
                CliError::at(
                    Exit::Data,
                    file.display(),
                    error,
                    "docs/conform.md has the format",
                )
            })?;
            cases.extend(more);
        }
        report.applying = cases.len();
        let more = further.iter().map(|(_, text)| suite::count(text));
        report.known = suite::known() + more.sum::<usize>();
        cases.retain(|case| case.id.contains(&self.name) || case.ability.contains(&self.name));
        if cases.is_empty() {
            let name = &self.name;
            return Err(failed(
                format!("no case for '{language}' has '{name}' in its name or ability"),
                "run without -k to see all of them",
            ));
        }
        Ok(cases)
    }

    /// Runs cases and reports each. `Break` means that the reader is gone.
    async fn play(
        &self,
        cases: &[Case],
        subject: &Subject<Target>,
        report: &mut Report,
        output: &mut Output,
    ) -> CliResult<ControlFlow<()>> {
        let mut tell = |text: &str| {
            if self.json {
                Ok(ControlFlow::Continue(()))
            } else {
                output.write(text)
            }
        };
        let is_given = self.language_of_cases().is_some();
        let mut flow = tell(&headline(report, is_given, !self.cases.is_empty()))?;
        let mut reports = std::pin::pin!(subject.reports(cases));
        // The file of --junit gets all results even if the reader is gone.
        while (flow.is_continue() || self.junit.is_some())
            && let Some(case) = reports.next().await
        {
            flow = tell(&line(&case))?;
            report.cases.push(case);
        }
        Ok(flow)
    }

    /// Writes all results, in each requested form.
    fn deliver(&self, report: &Report, output: &mut Output) -> CliResult {
        if let Some(file) = &self.junit {
            std::fs::write(file, junit(report)).io_at(file.display())?;
        }
        let text = match (self.json, &report.problem) {
            // Strings, numbers and lists of them always serialize.
            (true, _) => {
                serde_json::to_string(report).expect("conform: a report is always JSON") + "\n"
            }
            (false, None) => summary(report),
            (false, Some(_)) => return Ok(()),
        };
        // If the reader is gone, the exit code still tells the result.
        output.write(text).map(drop)
    }

    /// Returns a pool's section with the cell that the options request.
    fn section(&self) -> CliResult<PoolConfig> {
        let absolute = |path: &PathBuf| {
            path.canonicalize().map_err(|error| {
                CliError::at(
                    Exit::Usage,
                    path.display(),
                    error,
                    "name an existing file or folder",
                )
            })
        };
        let paths = self.read_path.iter().map(absolute);
        let mut paths = paths.collect::<CliResult<Vec<PathBuf>>>()?;
        // The cell itself makes the program readable.
        let named = self
            .command
            .iter()
            .skip(1)
            .flat_map(|argument| of_own_file(Path::new(argument)));
        paths.extend(named);
        Ok(PoolConfig {
            cell: CellKeys {
                sandbox: Some(self.sandbox),
                read_paths: Some(paths),
                system_calls_allowed: Some(self.system_call.clone()),
                ..CellKeys::default()
            },
            ..PoolConfig::default()
        })
    }

    /// Returns the remedy for a command that is not a query server.
    fn hint(&self) -> CliResult<String> {
        let mut hint =
            "nothing was tested; correct the command, or give it more --timeout".to_owned();
        if !self.command.is_empty() && self.sandbox != SandboxMode::Off {
            let paths = self.section()?.cell.read_paths.unwrap_or_default();
            let beside: String = paths
                .iter()
                .map(|path| format!("{}, ", path.display()))
                .collect();
            hint.push_str(&format!(
                ". It runs in a cell (--sandbox {}), where it can read {beside}the folder of its program and /usr: \
                 --read-path adds to that, and --sandbox off shows whether the cell is the cause",
                self.sandbox
            ));
        }
        Ok(hint)
    }

    /// Reads the files of further cases. Refuses a language without cases.
    fn further(&self) -> CliResult<Vec<(&PathBuf, String)>> {
        if let Some(language) = self.language_of_cases()
            && !suite::LANGUAGES.contains(&language)
            && self.cases.is_empty()
        {
            let message = format!("there are no cases in '{language}'");
            let known = suite::LANGUAGES.join(", ");
            return Err(CliError::new(
                Exit::Usage,
                message,
                format!("name one of {known}, or give cases in it with --cases"),
            ));
        }
        self.cases
            .iter()
            .map(|file| {
                let text = std::fs::read_to_string(file).map_err(|error| {
                    CliError::at(
                        Exit::Data,
                        file.display(),
                        error,
                        "name a file of cases, one JSON object a line",
                    )
                })?;
                Ok((file, text))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_is_above_zero_and_at_most_an_hour() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "x", "NaN", "inf", "1e9"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
