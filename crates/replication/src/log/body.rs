//! What is in a checkpoint's log.

use std::fmt;
use std::time::SystemTime;

use httpdate::fmt_http_date;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::HISTORY_MAX;
use crate::id::VERSION;
use crate::seq::Seq;
use crate::stats::Stats;

/// What is in a log.
#[derive(Clone, Debug, Default)]
pub struct LogBody {
    /// The run that wrote it.
    pub session_id: Option<String>,
    /// How far it had come.
    pub source_last_seq: Option<Seq>,
    /// Runs, newest first.
    pub history: Vec<HistoryEntry>,
    /// All members as they came, but `_id` and `_rev`, in their order.
    pub members: Vec<(String, Box<RawValue>)>,
}

/// One run in a log.
#[derive(Clone, Debug)]
pub struct HistoryEntry {
    /// The run.
    pub session_id: Option<String>,
    /// How far it had come.
    pub recorded_seq: Option<Seq>,
    /// What it, and those before it, had counted.
    pub stats: Stats,
    /// The entry as it came.
    pub raw: Box<RawValue>,
}

/// What a checkpoint records.
#[derive(Clone, Debug)]
pub struct Checkpoint<'a> {
    /// The run: 32 hexadecimal digits.
    pub session_id: &'a str,
    /// How far it has come.
    pub seq: &'a Seq,
    /// Where it began.
    pub start_seq: &'a Seq,
    /// When it was asked for.
    pub start_time: SystemTime,
    /// Now.
    pub end_time: SystemTime,
    /// What it has counted.
    pub stats: &'a Stats,
    /// The runs before it, as [`compare`] returned them, not as a checkpoint of this run left them.
    pub history: &'a [HistoryEntry],
    /// Whether documents were chosen by id, in which case counters stand at the top, too.
    pub by_doc_ids: bool,
}

/// The members of an object, as they stand there.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

fn string(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

impl LogBody {
    /// Reads a document; returns its revision, too. What is not as it should be is as good as absent.
    pub(super) fn parse(document: &[u8]) -> Result<(Option<String>, Self), serde_json::Error> {
        let Members(members) = serde_json::from_slice(document)?;
        let mut rev = None;
        let mut body = Self::default();
        for (name, value) in members {
            match &*name {
                "_id" => continue,
                "_rev" => {
                    rev = string(&value);
                    continue;
                }
                "session_id" => body.session_id = string(&value),
                "source_last_seq" => body.source_last_seq = Some(Seq::from_raw(&value)),
                "history" => {
                    let entries: Vec<Box<RawValue>> =
                        serde_json::from_str(value.get()).unwrap_or_default();
                    body.history = entries.into_iter().map(HistoryEntry::parse).collect();
                }
                _ => {}
            }
            body.members.push((name, value));
        }
        Ok((rev, body))
    }

    /// Returns an object of these members, given with their JSON texts, and then of its own. With
    /// `no_changes` in front, this is the result of a run that had nothing to do.
    #[must_use]
    pub fn to_json(&self, before: &[(&str, &str)]) -> String {
        let own = self
            .members
            .iter()
            .map(|(name, value)| (&**name, value.get()));
        let mut text = String::from("{");
        for (name, value) in before.iter().copied().chain(own) {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&Value::from(name).to_string());
            text.push(':');
            text.push_str(value);
        }
        text.push('}');
        text
    }

    /// Whether two bodies hold the same values, in whatever order and spelling.
    pub(super) fn says_the_same_as(&self, other: &Self) -> bool {
        let value = |body: &Self| serde_json::from_str::<Value>(&body.to_json(&[])).ok();
        value(self) == value(other)
    }
}

impl HistoryEntry {
    fn parse(raw: Box<RawValue>) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Entry {
            session_id: Option<Value>,
            recorded_seq: Option<Seq>,
        }
        let entry: Entry = serde_json::from_str(raw.get()).unwrap_or_default();
        Self {
            session_id: entry
                .session_id
                .and_then(|id| id.as_str().map(str::to_owned)),
            recorded_seq: entry.recorded_seq,
            stats: serde_json::from_str(raw.get()).unwrap_or_default(),
            raw,
        }
    }

    /// Whether the run is among these. One without an id never is.
    pub(super) fn is_among(&self, others: &[Self]) -> bool {
        let same = |other: &Self| other.session_id == self.session_id;
        self.session_id.is_some() && others.iter().any(same)
    }
}

impl Checkpoint<'_> {
    /// Makes the body of both logs.
    #[must_use]
    pub fn body(&self) -> LogBody {
        let raw = |value: &Value| to_raw_value(value).expect("RP-2: a JSON value has a JSON text");
        let seq = |seq: &Seq| to_raw_value(seq).expect("RP-3: a sequence is a JSON text");
        let mut members = Vec::new();
        let mut push = |name: &str, value| members.push((name.to_owned(), value));
        push("session_id", raw(&self.session_id.into()));
        push("source_last_seq", seq(self.seq));
        push("replication_id_version", raw(&VERSION.into()));
        let (start, end) = (fmt_http_date(self.start_time), fmt_http_date(self.end_time));
        let stats = self.stats;
        if self.by_doc_ids {
            push("start_time", raw(&Value::from(&*start)));
            push("end_time", raw(&Value::from(&*end)));
            push("docs_read", raw(&stats.docs_read.into()));
            push("docs_written", raw(&stats.docs_written.into()));
            push("doc_write_failures", raw(&stats.doc_write_failures.into()));
        }
        let mut entry = Vec::new();
        let mut add = |name: &str, value| entry.push((name.to_owned(), value));
        add("session_id", raw(&self.session_id.into()));
        add("start_time", raw(&Value::from(start)));
        add("end_time", raw(&Value::from(end)));
        add("start_last_seq", seq(self.start_seq));
        add("end_last_seq", seq(self.seq));
        add("recorded_seq", seq(self.seq));
        add("missing_checked", raw(&stats.missing_checked.into()));
        add("missing_found", raw(&stats.missing_found.into()));
        add("docs_read", raw(&stats.docs_read.into()));
        add("docs_written", raw(&stats.docs_written.into()));
        add("doc_write_failures", raw(&stats.doc_write_failures.into()));
        add("bulk_get_docs", raw(&stats.bulk_get_docs.into()));
        add("bulk_get_attempts", raw(&stats.bulk_get_attempts.into()));
        let entry = Self::object(entry);
        let mut history = vec![HistoryEntry::parse(entry)];
        history.extend(self.history.iter().take(HISTORY_MAX - 1).cloned());
        let texts: Vec<&RawValue> = history.iter().map(|entry| &*entry.raw).collect();
        push(
            "history",
            to_raw_value(&texts).expect("RP-4: entries are JSON texts"),
        );
        LogBody {
            session_id: Some(self.session_id.to_owned()),
            source_last_seq: Some(self.seq.clone()),
            history,
            members,
        }
    }

    fn object(members: Vec<(String, Box<RawValue>)>) -> Box<RawValue> {
        let body = LogBody {
            members,
            ..LogBody::default()
        };
        RawValue::from_string(body.to_json(&[])).expect("RP-5: members are JSON texts")
    }
}
