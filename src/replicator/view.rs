//! What users see of replications: jobs, documents with their states, running tasks.
//!
//! SOURCE    couch_replicator_scheduler: job_ejson/1, job_summary/2; couch_replicator_httpd_util and
//!           couch_replicator_doc_processor: the documents; couch_replicator_scheduler_job: the task.
//! DIFFERS   A job also has its `state`, why it does not run (`reason`), its `priority` and who
//!           `paused` it. A process id is the number of a run.

use std::time::UNIX_EPOCH;

use serde_json::{Map, Value, json};

use super::document::members;
use super::rows::{Row, RowState};
use super::state::{COMPLETED, FAILED, REASON, STATE, STATS, TIME};
use crate::messages::replication_job::JobProgress;
use crate::messages::replication_scheduler::JobInfo;
use crate::policy::schedule::{Entry, JobState, WallTime, What};
use crate::replication::seq::Seq;
use crate::replication::spec::{Replication, mask_url, strip_credentials};
use crate::store::Document;

/// The name of this node, as in the paths below `/_node`.
const NODE: &str = "_local";

/// Returns a job as in `_scheduler/jobs`.
pub fn job(info: &JobInfo) -> Value {
    let replication = &info.replication;
    let doc = replication.doc.as_ref();
    let mut value = json!({
        "database": doc.map(|doc| &doc.database),
        "id": info.id.to_string(),
        "pid": info.run.map(pid),
        "source": replication.source.shown(),
        "target": replication.target.shown(),
        "user": replication.user.name,
        "doc_id": doc.map(|doc| &doc.id),
        "info": info.progress.as_deref().map(stats),
        "history": info.history.iter().map(event).collect::<Vec<_>>(),
        "node": NODE,
        "start_time": start_time(replication),
        "state": info.summary.state.name(),
        "error_count": info.summary.error_count,
        "priority": info.priority.0,
    });
    if let Some(why) = &info.why_not {
        value["reason"] = why.to_string().into();
    }
    if !info.refused.is_empty() {
        value["refused"] = json!(info.refused);
    }
    if let Some(pause) = &info.paused {
        value["paused"] = json!({"by": &*pause.by, "since": pause.since.to_string()});
    }
    value
}

fn pid(run: u64) -> String {
    format!("<0.{run}.0>")
}

fn event(entry: &Entry) -> Value {
    let mut value = json!({"timestamp": entry.at.to_string(), "type": entry.what.name()});
    if let What::Crashed(reason) = &entry.what {
        value["reason"] = (*reason.text).into();
    }
    value
}

/// Returns the time when a replication was asked for, as it is shown.
pub fn start_time(replication: &Replication) -> String {
    let since = replication.start_time.duration_since(UNIX_EPOCH);
    (WallTime::ZERO + since.unwrap_or_default()).to_string()
}

/// A sequence as CouchDB's replicator shows it: always a text.
fn text(seq: &Seq) -> Value {
    seq.as_text().into_owned().into()
}

fn counters(progress: &JobProgress) -> Map<String, Value> {
    let counted = &progress.stats;
    let members = [
        ("revisions_checked", counted.missing_checked.into()),
        ("missing_revisions_found", counted.missing_found.into()),
        ("docs_read", counted.docs_read.into()),
        ("docs_written", counted.docs_written.into()),
        ("changes_pending", progress.changes_pending.into()),
        ("doc_write_failures", counted.doc_write_failures.into()),
        ("bulk_get_docs", counted.bulk_get_docs.into()),
        ("bulk_get_attempts", counted.bulk_get_attempts.into()),
        (
            "checkpointed_source_seq",
            text(&progress.checkpointed_source_seq),
        ),
    ];
    members
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

/// Returns the statistics of a job, as `info` has them.
fn stats(progress: &JobProgress) -> Map<String, Value> {
    let mut stats = counters(progress);
    stats.insert("source_seq".to_owned(), text(&progress.source_seq));
    stats.insert("through_seq".to_owned(), text(&progress.through_seq));
    stats
}

/// Returns what stands in a document whose replication has completed.
pub fn completed_stats(progress: &JobProgress, replication: &Replication) -> Map<String, Value> {
    let mut stats = counters(progress);
    stats.insert("start_time".to_owned(), start_time(replication).into());
    stats
}

/// Returns a running job as in `_active_tasks`; none for one that does not run.
pub fn task(info: &JobInfo) -> Option<Value> {
    let pid = info.run.map(pid)?;
    let replication = &info.replication;
    let doc = replication.doc.as_ref();
    let seconds = |time: WallTime| time.as_micros() / 1_000_000;
    let started = info.last_started.map_or(0, seconds);
    let mut value = json!({
        "node": NODE,
        "pid": pid,
        "process_status": "waiting",
        "type": "replication",
        "user": replication.user.name,
        "replication_id": info.id.to_string(),
        "database": doc.map(|doc| &doc.database),
        "doc_id": doc.map(|doc| &doc.id),
        "source": replication.source.shown(),
        "target": replication.target.shown(),
        "continuous": replication.options.continuous,
        "checkpoint_interval": u64::try_from(replication.options.checkpoint_interval.as_millis())
            .unwrap_or(u64::MAX),
        "started_on": started,
        "updated_on": info.progress_at.map_or(started, seconds).max(started),
    });
    let progress = info.progress.as_deref().map(stats);
    if let (Value::Object(members), Some(stats)) = (&mut value, progress) {
        members.extend(stats);
    }
    Some(value)
}

/// Returns a document as in `_scheduler/docs`, and the name of its state.
///
/// `row` is what the doc processor knows of it, `info` what the scheduler does.
pub fn document(document: &Document, row: Option<&Row>, info: Option<&JobInfo>) -> (String, Value) {
    match (row, info) {
        (_, Some(info)) => scheduled(document, info),
        (Some(row), None) => waiting(document, row),
        (None, None) => settled(document),
    }
}

fn scheduled(document: &Document, info: &JobInfo) -> (String, Value) {
    let replication = &info.replication;
    let summary = &info.summary;
    let shown = match (&summary.state, &summary.error) {
        (JobState::Crashing, Some(error)) => json!({"error": &*error.text}),
        _ => info.progress.as_deref().map(stats).into(),
    };
    let state = summary.state.name();
    let mut value = json!({
        "database": super::NAME,
        "doc_id": document.id,
        "id": info.id.to_string(),
        "node": NODE,
        "source": replication.source.shown(),
        "target": replication.target.shown(),
        "state": state,
        "info": shown,
        "error_count": summary.error_count,
        "last_updated": summary.last_updated.to_string(),
        "start_time": start_time(replication),
        "source_proxy": replication.source.shown_proxy(),
        "target_proxy": replication.target.shown_proxy(),
    });
    if let Some(why) = &info.why_not {
        value["reason"] = why.to_string().into();
    }
    if !info.refused.is_empty() {
        value["refused"] = json!(info.refused);
    }
    (state.to_owned(), value)
}

/// A document on its way to a job; one whose job has gone this moment is pending.
fn waiting(document: &Document, row: &Row) -> (String, Value) {
    let state = match row.state {
        RowState::Initializing => "initializing",
        RowState::Error => "error",
        RowState::Scheduled => "pending",
    };
    let info = row.info.as_ref().map(|text| json!({"error": text}));
    let value = json!({
        "database": super::NAME,
        "doc_id": document.id,
        "id": row.job.as_ref().map(ToString::to_string),
        "node": NODE,
        "state": state,
        "info": info.filter(|_| row.state == RowState::Error),
        "error_count": row.errors,
        "last_updated": row.last_updated.to_string(),
        "start_time": start_time(&row.replication),
    });
    (state.to_owned(), value)
}

/// A document that has a state of its own, or that nobody has looked at yet.
fn settled(document: &Document) -> (String, Value) {
    let body = members(document);
    let time = body.get(TIME).cloned().unwrap_or_default();
    let (state, info, error_count, start) = match body.get(STATE).and_then(Value::as_str) {
        Some(COMPLETED) => {
            let mut stats = body.get(STATS).and_then(Value::as_object).cloned();
            let start = stats
                .as_mut()
                .and_then(|stats| stats.shift_remove("start_time"));
            (
                COMPLETED,
                stats.map(Value::Object),
                0,
                start.unwrap_or_else(|| time.clone()),
            )
        }
        Some(FAILED) => {
            let reason = body.get(REASON).cloned().unwrap_or_default();
            (FAILED, Some(json!({"error": reason})), 1, time.clone())
        }
        _ => ("initializing", None, 0, time.clone()),
    };
    let stripped = strip_credentials(&Value::Object(body));
    let value = json!({
        "database": super::NAME,
        "doc_id": document.id,
        "id": null,
        "source": endpoint(&stripped["source"]),
        "target": endpoint(&stripped["target"]),
        "state": state,
        "error_count": error_count,
        "info": info,
        "start_time": start,
        "last_updated": time,
    });
    (state.to_owned(), value)
}

/// Returns the URL of an endpoint; none for what is no URL, for nobody knows where in it a password
/// stands.
fn endpoint(value: &Value) -> Option<String> {
    let url = match value {
        Value::String(url) => url,
        other => other.get("url")?.as_str()?,
    };
    let masked = mask_url(url)?;
    let has_end = masked.ends_with('/') || masked.contains('?');
    Some(if has_end {
        masked
    } else {
        format!("{masked}/")
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::policy::schedule::{Level, Pause, Reason, Summary, WhyNot};
    use crate::replication::spec::Defaults;
    use crate::replication::stats::Stats;
    use crate::store::Revision;

    fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(seconds * 1_000_000)
    }

    fn progress() -> Arc<JobProgress> {
        Arc::new(JobProgress {
            stats: Stats {
                missing_checked: 113,
                missing_found: 112,
                docs_read: 111,
                docs_written: 110,
                doc_write_failures: 1,
                bulk_get_docs: 109,
                bulk_get_attempts: 108,
            },
            bytes_written: 7,
            source_seq: Seq::from_json("\"113-g1\"").unwrap(),
            through_seq: Seq::from_json("\"112-g1\"").unwrap(),
            checkpointed_source_seq: Seq::zero(),
            changes_pending: None,
        })
    }

    fn info(state: JobState, run: Option<u64>) -> JobInfo {
        let body = json!({
            "source": "http://u:secret@s.example/a", "target": "http://t.example/b",
            "continuous": true, "source_proxy": "http://u:secret@p.example:1",
        });
        let mut replication =
            super::super::document::parse("d1", &body, &Defaults::default()).unwrap();
        replication.start_time = UNIX_EPOCH + Duration::from_secs(1_493_442_097);
        let reason = Arc::new(Reason::new(
            "db_not_found: could not open http://h/missing/",
            false,
        ));
        JobInfo {
            id: "8f5b+continuous".parse().unwrap(),
            replication: Arc::new(replication),
            run,
            summary: Summary {
                state,
                error: (state == JobState::Crashing).then(|| Arc::clone(&reason)),
                error_count: 2,
                last_updated: at(1_491_425_710),
            },
            progress: Some(progress()),
            progress_at: Some(at(1_376_116_651)),
            refused: Vec::new(),
            history: vec![
                Entry {
                    at: at(1_491_425_710),
                    what: What::Crashed(reason),
                },
                Entry {
                    at: at(1_491_425_700),
                    what: What::Added,
                },
            ],
            last_started: Some(at(1_376_116_644)),
            priority: Level(0),
            paused: None,
            why_not: None,
        }
    }

    fn stored(body: &Value) -> Document {
        Document {
            id: "d1".to_owned(),
            revision: Revision::after(None, false, ""),
            deleted: false,
            seq: 1,
            body: body.to_string(),
        }
    }

    fn figures() -> Value {
        json!({
            "revisions_checked": 113, "missing_revisions_found": 112, "docs_read": 111,
            "docs_written": 110, "changes_pending": null, "doc_write_failures": 1,
            "bulk_get_docs": 109, "bulk_get_attempts": 108, "checkpointed_source_seq": "0",
            "source_seq": "113-g1", "through_seq": "112-g1",
        })
    }

    #[test]
    fn a_job_has_couchdbs_members_and_says_why_it_does_not_run() {
        let mut known = info(JobState::Running, Some(1850));
        let value = job(&known);
        let expected = json!({
            "database": "_replicator", "id": "8f5b+continuous", "pid": "<0.1850.0>",
            "source": "http://s.example/a/", "target": "http://t.example/b/", "user": null,
            "doc_id": "d1", "info": figures(),
            "history": [
                {"timestamp": "2017-04-05T20:55:10Z", "type": "crashed",
                 "reason": "db_not_found: could not open http://h/missing/"},
                {"timestamp": "2017-04-05T20:55:00Z", "type": "added"},
            ],
            "node": "_local", "start_time": "2017-04-29T05:01:37Z",
            "state": "running", "error_count": 2, "priority": 0,
        });
        assert_eq!(value, expected);
        known.run = None;
        known.progress = None;
        let pause = Pause {
            by: "ann".into(),
            since: at(0),
        };
        known.paused = Some(pause.clone());
        known.why_not = Some(WhyNot::Paused(pause));
        let value = job(&known);
        assert_eq!(
            (&value["pid"], &value["info"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(value["paused"]["by"], "ann");
        assert_eq!(value["reason"], "paused by ann since 1970-01-01T00:00:00Z");
        assert!(!value.to_string().contains("secret"));
    }

    #[test]
    fn a_task_is_a_job_that_runs() {
        assert_eq!(task(&info(JobState::Pending, None)), None);
        let value = task(&info(JobState::Running, Some(3))).unwrap();
        assert_eq!(value["type"], "replication");
        assert_eq!(
            (&value["started_on"], &value["updated_on"]),
            (&json!(1_376_116_644), &json!(1_376_116_651))
        );
        assert_eq!(
            (&value["continuous"], &value["checkpoint_interval"]),
            (&json!(true), &json!(30000))
        );
        for (name, figure) in figures().as_object().unwrap() {
            assert_eq!(&value[name], figure, "{name}");
        }
    }

    #[test]
    fn a_document_shows_the_state_of_its_job() {
        let doc = stored(&json!({}));
        let known = info(JobState::Running, Some(1));
        let (state, value) = document(&doc, None, Some(&known));
        assert_eq!(state, "running");
        assert_eq!(value["info"], figures());
        assert_eq!(value["source_proxy"], "http://u:*****@p.example:1");
        assert_eq!(value["target_proxy"], Value::Null);
        let known = info(JobState::Crashing, None);
        let (state, value) = document(&doc, None, Some(&known));
        assert_eq!(state, "crashing");
        let error = json!({"error": "db_not_found: could not open http://h/missing/"});
        assert_eq!((&value["info"], &value["error_count"]), (&error, &json!(2)));
        assert_eq!(value["last_updated"], "2017-04-05T20:55:10Z");
    }

    #[test]
    fn a_document_that_is_over_shows_its_own_state() {
        let doc = stored(&json!({
            "source": "http://u:p@h/a", "target": {"url": "http://h/b"},
            STATE: "completed", TIME: "2024-05-01T10:00:03Z",
            STATS: {"docs_read": 1, "start_time": "2024-05-01T10:00:01Z"},
        }));
        let expected = json!({
            "database": "_replicator", "doc_id": "d1", "id": null, "source": "http://h/a/",
            "target": "http://h/b/", "state": "completed", "error_count": 0,
            "info": {"docs_read": 1}, "start_time": "2024-05-01T10:00:01Z",
            "last_updated": "2024-05-01T10:00:03Z",
        });
        assert_eq!(
            document(&doc, None, None),
            ("completed".to_owned(), expected)
        );
        let doc = stored(&json!({
            "source": "no url with a:secret@in it", STATE: "failed", TIME: "t", REASON: "why",
        }));
        let (state, value) = document(&doc, None, None);
        assert_eq!(state, "failed");
        assert_eq!(
            (&value["error_count"], &value["info"]),
            (&json!(1), &json!({"error": "why"}))
        );
        assert_eq!(
            (&value["source"], &value["target"]),
            (&Value::Null, &Value::Null)
        );
    }
}
