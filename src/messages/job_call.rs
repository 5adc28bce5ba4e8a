//! The client socket's calls about jobs of replications.
//!
//! SOURCE    The names are our own; what is shown is CouchDB's `_scheduler/jobs`.

use serde_json::value::RawValue;
use settee_client::{BulkOrder, BulkOrderName, JobSelection, JobsQuery};

use crate::auth::rights::Right;
use crate::messages::arguments::{Arguments, Parsed, missing, wrong};
use crate::messages::client_error::ErrorReply;
use crate::replicator::{JobOrder, PAUSED, STATES};
use policy::schedule::JobState;

/// Jobs that are listed unless told.
const LIMIT: usize = 100;

/// A call about jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobCall {
    /// List jobs.
    List(JobsQuery),
    /// Tell all jobs of a selection what to do.
    OrderMany(BulkOrder),
    /// List the daemons that share the store.
    Daemons,
    /// Show one.
    Show {
        /// Its id, or its document's.
        job: String,
    },
    /// Send some documents of `_replicator`.
    Export {
        /// Only those after this id.
        after: Option<String>,
        /// Whether with credentials.
        secrets: bool,
    },
    /// Write documents of an export.
    Import {
        /// JSON texts.
        docs: Vec<String>,
        /// Whether in place of others of the same ids.
        replace: bool,
    },
    /// Write documents of `_replicator`, also deletions, each over the revision that it names.
    Write {
        /// JSON texts.
        docs: Vec<String>,
    },
    /// Tell one what to do.
    Order {
        /// Its id, or its document's.
        job: String,
        /// What.
        order: JobOrder,
    },
}

impl JobCall {
    /// The names of the calls.
    pub const NAMES: &[&str] = &[
        "jobs",
        "order_jobs",
        "job",
        "daemons",
        "pause_job",
        "resume_job",
        "restart_job",
        "set_job_priority",
        "export_jobs",
        "import_jobs",
        "write_jobs",
    ];

    /// Returns the right that it takes.
    pub(super) fn takes(&self) -> Right {
        match self {
            // Which documents there are is for fewer than which jobs.
            Self::List(query) if has_doc_states(&query.select) => Right::Inspect,
            Self::List(_) | Self::Show { .. } | Self::Daemons => Right::Look,
            Self::OrderMany(order) => right_of(order.order),
            Self::Order { .. } => Right::Operate,
            Self::Export { .. } | Self::Import { .. } | Self::Write { .. } => Right::Administer,
        }
    }

    /// Makes the call `name` of its arguments.
    pub(super) fn of(name: &str, arguments: &Arguments<'_>) -> Parsed<Self> {
        let count = |name| arguments.read::<usize>(name, "a whole number");
        let job = || arguments.string("job");
        let order = |order| Ok(Self::Order { job: job()?, order });
        match name {
            "jobs" => {
                let mut select = selection(arguments)?.unwrap_or_default();
                select.states.extend(states(arguments)?);
                let sort = arguments.read("sort", "\"id\" or \"trouble\"")?;
                Ok(Self::List(JobsQuery {
                    select,
                    sort: sort.unwrap_or_default(),
                    groups: arguments.flag("group_by_reason")?,
                    skip: count("skip")?.unwrap_or(0),
                    limit: count("limit")?.unwrap_or(LIMIT),
                }))
            }
            "order_jobs" => {
                let orders = "restart, pause, resume, priority, cancel or delete";
                Ok(Self::OrderMany(BulkOrder {
                    order: arguments.require("order", orders)?,
                    priority: arguments.read("priority", "a whole number from -128 to 127")?,
                    select: selection(arguments)?.ok_or_else(|| missing("select"))?,
                    dry_run: arguments.flag("dry_run")?,
                    expect: count("expect")?,
                }))
            }
            "daemons" => Ok(Self::Daemons),
            "export_jobs" => Ok(Self::Export {
                after: arguments.text("after")?,
                secrets: arguments.flag("secrets")?,
            }),
            "import_jobs" => Ok(Self::Import {
                docs: documents(arguments)?,
                replace: arguments.flag("replace")?,
            }),
            "write_jobs" => Ok(Self::Write {
                docs: documents(arguments)?,
            }),
            "pause_job" => order(JobOrder::Pause),
            "resume_job" => order(JobOrder::Resume),
            "restart_job" => order(JobOrder::Restart),
            "set_job_priority" => {
                let what = "a whole number from -128 to 127";
                order(JobOrder::Priority(arguments.require("priority", what)?))
            }
            _ => Ok(Self::Show { job: job()? }),
        }
    }
}

fn documents(arguments: &Arguments<'_>) -> Parsed<Vec<String>> {
    let docs = arguments.elements("docs", "an array of documents")?;
    let text = |doc: &&RawValue| doc.get().to_owned();
    Ok(docs.iter().map(text).collect())
}

/// Returns whether states are asked for that only documents without a job have.
pub(crate) fn has_doc_states(selection: &JobSelection) -> bool {
    let is_of_jobs = |name: &String| JobState::ALL.iter().any(|state| state.name() == name);
    !selection.states.iter().all(is_of_jobs)
}

/// Returns the right that it takes to order jobs of everybody.
pub(crate) fn right_of(order: BulkOrderName) -> Right {
    match order {
        BulkOrderName::Cancel | BulkOrderName::Delete => Right::Administer,
        _ => Right::Operate,
    }
}

/// `select`: which jobs.
fn selection(arguments: &Arguments<'_>) -> Parsed<Option<JobSelection>> {
    let read = |value: &RawValue| serde_json::from_str(value.get());
    let selection = arguments.get("select").map(read).transpose();
    selection.map_err(|error| ErrorReply::bad_request(format!("'select': {error}")))
}

fn states(arguments: &Arguments<'_>) -> Parsed<Vec<String>> {
    let what = format!("an array of {}, {PAUSED}", STATES.join(", "));
    let states: Option<Vec<String>> = arguments.read("states", &what)?;
    let states = states.unwrap_or_default();
    let is_one = |state: &String| STATES.contains(&state.as_str()) || state == PAUSED;
    match states.iter().all(is_one) {
        true => Ok(states),
        false => Err(wrong("states", &what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, text: &str) -> Option<JobCall> {
        JobCall::of(name, &Arguments::parse(text).ok()?).ok()
    }

    #[test]
    fn arguments_are_taken_or_what_is_wrong_is_told() {
        let all = JobsQuery {
            limit: 100,
            ..JobsQuery::default()
        };
        assert_eq!(parse("jobs", "{}"), Some(JobCall::List(all)));
        assert_eq!(parse("jobs", r#"{"states": ["odd"]}"#), None);
        let completed = parse("jobs", r#"{"states": ["completed"]}"#);
        assert_eq!(completed.map(|call| call.takes()), Some(Right::Inspect));
        assert_eq!(parse("jobs", r#"{"sort": "odd"}"#), None);
        assert_eq!(parse("jobs", r#"{"select": {"staets": []}}"#), None);
        let text = r#"{"order": "restart", "select": {"match": ["a*"]}, "expect": 7}"#;
        let patterns = vec!["a*".to_owned()];
        let order = BulkOrder {
            order: BulkOrderName::Restart,
            priority: None,
            select: JobSelection {
                patterns,
                ..JobSelection::default()
            },
            dry_run: false,
            expect: Some(7),
        };
        let order = JobCall::OrderMany(order);
        assert_eq!(order.takes(), Right::Operate);
        assert_eq!(parse("order_jobs", text), Some(order));
        assert_eq!(parse("order_jobs", r#"{"order": "restart"}"#), None);
        let delete = parse("order_jobs", r#"{"order": "delete", "select": {}}"#);
        assert_eq!(delete.map(|call| call.takes()), Some(Right::Administer));
        let job = || "a+continuous".to_owned();
        let text = r#"{"id": 1, "call": "x", "job": "a+continuous", "priority": -3}"#;
        assert_eq!(parse("daemons", "{}"), Some(JobCall::Daemons));
        assert_eq!(parse("job", text), Some(JobCall::Show { job: job() }));
        for (name, order) in [
            ("pause_job", JobOrder::Pause),
            ("resume_job", JobOrder::Resume),
            ("restart_job", JobOrder::Restart),
            ("set_job_priority", JobOrder::Priority(-3)),
        ] {
            assert!(JobCall::NAMES.contains(&name));
            assert_eq!(
                parse(name, text),
                Some(JobCall::Order { job: job(), order })
            );
            assert_eq!(parse(name, "{}"), None);
        }
        assert_eq!(
            parse("set_job_priority", r#"{"job": "a", "priority": 1000}"#),
            None
        );
    }
}
