//! `settee jobs`: lists and controls replications.
//!
//! SUMMARY   Queries the running service over its socket; prints lists, jobs, and results of orders.

mod apply;
mod list;
mod order;
mod transfer;
mod verify;

use clap::Subcommand;
use json::shown::is_unprintable;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use settee_client::{BulkOrderName, JobsQuery};

use crate::actors::language::Registry;
use crate::client::path;
use crate::replicator::selection::is_pattern;

use super::exit::{CliError, CliResult, Exit};
use super::output;
use super::service_socket::{Service, SocketArgs, block_on};
use apply::{ApplyArgs, apply};
use list::{ListArgs, list, named, of_any_state, refused, usual};
pub(super) use list::{counted, counts};
use order::{OrderArgs, OrderOptions, send};
use transfer::{ExportArgs, ImportArgs, export, import};
use verify::{VerifyArgs, verify};

/// Maximum number of matches shown for a pattern.
const SHOWN_MAX: usize = 100;

/// Options of `settee jobs`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0   done
  64  the command line is wrong, or several jobs match without --yes or a terminal
  65  an order failed for some jobs; import: the file is damaged, or a document was not imported;
      verify: the target lacks something; apply: the file is wrong, or a document was not written
  66  there is no such job
  69  no service answers
  74  export: the file exists; reading or writing failed
  75  more jobs match than were shown, or the service has just started and does not know all jobs
      yet; export --offline, import --replace: a service runs on the store
  77  the socket or the store belongs to another user
  78  export --offline, import --replace: the configuration is wrong, or the database is unusable

Example:
  settee jobs --group-by reason
  settee jobs --states crashing --source 'http://db7.example:5984/*'
  settee jobs restart --reason 'database missing' --yes
  settee jobs pause shop 'customer-*'
  settee jobs export --secrets /backup/settee-monday.ndjson
  settee jobs apply fleet.toml --dry-run
  settee jobs verify shop --deep")]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON: one object a line, of each job, group or result.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Subcommand)]
enum Action {
    /// List jobs, those in trouble first; the default.
    ///
    /// PENDING is how many changes are still to come, PROGRESS the time since a job last made progress.
    #[command(after_long_help = "\
Example:
  settee jobs list --states crashing,error --wide")]
    List(ListArgs),
    /// Show jobs: their progress, events and errors.
    #[command(after_long_help = "\
Example:
  settee jobs show 'customer-*'")]
    Show {
        /// Its document or id; * is any text, ? one character.
        name: String,
    },
    /// List the latest 20 documents that the target of a job or completed replication refused.
    #[command(after_long_help = "\
Example:
  settee jobs refused shop")]
    Refused {
        /// Its document or id; * is any text, ? one character.
        name: String,
    },
    /// Stop jobs until they are resumed. Those with a document stay paused across restarts.
    #[command(after_long_help = "\
Example:
  settee jobs pause shop 'customer-*'")]
    Pause(OrderArgs),
    /// Let paused jobs run.
    #[command(after_long_help = "\
Example:
  settee jobs resume 'customer-*'")]
    Resume(OrderArgs),
    /// Restart jobs now, also paused ones, and forget their failures.
    ///
    /// Also restarts documents that failed for good or cannot start yet, and removes their result; completed ones only
    /// with --states completed.
    #[command(after_long_help = "\
Example:
  settee jobs restart --reason 'database missing' --yes
  settee jobs restart --states failed --match 'customer-*'")]
    Restart(OrderArgs),
    /// Cancel jobs of POST /_replicate. Pause or delete jobs of documents instead.
    #[command(after_long_help = "\
Example:
  settee jobs cancel --source 'http://db7.example:5984/*'")]
    Cancel(OrderArgs),
    /// Delete the documents of jobs, which ends the jobs.
    #[command(after_long_help = "\
Example:
  settee jobs delete shop")]
    Delete(OrderArgs),
    /// Write a snapshot of all replications into a file: a backup.
    ///
    /// A line per document, with its revision and its job's state; deletions, _local documents and the uuid too. The
    /// service keeps running. Without --secrets it has no credentials.
    #[command(after_long_help = "\
Example:
  settee jobs export --secrets /backup/settee-monday.ndjson")]
    Export(ExportArgs),
    /// Import documents of an export into the service, and print the result of each.
    ///
    /// The whole file is verified first. Existing documents stay unchanged. With --replace the export replaces a whole
    /// store, with revisions, deletions and the uuid; stop the services first.
    #[command(after_long_help = "\
Example:
  settee jobs import /backup/settee-monday.ndjson
  settee jobs import --replace /backup/settee-monday.ndjson")]
    Import(ImportArgs),
    /// Create, change and remove documents as a file describes: many replications at once.
    ///
    /// Shows the changes first, and asks. See docs/fleet.md.
    #[command(after_long_help = "\
Example:
  settee jobs apply fleet.toml --dry-run")]
    Apply(ApplyArgs),
    /// Compare both sides of a document's replication: print each revision that the target lacks. Of several jobs,
    /// print a line each, and a sum.
    ///
    /// As `settee replicate --verify=only`, with the document's source, target, credentials and filter. The job keeps
    /// running.
    #[command(after_long_help = "\
Example:
  settee jobs verify shop --deep
  settee jobs verify --all")]
    Verify(Box<VerifyArgs>),
    /// Set the priority of jobs.
    #[command(after_long_help = "\
Example:
  settee jobs priority shop 'customer-*' 10")]
    Priority {
        /// Documents or ids; * is any text, ? one character.
        #[arg(value_name = "NAME", required = true, allow_negative_numbers = true)]
        names: Vec<String>,
        /// From -128 to 127; higher runs sooner. 0 is normal.
        #[arg(allow_negative_numbers = true, required = true)]
        priority: i8,
        #[command(flatten)]
        options: OrderOptions,
    },
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args, languages: &Registry) -> CliResult {
    match &args.action {
        Some(Action::Verify(verify_args)) => {
            verify(&args.socket, verify_args, args.json, languages)
        }
        _ => block_on(carry_out(args, languages)),
    }
}

impl Args {
    /// Whether the subcommand handles passwords of replications.
    pub(super) fn holds_secrets(&self) -> bool {
        matches!(
            self.action,
            Some(Action::Verify(_) | Action::Apply(_) | Action::Export(_) | Action::Import(_))
        )
    }
}

async fn carry_out(args: &Args, languages: &Registry) -> CliResult {
    // A job that does not exist, or jobs that have changed meanwhile.
    let service = &Service::at(&args.socket, |socket, said| {
        let (code, hint) = match &*said.name {
            "not_found" => (Exit::NotFound, "`settee jobs` lists them"),
            "conflict" => (Exit::TryAgain, "run it again, and check what it asks"),
            _ => return None,
        };
        Some(CliError::at(code, socket.display(), said, hint))
    });
    let json = args.json;
    let order = async |name, args: &OrderArgs| {
        send(service, name, None, &args.names, &args.options, json).await
    };
    match &args.action {
        None => list(service, &args.list, json).await,
        Some(Action::List(args)) => list(service, args, json).await,
        Some(Action::Show { name }) => show(service, name, json).await,
        Some(Action::Refused { name }) => refused(service, name, json).await,
        Some(Action::Pause(args)) => order(BulkOrderName::Pause, args).await,
        Some(Action::Resume(args)) => order(BulkOrderName::Resume, args).await,
        Some(Action::Restart(args)) => order(BulkOrderName::Restart, args).await,
        Some(Action::Cancel(args)) => order(BulkOrderName::Cancel, args).await,
        Some(Action::Delete(args)) => order(BulkOrderName::Delete, args).await,
        Some(Action::Priority {
            names,
            priority,
            options,
        }) => {
            send(
                service,
                BulkOrderName::Priority,
                Some(*priority),
                names,
                options,
                json,
            )
            .await
        }
        Some(Action::Apply(args)) => apply(service, args, json, languages).await,
        // Already run, without a runtime.
        Some(Action::Verify(_)) => Ok(()),
        Some(Action::Export(args)) => export(service, args, languages).await,
        Some(Action::Import(args)) => import(service, args, json, languages).await,
    }
}

/// Prints a job, or a document that has no job; for a pattern, at most [`SHOWN_MAX`] jobs with matching names.
async fn show(service: &Service, name: &str, json: bool) -> CliResult {
    let jobs = if is_pattern(name) {
        let query = JobsQuery {
            limit: SHOWN_MAX,
            ..named(name, usual())
        };
        #[derive(serde::Deserialize)]
        struct Page {
            jobs: Vec<Box<RawValue>>,
        }
        service.get::<Page>(&query.path()).await?.jobs
    } else {
        match service.get(&path(["_scheduler", "jobs", name])).await {
            Ok(job) => vec![job],
            Err(error) => {
                // It may be a document without a job.
                let docs = of_any_state(service, name).await.unwrap_or_default();
                if docs.is_empty() {
                    return Err(error);
                }
                docs.iter()
                    .filter_map(|doc| to_raw_value(doc).ok())
                    .collect()
            }
        }
    };
    let mut texts = Vec::new();
    for one in &jobs {
        texts.push(if json {
            format!("{}\n", one.get())
        } else {
            job(&service.read("the answer about jobs", one)?)
        });
    }
    output::print(&texts.join(if json { "" } else { "\n" }))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.replace(is_unprintable, " "),
        other => other.to_string(),
    }
}

/// Formats a job: a line for each member, then its events.
fn job(value: &Value) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &Value| {
        text.push_str(&format!("{name:<30} {}\n", shown(value)));
    };
    for (name, member) in value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != "history")
    {
        match member {
            Value::Object(inner) => {
                inner
                    .iter()
                    .for_each(|(key, figure)| line(&format!("{name}.{key}"), figure));
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
