//! Faults of servers and networks at every kind of request, and how the job handles them.

mod answers;
mod documents;
mod ends;
mod feeds;
mod paths;
mod refusals;
mod told;

use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use settee::messages::replication_job::JobEnd;
use settee_testkit::TestRandom;
use tokio::time::{Instant, timeout};

use crate::support::couch::{Couch, Stored};
use crate::support::http_server::Answer;
use crate::support::job::{Job, body, body_with, run};

const SOURCE_KINDS: [&str; 7] = [
    "GET db",
    "GET _local",
    "GET _changes",
    "POST _bulk_get",
    "GET doc",
    "POST _ensure_full_commit",
    "PUT _local",
];
const TARGET_KINDS: [&str; 7] = [
    "GET db",
    "GET _local",
    "POST _revs_diff",
    "POST _bulk_docs",
    "PUT doc",
    "POST _ensure_full_commit",
    "PUT _local",
];

fn attachment(name: &str, bytes: Vec<u8>) -> Stored {
    Stored {
        name: name.to_owned(),
        content_type: "text/plain".to_owned(),
        encoding: None,
        bytes: bytes.into(),
        revpos: 1,
    }
}

/// A source with plain, design and attached documents, and an empty target.
async fn two() -> (Couch, Couch) {
    let (source, target) = (Couch::start().await, Couch::start().await);
    for index in 0..20 {
        source.put(&format!("doc-{index}"), None, json!({ "n": index }));
    }
    source.put("_design/d", None, json!({"views": {}}));
    let bytes = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    source.put_with("attached", None, json!({}), vec![attachment("x", bytes)]);
    (source, target)
}

/// Adds the fault to each kind of request at either side; every replication must still complete.
async fn survives(fault: impl Fn(&Couch, &'static str)) {
    let sides = [(true, SOURCE_KINDS), (false, TARGET_KINDS)];
    let mut runs = Vec::new();
    for (at_source, kinds) in sides {
        for kind in kinds {
            let (source, target) = two().await;
            fault(if at_source { &source } else { &target }, kind);
            let side = if at_source { "source" } else { "target" };
            let job = Job::start(&body(&source.url(), &target.url()));
            runs.push(async move {
                let outcome = job.outcome().await;
                assert!(
                    matches!(outcome.end, JobEnd::Normal { .. }),
                    "{kind} at the {side}: {:?}",
                    outcome.end
                );
                assert_eq!(target.trees(), source.trees(), "{kind} at the {side}");
                let stats = outcome.normal().1;
                assert_eq!(
                    (stats.docs_written, stats.doc_write_failures),
                    (22, 0),
                    "{kind} at the {side}"
                );
            });
        }
    }
    join_all(runs).await;
}

#[actix_rt::test]
async fn a_job_survives_a_503_at_any_request() {
    survives(|couch, kind| couch.fails(kind, 1, Answer::error(503, "unavailable", "x"))).await;
}

#[actix_rt::test]
async fn a_job_survives_a_429_at_any_request() {
    survives(|couch, kind| couch.fails(kind, 2, Answer::error(429, "too_many_requests", "x")))
        .await;
}

#[actix_rt::test]
async fn a_job_survives_a_reset_at_any_request() {
    survives(|couch, kind| couch.fails(kind, 1, Answer::reset())).await;
}

#[actix_rt::test]
async fn a_job_survives_an_answer_cut_off_at_any_request() {
    survives(|couch, kind| couch.fails(kind, 1, Answer::json(200, "{\"results\":[{\"seq\"").cut()))
        .await;
}

#[actix_rt::test]
async fn a_job_waits_for_slow_bodies() {
    let (source, target) = two().await;
    let log = json!({"_id": "_local/x", "_rev": "0-1", "session_id": "s"});
    let slow = Answer::json(200, log).slow(5, Duration::from_millis(20));
    source.fails("GET _local", 1, slow);
    let info = json!({"update_seq": "22-x", "instance_start_time": "1700000000"});
    target.fails(
        "GET db",
        1,
        Answer::json(200, info).slow(3, Duration::from_millis(20)),
    );
    run(&body(&source.url(), &target.url())).await;
    assert_eq!(target.trees(), source.trees());
}

/// Both servers fail at random; once they are healed, both sides are equal.
#[actix_rt::test]
async fn no_failure_loses_a_document() {
    let mut random = TestRandom::for_test("no_failure_loses_a_document");
    let (source, target) = two().await;
    for couch in [&source, &target] {
        let dice = Mutex::new(random.fork());
        couch.fault(move |_| {
            let mut dice = dice.lock().unwrap();
            match dice.below(40) {
                0 => Some(Answer::error(503, "x", "y")),
                1 => Some(Answer::reset()),
                2 => Some(Answer::json(200, "{\"results\":[{\"id\"").cut()),
                3 => Some(Answer::error(500, "x", "y")),
                4 => Some(Answer::error(429, "x", "y")),
                5 => Some(Answer::bytes(200, "text/html", "<html>a proxy</html>")),
                _ => None,
            }
        });
    }
    let options = json!({"continuous": true, "checkpoint_interval": 200, "worker_batch_size": 7,
        "retries_per_request": 2, "connection_timeout": 1000});
    let body = body_with(&source.url(), &target.url(), options);
    let until = Instant::now() + Duration::from_secs(12);
    let (mut job, mut crashes, mut written) = (Job::start(&body), 0, 0);
    while Instant::now() < until {
        let what = format!("doc-{}", random.below(60));
        let leaves = source
            .trees()
            .get(&what)
            .map(|tree| tree.1.keys().cloned().collect::<Vec<_>>());
        let parent = leaves
            .filter(|leaves| !leaves.is_empty())
            .map(|leaves| random.one_of(&leaves).clone());
        let parent = parent.filter(|_| random.below(5) > 0);
        let attachments = match random.below(6) {
            0 => vec![attachment("x", vec![7; random.below(50_000)])],
            _ => Vec::new(),
        };
        written += 1;
        let content = match random.below(8) {
            0 => json!({"n": written, "_deleted": true}),
            _ => json!({ "n": written }),
        };
        source.put_with(&what, parent.as_deref(), content, attachments);
        // Restarts a crashed job, as the scheduler does.
        if let Ok(Some(_)) = timeout(Duration::from_millis(30), job.next()).await {
            crashes += 1;
            job = Job::start(&body);
        }
    }
    job.stopped_or_crashed().await;
    source.heal();
    target.heal();
    let done = run(&crate::support::job::body(&source.url(), &target.url()))
        .await
        .normal()
        .1;
    println!("{written} writes, {crashes} crashes, {done:?}");
    let (mut ours, theirs) = (target.trees(), source.trees());
    // Only revisions that the source has are compared.
    for (id, tree) in &mut ours {
        assert_eq!(tree.1, theirs[id].1, "{id}");
        tree.0.retain(|rev, _| theirs[id].0.contains_key(rev));
    }
    assert_eq!(ours, theirs);
    assert_eq!(done.doc_write_failures, 0);
}
