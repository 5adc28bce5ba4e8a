//! `settee jobs`: what replications do, and what they are to do.
//!
//! SUMMARY   Asks the running service over its socket; prints a table, a job, or the value as it came.

mod apply;
mod transfer;
mod verify;

use std::path::Path;

use clap::Subcommand;
use serde_json::Value;

use crate::actors::language::Registry;
use crate::client::ServiceError;
use crate::replicator::{JobOrder, PAUSED, STATES};

use super::exit::{CliError, Exit};
use super::output;
use super::service_socket::{Service, SocketArgs, block_on};
use super::table::{Cell, columns, count, number, text};
use apply::{ApplyArgs, apply};
use transfer::{ExportArgs, ImportArgs, export, import};
use verify::{VerifyArgs, verify};

/// Jobs that are listed unless told.
const LIMIT: usize = 1000;

/// Options of `settee jobs`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0   done
  64  the command line is wrong
  65  import: a line is wrong, or a document was not imported; verify: the target does not hold
      everything; apply: the file is wrong, or a document was not written
  69  no service answers, or there is no such job
  74  export: the file is there already; reading or writing failed
  77  the socket belongs to another user

Example:
  settee jobs list --states crashing,pending
  settee jobs pause 8f5b1bd0be6f9166ccfd36fc8be8fc22+continuous
  settee jobs export --secrets /backup/settee-monday.ndjson
  settee jobs apply fleet.toml --dry-run
  settee jobs verify shop --deep")]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print the value as the service sends it: one JSON object on one line.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Clone, Debug, Default, clap::Args)]
struct ListArgs {
    /// Only jobs in these states, with commas between them: running, pending, crashing, paused.
    #[arg(long, value_delimiter = ',', value_parser = state)]
    states: Vec<String>,
    /// At most as many.
    #[arg(long, default_value_t = LIMIT)]
    limit: usize,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List jobs, in the order of their ids; what `settee jobs` does by itself.
    List(ListArgs),
    /// Show a job: how far it is, what happened to it, why it does not run.
    Show {
        /// The job's id, as `list` shows it.
        id: String,
    },
    /// Stop a job until it is resumed. One with a document stays paused over restarts.
    Pause {
        /// The job's id.
        id: String,
    },
    /// Let a paused job run.
    Resume {
        /// The job's id.
        id: String,
    },
    /// Begin a job anew now, its failures forgotten.
    Restart {
        /// The job's id.
        id: String,
    },
    /// Write the documents of all replications, one JSON document a line: a backup.
    ///
    /// The service goes on meanwhile. Without --secrets there are no credentials in it.
    Export(ExportArgs),
    /// Write documents of an export into the service, and say of each what became of it.
    ///
    /// A document of the same id that is there already stays as it is.
    Import(ImportArgs),
    /// Have the service hold the documents that a file describes: many replications at once.
    ///
    /// Shows what is added, changed and removed, and asks. See docs/fleet.md.
    Apply(ApplyArgs),
    /// Compare both sides of a document's replication: tell each revision that the target lacks.
    ///
    /// As `settee replicate --verify=only`, with the document's source, target, credentials and
    /// filter. The job goes on meanwhile.
    Verify(VerifyArgs),
    /// Give a job another priority.
    Priority {
        /// The job's id.
        id: String,
        /// From -128 to 127; the higher, the sooner its turn. 0 is ordinary.
        #[arg(allow_negative_numbers = true)]
        priority: i8,
    },
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args, languages: &Registry) -> Result<(), CliError> {
    match &args.action {
        Some(Action::Verify(verify_args)) => {
            verify(&args.socket, verify_args, args.json, languages)
        }
        _ => block_on(carry_out(args)),
    }
}

impl Args {
    /// Whether it learns passwords of others.
    pub(super) fn holds_secrets(&self) -> bool {
        matches!(self.action, Some(Action::Verify(_) | Action::Apply(_)))
    }
}

async fn carry_out(args: &Args) -> Result<(), CliError> {
    let service = Service::connect(&args.socket, no_such_job).await?;
    let client = &service.client;
    let list = async |list: &ListArgs| {
        let jobs = client.jobs(0, list.limit, &list.states);
        service.answer(jobs).await
    };
    let order = async |id: &str, order| service.answer(client.order_job(id, order)).await;
    type ToText = fn(&Value) -> String;
    let (to_text, answer): (ToText, _) = match &args.action {
        None => (table, list(&args.list).await?),
        Some(Action::List(args)) => (table, list(args).await?),
        Some(Action::Show { id }) => (job, service.answer(client.job(id)).await?),
        Some(Action::Pause { id }) => (job, order(id, JobOrder::Pause).await?),
        Some(Action::Resume { id }) => (job, order(id, JobOrder::Resume).await?),
        Some(Action::Restart { id }) => (job, order(id, JobOrder::Restart).await?),
        Some(Action::Priority { id, priority }) => {
            (job, order(id, JobOrder::Priority(*priority)).await?)
        }
        Some(Action::Apply(apply_args)) => return apply(&service, apply_args, args.json).await,
        // It has been run without a runtime around it.
        Some(Action::Verify(_)) => return Ok(()),
        Some(Action::Export(args)) => return export(&service, args).await,
        Some(Action::Import(import_args)) => return import(&service, import_args, args.json).await,
    };
    let text = match args.json {
        true => format!("{}\n", answer.get()),
        false => to_text(&service.read("the answer about jobs", &answer)?),
    };
    output::print(&text)
}

/// Says where jobs are to be seen, when there is none of that id.
fn no_such_job(socket: &Path, said: &ServiceError) -> Option<CliError> {
    let hint = "`settee jobs` lists them";
    (said.name == "not_found")
        .then(|| CliError::at(Exit::Unavailable, socket.display(), said, hint))
}

fn state(text: &str) -> Result<String, String> {
    let word = text.trim().to_ascii_lowercase();
    match STATES.contains(&word.as_str()) || word == PAUSED {
        true => Ok(word),
        false => Err(format!("a state is one of {}, {PAUSED}", STATES.join(", "))),
    }
}

/// Returns jobs as a table for people.
fn table(value: &Value) -> String {
    let jobs = value["jobs"].as_array().map_or(&[][..], Vec::as_slice);
    let total = usize::try_from(value["total_rows"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let first = match jobs.len() < total {
        true => format!(", the first {}", jobs.len()),
        false => String::new(),
    };
    let gap = if jobs.is_empty() { "" } else { "\n" };
    let table = columns(jobs.iter().map(row));
    format!("{}{first}\n{gap}{table}", count(total, "job", "jobs"))
}

fn row(job: &Value) -> Vec<Cell> {
    let info = |name: &str| Some(shown(&job["info"][name]));
    let state = match job["paused"].is_object() {
        true => "paused".to_owned(),
        false => shown(&job["state"]),
    };
    let way = format!("{} -> {}", shown(&job["source"]), shown(&job["target"]));
    vec![
        text("STATE", Some(state)),
        number("READ", info("docs_read")),
        number("WRITTEN", info("docs_written")),
        number("REFUSED", info("doc_write_failures")),
        number("PENDING", info("changes_pending")),
        number("ERRORS", Some(shown(&job["error_count"]))),
        text("DOCUMENT", Some(shown(&job["doc_id"]))),
        text("FROM -> TO", Some(way)),
        text("ID", Some(shown(&job["id"]))),
    ]
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.replace(|c: char| c.is_control(), " "),
        other => other.to_string(),
    }
}

/// Returns a job for people: a line a member, then what happened.
fn job(value: &Value) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &Value| {
        text.push_str(&format!("{name:<30} {}\n", shown(value)));
    };
    let members = value.as_object().into_iter().flatten();
    for (name, member) in members.filter(|(name, _)| *name != "history") {
        match member {
            Value::Object(inner) => {
                let figures = inner.iter();
                figures.for_each(|(key, figure)| line(&format!("{name}.{key}"), figure));
            }
            member => line(name, member),
        }
    }
    for event in value["history"].as_array().into_iter().flatten() {
        let reason = match &event["reason"] {
            Value::Null => String::new(),
            reason => format!(" {}", shown(reason)),
        };
        let (at, what) = (shown(&event["timestamp"]), shown(&event["type"]));
        text.push_str(format!("{at} {what}{reason}").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_has_a_line_a_job() {
        let jobs = json!({"total_rows": 2, "offset": 0, "jobs": [
            {"id": "a+continuous", "state": "running", "doc_id": "d", "source": "http://s/a/",
             "target": "http://t/b/", "info": {"docs_read": 12, "docs_written": 11,
             "doc_write_failures": 1, "changes_pending": null}, "error_count": 0},
            {"id": "b", "state": "pending", "doc_id": null, "paused": {"by": "x"}, "info": null,
             "source": "http://s/c/", "target": "http://t/d/", "error_count": 3},
        ]});
        let expected = "\
2 jobs

STATE    READ  WRITTEN  REFUSED  PENDING  ERRORS  DOCUMENT  FROM -> TO                  ID
running    12       11        1        -       0  d         http://s/a/ -> http://t/b/  a+continuous
paused      -        -        -        -       3  -         http://s/c/ -> http://t/d/  b
";
        assert_eq!(table(&jobs), expected);
        let none = json!({"total_rows": 0, "jobs": []});
        assert_eq!(table(&none), "0 jobs\n");
    }

    #[test]
    fn a_job_is_shown_with_what_happened_to_it() {
        let value = json!({"id": "a", "info": {"docs_read": 1}, "history": [
            {"timestamp": "2017", "type": "crashed", "reason": "why\u{7}"},
            {"timestamp": "2016", "type": "added"},
        ]});
        let text = job(&value);
        assert!(text.contains("info.docs_read"), "{text}");
        assert!(text.ends_with("2017 crashed why\n2016 added\n"), "{text}");
    }
}
