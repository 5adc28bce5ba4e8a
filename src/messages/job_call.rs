//! The client socket's calls about jobs of replications.
//!
//! SOURCE    The names are our own; what is shown is CouchDB's `_scheduler/jobs`.

use serde_json::value::RawValue;
use settee_client::{BulkOrder, BulkOrderName, JobSelection, JobsQuery};

use crate::audit::selected;
use crate::auth::rights::Right;
use crate::messages::arguments::{Arguments, Parsed, missing, wrong};
use crate::messages::client_error::ErrorReply;
use crate::replicator::{DocState, JobOrder};
use policy::schedule::JobState;
use store::RowKind;

/// Jobs that are listed unless told.
const LIMIT: usize = 100;

/// What a priority is, for errors.
const PRIORITY: &str = "a whole number from -128 to 127";

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
    /// Hold a copy of the store as it is now, for a backup.
    HoldCopy,
    /// Send the next rows of a held copy.
    CopyRows {
        /// Its number.
        copy: u64,
        /// Rows of what.
        kind: RowKind,
        /// Only those after this id.
        after: String,
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
    /// Returns the right that its arguments take, if it is another than the operation's.
    pub(super) fn takes(&self) -> Option<Right> {
        match self {
            Self::List(query) => Some(right_to_list(&query.select)),
            Self::OrderMany(order) => Some(right_to_order(order.order)),
            Self::Show { .. }
            | Self::Daemons
            | Self::Order { .. }
            | Self::Export { .. }
            | Self::Import { .. }
            | Self::HoldCopy
            | Self::CopyRows { .. }
            | Self::Write { .. } => None,
        }
    }

    /// Returns what it is for if it changes something: a job, or a selection of them.
    pub(super) fn changes(&self) -> Option<String> {
        match self {
            Self::OrderMany(order) => (!order.dry_run).then(|| selected(&order.select)),
            Self::Order { job, .. } => Some(job.clone()),
            _ => Some(String::new()),
        }
    }

    pub(super) fn list(arguments: &Arguments<'_>) -> Parsed<Self> {
        let mut select = selection(arguments)?.unwrap_or_default();
        select.states.extend(states(arguments)?);
        let sort = arguments.read("sort", "\"id\" or \"trouble\"")?;
        Ok(Self::List(JobsQuery {
            select,
            sort: sort.unwrap_or_default(),
            groups: arguments.flag("group_by_reason")?,
            skip: count(arguments, "skip")?.unwrap_or(0),
            limit: count(arguments, "limit")?.unwrap_or(LIMIT),
        }))
    }

    pub(super) fn order_many(arguments: &Arguments<'_>) -> Parsed<Self> {
        let orders = "restart, pause, resume, priority, cancel or delete";
        Ok(Self::OrderMany(BulkOrder {
            order: arguments.require("order", orders)?,
            priority: arguments.read("priority", PRIORITY)?,
            select: selection(arguments)?.ok_or_else(|| missing("select"))?,
            dry_run: arguments.flag("dry_run")?,
            expect: count(arguments, "expect")?,
        }))
    }

    pub(super) fn show(arguments: &Arguments<'_>) -> Parsed<Self> {
        let job = job(arguments)?;
        Ok(Self::Show { job })
    }

    pub(super) fn order(arguments: &Arguments<'_>, order: JobOrder) -> Parsed<Self> {
        let job = job(arguments)?;
        Ok(Self::Order { job, order })
    }

    pub(super) fn set_priority(arguments: &Arguments<'_>) -> Parsed<Self> {
        let priority = arguments.require("priority", PRIORITY)?;
        Self::order(arguments, JobOrder::Priority(priority))
    }

    pub(super) fn export(arguments: &Arguments<'_>) -> Parsed<Self> {
        Ok(Self::Export {
            after: arguments.long_text("after")?,
            secrets: arguments.flag("secrets")?,
        })
    }

    pub(super) fn import(arguments: &Arguments<'_>) -> Parsed<Self> {
        Ok(Self::Import {
            docs: documents(arguments)?,
            replace: arguments.flag("replace")?,
        })
    }

    pub(super) fn backup(arguments: &Arguments<'_>) -> Parsed<Self> {
        let Some(copy) = arguments.read("copy", "a number")? else {
            return Ok(Self::HoldCopy);
        };
        Ok(Self::CopyRows {
            copy,
            kind: arguments.require("kind", "\"documents\", \"locals\" or \"jobs\"")?,
            after: arguments.long_text("after")?.unwrap_or_default(),
        })
    }

    pub(super) fn write(arguments: &Arguments<'_>) -> Parsed<Self> {
        let docs = documents(arguments)?;
        Ok(Self::Write { docs })
    }
}

/// `job`: the id of a replication, or of its document.
fn job(arguments: &Arguments<'_>) -> Parsed<String> {
    arguments.long_text("job")?.ok_or_else(|| missing("job"))
}

fn count(arguments: &Arguments<'_>, name: &str) -> Parsed<Option<usize>> {
    arguments.read(name, "a whole number")
}

fn documents(arguments: &Arguments<'_>) -> Parsed<Vec<String>> {
    let docs = arguments.elements("docs", "an array of documents")?;
    let text = |doc: &&RawValue| doc.get().to_owned();
    Ok(docs.iter().map(text).collect())
}

/// Returns the right that it takes to list jobs of everybody. Which documents there are is for fewer than which jobs.
pub(crate) fn right_to_list(selection: &JobSelection) -> Right {
    let is_of_jobs = |name: &String| JobState::ALL.iter().any(|state| state.name() == name);
    match selection.states.iter().all(is_of_jobs) {
        true => Right::Look,
        false => Right::Inspect,
    }
}

/// Returns the right that it takes to order jobs of everybody.
pub(crate) fn right_to_order(order: BulkOrderName) -> Right {
    match order {
        BulkOrderName::Cancel | BulkOrderName::Delete => Right::Administer,
        BulkOrderName::Restart
        | BulkOrderName::Pause
        | BulkOrderName::Resume
        | BulkOrderName::Priority => Right::Operate,
    }
}

/// `select`: which jobs.
fn selection(arguments: &Arguments<'_>) -> Parsed<Option<JobSelection>> {
    let read = |value: &RawValue| serde_json::from_str(value.get());
    let selection = arguments.get("select").map(read).transpose();
    selection.map_err(|error| ErrorReply::bad_request(format!("'select': {error}")))
}

fn states(arguments: &Arguments<'_>) -> Parsed<Vec<String>> {
    let what = format!("an array of {}", DocState::names());
    let states: Option<Vec<String>> = arguments.read("states", &what)?;
    let states = states.unwrap_or_default();
    let is_one = |state: &String| DocState::of_name(state).is_some();
    match states.iter().all(is_one) {
        true => Ok(states),
        false => Err(wrong("states", &what)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;
    use crate::messages::client::{Call, Request};

    /// Returns the call of a request, and the right that it takes.
    fn request(name: &str, text: &str) -> Option<(JobCall, Option<Right>)> {
        let mut request: Map<String, Value> = serde_json::from_str(text).unwrap();
        request.insert("call".to_owned(), name.into());
        let line = Value::from(request).to_string();
        let request = Request::parse(line.as_bytes()).ok()?;
        let right = request.takes();
        match request.call {
            Call::Jobs(call) => Some((call, right)),
            call => panic!("{call:?}"),
        }
    }

    fn parse(name: &str, text: &str) -> Option<JobCall> {
        request(name, text).map(|(call, _)| call)
    }

    fn right(name: &str, text: &str) -> Option<Right> {
        request(name, text)?.1
    }

    #[test]
    fn arguments_are_taken_or_what_is_wrong_is_told() {
        let all = JobsQuery {
            limit: 100,
            ..JobsQuery::default()
        };
        assert_eq!(parse("jobs", "{}"), Some(JobCall::List(all)));
        assert_eq!(parse("jobs", r#"{"states": ["odd"]}"#), None);
        let completed = right("jobs", r#"{"states": ["completed"]}"#);
        assert_eq!(completed, Some(Right::Inspect));
        assert_eq!(right("jobs", "{}"), Some(Right::Look));
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
        assert_eq!(
            request("order_jobs", text),
            Some((order, Some(Right::Operate)))
        );
        assert_eq!(parse("order_jobs", r#"{"order": "restart"}"#), None);
        let delete = right("order_jobs", r#"{"order": "delete", "select": {}}"#);
        assert_eq!(delete, Some(Right::Administer));
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
