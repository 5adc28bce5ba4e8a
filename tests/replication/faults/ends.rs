//! Why jobs end, and that they end in time.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Arbiter};
use futures_util::future::join_all;
use serde_json::json;
use settee::actors::replication_job::ReplicationJob;
use settee::messages::replication_job::{CheckpointGuard, JobLease};
use settee::replication::crash::Crash;
use settee_testkit::eventually;
use tokio::sync::{Notify, watch};
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
            json(400, r#"{"error":"bad_request","reason":"y"}"#),
            "doc_write_failed",
            "bad_request: y",
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
async fn a_stopped_job_ends_in_time_whatever_the_servers_do() {
    let (source, target) = two().await;
    let never = Arc::new(Notify::new());
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
        "the job tried to write a checkpoint"
    );
    assert!(began.elapsed() < Duration::from_secs(30));
    // A job that is still opening its source has no checkpoint to write.
    let hangs = Answer::stream(200, "application/json", vec![Piece::Until(Arc::default())]);
    source.fails("GET db", usize::MAX, hangs);
    let job = Job::start(&body(&source.url(), &target.url()));
    eventually("the job is opening", || async {
        source.server.count("GET db") > 1
    })
    .await;
    timeout(Duration::from_secs(4), job.stopped())
        .await
        .expect("the job ends without writing a checkpoint");
}

#[actix_rt::test]
async fn a_job_whose_arbiter_ends_reports_that_it_died() {
    let (source, target) = two().await;
    let arbiter = Arbiter::new();
    let options = json!({"continuous": true});
    let (start, mut job) = Job::prepare(&body_with(&source.url(), &target.url(), options));
    let address =
        ReplicationJob::start_in_arbiter(&arbiter.handle(), |_| ReplicationJob::new(start));
    job.address = Some(address);
    eventually("everything is written", || async {
        target.trees() == source.trees()
    })
    .await;
    arbiter.stop();
    assert!(matches!(job.outcome().await.crash(), Crash::JobDied(_)));
}

/// A lease whose remaining time the test sets.
#[derive(Debug)]
enum Lease {
    Over,
    /// Expires at this time: it is not renewed.
    Until(Instant),
    /// Always has this much time left, because it is renewed. Counts its queries.
    Renewed(Duration, watch::Sender<usize>),
}

impl JobLease for Lease {
    fn left(&self) -> Option<Duration> {
        match self {
            Self::Over => None,
            Self::Until(end) => {
                Some(end.duration_since(Instant::now())).filter(|left| !left.is_zero())
            }
            Self::Renewed(left, asked) => {
                asked.send_modify(|asked| *asked += 1);
                Some(*left)
            }
        }
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

/// Returns an answer that hangs after its head, and what the test notifies to let it continue.
fn hanging() -> (Answer, Arc<Notify>) {
    let go_on = Arc::new(Notify::new());
    let committed = json!({"ok": true, "instance_start_time": "0"}).to_string();
    let pieces = vec![
        Piece::Until(Arc::clone(&go_on)),
        Piece::Bytes(committed.into()),
    ];
    (Answer::stream(201, "application/json", pieces), go_on)
}

#[actix_rt::test]
async fn a_job_without_a_lease_begins_no_checkpoint() {
    let (source, target) = two().await;
    let job = under(Lease::Over, &body(&source.url(), &target.url()));
    assert_eq!(job.outcome().await.crash(), Crash::LeaseLost);
    assert_eq!(target.trees(), source.trees());
    assert!(target.locals().is_empty() && source.locals().is_empty());
    let commits =
        |couch: &crate::support::couch::Couch| couch.server.count("POST _ensure_full_commit");
    assert_eq!((commits(&source), commits(&target)), (0, 0));
}

#[actix_rt::test]
async fn an_older_checkpoint_is_written_under_its_new_id_only_under_a_lease() {
    let held = || Lease::Renewed(Duration::from_secs(60), watch::channel(0).0);
    for (lease, is_held) in [(Lease::Over, false), (held(), true)] {
        let (source, target) = two().await;
        let body = body_with(&source.url(), &target.url(), json!({"continuous": true}));
        let (_, job) = Job::prepare(&body);
        let newest = format!("_local/{}", job.base);
        for side in [&source, &target] {
            let newest = newest.clone();
            let older = json!({"_id": "_local/older", "_rev": "0-3", "session_id": "s"});
            side.fault(move |request| {
                let call = request.call();
                let is_older = call.starts_with("_local/") && call != newest;
                is_older.then(|| Answer::json(200, older.clone()))
            });
        }
        let job = under(lease, &body);
        if is_held {
            eventually(
                "the checkpoints of both sides are under the new id",
                || async {
                    let of = |couch: &crate::support::couch::Couch| couch.local(&newest);
                    let both = [of(&source), of(&target)];
                    both.iter()
                        .all(|log| log.as_ref().is_some_and(|log| log["session_id"] == "s"))
                },
            )
            .await;
            job.stopped().await;
        } else {
            assert_eq!(job.outcome().await.crash(), Crash::LeaseLost);
            assert!(target.locals().is_empty() && source.locals().is_empty());
        }
    }
}

#[actix_rt::test]
async fn a_checkpoint_ends_when_its_lease_expires_whatever_the_servers_do() {
    let (source, target) = two().await;
    let (hangs, _) = hanging();
    target.fails("POST _ensure_full_commit", usize::MAX, hangs);
    let lease = Lease::Until(Instant::now() + Duration::from_secs(2));
    let job = under(lease, &body(&source.url(), &target.url()));
    assert_eq!(job.outcome().await.crash(), Crash::LeaseLost);
    assert!(target.locals().is_empty() && source.locals().is_empty());
}

#[actix_rt::test]
async fn a_checkpoint_may_take_longer_than_a_lease_that_is_renewed() {
    let (source, target) = two().await;
    let (hangs, go_on) = hanging();
    target.fails("POST _ensure_full_commit", 1, hangs);
    let (told, mut asked) = watch::channel(0);
    let lease = Lease::Renewed(Duration::from_millis(20), told);
    let job = under(lease, &body(&source.url(), &target.url()));
    eventually("the commit is requested", || async {
        target.server.count("POST _ensure_full_commit") == 1
    })
    .await;
    // While the target is silent, the job queries the lease again only when the time that was left has passed.
    let before = *asked.borrow();
    let several = timeout(
        Duration::from_secs(60),
        asked.wait_for(|asked| *asked > before + 10),
    );
    several.await.expect("the lease is queried again").unwrap();
    go_on.notify_one();
    job.outcome().await.normal();
    assert_eq!((target.locals().len(), source.locals().len()), (1, 1));
}

#[actix_rt::test]
async fn under_a_renewed_lease_a_checkpoint_is_bounded_by_its_request_timeouts() {
    let (source, target) = two().await;
    let (hangs, _) = hanging();
    target.fails("POST _ensure_full_commit", usize::MAX, hangs);
    let lease = Lease::Renewed(Duration::from_millis(20), watch::channel(0).0);
    let bounds = json!({"connection_timeout": 300, "retries_per_request": 0});
    let job = under(lease, &body_with(&source.url(), &target.url(), bounds));
    let crash = job.outcome().await.crash();
    assert!(
        matches!(crash, Crash::CheckpointCommitFailure(_)),
        "{crash}"
    );
    assert!(target.locals().is_empty() && source.locals().is_empty());
}

#[actix_rt::test]
async fn a_checkpoint_names_the_epoch_of_its_owner_if_there_is_one() {
    let (source, target) = two().await;
    run(&body(&source.url(), &target.url())).await;
    let text = |couch: &crate::support::couch::Couch| format!("{:?}", couch.locals());
    assert!(!text(&source).contains("owner_epoch"));
    let (source, target) = two().await;
    let lease = Lease::Renewed(Duration::from_secs(60), watch::channel(0).0);
    under(lease, &body(&source.url(), &target.url()))
        .outcome()
        .await;
    for couch in [&source, &target] {
        assert!(text(couch).contains("0000000000000abc"), "{}", text(couch));
    }
}
