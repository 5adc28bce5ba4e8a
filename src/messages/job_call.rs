//! The client socket's calls about jobs of replications.
//!
//! SUMMARY   [`JobCall::parse`] takes the arguments of one out of a request.
//! SOURCE    The names are our own; what is shown is CouchDB's `_scheduler/jobs`.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::messages::arguments::{Parsed, missing, wrong};
use crate::messages::client_error::ErrorReply;
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
    /// Tell one what to do.
    Order {
        /// Its id.
        job: String,
        /// What.
        order: JobOrder,
    },
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(default)]
    skip: Option<usize>,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    states: Option<Vec<String>>,
    #[serde(default)]
    job: Option<String>,
    #[serde(default)]
    priority: Option<i8>,
    #[serde(default)]
    after: Option<String>,
    #[serde(default)]
    secrets: bool,
    #[serde(default)]
    docs: Option<Vec<Box<RawValue>>>,
    #[serde(default)]
    replace: bool,
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
    ];

    /// Takes a request apart that is one of these calls.
    ///
    /// # Errors
    /// An argument is missing or wrong; the client's fault.
    pub fn parse(name: &str, text: &str) -> Parsed<Self> {
        let arguments: Arguments = serde_json::from_str(text)
            .map_err(|error| ErrorReply::bad_request(format!("bad request: {error}")))?;
        if name == "jobs" {
            let states = arguments.states.unwrap_or_default();
            if states
                .iter()
                .any(|state| !STATES.contains(&state.as_str()) && state != PAUSED)
            {
                return Err(wrong(
                    "states",
                    &format!("an array of {}, {PAUSED}", STATES.join(", ")),
                ));
            }
            return Ok(Self::List {
                skip: arguments.skip.unwrap_or(0),
                limit: arguments.limit.unwrap_or(LIMIT),
                states,
            });
        }
        if name == "export_jobs" {
            return Ok(Self::Export {
                after: arguments.after,
                secrets: arguments.secrets,
            });
        }
        if name == "import_jobs" {
            let docs = arguments.docs.ok_or_else(|| missing("docs"))?;
            return Ok(Self::Import {
                docs: docs.iter().map(|doc| doc.get().to_owned()).collect(),
                replace: arguments.replace,
            });
        }
        let job = arguments.job.ok_or_else(|| missing("job"))?;
        let order = match name {
            "pause_job" => JobOrder::Pause,
            "resume_job" => JobOrder::Resume,
            "restart_job" => JobOrder::Restart,
            "set_job_priority" => {
                let level = arguments.priority.ok_or_else(|| missing("priority"))?;
                JobOrder::Priority(level)
            }
            _ => return Ok(Self::Show { job }),
        };
        Ok(Self::Order { job, order })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, text: &str) -> Option<JobCall> {
        JobCall::parse(name, text).ok()
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
