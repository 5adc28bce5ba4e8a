//! The content of a checkpoint log.

use std::iter;
use std::time::SystemTime;

use httpdate::fmt_http_date;
use json::object::RawObject;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::HISTORY_MAX;
use crate::counters::Stats;
use crate::id::VERSION;
use crate::seq::Seq;

#[derive(Clone, Debug, Default)]
pub struct LogBody {
    /// The run that wrote it.
    pub(crate) session_id: Option<String>,
    /// The sequence that this run had reached.
    pub(crate) source_last_seq: Option<Seq>,
    /// Runs, newest first; at most [`HISTORY_MAX`].
    pub(crate) history: Vec<HistoryEntry>,
    /// All members except `_id` and `_rev`, unchanged and in order.
    pub(crate) members: RawObject<'static>,
}

/// One run in a log.
#[derive(Clone, Debug)]
pub struct HistoryEntry {
    /// Identifies the run.
    pub(crate) session_id: Option<String>,
    /// The sequence that the run had reached.
    pub(crate) recorded_seq: Option<Seq>,
    /// Its counters, including those of earlier runs.
    pub stats: Stats,
    /// The unparsed entry.
    pub(crate) raw: Box<RawValue>,
}

/// What all checkpoints of a run share.
#[derive(Debug)]
pub struct CheckpointRun {
    /// 32 hexadecimal digits.
    pub session_id: String,
    /// The sequence that the run started at.
    pub start_seq: Seq,
    /// When it was requested.
    pub start_time: SystemTime,
    /// Earlier runs as returned by [`compare`], without checkpoints of this run.
    pub history: Vec<HistoryEntry>,
    /// Whether documents were chosen by id, in which case the counters are also members of the log itself.
    pub by_doc_ids: bool,
    /// The owner's epoch, if several daemons share the replications.
    pub owner_epoch: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Checkpoint<'a> {
    pub run: &'a CheckpointRun,
    /// The sequence that the run has reached.
    pub seq: &'a Seq,
    /// When the checkpoint is written.
    pub end_time: SystemTime,
    /// The run's counters.
    pub stats: &'a Stats,
}

/// An entry of the history in written form.
#[derive(Serialize)]
struct NewEntry<'a> {
    session_id: &'a str,
    start_time: &'a str,
    end_time: &'a str,
    start_last_seq: &'a Seq,
    end_last_seq: &'a Seq,
    recorded_seq: &'a Seq,
    #[serde(flatten)]
    stats: &'a Stats,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_epoch: Option<String>,
}

/// Reads a member; `None` if it is missing or has another type.
fn member<T: DeserializeOwned>(members: &RawObject<'_>, name: &str) -> Option<T> {
    serde_json::from_str(members.get(name)?.get()).ok()
}

impl LogBody {
    /// Reads a document and its revision. Members with a wrong type count as missing.
    pub(super) fn parse(document: &[u8]) -> Result<(Option<String>, Self), serde_json::Error> {
        let mut members: RawObject<'_> = serde_json::from_slice(document)?;
        members.remove("_id");
        let rev = members
            .remove("_rev")
            .and_then(|rev| serde_json::from_str(rev.get()).ok());
        Ok((rev, Self::of(members.into_owned())))
    }

    fn of(members: RawObject<'static>) -> Self {
        let history: Vec<Box<RawValue>> = member(&members, "history").unwrap_or_default();
        Self {
            session_id: member(&members, "session_id"),
            source_last_seq: members.get("source_last_seq").map(Seq::from_raw),
            // A longer one is not a replicator's, and would be compared for minutes.
            history: history
                .into_iter()
                .take(HISTORY_MAX)
                .map(HistoryEntry::parse)
                .collect(),
            members,
        }
    }

    /// Returns an object with the members of `front`, then those of the log. With `no_changes` in front, it is the
    /// result of a run without changes.
    pub fn with_front(&self, front: &[(&'static str, Value)]) -> RawObject<'_> {
        let mut object = RawObject::default();
        for (name, value) in front {
            object.push(*name, value);
        }
        for (name, value) in self.members.iter() {
            object.push(name, value);
        }
        object
    }

    /// Whether two bodies are equal as JSON values, regardless of the order and spelling of their members.
    pub(super) fn says_the_same_as(&self, other: &Self) -> bool {
        let value = |body: &Self| serde_json::from_str::<Value>(body.members.to_raw().get()).ok();
        value(self) == value(other)
    }
}

impl HistoryEntry {
    fn parse(raw: Box<RawValue>) -> Self {
        let members: RawObject<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
        Self {
            session_id: member(&members, "session_id"),
            recorded_seq: member(&members, "recorded_seq").flatten(),
            stats: serde_json::from_str(raw.get()).unwrap_or_default(),
            raw,
        }
    }

    /// Whether one of `others` is of the same run; `false` without a session id.
    pub(super) fn is_among(&self, others: &[Self]) -> bool {
        let same = |other: &Self| other.session_id == self.session_id;
        self.session_id.is_some() && others.iter().any(same)
    }
}

impl Checkpoint<'_> {
    /// Makes the body, which is the same for both logs.
    pub(crate) fn body(&self) -> LogBody {
        let (run, stats) = (self.run, self.stats);
        let (start, end) = (fmt_http_date(run.start_time), fmt_http_date(self.end_time));
        let entry = to_raw_value(&NewEntry {
            session_id: &run.session_id,
            start_time: &start,
            end_time: &end,
            start_last_seq: &run.start_seq,
            end_last_seq: self.seq,
            recorded_seq: self.seq,
            stats,
            // Not every JSON reader supports integers of this size.
            owner_epoch: run.owner_epoch.map(|epoch| format!("{epoch:016x}")),
        })
        .expect("JS-1: the entry has a JSON text");
        let earlier = run.history.iter().map(|entry| &*entry.raw);
        let history: Vec<&RawValue> = iter::once(&*entry)
            .chain(earlier)
            .take(HISTORY_MAX)
            .collect();
        let mut members = RawObject::default();
        members.push("session_id", &run.session_id);
        members.push("source_last_seq", self.seq);
        members.push("replication_id_version", &VERSION);
        if run.by_doc_ids {
            members.push("start_time", &start);
            members.push("end_time", &end);
            members.push("docs_read", &stats.docs_read);
            members.push("docs_written", &stats.docs_written);
            members.push("doc_write_failures", &stats.doc_write_failures);
        }
        members.push("history", &history);
        LogBody::of(members)
    }
}
