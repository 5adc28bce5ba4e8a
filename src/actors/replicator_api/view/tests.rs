//! Tests of [`super`]: CouchDB's members, and no credentials.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::replicator::table::DocTable;
use policy::schedule::{Level, Pause, Reason, ShownJob, Summary, WhyNot};
use replication::counters::Stats;
use store::Revision;

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
        source_seq: serde_json::from_str::<Seq>("\"113-g1\"").unwrap(),
        through_seq: serde_json::from_str::<Seq>("\"112-g1\"").unwrap(),
        checkpointed_source_seq: Seq::zero(),
        changes_pending: None,
        own_feed: None,
    })
}

#[test]
fn a_job_reports_why_it_has_its_own_feed() {
    let mut progress = JobProgress::clone(&progress());
    assert_eq!(stats(&progress).get("own_feed"), None);
    progress.own_feed = Some("because of 403".into());
    assert_eq!(stats(&progress)["own_feed"], "because of 403");
}

fn info(state: JobState, run: Option<u64>) -> JobInfo {
    let body = json!({
        "source": "http://u:secret@s.example/a", "target": "http://t.example/b",
        "continuous": true, "source_proxy": "http://u:secret@p.example:1",
    });
    let mut replication = crate::replicator::document::parse(
        "d1",
        &DocMembers::parse(&body.to_string()).unwrap(),
        &crate::replicator::defaults(&Default::default()),
    )
    .unwrap();
    replication.start_time = UNIX_EPOCH + Duration::from_secs(1_493_442_097);
    let reason = Arc::new(Reason::new(
        "db_not_found: could not open http://h/missing/",
        false,
    ));
    JobInfo {
        id: "8f5b+continuous".parse().unwrap(),
        replication: Arc::new(replication),
        shown: ShownJob {
            run: run.map(Run),
            level: Level(0),
            last_started: Some(at(1_376_116_644)),
            paused: None,
            listed: state,
            since: at(1_491_425_700),
            why_not: None,
            summary: Summary {
                state,
                error: (state == JobState::Crashing).then(|| Arc::clone(&reason)),
                error_count: 2,
                last_updated: at(1_491_425_710),
            },
        },
        progress: Some(progress()),
        progress_at: Some(at(1_376_116_651)),
        refused: Vec::new(),
        history: vec![
            HistoryEntry {
                at: at(1_491_425_710),
                what: HistoryEvent::Crashed(reason),
            },
            HistoryEntry {
                at: at(1_491_425_700),
                what: HistoryEvent::Added,
            },
        ],
    }
}

fn shown(doc: &Document, row: Option<&Row>, info: Option<&JobInfo>) -> (String, Value) {
    let (state, text) = match unsettled(&doc.id, row, info) {
        Some((state, value)) => (state, raw(&value)),
        None => settled(doc, Some(UNCLAIMED)),
    };
    (
        state.name().to_owned(),
        serde_json::from_str(text.get()).unwrap(),
    )
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
fn a_job_has_couchdbs_members_and_the_reason_it_does_not_run() {
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
        "state": "running", "error_count": 2, "priority": 0, "document": "d1",
        "since": "2017-04-05T20:55:00Z", "next_try": null,
        "last_progress": at(1_376_116_651).to_string(),
    });
    assert_eq!(value, expected);
    known.shown.run = None;
    known.progress = None;
    let pause = Pause {
        by: "ann".into(),
        since: at(0),
    };
    known.shown.paused = Some(pause.clone());
    known.shown.why_not = Some(WhyNot::Paused(pause));
    let value = job(&known);
    assert_eq!(
        (&value["pid"], &value["info"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(value["paused"]["by"], "ann");
    assert_eq!(value["reason"], "paused by ann");
    assert_eq!(value["paused"]["since"], "1970-01-01T00:00:00Z");
    assert!(!value.to_string().contains("secret"));
}

#[test]
fn only_a_running_job_is_a_task() {
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
    let (state, value) = shown(&doc, None, Some(&known));
    assert_eq!(state, "running");
    assert_eq!(value["info"], figures());
    assert_eq!(value["source_proxy"], "http://u:*****@p.example:1");
    assert_eq!(value["target_proxy"], Value::Null);
    let known = info(JobState::Crashing, None);
    let (state, value) = shown(&doc, None, Some(&known));
    assert_eq!(state, "crashing");
    let error = json!({"error": "db_not_found: could not open http://h/missing/"});
    assert_eq!((&value["info"], &value["error_count"]), (&error, &json!(2)));
    assert_eq!(value["last_updated"], "2017-04-05T20:55:10Z");
}

#[test]
fn a_document_that_cannot_start_yet_shows_the_reason_and_its_source_and_target() {
    let mut table = DocTable::default();
    table.set_row("d1", Some(RowState::Error));
    let (state, value) = shown(&stored(&json!({})), table.row("d1"), None);
    assert_eq!(state, "error");
    assert_eq!(value["info"], json!({"error": "no"}));
    assert_eq!(
        (&value["reason"], &value["source"], &value["target"]),
        (&json!("no"), &json!("http://s/a/"), &json!("http://t/b/"))
    );
}

#[test]
fn a_document_that_no_daemon_has_claimed_is_shown_as_unclaimed() {
    let doc = stored(&json!({"source": "http://h/a", "target": "http://h/b"}));
    let (state, value) = shown(&doc, None, None);
    assert_eq!(
        (&*state, &value["info"]),
        ("initializing", &json!({"error": UNCLAIMED}))
    );
    let (_, alone) = settled(&doc, None);
    let alone: Value = serde_json::from_str(alone.get()).unwrap();
    assert_eq!(alone["info"], Value::Null);
}

#[test]
fn a_finished_document_shows_its_stored_state() {
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
    assert_eq!(shown(&doc, None, None), ("completed".to_owned(), expected));
    let doc = stored(&json!({
        "source": "no url with a:secret@in it", STATE: "failed", TIME: "t", REASON: "why",
    }));
    let (state, value) = shown(&doc, None, None);
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
