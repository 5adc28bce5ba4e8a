//! Writes a replication's outcome into its document.
//!
//! SOURCE    couch_replicator_docs: update_doc_completed/3, update_failed/3, update_triggered/2,
//!           update_error/2, remove_state_fields/2.
//! DIFFERS   A document that has changed meanwhile is not overwritten.

use serde::Serialize;
use serde_json::Value;

use super::members::DocMembers;
use replication::id::ReplicationId;
use replication::spec::DocRef;

/// The member with the state.
pub(crate) const STATE: &str = "_replication_state";
/// The time of the state.
pub const TIME: &str = "_replication_state_time";
/// The reason of a failure.
pub const REASON: &str = "_replication_state_reason";
/// The replication's id.
pub const ID: &str = "_replication_id";
/// The counters.
pub const STATS: &str = "_replication_stats";

/// All these members. A document may have no others with a leading underscore besides `_id`, `_rev` and `_deleted`.
pub(super) const MEMBERS: [&str; 5] = [STATE, TIME, REASON, ID, STATS];

/// The state of a replication that will never run.
pub(crate) const FAILED: &str = "failed";
/// The state of a completed one.
pub(crate) const COMPLETED: &str = "completed";
/// The state of a running one.
const TRIGGERED: &str = "triggered";
/// The state of a failed one that will be retried.
const ERROR: &str = "error";

/// The short reason of a document whose replication belongs to another document.
pub(crate) const TAKEN: &str = "duplicate replication";
const ALREADY_STARTED: &str = "already started, triggered by document";

/// Maximum characters of a reason in a list.
const REASON_CHARS_MAX: usize = 120;

/// The outcome of a replication.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It runs; written with `update_docs` only.
    Triggered {
        /// Its id.
        id: String,
    },
    /// It failed, and will be retried; written with `update_docs` only.
    Error {
        /// Its id, if it has one.
        id: Option<String>,
        /// The reason.
        reason: String,
    },
    /// It will never run.
    Failed { reason: String },
    /// It has completed.
    Completed {
        /// The counters.
        stats: Value,
        /// Its id.
        id: String,
    },
}

impl Outcome {
    /// Returns whether no other outcome follows without an order or an edit.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Completed { .. })
    }

    /// Returns whether it is written to a document.
    pub const fn is_written(&self, update_docs: bool) -> bool {
        update_docs || self.is_final()
    }

    /// Writes it into a document's members. `now` is a displayed time.
    pub fn write(self, members: &mut DocMembers, now: &str, update_docs: bool) {
        let (state, reason, id, stats) = match self {
            Self::Triggered { id } => (TRIGGERED, None, Some(id), None),
            Self::Error { id, reason } => (ERROR, Some(reason), id, None),
            Self::Failed { reason } => (FAILED, Some(reason), None, None),
            Self::Completed { stats, id } => (COMPLETED, None, Some(id), Some(stats)),
        };
        if members.text(STATE).as_deref() != Some(state) {
            members.set(STATE, state);
            members.set(TIME, now);
        }
        set(members, REASON, reason);
        set(members, STATS, stats);
        set(members, ID, id.filter(|_| update_docs));
    }
}

/// Returns the reason of a document whose replication belongs to another document, worded as in CouchDB.
pub(crate) fn already_started(job: &ReplicationId, doc: &str, other: &DocRef) -> String {
    let DocRef { database, id } = other;
    format!(
        "Replication `{job}` specified by document `{doc}` {ALREADY_STARTED} `{id}` from db `{database}`"
    )
}

/// Returns a failed document's reason for lists: equal for equal causes, and not too long.
pub(crate) fn listed_reason(reason: &str) -> String {
    if reason.contains(ALREADY_STARTED) {
        TAKEN.to_owned()
    } else {
        reason.chars().take(REASON_CHARS_MAX).collect()
    }
}

/// Whether the replication of a document has completed or failed.
pub(crate) fn is_over(members: &DocMembers) -> bool {
    matches!(members.text(STATE).as_deref(), Some(COMPLETED | FAILED))
}

/// Removes an outcome from a document. Returns whether there was one.
pub fn remove(members: &mut DocMembers) -> bool {
    let before = members.len();
    members.retain(|name, _| !MEMBERS.contains(&name));
    members.len() != before
}

fn set(members: &mut DocMembers, name: &str, value: Option<impl Serialize>) {
    match value {
        Some(value) => members.set(name, value),
        None => drop(members.remove(name)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2024-05-01T10:00:03Z";

    fn after(before: Value, outcome: Outcome, update_docs: bool) -> Value {
        let mut members = DocMembers::parse(&before.to_string()).unwrap();
        outcome.write(&mut members, NOW, update_docs);
        members.value()
    }

    #[test]
    fn bogus_state_members_are_replaced_on_completion() {
        let before =
            json!({"source": "s", STATE: "triggered", TIME: "x", REASON: "x", ID: "bogus"});
        let stats = json!({"docs_read": 1});
        let completed = || Outcome::Completed {
            stats: stats.clone(),
            id: "abc".to_owned(),
        };
        let expected =
            json!({"source": "s", STATE: "completed", TIME: NOW, STATS: {"docs_read": 1}});
        assert_eq!(after(before.clone(), completed(), false), expected);
        assert_eq!(after(before, completed(), true)[ID], "abc");
    }

    #[test]
    fn writing_the_same_state_again_keeps_its_time() {
        let failed = Outcome::Failed {
            reason: "new".to_owned(),
        };
        let before = json!({STATE: "failed", TIME: "old", REASON: "old", STATS: {}});
        let expected = json!({STATE: "failed", TIME: "old", REASON: "new"});
        assert_eq!(after(before, failed, false), expected);
    }

    #[test]
    fn temporary_states_are_written_only_with_update_docs() {
        let triggered = Outcome::Triggered { id: "x".to_owned() };
        assert!(!triggered.is_written(false) && triggered.is_written(true));
        let failed = Outcome::Failed {
            reason: String::new(),
        };
        assert!(failed.is_written(false));
        let members = json!({"a": 1, STATE: 1, TIME: 1, REASON: 1, ID: 1, STATS: 1});
        let mut members = DocMembers::parse(&members.to_string()).unwrap();
        assert!(remove(&mut members) && !remove(&mut members));
        assert_eq!(members.len(), 1);
    }
}
