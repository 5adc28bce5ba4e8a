//! A job's status, as reported by one daemon of a fleet to the others.
//!
//! SUMMARY   [`StatusBody`] is what a daemon writes: the finished views, with the fields that lists sort and select by.
//!           [`OtherStatus`] is a status that another daemon wrote.
//! PROMISES  Has no credentials: the views have none. Members added by later versions are ignored.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::doc_state::DocState;
use super::selection::JobFacts;
use policy::ownership::Epoch;
use policy::schedule::{JobState, WallTime};
use store::fleet::StatusOf;

/// The status of a document, or of a transient job. Without state and job there is nothing to report beyond the
/// document.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct StatusBody {
    /// The document's state, as in `_scheduler/docs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<DocState>,
    /// The document, as in `_scheduler/docs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doc: Option<Box<RawValue>>,
    /// Its job, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobBody>,
}

/// The status of a job.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct JobBody {
    pub id: String,
    /// Its state in lists.
    pub listed: DocState,
    pub source: String,
    pub target: String,
    /// The short reason why it does not run.
    pub reason: Option<String>,
    /// When it entered that state, in microseconds since 1970.
    pub since: u64,
    /// The user who requested it, for a transient job.
    pub user: Option<String>,
    /// As in `_scheduler/jobs`.
    pub shown: Box<RawValue>,
    /// As in `_active_tasks`, while it runs.
    pub task: Option<Box<RawValue>>,
}

impl StatusBody {
    /// Parses another daemon's status; unreadable text is empty.
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Returns its text.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("status: strings and numbers can be written")
    }
}

impl JobBody {
    /// Returns its state in lists; `None` if a later version uses another name.
    pub fn listed(&self) -> Option<JobState> {
        self.listed.of_job()
    }

    pub fn since(&self) -> WallTime {
        WallTime::from_micros(self.since)
    }
}

/// A status written by another daemon.
#[derive(Clone, Debug)]
pub(crate) struct OtherStatus {
    /// Its writer's epoch.
    pub epoch: Epoch,
    pub of: StatusOf,
    /// Its age when it was read.
    pub age: Duration,
    /// When it was read.
    pub read: Instant,
    pub body: StatusBody,
}

impl OtherStatus {
    /// Returns its age in seconds.
    pub fn age_s(&self) -> u64 {
        (self.age + self.read.elapsed()).as_secs()
    }

    /// Returns its document; `None` for a transient job.
    pub fn doc(&self) -> Option<&str> {
        match &self.of {
            StatusOf::Document(doc) => Some(doc),
            StatusOf::Transient(_) => None,
        }
    }

    /// Returns the facts about its job for selections; `reason` replaces its own.
    pub fn facts<'a>(&'a self, daemon: &'a str, reason: Option<&'a str>) -> Option<JobFacts<'a>> {
        let job = self.body.job.as_ref()?;
        Some(JobFacts {
            id: &job.id,
            doc: self.doc(),
            state: job.listed,
            source: &job.source,
            target: &job.target,
            reason: reason.or(job.reason.as_deref()),
            daemon: Some(daemon),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_reads_as_it_was_written_and_members_of_later_versions_are_ignored() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let body = StatusBody {
            state: Some(DocState::Running),
            doc: Some(raw(r#"{"doc_id":"d"}"#)),
            job: Some(JobBody {
                id: "abc".to_owned(),
                listed: DocState::Paused,
                source: "http://s/".to_owned(),
                target: "http://t/".to_owned(),
                reason: None,
                since: 7,
                user: None,
                shown: raw(r#"{"id":"abc","z":1,"a":2}"#),
                task: None,
            }),
        };
        let text = body.text();
        let read = StatusBody::read(&text.replacen('{', r#"{"new":[1],"#, 1));
        assert_eq!(read.text(), text);
        assert_eq!(read.job.unwrap().listed(), Some(JobState::Paused));
        assert_eq!(StatusBody::read("junk").text(), "{}");
    }
}
