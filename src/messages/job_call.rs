//! The client socket's calls about jobs of replications.
//!
//! SOURCE    The names are our own; what is shown is CouchDB's `_scheduler/jobs`.

use serde_json::value::RawValue;

use crate::messages::arguments::{Arguments, Parsed, wrong};
use crate::replicator::{JobOrder, PAUSED, STATES};

/// Jobs that are listed unless told.
const LIMIT: usize = 100;

/// A call about jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobCall {
    /// List jobs.
    List {
        /// Passes over as many.
        skip: usize,
        /// At most as many.
        limit: usize,
        /// Only those in one of these states; none is all.
        states: Vec<String>,
    },
    /// Show one.
    Show {
        /// Its id.
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
        /// Its id.
        job: String,
        /// What.
        order: JobOrder,
    },
}

impl JobCall {
    /// The names of the calls.
    pub const NAMES: &[&str] = &[
        "jobs",
        "job",
        "pause_job",
        "resume_job",
        "restart_job",
        "set_job_priority",
        "export_jobs",
        "import_jobs",
        "write_jobs",
    ];

    /// Makes the call `name` of its arguments.
    pub(super) fn of(name: &str, arguments: &Arguments<'_>) -> Parsed<Self> {
        let count = |name| arguments.read::<usize>(name, "a whole number");
        let job = || arguments.string("job");
        let order = |order| Ok(Self::Order { job: job()?, order });
        match name {
            "jobs" => Ok(Self::List {
                skip: count("skip")?.unwrap_or(0),
                limit: count("limit")?.unwrap_or(LIMIT),
                states: states(arguments)?,
            }),
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
        let all = JobCall::List {
            skip: 0,
            limit: 100,
            states: vec![],
        };
        assert_eq!(parse("jobs", "{}"), Some(all));
        assert_eq!(parse("jobs", r#"{"states": ["odd"]}"#), None);
        let job = || "a+continuous".to_owned();
        let text = r#"{"id": 1, "call": "x", "job": "a+continuous", "priority": -3}"#;
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
