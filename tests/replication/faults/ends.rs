//! The reasons for which a job ends, and that it ends in time.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Arbiter};
use futures_util::future::join_all;
use serde_json::json;
use settee::actors::replication_job::ReplicationJob;
use settee::messages::replication_job::{CheckpointGuard, JobLease};
use settee::replication::crash::Crash;
use settee::testkit::eventually;
use tokio::time::{Instant, timeout};

use super::two;
use crate::support::http_server::{Answer, Piece};
use crate::support::job::{Job, body, body_with, run};

#[actix_rt::test]
async fn the_job_ends_with_the_reason_that_couchdb_gives() {
    let crash = |side: &'static str, kind: &'static str, answer: Answer| async move {
        let (source, target) = two().await;
        let at = if side == "source" { &source } else { &target };
        at.fails(kind, usize::MAX, answer);
        let crash = run(&body(&source.url(), &target.url())).await.crash();
        (crash.name(), crash.to_string())
    };
    let json = |status, text: &str| Answer::json(status, text);
    let expected = [
        (
            "target",
            "POST _bulk_docs",
            json(403, r#"{"x":"y"}"#),
            "bulk_docs_failed",
            r#"403: {"x":"y"}"#,
        ),
        (
            "source",
            "GET _changes",
            json(418, r#"{"x":"y"}"#),
            "changes_req_failed",
            r#"418: {"x":"y"}"#,
        ),
        (
            "target",
            "PUT doc",
            json(400, r#"{"error":"x","reason":"y"}"#),
            "doc_write_failed",
            "x: y",
        ),
        (
            "target",
            "PUT doc",
            json(400, r#"{"a":"b"}"#),
            "doc_write_failed",
            r#"400: {"a":"b"}"#,
        ),
        (
            "target",
            "PUT doc",
            json(400, "no json"),
            "doc_write_failed",
            "invalid_json: no json",
        ),
        (
            "target",
            "POST _revs_diff",
            json(407, r#"{"x":"y"}"#),
            "revs_diff_failed",
            r#"407: {"x":"y"}"#,
        ),
        (
            "source",
            "GET doc",
            json(500, "{}"),
            "worker_died",
            "open_doc_revs_failed",
        ),
        (
            "source",
            "GET db",
            json(401, "{}"),
            "unauthorized",
            "unauthorized to access or create database",
        ),
        (
            "target",
            "GET db",
            json(403, "{}"),
            "forbidden",
            "forbidden to access or create database",
        ),
        (
            "source",
            "GET db",
            json(404, "{}"),
            "db_not_found",
            "could not open",
        ),
        (
            "source",
            "GET _local",
            json(403, r#"{"error":"forbidden"}"#),
            "checkpoint_read_failure",
            "forbidden",
        ),
        (
            "target",
            "POST _ensure_full_commit",
            json(404, r#"{"error":"not_found"}"#),
            "checkpoint_commit_failure",
            "Failure on target commit: ",
        ),
        (
            "source",
            "PUT _local",
            json(403, r#"{"error":"forbidden"}"#),
            "checkpoint_commit_failure",
            "source checkpoint",
        ),
        (
            "target",
            "PUT _local",
            json(409, r#"{"error":"conflict"}"#),
            "checkpoint_commit_failure",
            "conflict",
        ),
        (
            "target",
            "POST _bulk_docs",
            json(201, "{}"),
            "bulk_docs_failed",
            "201: {}",
        ),
        (
            "target",
            "POST _revs_diff",
            json(200, "[]"),
            "revs_diff_failed",
            "200: []",
        ),
        (
            "source",
            "GET _changes",
            json(200, r#"{"results":[{"error":"x"}]}"#),
            "changes_req_failed",
            "ended the changes feed",
        ),
    ];
    let runs = expected.map(|(side, kind, answer, name, text)| async move {
        let (got, words) = crash(side, kind, answer).await;
        assert_eq!(got, name, "{kind}: {words}");
        assert!(words.contains(text), "{kind}: {words}");
    });
    join_all(runs).await;
}

#[actix_rt::test]
async fn a_database_that_was_replaced_gets_no_checkpoint() {
    let (source, target) = two().await;
    let answer = Answer::json(
        201,
        json!({"ok": true, "instance_start_time": "1800000000"}),
    );
    target.fails("POST _ensure_full_commit", 1, answer);
    let crash = run(&body(&source.url(), &target.url())).await.crash();
    let words = "instance_start_time on target database has changed since last checkpoint.";
    assert_eq!(
        (crash.name(), crash.to_string().contains(words)),
        ("checkpoint_commit_failure", true)
    );
    assert!(target.locals().is_empty() && source.locals().is_empty());
}

#[actix_rt::test]
async fn a_job_that_is_stopped_is_gone_in_time_whatever_the_servers_do() {
    let (source, target) = two().await;
    let never = Arc::new(tokio::sync::Notify::new());
    let hangs = Answer::stream(201, "application/json", vec![Piece::Until(never)]);
    target.fails("POST _ensure_full_commit", usize::MAX, hangs);
    let options = json!({"continuous": true, "connection_timeout": 60000});
    let job = Job::start(&body_with(&source.url(), &target.url(), options));
    eventually("everything is written", || async {
        target.trees() == source.trees()
    })
    .await;
    let began = Instant::now();
    job.stopped().await;
    assert!(
        began.elapsed() >= Duration::from_secs(4),
        "it tried to leave a checkpoint"
    );
    assert!(began.elapsed() < Duration::from_secs(30));
    // And one that has not even begun.
    let hangs = Answer::stream(200, "application/json", vec![Piece::Until(Arc::default())]);
    source.fails("GET db", usize::MAX, hangs);
    let job = Job::start(&body(&source.url(), &target.url()));
    eventually("it is opening", || async {
        source.server.count("GET db") > 1
    })
    .await;
    timeout(Duration::from_secs(4), job.stopped())
        .await
        .expect("there is nothing to wait for");
}

#[actix_rt::test]
async fn a_job_whose_arbiter_ends_says_so() {
    let (source, target) = two().await;
    let arbiter = Arbiter::new();
    let options = json!({"continuous": true});
    let (start, mut job) = Job::prepare(&body_with(&source.url(), &target.url(), options));
    let address =
        ReplicationJob::start_in_arbiter(&arbiter.handle(), |_| ReplicationJob::new(start));
    job.address = Some(address);
    eventually("it is at work", || async {
        target.trees() == source.trees()
    })
    .await;
    arbiter.stop();
    assert!(matches!(job.outcome().await.crash(), Crash::JobDied(_)));
}

/// A lease that lasts for so long from every question on, or is over.
#[derive(Debug)]
struct Lease(Option<Duration>);

impl JobLease for Lease {
    fn left(&self) -> Option<Duration> {
        self.0
    }

    fn epoch(&self) -> u64 {
        0xabc
    }
}

fn under(lease: Lease, body: &serde_json::Value) -> Job {
    let (mut start, mut job) = Job::prepare(body);
    start.run.guard = CheckpointGuard::of(Arc::new(lease));
    job.address = Some(ReplicationJob::new(start).start());
    job
}

#[actix_rt::test]
async fn outside_its_lease_a_job_begins_no_checkpoint() {
    let (source, target) = two().await;
    let job = under(Lease(None), &body(&source.url(), &target.url()));
    assert_eq!(job.outcome().await.crash(), Crash::LeaseLost);
    assert_eq!(target.trees(), source.trees());
    assert!(target.locals().is_empty() && source.locals().is_empty());
    let commits =
        |couch: &crate::support::couch::Couch| couch.server.count("POST _ensure_full_commit");
    assert_eq!((commits(&source), commits(&target)), (0, 0));
}

#[actix_rt::test]
async fn a_checkpoint_ends_with_the_lease_whatever_the_servers_do() {
    let (source, target) = two().await;
    let hangs = Answer::stream(201, "application/json", vec![Piece::Until(Arc::default())]);
    target.fails("POST _ensure_full_commit", usize::MAX, hangs);
    let lease = Lease(Some(Duration::from_millis(100)));
    let job = under(lease, &body(&source.url(), &target.url()));
    assert_eq!(job.outcome().await.crash(), Crash::LeaseLost);
    assert!(target.locals().is_empty() && source.locals().is_empty());
}

#[actix_rt::test]
async fn a_checkpoint_names_the_epoch_of_the_owner_and_none_where_there_is_none() {
    let (source, target) = two().await;
    run(&body(&source.url(), &target.url())).await;
    let text = |couch: &crate::support::couch::Couch| format!("{:?}", couch.locals());
    assert!(!text(&source).contains("owner_epoch"));
    let (source, target) = two().await;
    let lease = Lease(Some(Duration::from_secs(60)));
    under(lease, &body(&source.url(), &target.url()))
        .outcome()
        .await;
    for couch in [&source, &target] {
        assert!(text(couch).contains("0000000000000abc"), "{}", text(couch));
    }
}
