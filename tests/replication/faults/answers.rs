//! Answers that omit what was requested, or contain something else.

use std::sync::Mutex;

use futures_util::future::join_all;
use serde_json::{Value, json};
use settee::messages::replication_job::JobEnd;

use crate::support::couch::Couch;
use crate::support::http_server::{Answer, Received};
use crate::support::job::{body_with, run};

const MIXED: &str = "multipart/mixed; boundary=\"o\"";

fn document(rev: &str) -> Value {
    let (start, hash) = rev.split_once('-').unwrap();
    let start: u64 = start.parse().unwrap();
    json!({"_id": "a", "_rev": rev, "_revisions": {"start": start, "ids": [hash]}})
}

fn part(document: &Value) -> String {
    format!("--o\r\nContent-Type: application/json\r\n\r\n{document}\r\n")
}

/// Replicates a document with two leaves; the first `times` requests of `kind` get `answer`. Returns how the job ended,
/// how many revisions it read, the source and the target.
async fn answered(
    kind: &'static str,
    options: Value,
    times: usize,
    answer: impl Fn(&[String]) -> Answer + Send + Sync + 'static,
) -> (JobEnd, u64, Couch, Couch) {
    let (source, target) = (Couch::start().await, Couch::start().await);
    let revs: Vec<String> = (0..2)
        .map(|n| source.put("a", None, json!({ "n": n })))
        .collect();
    let left = Mutex::new(times);
    source.fault(move |request: &Received| {
        if request.kind() != kind || request.param("limit").is_some() {
            return None;
        }
        let mut left = left.lock().unwrap();
        *left = left.checked_sub(1)?;
        Some(answer(&revs))
    });
    let outcome = run(&body_with(&source.url(), &target.url(), options)).await;
    let read = outcome
        .progress
        .map_or(0, |progress| progress.stats.docs_read);
    (outcome.end, read, source, target)
}

async fn is_retried_and_ends_the_job(
    kind: &'static str,
    options: Value,
    answer: impl Fn(&[String]) -> Answer + Clone + Send + Sync + 'static,
) {
    let (end, _, source, target) = answered(kind, options.clone(), 1, answer.clone()).await;
    assert!(matches!(end, JobEnd::Normal { .. }), "{end:?}");
    let revs = |couch: &Couch| couch.trees()["a"].0.clone();
    assert_eq!(revs(&target), revs(&source));
    let (end, _, source, target) = answered(kind, options, usize::MAX, answer).await;
    let JobEnd::Crashed(crash) = end else {
        panic!("{end:?}");
    };
    assert!(
        crash.to_string().contains('\'') || kind == "GET _changes",
        "the error names the document: {crash}"
    );
    assert!(
        source.locals().is_empty() && target.locals().is_empty(),
        "no checkpoint is written"
    );
}

#[actix_rt::test]
async fn a_read_is_retried_until_every_requested_revision_is_answered() {
    let single = || json!({"use_bulk_get": false});
    type Making = fn(&[String]) -> Answer;
    let answers: [Making; 6] = [
        |_| Answer::json(200, "[]"),
        |_| Answer::bytes(200, MIXED, "--o--"),
        |revs| Answer::bytes(200, MIXED, part(&document(&revs[0])) + "--o--"),
        |revs| {
            let twice = part(&document(&revs[0])) + &part(&document(&revs[0]));
            Answer::bytes(200, MIXED, twice + "--o--")
        },
        |_| Answer::bytes(200, MIXED, part(&document("9-other")) + "--o--"),
        |revs| {
            Answer::json(
                200,
                json!([{"ok": document(&revs[1])}, {"missing": "9-other"}]),
            )
        },
    ];
    join_all(answers.map(|answer| is_retried_and_ends_the_job("GET doc", single(), answer))).await;
}

#[actix_rt::test]
async fn unrequested_revisions_are_not_written() {
    let options = json!({"use_bulk_get": false});
    let answer = |revs: &[String]| {
        let parts: String = ["9-other", &revs[0], &revs[1]]
            .iter()
            .map(|rev| part(&document(rev)))
            .collect();
        Answer::bytes(200, MIXED, parts + "--o--")
    };
    let (end, read, source, target) = answered("GET doc", options, usize::MAX, answer).await;
    assert!(matches!(end, JobEnd::Normal { .. }), "{end:?}");
    assert_eq!(read, 2);
    let revs = |couch: &Couch| couch.trees()["a"].0.keys().cloned().collect::<Vec<_>>();
    assert_eq!(revs(&target), revs(&source));
}

#[actix_rt::test]
async fn a_descendant_revision_counts_for_its_requested_ancestors() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    let first = source.put("a", None, json!({}));
    let second = source.put("a", Some(&first), json!({"n": 2}));
    let row = json!({"seq": "2-x", "id": "a", "changes": [{"rev": first}, {"rev": second}]});
    let feed = json!({"results": [row], "last_seq": "2-x", "pending": 0});
    source.fault(move |request| {
        let is_feed = request.kind() == "GET _changes" && request.param("limit").is_none();
        is_feed.then(|| Answer::json(200, &feed))
    });
    for use_bulk_get in [true, false] {
        let options = json!({"use_bulk_get": use_bulk_get, "use_checkpoints": false});
        let stats = run(&body_with(&source.url(), &target.url(), options))
            .await
            .normal()
            .1;
        // The second time nothing is missing.
        assert_eq!(stats.docs_read, u64::from(use_bulk_get));
    }
    assert_eq!(target.trees(), source.trees());
}

#[actix_rt::test]
async fn revisions_that_bulk_get_omits_or_repeats_are_read_one_by_one() {
    type Making = fn(&[String]) -> Answer;
    let answers: [Making; 4] = [
        |_| Answer::json(200, json!({"results": []})),
        |_| {
            let other = |rev| json!({"id": "a", "docs": [{"ok": document(rev)}]});
            Answer::json(200, json!({"results": [other("9-one"), other("9-other")]}))
        },
        |revs| {
            let one = json!({"id": "a", "docs": [{"ok": document(&revs[0])}]});
            Answer::json(200, json!({"results": [one, one]}))
        },
        |revs| {
            Answer::json(
                200,
                json!({"results": [{"id": "a", "docs": [{"missing": revs[0]}]}]}),
            )
        },
    ];
    join_all(answers.map(|answer| async move {
        let (end, read, source, target) =
            answered("POST _bulk_get", json!({}), usize::MAX, answer).await;
        assert!(matches!(end, JobEnd::Normal { .. }), "{end:?}");
        assert_eq!(read, 2, "each revision is counted once");
        let revs = |couch: &Couch| couch.trees()["a"].1.len();
        assert_eq!(revs(&target), revs(&source));
        assert!(!target.trees()["a"].0.contains_key("9-other"));
    }))
    .await;
}

#[actix_rt::test]
async fn a_malformed_feed_is_retried_and_ends_the_job_if_it_stays_malformed() {
    type Making = fn(&[String]) -> Answer;
    let answers: [Making; 4] = [
        |_| Answer::json(200, json!({"results": []})),
        |_| {
            Answer::json(
                200,
                json!({"results": [{"seq": "2-x", "id": "a"}], "last_seq": "2-x"}),
            )
        },
        |_| {
            Answer::json(
                200,
                "{\"results\":[],\"error\":\"timeout\",\"last_seq\":\"2-x\"}",
            )
        },
        |_| Answer::json(200, "{\"results\":[],\"last_seq\":null}"),
    ];
    join_all(answers.map(|answer| is_retried_and_ends_the_job("GET _changes", json!({}), answer)))
        .await;
}
