//! `settee status`: what the running service is doing.
//!
//! SUMMARY   Asks the service and prints a table, or everything as one JSON value; with `--watch` repeatedly until
//!           interrupted; with `--check` only the problems, for monitoring.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use settee_client::{FleetHealth, Health, Problem};

use crate::query_server::status::DaemonStatus;

use super::exit::{CliError, CliResult, Exit};
use super::jobs::{counted, counts};
use super::output::print;
use super::service_socket::{Service, SocketArgs, block_on};
use super::status_table::{daemons, table};
use super::table::{Layout, count, duration, printable, shortened};
use super::watch::WatchArgs;

/// Options of `settee status`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0   the state was printed, or with --watch the output was closed; with --check: no problems
  1   with --check: warnings only, the service works
  2   with --check: a critical problem
  64  the command line is wrong
  69  no service answers
  74  writing standard output failed
  77  the socket belongs to another user

Example:
  settee status --watch
  settee status --check --fleet
  settee status --check && echo \"no problems\"")]
pub struct Args {
    /// Print the problems, one per line; exit like a monitoring plugin.
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    check: bool,
    /// Print the problems of all daemons of the fleet; each line names its daemon.
    #[arg(long, requires = "check")]
    fleet: bool,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Where problems are listed.
const HEALTH: &str = "/_health";

/// Maximum number of problems shown before the tables.
const PROBLEMS_SHOWN: usize = 10;

/// Where the daemons of a fleet are listed.
const FLEET: &str = "/_fleet";

/// Returns a line of JSON: the service's status, version and problems, the counts of jobs, and the fleet.
async fn everything(service: &Service, status: &RawValue) -> CliResult<String> {
    let mut all: Map<String, Value> = service.read("the status", status)?;
    let health: Health = service.get(HEALTH).await?;
    all.insert("version".to_owned(), health.version.into());
    all.insert("problems".to_owned(), json!(health.problems));
    // An unreachable store must not hide the pools.
    let jobs = counts(service).await.unwrap_or_default();
    all.insert("jobs".to_owned(), jobs);
    all.insert("fleet".to_owned(), service.get(FLEET).await?);
    Ok(format!("{}\n", Value::Object(all)))
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args) -> CliResult {
    block_on(async {
        let service = args.socket.service();
        if args.check {
            return if args.fleet {
                check_fleet(&service.get(&format!("{HEALTH}?fleet=true")).await?)
            } else {
                check(&service.get(HEALTH).await?)
            };
        }
        let ask = async || {
            let status: Box<RawValue> = service.get("/_status").await?;
            if args.watch.json {
                return everything(&service, &status).await;
            }
            let status = service.read::<DaemonStatus>("the status", &status)?;
            let layout = args.watch.table.layout();
            let daemons = daemons(&service.get(FLEET).await?, layout);
            let problems = problems(&service.get(HEALTH).await?, layout);
            let counted = counted(&service).await.unwrap_or_default();
            let replications =
                counted.map_or_else(String::new, |counts| format!("\nreplications: {counts}"));
            Ok(problems + &table(&status, layout) + &replications + &daemons)
        };
        args.watch.show(ask).await
    })
}

/// Returns two lines for each of the first problems, cut to the terminal's width, the number of the others, and an
/// empty line; empty without problems.
fn problems(health: &Health, layout: Layout) -> String {
    let fitting = |line: &str| shortened(line, layout.width.unwrap_or(usize::MAX)) + "\n";
    let text: String = health
        .problems
        .iter()
        .take(PROBLEMS_SHOWN)
        .map(|problem| {
            let Problem { cause, remedy, .. } = problem;
            fitting(&printable(&format!("{}: {cause}", name("", problem))))
                + &fitting(&printable(&format!("  {remedy}")))
        })
        .collect();
    match health.problems.len().saturating_sub(PROBLEMS_SHOWN) {
        0 if text.is_empty() => text,
        0 => text + "\n",
        more => format!("{text}{more} more: settee status --check\n\n"),
    }
}

/// Returns a problem's severity, kind and subject; `whose` precedes the kind.
fn name(whose: &str, problem: &Problem) -> String {
    let (severity, kind) = (
        problem.severity.to_uppercase(),
        problem.kind.replace('_', " "),
    );
    format!("{severity}: {whose}{kind}: {}", problem.subject)
}

/// Prints the problems of the service.
fn check(health: &Health) -> CliResult {
    let lines = health.problems.iter().map(|problem| line("", problem));
    print(&lines.collect::<String>())?;
    checked(&health.status, health.problems.len())
}

/// Prints the problems of all daemons, critical ones first, and the daemons that have not reported.
fn check_fleet(health: &FleetHealth) -> CliResult {
    let daemons = || health.daemons.iter();
    let all = daemons().flat_map(|told| told.problems.iter().map(move |one| (told, one)));
    let mut all: Vec<(&Health, &Problem)> = all.collect();
    all.sort_by_key(|(_, problem)| problem.severity != "critical");
    let mut text: String = all
        .iter()
        .map(|(told, one)| line(&format!("{}: ", told.daemon), one))
        .collect();
    let further = daemons().filter(|told| told.omitted > 0).map(|told| {
        format!(
            "{}: {} further problems: settee status --check on its machine lists all",
            told.daemon, told.omitted
        )
    });
    let silent = daemons().filter(|told| told.status == "unknown").map(|told| {
        format!(
            "UNKNOWN: {}: it has not reported problems: it has just started, or is of an earlier version",
            told.daemon
        )
    });
    text.extend(further.chain(silent).map(|told| printable(&told) + "\n"));
    print(&text)?;
    let omitted: u64 = daemons().map(|told| told.omitted).sum();
    checked(&health.status, all.len() + omitted as usize)
}

/// Returns a problem's line for `--check`.
fn line(whose: &str, problem: &Problem) -> String {
    let Problem { cause, remedy, .. } = problem;
    let lasted = duration(problem.lasted_s.saturating_mul(1000));
    let name = name(whose, problem);
    printable(&format!("{name}: {cause} (for {lasted}): {remedy}")) + "\n"
}

/// Returns an error with the exit code for `status` and the number of problems, unless `status` is `ok`.
fn checked(status: &str, problems: usize) -> CliResult {
    let code = match status {
        "ok" => return Ok(()),
        "critical" => Exit::Critical,
        _ => Exit::Failed,
    };
    Err(CliError::new(
        code,
        count(problems, "problem"),
        "each line says what to do",
    ))
}
