//! `settee jobs restart` and the like: sends an order to all jobs of a selection.
//!
//! SUMMARY   Gets the jobs from the service, shows their number and reasons, asks the user, and then sends the order.
//! PROMISES  More than one job is affected only with `--yes` or after a confirmation on a terminal; if more jobs match
//!           by then than were counted, nothing is done. To cancel several jobs or delete documents on a terminal
//!           without `--yes`, the user types their number, or the name of a single one.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use settee_client::{BulkAnswer, BulkOrder, BulkOrderName, JobResult};

use super::super::exit::{CliError, Exit};
use super::super::output;
use super::super::service_socket::Service;
use super::super::table::{Layout, count, printable};
use super::list::{SelectArgs, groups};

/// The time limit of an order for many jobs.
const ORDER_TIMEOUT: Duration = Duration::from_secs(600);

/// Groups shown before the user is asked.
const GROUPS_SHOWN: usize = 10;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct OrderArgs {
    /// Documents or ids; * is any text, ? one character.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    options: OrderOptions,
}

#[derive(Clone, Debug, clap::Args)]
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

/// Sends an order to jobs.
pub(super) async fn order(
    service: &Service,
    name: BulkOrderName,
    args: &OrderArgs,
    json: bool,
) -> Result<(), CliError> {
    send(service, name, None, &args.names, &args.options, json).await
}

/// Sends an order to jobs; `priority` is set only in an order to change it.
pub(super) async fn send(
    service: &Service,
    name: BulkOrderName,
    priority: Option<i8>,
    names: &[String],
    options: &OrderOptions,
    json: bool,
) -> Result<(), CliError> {
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
    let ask = async |order: &BulkOrder| -> Result<BulkAnswer, CliError> {
        let path = "/_scheduler/_bulk";
        service.post_within(ORDER_TIMEOUT, path, order).await
    };
    let mut answer = ask(&order).await?;
    if answer.total == 0 {
        return Err(none(service, &answer));
    }
    if options.dry_run {
        let jobs = count(answer.total, "job", "jobs");
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
        if (answer.total > 1 || name == BulkOrderName::Delete) && !confirm(name, &answer)? {
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
    let message = "no job is named";
    let hint = "name documents or ids, select with --states, --match, --source, --target or --reason, or say --all";
    CliError::new(Exit::Usage, message, hint)
}

fn none(service: &Service, answer: &BulkAnswer) -> CliError {
    if answer.loading {
        let (socket, what) = (service.socket.display(), unknown(answer));
        return CliError::at(Exit::TryAgain, socket, what, GIVE_AGAIN);
    }
    let what = if answer.missing.is_empty() {
        "no job matches".to_owned()
    } else {
        format!("no such job: {}", printable(&answer.missing.join(", ")))
    };
    let hint = "`settee jobs` lists them";
    CliError::at(Exit::NotFound, service.socket.display(), what, hint)
}

/// The remedy if jobs are not known yet.
const GIVE_AGAIN: &str = "give the order again in a moment; `settee jobs` says when all are known";

/// Reports which jobs an order did not reach.
fn unknown(answer: &BulkAnswer) -> String {
    let jobs = match answer.unknown {
        0 => "jobs".to_owned(),
        some => format!("the jobs of {}", count(some, "document", "documents")),
    };
    format!("{jobs} are not known yet: the service is still loading its documents")
}

/// Asks the user to confirm the jobs; without a terminal, a single one needs no confirmation.
///
/// # Errors
/// There is no terminal to ask on for several jobs, or the terminal fails.
fn confirm(name: BulkOrderName, answer: &BulkAnswer) -> Result<bool, CliError> {
    let jobs = count(answer.total, "job", "jobs");
    let verb = verb(name);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        if answer.total == 1 {
            return Ok(true);
        }
        let message = format!("this would {verb} {jobs}, and there is no terminal to ask");
        let hint = "confirm with --yes; --dry-run shows them by reason";
        return Err(CliError::new(Exit::Usage, message, hint));
    }
    let shown = &answer.groups[..answer.groups.len().min(GROUPS_SHOWN)];
    let more = match answer.groups.len() - shown.len() {
        0 => String::new(),
        more => format!(".. and {more} more reasons\n"),
    };
    let loading = if answer.loading {
        format!("{}\n", unknown(answer))
    } else {
        String::new()
    };
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
pub(super) fn is_confirmed(question: &str, proof: Option<String>) -> Result<bool, CliError> {
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
    match name {
        BulkOrderName::Cancel | BulkOrderName::Delete => {}
        BulkOrderName::Restart
        | BulkOrderName::Pause
        | BulkOrderName::Resume
        | BulkOrderName::Priority => return None,
    }
    let one = answer.groups.first().filter(|_| answer.total == 1);
    Some(one.map_or_else(|| answer.total.to_string(), |one| one.example.clone()))
}

const fn verb(name: BulkOrderName) -> &'static str {
    match name {
        BulkOrderName::Restart => "restart",
        BulkOrderName::Pause => "pause",
        BulkOrderName::Resume => "resume",
        BulkOrderName::Priority => "change the priority of",
        BulkOrderName::Cancel => "cancel",
        BulkOrderName::Delete => "delete the documents of",
    }
}

const fn done(name: BulkOrderName) -> &'static str {
    match name {
        BulkOrderName::Restart => "restarted",
        BulkOrderName::Pause => "paused",
        BulkOrderName::Resume => "resumed",
        BulkOrderName::Priority => "given the new priority",
        BulkOrderName::Cancel => "cancelled",
        BulkOrderName::Delete => "deleted",
    }
}

/// Prints the result.
///
/// # Errors
/// The order failed for some jobs, names match no job, or the service is still loading its documents.
fn tell(name: BulkOrderName, answer: &BulkAnswer, json: bool) -> Result<(), CliError> {
    let lines = answer.results.iter().filter(|result| json || !result.ok);
    let mut text: String = lines.map(|result| line(result, json)).collect();
    let done = done(name);
    if !json {
        let told = match answer.told {
            0 => String::new(),
            told => format!("; {} of them passed to other daemons", told),
        };
        text += &format!("{} {done}{told}\n", count(answer.done, "job", "jobs"));
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
    match (has_failed, answer.loading) {
        (false, false) => Ok(()),
        (false, true) => Err(CliError::new(
            Exit::TryAgain,
            problems.join("; "),
            GIVE_AGAIN,
        )),
        (true, _) => {
            let hint = "the lines on standard output say why; `settee jobs` lists all jobs";
            Err(CliError::new(Exit::Data, problems.join("; "), hint))
        }
    }
}

fn line(result: &JobResult, json: bool) -> String {
    if json {
        return serde_json::to_string(result).unwrap_or_default() + "\n";
    }
    let name = result.document.as_ref().unwrap_or(&result.id);
    let text = format!("{name}: {}: {}", result.error, result.reason);
    printable(&text) + "\n"
}
