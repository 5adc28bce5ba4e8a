//! The command line: one file per subcommand.
//!
//! SUMMARY   Only [`DaemonBuilder::run`] parses the arguments, runs a subcommand and converts its result to an exit
//!           code.
//! PROMISES  The exit codes are those of [`exit::Exit`]; a panic ends the program with 70.

pub mod attach;
mod attach_pipes;
mod cell;
pub mod check_config;
pub mod completions;
pub mod config_args;
pub mod conform;
pub mod couchjs;
pub mod dashboard;
pub mod drain;
mod exit;
mod hardening;
pub mod health;
pub mod jobs;
pub mod kill;
pub mod logs;
mod man;
pub mod map;
pub mod output;
pub mod pool;
pub mod ps;
pub mod replicate;
pub mod serve;
pub mod service_manager;
pub mod service_socket;
pub mod status;
mod status_table;
mod table;
mod terminal;
pub mod top;
mod watch;

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use actix_rt::{System, SystemRunner};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::app::DaemonBuilder;
use child::watches::{self, WATCHES_MIN};
use exit::{CliError, CliResult, EVENT_LOOP, Exit, IoAt};

#[derive(Parser)]
#[command(
    name = "settee",
    about,
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_long_help = "\
Exit codes (those of sysexits.h):
  0   done
  1   conform: not all cases passed; check-config: a reload would be refused; status: a warning
  2   status: a critical problem
  64  the command line is wrong
  65  the input data is wrong
  66  something named does not exist
  69  the service does not answer
  70  a bug in settee
  74  reading or writing failed
  75  a temporary failure: try again later
  77  not permitted
  78  the configuration is wrong
  255 the process behind `attach` ended by itself

The configuration is described in config/default.toml and docs/configuration.md."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service in the foreground.
    ///
    /// Keeps pools of query servers and lends them to clients on a Unix socket. Prints where it
    /// listens once it is ready. Logs to standard error, or to the file that [log] file names.
    Serve(serve::Args),
    /// Validate the configuration and print every value with its origin.
    ///
    /// Reads the built-in defaults, the files named with -c in order, and the environment (SETTEE__SECTION__KEY and
    /// CouchDB's COUCHDB_QUERY_SERVER_LANGUAGE). Prints the result as TOML, with the origin of each value, and what has
    /// no effect, in comments.
    CheckConfig(check_config::Args),
    /// Act as a process of the running service: a couchjs for CouchDB that starts nothing.
    ///
    /// Standard input and output become those of a process of the service's pool. At the end of the input the remaining
    /// answers are delivered, and the process is reset and returned.
    Attach(attach::Args),
    /// Show the state of the running service: pools, processes and waiters.
    Status(status::Args),
    /// Show what each process of the running service is doing: its holder, function and time.
    Ps(ps::Args),
    /// End a process of the running service.
    ///
    /// Needs an administrator or an operator. The service logs who did it.
    Kill(kill::Args),
    /// Stop the running service from taking new work, before its machine is serviced.
    ///
    /// Work already taken may end; GET /_up makes load balancers avoid it. In a fleet the other daemons take over its
    /// replications.
    Drain(drain::Args),
    /// Acknowledge losses, so that they are no longer problems.
    Health(health::Args),
    /// Show the recent cost of functions: calls, errors and times.
    ///
    /// For each function of a design document and each kind of call, by database.
    Top(top::Args),
    /// Show what functions of a database log, and their errors.
    ///
    /// The service keeps the last lines of each database in memory.
    Logs(logs::Args),
    /// Show, pause, resume and restart replications, export and import their documents.
    ///
    /// Asks the running service over its socket. See docs/replication.md.
    Jobs(jobs::Args),
    /// Print a login link to the running service's dashboard.
    ///
    /// Asks the running service over its socket: no password is needed.
    Dashboard(dashboard::Args),
    /// Add, change and remove pools of the running service.
    ///
    /// A pool is a named set of processes of one language. Only the configuration sets the language's command.
    Pool(pool::Args),
    /// Run a view over documents, one JSON document a line, with as many processes as there are
    /// cores.
    ///
    /// Rows are printed as JSON objects, one per line, in the order of CouchDB's views. Without --socket the command
    /// starts its own processes.
    Map(map::Args),
    /// Replicate one database to another, in the foreground.
    ///
    /// Works between any databases that speak CouchDB's protocol, without a service. Shows its progress on standard
    /// error if that is a terminal, and ends with a summary. Run again, it resumes.
    Replicate(Box<replicate::Args>),
    /// Test any query server command against the conformance cases.
    ///
    /// Sends the command what CouchDB would send and compares the answers, in the language of its functions. Prints a
    /// line per case, and its abilities.
    Conform(conform::Args),
    /// The built-in JavaScript query server on standard input and output.
    ///
    /// A drop-in for CouchDB's couchjs, also when the program is called through a link of that name.
    #[command(disable_help_flag = true)]
    Couchjs(couchjs::Args),
    /// Print a shell completion script.
    Completions(completions::Args),
    /// Write the manual pages into a directory.
    #[command(hide = true)]
    Man(man::Args),
}

impl Command {
    /// Whether the subcommand holds others' passwords, or starts query servers.
    fn holds_secrets(&self) -> bool {
        match self {
            Self::Serve(_)
            | Self::CheckConfig(_)
            | Self::Map(_)
            | Self::Replicate(_)
            | Self::Conform(_) => true,
            Self::Jobs(args) => args.holds_secrets(),
            _ => false,
        }
    }
}

impl DaemonBuilder {
    /// Runs the program `settee` with its command line. `serve`, `map`, `conform` and all other subcommands know the
    /// languages.
    ///
    /// Call it first in `main`: it removes passwords from the environment, which requires a single thread.
    pub fn run(self) -> ExitCode {
        main(std::env::args_os().collect(), self)
    }
}

fn main(arguments: Vec<OsString>, builder: DaemonBuilder) -> ExitCode {
    if let Some(arguments) = couchjs::arguments_of(&arguments) {
        return couchjs::run(arguments);
    }
    if let Some(arguments) = cell::arguments_of(&arguments) {
        cell::run(arguments);
    }
    hardening::take_secrets();
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    // A panic must not end with an exit code that means something else to a service manager. Its message has already
    // been printed.
    match panic::catch_unwind(AssertUnwindSafe(|| dispatch(cli.command, builder))) {
        Ok(Ok(())) => Exit::Ok.into(),
        Ok(Err(error)) => error.report(),
        Err(_) => Exit::Internal.into(),
    }
}

/// Parses the command line.
fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut command = reflowed(Cli::command());
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Wraps the text below the options at the terminal's width rather than as in the source.
fn reflowed(command: clap::Command) -> clap::Command {
    let below = command.get_after_long_help().map(ToString::to_string);
    let command = match below {
        Some(text) => command.after_long_help(joined_lines(&text)),
        None => command,
    };
    command.mut_subcommands(reflowed)
}

/// Joins the lines of each paragraph, and of each list entry; examples are kept.
fn joined_lines(text: &str) -> String {
    let mut joined = String::new();
    let mut can_go_on = false;
    for line in text.lines() {
        let indentation = line.len() - line.trim_start().len();
        let goes_on = can_go_on
            && !line.is_empty()
            && (indentation == 0 || indentation > EXAMPLE_INDENTATION);
        joined.push_str(if goes_on { " " } else { "\n" });
        joined.push_str(if goes_on { line.trim_start() } else { line });
        // A title stands alone.
        can_go_on = !line.is_empty() && !line.ends_with(':');
    }
    joined.split_off(1.min(joined.len()))
}

/// Indentation of an example's second line; that of a list entry is larger.
const EXAMPLE_INDENTATION: usize = 4;

/// Makes the event loop of a subcommand with actors.
fn system() -> CliResult<SystemRunner> {
    // `System::new` panics if it cannot create the event loop.
    watches::require(WATCHES_MIN).map_err(|error| CliError::no_room(EVENT_LOOP, &error))?;
    Ok(System::new())
}

fn dispatch(command: Command, builder: DaemonBuilder) -> CliResult {
    if command.holds_secrets() {
        // First, because it runs programs that gain privileges when started, which the hardening forbids.
        child::cell::subordinate::prepare();
        hardening::harden().io_at("the protection of this process")?;
    }
    let languages = &builder.languages;
    match command {
        Command::Serve(args) => serve::run(&args, builder),
        Command::CheckConfig(args) => check_config::run(&args, languages),
        Command::Attach(args) => attach::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Ps(args) => ps::run(&args),
        Command::Kill(args) => kill::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Logs(args) => logs::run(&args),
        Command::Jobs(args) => jobs::run(&args, languages),
        Command::Dashboard(args) => dashboard::run(&args),
        Command::Pool(args) => pool::run(&args),
        Command::Map(args) => map::run(&args, languages),
        Command::Replicate(args) => replicate::run(&args, languages),
        Command::Conform(args) => conform::run(&args, languages),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        // `main` has run it, with its own parsing of the command line.
        Command::Couchjs(_) => Ok(()),
    }
}

/// Prints help, version or the mistake in the command line.
fn usage(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if error.use_stderr() {
        // A closed reader leaves no one to report to.
        return Exit::Usage.into();
    }
    // The standard library may have buffered unwritten text.
    match printed.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            CliError::io("standard output", &error).report()
        }
        _ => Exit::Ok.into(),
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn text_below_the_options_is_wrapped_only_once() {
        let text = "One line\nand another one.\n\nExit codes:\n  0   done\n  64  wrong, in words\n      for two lines\n\nExample:\n  a \\\n    b\n  c";
        let joined = "One line and another one.\n\nExit codes:\n  0   done\n  64  wrong, in words for two lines\n\nExample:\n  a \\\n    b\n  c";
        assert_eq!(joined_lines(text), joined);
        assert_eq!(joined_lines(""), "");
        let mut command = reflowed(Cli::command()).term_width(80);
        command.build();
        let map = command.find_subcommand_mut("map").unwrap();
        let help = map.render_long_help().to_string();
        assert!(
            help.lines()
                .all(|line| line.len() <= 80 || line.starts_with("  ")),
            "{help}"
        );
        assert!(!help.contains("A\nbuilt-in\n"), "{help}");
    }

    #[test]
    fn every_action_on_jobs_and_pools_has_an_example() {
        let command = Cli::command();
        for name in ["jobs", "pool"] {
            for action in command.find_subcommand(name).unwrap().get_subcommands() {
                let help = action.get_after_long_help().map(ToString::to_string);
                let example = format!("settee {name} {}", action.get_name());
                let help = help.unwrap_or_default();
                assert!(
                    help.contains(&example),
                    "{name} {}: {help}",
                    action.get_name()
                );
            }
        }
    }

    #[test]
    fn every_subcommand_has_exit_codes_and_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command
                .get_after_long_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(help.contains("Exit codes:"), "{}", command.get_name());
            assert!(help.contains("Example:"), "{}", command.get_name());
        }
    }

    /// Returns the exit codes in a help text.
    fn codes(command: &clap::Command) -> Vec<u8> {
        let help = command.get_after_long_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let (_, listed) = help.split_once("Exit codes").expect("the exit codes");
        let listed = listed.split("\n\n").next().unwrap_or_default().to_owned();
        let first = |line: &str| line.split_whitespace().next()?.parse().ok();
        listed.lines().filter_map(first).collect()
    }

    #[test]
    fn the_main_help_lists_all_exit_codes_and_the_help_of_a_subcommand_only_those() {
        let command = Cli::command();
        let known: Vec<u8> = Exit::VARIANTS.iter().map(|exit| *exit as u8).collect();
        assert_eq!(codes(&command), known);
        // couchjs has the codes of the program that it is named after.
        let others = command
            .get_subcommands()
            .filter(|c| c.get_name() != "couchjs");
        for subcommand in others {
            let told = codes(subcommand);
            assert!(
                told.is_sorted() && !told.is_empty(),
                "{}",
                subcommand.get_name()
            );
            let strange = told.iter().find(|code| !known.contains(code));
            assert_eq!(strange, None, "{}", subcommand.get_name());
        }
    }

    #[test]
    fn the_page_on_operations_lists_every_exit_code_of_status() {
        let page = include_str!("../../docs/operations.md");
        let (_, table) = page.split_once("| exit code |").expect("the table");
        let table = table.split("\n\n").next().unwrap_or_default();
        let first = |row: &str| row.split('|').nth(1)?.trim().parse().ok();
        let listed: Vec<u8> = table.lines().filter_map(first).collect();
        assert_eq!(
            listed,
            codes(Cli::command().find_subcommand("status").unwrap())
        );
    }
}
