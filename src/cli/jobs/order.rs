//! `settee jobs restart` and the like: sends an order to all jobs of a selection.
//!
//! SUMMARY   Gets the jobs from the service, shows their number and reasons, asks the user, and then sends the order.
//! PROMISES  More than one job is affected only with `--yes` or after a confirmation on a terminal; if more jobs match
//!           by then than were counted, nothing is done. To cancel several jobs or delete documents on a terminal
//!           without `--yes`, the user types their number, or the name of a single one.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use settee_client::BulkOrderName::{self, Cancel, Delete, Pause, Priority, Restart, Resume};
use settee_client::{BulkAnswer, BulkOrder, JobResult};

use super::super::exit::{CliError, CliResult, Exit};
use super::super::output::{self, json_or};
use super::super::service_socket::Service;
use super::super::table::{Layout, count, printable};
use super::list::{SelectArgs, groups};

/// The time limit of an order for many jobs.
const ORDER_TIMEOUT: Duration = Duration::from_secs(600);

/// Groups shown before the user is asked.
const GROUPS_SHOWN: usize = 10;

#[derive(clap::Args)]
pub(super) struct OrderArgs {
    /// Documents or ids; * is any text, ? one character.
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,
    #[command(flatten)]
    pub(super) options: OrderOptions,
}

#[derive(clap::Args)]
pub(super) struct OrderOptions {
    #[command(flatten)]
    select: SelectArgs,
    /// All jobs.
    #[arg(long)]
    all: bool,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Only list the jobs.
    #[arg(long)]
    dry_run: bool,
}

/// Sends an order to jobs; `priority` is set only in an order to change it.
pub(super) async fn send(
    service: &Service,
    name: BulkOrderName,
    priority: Option<i8>,
    names: &[String],
    options: &OrderOptions,
    json: bool,
) -> CliResult {
    let mut select = options.select.selection(names);
    select.all = options.all;
    if select.is_empty() {
        return Err(nothing_named());
    }
    let mut order = BulkOrder {
        order: name,
        priority,
        select,
        dry_run: options.dry_run || !options.yes,
        expect: None,
    };
    let ask = async |order: &BulkOrder| -> CliResult<BulkAnswer> {
        service
            .answer_within(
                ORDER_TIMEOUT,
                service.operator.post("/_scheduler/_bulk", order),
            )
            .await
    };
    let mut answer = ask(&order).await?;
    if answer.total == 0 {
        return Err(none(service, &answer));
    }
    if options.dry_run {
        let jobs = count(answer.total, "job");
        output::print(&format!(
            "{}{jobs}\n",
            groups(&answer.groups, Layout::default())
        ))?;
        return if answer.loading {
            Err(CliError::new(Exit::TryAgain, unknown(&answer), GIVE_AGAIN))
        } else {
            Ok(())
        };
    }
    if order.dry_run {
        if (answer.total > 1 || name == Delete) && !confirm(name, &answer)? {
            return output::print("nothing was done\n");
        }
        order.dry_run = false;
        order.expect = Some(answer.total);
        answer = ask(&order).await?;
        if answer.total == 0 {
            return Err(none(service, &answer));
        }
    }
    tell(name, &answer, json)
}

/// Returns the error of an order that neither names nor selects jobs.
pub(super) fn nothing_named() -> CliError {
    CliError::new(
        Exit::Usage,
        "no job is named",
        "name documents or ids, select with --states, --match, --source, --target or --reason, or say --all",
    )
}

fn none(service: &Service, answer: &BulkAnswer) -> CliError {
    let socket = service.socket.display();
    if answer.loading {
        return CliError::at(Exit::TryAgain, socket, unknown(answer), GIVE_AGAIN);
    }
    let what = if answer.missing.is_empty() {
        "no job matches".to_owned()
    } else {
        format!("no such job: {}", printable(&answer.missing.join(", ")))
    };
    CliError::at(Exit::NotFound, socket, what, "`settee jobs` lists them")
}

/// The remedy if jobs are not known yet.
const GIVE_AGAIN: &str = "give the order again in a moment; `settee jobs` says when all are known";

/// Reports which jobs an order did not reach.
fn unknown(answer: &BulkAnswer) -> String {
    let jobs = match answer.unknown {
        0 => "jobs".to_owned(),
        some => format!("the jobs of {}", count(some, "document")),
    };
    format!("{jobs} are not known yet: the service is still loading its documents")
}

/// Asks the user to confirm the jobs; without a terminal, a single one needs no confirmation.
///
/// # Errors
/// There is no terminal to ask on for several jobs, or the terminal fails.
fn confirm(name: BulkOrderName, answer: &BulkAnswer) -> CliResult<bool> {
    let jobs = count(answer.total, "job");
    let (verb, _) = words(name);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        if answer.total == 1 {
            return Ok(true);
        }
        return Err(CliError::new(
            Exit::Usage,
            format!("this would {verb} {jobs}, and there is no terminal to ask"),
            "confirm with --yes; --dry-run shows them by reason",
        ));
    }
    let shown = &answer.groups[..answer.groups.len().min(GROUPS_SHOWN)];
    let more = match answer.groups.len() - shown.len() {
        0 => String::new(),
        more => format!(".. and {more} more reasons\n"),
    };
    let loading = answer.loading.then(|| unknown(answer) + "\n");
    let loading = loading.unwrap_or_default();
    let question = format!(
        "{}{more}{loading}{verb} {jobs}?",
        groups(shown, Layout::default())
    );
    is_confirmed(&question, proof(name, answer))
}

/// Asks a question on standard error, and reads a yes, or the proof if one must be typed.
///
/// # Errors
/// The terminal fails.
pub(super) fn is_confirmed(question: &str, proof: Option<String>) -> CliResult<bool> {
    let choice = proof.as_ref().map_or_else(
        || "[y/N]".to_owned(),
        |proof| format!("Type {} to do it:", printable(proof)),
    );
    let failed = |error| CliError::io("the terminal", &error);
    write!(io::stderr(), "{question} {choice} ").map_err(failed)?;
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(failed)?;
    Ok(match proof {
        Some(proof) => line.trim() == proof,
        None => matches!(line.trim(), "y" | "Y" | "yes"),
    })
}

/// Returns the text to type if a yes is not enough: the name of a single job, or the number of jobs.
fn proof(name: BulkOrderName, answer: &BulkAnswer) -> Option<String> {
    if !matches!(name, Cancel | Delete) {
        return None;
    }
    let one = answer.groups.first().filter(|_| answer.total == 1);
    Some(one.map_or_else(|| answer.total.to_string(), |one| one.example.clone()))
}

/// Returns what an order does, and what it has done, in words.
const fn words(name: BulkOrderName) -> (&'static str, &'static str) {
    match name {
        Restart => ("restart", "restarted"),
        Pause => ("pause", "paused"),
        Resume => ("resume", "resumed"),
        Priority => ("change the priority of", "given the new priority"),
        Cancel => ("cancel", "cancelled"),
        Delete => ("delete the documents of", "deleted"),
    }
}

/// Prints the result.
///
/// # Errors
/// The order failed for some jobs, names match no job, or the service is still loading its documents.
fn tell(name: BulkOrderName, answer: &BulkAnswer, json: bool) -> CliResult {
    let lines = answer.results.iter().filter(|result| json || !result.ok);
    let mut text: String = lines.map(|result| line(result, json)).collect();
    let (_, done) = words(name);
    if !json {
        let told = match answer.told {
            0 => String::new(),
            told => format!("; {} of them passed to other daemons", told),
        };
        text += &format!("{} {done}{told}\n", count(answer.done, "job"));
    }
    output::print(&text)?;
    let mut problems = Vec::new();
    if answer.failed > 0 {
        let failed = answer.failed;
        problems.push(format!("{failed} of {} jobs were not {done}", answer.total));
    }
    if !answer.missing.is_empty() {
        let missing = printable(&answer.missing.join(", "));
        problems.push(format!("no such job: {missing}"));
    }
    let has_failed = !problems.is_empty();
    if answer.loading {
        problems.push(unknown(answer));
    }
    let (code, hint) = match (has_failed, answer.loading) {
        (false, false) => return Ok(()),
        (false, true) => (Exit::TryAgain, GIVE_AGAIN),
        (true, _) => (
            Exit::Data,
            "the lines on standard output say why; `settee jobs` lists all jobs",
        ),
    };
    Err(CliError::new(code, problems.join("; "), hint))
}

fn line(result: &JobResult, json: bool) -> String {
    json_or(json, result, || {
        let name = result.document.as_ref().unwrap_or(&result.id);
        printable(&format!("{name}: {}: {}", result.error, result.reason)) + "\n"
    })
}
