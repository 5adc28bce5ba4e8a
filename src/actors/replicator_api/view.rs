//! The users' view of replications: jobs, documents with their states, running tasks.
//!
//! SOURCE    couch_replicator_scheduler: job_ejson/1, job_summary/2; couch_replicator_httpd_util and
//!           couch_replicator_doc_processor: the documents; couch_replicator_scheduler_job: the task.
//! DIFFERS   A job also has its `state` and when that began (`since`), why it does not run (`reason`), its next retry
//!           (`next_try`), its `priority`, who `paused` it, its `last_progress`. A process id is a run's number.

use std::time::UNIX_EPOCH;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::messages::replication_job::JobProgress;
use crate::messages::replication_scheduler::JobInfo;
use crate::replicator::document::members;
use crate::replicator::members::DocMembers;
use crate::replicator::state::{COMPLETED, FAILED, REASON, STATE, STATS, TIME};
use crate::replicator::table::{Row, RowState};
use crate::replicator::{DocState, NAME};
use policy::schedule::{HistoryEntry, HistoryEvent, JobState, Run, WallTime};
use replication::refused::RefusedDoc;
use replication::seq::Seq;
use replication::spec::{Replication, mask_url, strip_url};
use store::Document;

/// The name of this node, as in the paths below `/_node`.
const NODE: &str = "_local";

/// Returns a job as in `_scheduler/jobs`.
pub fn job(info: &JobInfo) -> Value {
    let mut value = with(
        job_and_document(info),
        json!({
            "pid": info.shown.run.map(pid),
            "user": info.replication.user.name,
            "info": info.progress.as_deref().map(stats),
            "history": info.history.iter().map(event).collect::<Vec<_>>(),
            "priority": info.shown.level.0,
            "document": info.replication.doc.as_ref().map(|doc| &doc.id),
            "since": info.shown.since.to_string(),
            "next_try": info.next_try().map(|at| at.to_string()),
            "last_progress": info.progress_at.map(|at| at.to_string()),
        }),
    );
    if let Some(pause) = &info.shown.paused {
        value["paused"] = json!({"by": &*pause.by, "since": pause.since.to_string()});
    }
    value
}

/// Returns the common members of a job in `_scheduler/jobs` and `_scheduler/docs`.
fn job_and_document(info: &JobInfo) -> Value {
    let summary = &info.shown.summary;
    let mut value = with(
        job_and_task(info),
        json!({
            "id": info.id.to_string(),
            "state": summary.state.name(),
            "error_count": summary.error_count,
            "start_time": start_time(&info.replication),
        }),
    );
    if let Some(reason) = info.reason() {
        value["reason"] = reason.into();
    }
    if !info.refused.is_empty() {
        value["refused"] = json!(info.refused);
    }
    value
}

/// Returns the members that all views of a job have in common.
fn job_and_task(info: &JobInfo) -> Value {
    let replication = &info.replication;
    let doc = replication.doc.as_ref();
    json!({
        "database": doc.map(|doc| &doc.database),
        "doc_id": doc.map(|doc| &doc.id),
        "node": NODE,
        "source": replication.source.shown(),
        "target": replication.target.shown(),
    })
}

/// Adds members to an object.
fn with(mut value: Value, more: Value) -> Value {
    if let (Value::Object(members), Value::Object(more)) = (&mut value, more) {
        members.extend(more);
    }
    value
}

fn pid(run: Run) -> String {
    format!("<0.{}.0>", run.0)
}

fn event(entry: &HistoryEntry) -> Value {
    let mut value = json!({"timestamp": entry.at.to_string(), "type": entry.what.name()});
    if let HistoryEvent::Crashed(reason) = &entry.what {
        value["reason"] = (*reason.text).into();
    }
    value
}

/// Returns the time when a replication was requested, for display.
pub fn start_time(replication: &Replication) -> String {
    let since = replication.start_time.duration_since(UNIX_EPOCH);
    (WallTime::ZERO + since.unwrap_or_default()).to_string()
}

/// A sequence as shown by CouchDB's replicator: always a string.
fn text(seq: &Seq) -> Value {
    seq.as_text().into_owned().into()
}

fn counters(progress: &JobProgress) -> Value {
    let counted = &progress.stats;
    json!({
        "revisions_checked": counted.missing_checked,
        "missing_revisions_found": counted.missing_found,
        "docs_read": counted.docs_read,
        "docs_written": counted.docs_written,
        "changes_pending": progress.changes_pending,
        "doc_write_failures": counted.doc_write_failures,
        "bulk_get_docs": counted.bulk_get_docs,
        "bulk_get_attempts": counted.bulk_get_attempts,
        "checkpointed_source_seq": text(&progress.checkpointed_source_seq),
    })
}

/// Returns a job's statistics, as in `info`.
fn stats(progress: &JobProgress) -> Value {
    let mut more = json!({
        "source_seq": text(&progress.source_seq),
        "through_seq": text(&progress.through_seq),
    });
    if let Some(why) = &progress.own_feed {
        more["own_feed"] = (**why).into();
    }
    with(counters(progress), more)
}

/// Returns the statistics in a document whose replication has completed.
pub(crate) fn completed_stats(
    progress: &JobProgress,
    replication: &Replication,
    refused: &[RefusedDoc],
) -> Value {
    let mut stats = counters(progress);
    stats["start_time"] = start_time(replication).into();
    if !refused.is_empty() {
        stats["refused"] = json!(refused);
    }
    stats
}

/// Returns a running job as in `_active_tasks`; `None` for others.
pub fn task(info: &JobInfo) -> Option<Value> {
    let pid = info.shown.run.map(pid)?;
    let options = &info.replication.options;
    let interval = options.tuning.checkpoint_interval.as_millis();
    let seconds = |time: WallTime| time.as_micros() / 1_000_000;
    let started = info.shown.last_started.map_or(0, seconds);
    let task = json!({
        "pid": pid,
        "process_status": "waiting",
        "type": "replication",
        "user": info.replication.user.name,
        "replication_id": info.id.to_string(),
        "continuous": options.continuous,
        "checkpoint_interval": u64::try_from(interval).unwrap_or(u64::MAX),
        "started_on": started,
        "updated_on": info.progress_at.map_or(started, seconds).max(started),
    });
    Some(with(
        with(job_and_task(info), task),
        info.progress.as_deref().map(stats).into(),
    ))
}

/// Returns a replication document as in `_scheduler/docs`, and its state; `None` if it is unknown to this daemon.
///
/// `row` is from the table of documents, `info` from the scheduler.
pub fn unsettled(id: &str, row: Option<&Row>, info: Option<&JobInfo>) -> Option<(DocState, Value)> {
    match (row, info) {
        (_, Some(info)) => Some(scheduled(info)),
        (Some(row), None) => Some(waiting(id, row)),
        (None, None) => None,
    }
}

fn scheduled(info: &JobInfo) -> (DocState, Value) {
    let replication = &info.replication;
    let summary = &info.shown.summary;
    let shown = match (&summary.state, &summary.error) {
        (JobState::Crashing, Some(error)) => json!({"error": &*error.text}),
        _ => info.progress.as_deref().map(stats).into(),
    };
    let value = with(
        job_and_document(info),
        json!({
            "info": shown,
            "last_updated": summary.last_updated.to_string(),
            "source_proxy": replication.source.shown_proxy(),
            "target_proxy": replication.target.shown_proxy(),
        }),
    );
    (summary.state.into(), value)
}

/// Returns a document that waits for a job; one whose job has just ended is shown as pending.
fn waiting(id: &str, row: &Row) -> (DocState, Value) {
    let state = row.state.shown();
    let info = row.info.as_ref().map(|text| json!({"error": text}));
    let mut value = json!({
        "database": NAME,
        "doc_id": id,
        "id": row.job.as_ref().map(ToString::to_string),
        "node": NODE,
        "source": row.replication.source.shown(),
        "target": row.replication.target.shown(),
        "state": state.name(),
        "info": info.filter(|_| row.state == RowState::Error),
        "error_count": row.errors,
        "last_updated": row.last_updated.to_string(),
        "start_time": start_time(&row.replication),
    });
    if let Some(reason) = row.reason.as_ref().filter(|_| row.state == RowState::Error) {
        value["reason"] = (**reason).into();
    }
    (state, value)
}

/// Why a document of a fleet is [`DocState::Initializing`].
pub const UNCLAIMED: &str = "no daemon of the fleet has claimed it (drained daemons claim nothing)";

/// Returns a document as in `_scheduler/docs`, and its state, from its own members alone. `unread` is why it has not
/// been read, if it records no state.
pub fn settled(document: &Document, unread: Option<&str>) -> (DocState, Box<RawValue>) {
    let body = members(document);
    let time = body.get(TIME).unwrap_or_default();
    let (state, info, error_count, start) = match body.text(STATE).as_deref() {
        Some(COMPLETED) => {
            let mut stats = body
                .raw(STATS)
                .map(|stats| DocMembers::parse(stats.get()))
                .and_then(Result::ok);
            let start = stats.as_mut().and_then(|stats| {
                let start = stats.get("start_time");
                stats.remove("start_time");
                start
            });
            (
                DocState::Completed,
                stats,
                0,
                start.unwrap_or_else(|| time.clone()),
            )
        }
        Some(FAILED) => {
            let info = DocMembers::default().with("error", body.raw(REASON));
            (DocState::Failed, Some(info), 1, time.clone())
        }
        _ => {
            let info = unread.map(|why| DocMembers::default().with("error", why));
            (DocState::Initializing, info, 0, time.clone())
        }
    };
    let side = |name| endpoint(&body.get(name).unwrap_or_default());
    let value = DocMembers::default()
        .with("database", NAME)
        .with("doc_id", &document.id)
        .with("id", Value::Null)
        .with("source", side("source"))
        .with("target", side("target"))
        .with("state", state.name())
        .with("error_count", error_count)
        .with("info", info)
        .with("start_time", start)
        .with("last_updated", time);
    (state, raw(&value))
}

/// Returns an object as text.
pub fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("view: an object of texts and numbers can be written")
}

/// Returns the URL of an endpoint; `None` if it is not a URL, since a password could be anywhere in it.
fn endpoint(value: &Value) -> Option<String> {
    let url = match value {
        Value::String(url) => url,
        other => other.get("url")?.as_str()?,
    };
    let masked = mask_url(&strip_url(url))?;
    let has_end = masked.ends_with('/') || masked.contains('?');
    Some(if has_end {
        masked
    } else {
        format!("{masked}/")
    })
}

#[cfg(test)]
mod tests;
