//! What servers, and networks, do wrong: at every request, and what the job makes of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, Arbiter};
use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::json;
use settee::messages::replication_job::JobEnd;
use settee::replication::crash::Crash;
use settee::testkit::{TestRandom, eventually};
use tokio::time::{Instant, timeout};

use crate::couch::{Couch, Stored};
use crate::http::{Answer, Piece};
use crate::job::{Job, body, body_with, replicate, run};

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

/// A source with something of everything, and an empty target.
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

/// Every kind of request, at either side, fails once in this way.
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
async fn a_503_at_any_request_is_survived() {
    survives(|couch, kind| couch.fails(kind, 1, Answer::error(503, "unavailable", "x"))).await;
}

#[actix_rt::test]
async fn a_429_at_any_request_is_survived() {
    survives(|couch, kind| couch.fails(kind, 2, Answer::error(429, "too_many_requests", "x")))
        .await;
}

#[actix_rt::test]
async fn a_reset_at_any_request_is_survived() {
    survives(|couch, kind| couch.fails(kind, 1, Answer::reset())).await;
}

#[actix_rt::test]
async fn an_answer_cut_off_at_any_request_is_survived() {
    survives(|couch, kind| couch.fails(kind, 1, Answer::json(200, "{\"results\":[{\"seq\"").cut()))
        .await;
}

#[actix_rt::test]
async fn a_document_cut_off_in_its_attachment_is_read_again_and_never_stored_in_part() {
    let (source, target) = two().await;
    let whole = "--outer\r\nContent-Type: multipart/related; boundary=\"inner\"\r\n\r\n--inner\r\n\
        Content-Type: application/json\r\n\r\n{\"_id\":\"attached\",\"_rev\":\"1-x\",\
        \"_revisions\":{\"start\":1,\"ids\":[\"x\"]},\"_attachments\":{\"x\":{\"content_type\":\"a/b\",\
        \"revpos\":1,\"length\":200000,\"follows\":true}}}\r\n--inner\r\n\r\n";
    let body = [whole.as_bytes(), &[b'x'; 150_000]].concat();
    let kind = "multipart/mixed; boundary=\"outer\"";
    // First the connection breaks off, then the attachment is shorter than it should be.
    let cut = Answer::bytes(200, kind, body.clone()).cut();
    let short = Answer::bytes(
        200,
        kind,
        [&body[..], b"\r\n--inner--\r\n--outer--"].concat(),
    );
    let answers = Mutex::new(vec![short, cut]);
    source.fault(move |request| {
        let is_it = request.kind() == "GET doc" && request.call() == "attached";
        is_it.then(|| answers.lock().unwrap().pop()).flatten()
    });
    replicate(&source.url(), &target.url()).await;
    assert_eq!(target.trees(), source.trees());
    assert_eq!(
        target.trees()["attached"].0.len(),
        1,
        "the revision 1-x was never stored"
    );
}

#[actix_rt::test]
async fn slow_bodies_take_their_time() {
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
async fn bulk_get_that_fails_means_single_reads() {
    let answers = [
        Answer::error(418, "x", "y"),
        Answer::error(501, "x", "y"),
        Answer::json(200, "{\"results\":["),
        Answer::json(200, json!({"results": []})),
        Answer::json(200, json!({"results": [{"id": "doc-1", "docs": []}]})),
    ];
    let runs = answers.map(|answer| async move {
        let (source, target) = two().await;
        source.fails("POST _bulk_get", usize::MAX, answer);
        let stats = replicate(&source.url(), &target.url()).await;
        assert_eq!(target.trees(), source.trees());
        assert_eq!((stats.bulk_get_docs, stats.bulk_get_attempts), (0, 21));
        assert_eq!(source.server.count("GET doc"), 22);
    });
    join_all(runs).await;
}

#[actix_rt::test]
async fn what_a_target_refuses_is_passed_over() {
    let answers = [
        Answer::error(401, "unauthorized", "x"),
        Answer::error(403, "forbidden", "x"),
        Answer::error(413, "too_large", "x"),
        Answer::error(415, "unsupported", "x"),
        Answer::error(
            400,
            "bad_request",
            "Attachment name '_x' starts with prohibited character '_'",
        ),
    ];
    let runs = answers.map(|answer| async move {
        let (source, target) = two().await;
        target.fault(move |request| (request.call() == "attached").then(|| answer.clone()));
        let outcome = run(&body(&source.url(), &target.url())).await;
        assert_eq!(outcome.refused[0].id, "attached");
        let stats = outcome.normal().1;
        assert_eq!((stats.docs_written, stats.doc_write_failures), (21, 1));
    });
    join_all(runs).await;
}

#[actix_rt::test]
async fn a_refusal_that_comes_before_the_attachments_are_sent_is_one_too() {
    let (source, target) = two().await;
    let id = format!("{}-one", crate::http::TOO_LARGE);
    source.put_with(
        &id,
        None,
        json!({}),
        vec![attachment("x", vec![7; 20_000_000])],
    );
    let outcome = run(&body(&source.url(), &target.url())).await;
    assert!(
        matches!(outcome.end, JobEnd::Normal { .. }),
        "{:?}",
        outcome.end
    );
    assert_eq!(outcome.refused[0].id, id);
    assert_eq!(target.trees().len(), 22);
    assert_eq!(source.server.count("GET doc"), 3, "nothing is read twice");
}

#[actix_rt::test]
async fn an_attachment_that_the_target_lost_is_sent_after_all() {
    let (source, target) = two().await;
    let kept = attachment("kept", b"0123456789".to_vec());
    let first = source.put_with("a", None, json!({}), vec![kept.clone()]);
    replicate(&source.url(), &target.url()).await;
    source.put_with("a", Some(&first), json!({"b": 1}), vec![kept]);
    target.fails("PUT doc", 1, Answer::error(412, "missing_stub", "x"));
    replicate(&source.url(), &target.url()).await;
    assert_eq!(target.trees(), source.trees());
    let reads: Vec<_> = source
        .server
        .received()
        .into_iter()
        .filter(|request| request.kind() == "GET doc" && request.call() == "a")
        .collect();
    let since: Vec<bool> = reads
        .iter()
        .map(|request| request.param("atts_since").is_some())
        .collect();
    assert_eq!(since, [false, true, false]);
}

#[actix_rt::test]
async fn batches_that_are_too_large_are_halved() {
    let (source, target) = two().await;
    target.fault(|request| {
        let is_large = request.kind() == "POST _bulk_docs"
            && request.json()["docs"].as_array().unwrap().len() > 3;
        let has_seven = request.kind() == "POST _bulk_docs"
            && request.body.windows(7).any(|window| window == b"\"doc-7\"");
        (is_large || has_seven).then(|| Answer::error(413, "too_large", "x"))
    });
    let outcome = run(&body(&source.url(), &target.url())).await;
    assert_eq!(
        (
            outcome.refused[0].id.as_str(),
            outcome.refused[0].error.as_str()
        ),
        ("doc-7", "too_large")
    );
    let stats = outcome.normal().1;
    assert_eq!((stats.docs_written, stats.doc_write_failures), (21, 1));
    assert_eq!(target.trees().len(), 21);
}

#[actix_rt::test]
async fn lines_that_are_too_long_are_shortened() {
    let (source, target) = two().await;
    let mut revs = Vec::new();
    for index in 0..100 {
        revs.push(source.put_with(
            "many",
            None,
            json!({ "n": index }),
            vec![attachment("x", vec![1])],
        ));
    }
    source.fault(|request| {
        let length: usize = request
            .query
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        (length > 1000).then(|| Answer::error(414, "request_uri_too_long", "x"))
    });
    replicate(&source.url(), &target.url()).await;
    assert_eq!(target.trees(), source.trees());
    assert_eq!(target.trees()["many"].1.len(), 100);
    source.put("another", None, json!({}));
    source.fails(
        "GET doc",
        usize::MAX,
        Answer::error(414, "request_uri_too_long", "x"),
    );
    let options = json!({"use_bulk_get": false});
    let crash = run(&body_with(&source.url(), &target.url(), options))
        .await
        .crash();
    assert!(matches!(crash, Crash::RequestUriTooLong { .. }), "{crash}");
}

#[actix_rt::test]
async fn a_revision_that_is_not_there_is_waited_for_once() {
    let missing = |rev: &str| {
        let part = format!(
            "--o\r\nContent-Type: application/json; error=\"true\"\r\n\r\n{{\"missing\":\"{rev}\"}}\r\n--o--"
        );
        Answer::bytes(200, "multipart/mixed; boundary=\"o\"", part)
    };
    for times in [1, 2] {
        let (source, target) = (Couch::start().await, Couch::start().await);
        let rev = source.put("a", None, json!({}));
        source.fails("GET doc", times, missing(&rev));
        let options = json!({"use_bulk_get": false});
        let outcome = run(&body_with(&source.url(), &target.url(), options)).await;
        match times {
            1 => assert_eq!(outcome.normal().1.docs_written, 1),
            _ => assert!(matches!(outcome.crash(), Crash::MissingDoc { .. })),
        }
    }
}

#[actix_rt::test]
async fn answers_of_plain_json_are_understood_and_their_attachments_read_one_by_one() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    let document = json!({"_id": "a", "_rev": "1-x", "b": 1, "_revisions": {"start": 1, "ids": ["x"]},
        "_attachments": {"e/f g": {"content_type": "text/plain", "revpos": 1, "length": 5, "stub": true},
            "h": {"content_type": "text/css", "revpos": 1, "length": 0, "stub": true}}});
    source.put("a", None, json!({}));
    source.fault(move |request| match request.kind().as_str() {
        "GET doc" => Some(Answer::bytes(
            200,
            "text/plain",
            json!([{ "ok": document }]).to_string(),
        )),
        "GET attachment" => {
            let is_first = request.call() == "a/e%2Ff%20g";
            assert_eq!(
                (is_first || request.call() == "a/h", request.param("rev")),
                (true, Some("1-x"))
            );
            Some(Answer::bytes(
                200,
                "text/plain",
                if is_first { "hello" } else { "" },
            ))
        }
        _ => None,
    });
    replicate_with_single_reads(&source, &target).await;
    let (body, _, attachments) = target.trees()["a"].1["1-x"].clone();
    assert_eq!(body, json!({"b": 1}).as_object().cloned());
    let stored: Vec<_> = attachments
        .iter()
        .map(|one| (one.name.as_str(), &one.bytes[..]))
        .collect();
    assert_eq!(stored, [("e/f g", &b"hello"[..]), ("h", &b""[..])]);
}

async fn replicate_with_single_reads(source: &Couch, target: &Couch) {
    let options = json!({"use_bulk_get": false});
    run(&body_with(&source.url(), &target.url(), options))
        .await
        .normal();
}

#[actix_rt::test]
async fn a_feed_that_falls_silent_is_asked_for_again() {
    let (source, target) = two().await;
    let silent = Arc::new(tokio::sync::Notify::new());
    let pieces = vec![Piece::Bytes("\n".into()), Piece::Until(silent)];
    source.fails(
        "GET _changes",
        1,
        Answer::stream(200, "application/json", pieces),
    );
    let options = json!({"continuous": true, "connection_timeout": 500});
    let job = Job::start(&body_with(&source.url(), &target.url(), options));
    eventually("it is read after all", || async {
        target.trees() == source.trees()
    })
    .await;
    job.stopped().await;
}

#[actix_rt::test]
async fn a_feed_without_end_is_followed_as_long_as_it_shows_life() {
    let (source, target) = two().await;
    let mut pieces = Vec::new();
    for seq in 1..=3 {
        for _ in 0..4 {
            pieces.extend([
                Piece::Bytes("\n".into()),
                Piece::Wait(Duration::from_millis(200)),
            ]);
        }
        let row = json!({"seq": seq, "id": format!("doc-{seq}"), "changes": [{"rev": "1-x"}]});
        pieces.push(Piece::Bytes(format!("{row}\n").into()));
    }
    pieces.push(Piece::Until(Arc::new(tokio::sync::Notify::new())));
    let answer = Mutex::new(Some(Answer::stream(200, "application/json", pieces)));
    source.fault(move |request| match request.kind().as_str() {
        "GET _changes" if request.param("limit").is_none() => answer.lock().unwrap().take(),
        "POST _bulk_get" => {
            let docs: Vec<_> = request.json()["docs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|asked| {
                    json!({
                "id": asked["id"], "docs": [{"ok": {"_id": asked["id"], "_rev": "1-x",
                    "_revisions": {"start": 1, "ids": ["x"]}}}]})
                })
                .collect();
            Some(Answer::json(200, json!({ "results": docs })))
        }
        _ => None,
    });
    let options = json!({"continuous": true, "connection_timeout": 600});
    let job = Job::start(&body_with(&source.url(), &target.url(), options));
    eventually("all rows are replicated", || async {
        target.trees().len() == 3
    })
    .await;
    job.stopped().await;
    let asked = source.server.received();
    let feeds = asked
        .iter()
        .filter(|request| request.kind() == "GET _changes" && request.param("limit").is_none());
    assert_eq!(feeds.count(), 1);
}

#[actix_rt::test]
async fn a_feed_that_breaks_off_goes_on_behind_what_was_read() {
    let (source, target) = two().await;
    for index in 0..300 {
        source.put(&format!("more-{index}"), None, json!({}));
    }
    let left = AtomicUsize::new(12);
    let inner = Arc::new(source);
    let seen = Arc::downgrade(&inner);
    inner.fault(move |request| {
        let is_feed = request.kind() == "GET _changes" && request.param("limit").is_none();
        if !is_feed
            || left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_err()
        {
            return None;
        }
        // The first rows behind `since`, and then nothing.
        let since = request.param("since").unwrap().to_owned();
        let rows = seen.upgrade()?.rows_after(&since, 20);
        let text = format!("{{\"results\":[\n{}", rows.join(",\n"));
        Some(
            Answer::bytes(
                200,
                "application/json",
                [text.as_bytes(), &[b' '; 100]].concat(),
            )
            .cut_at(text.len()),
        )
    });
    let stats = replicate(&inner.url(), &target.url()).await;
    assert_eq!(target.trees(), inner.trees());
    assert_eq!(stats.missing_checked, 322, "no row was read twice");
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
    let address = settee::actors::replication_job::ReplicationJob::start_in_arbiter(
        &arbiter.handle(),
        |_| settee::actors::replication_job::ReplicationJob::new(start),
    );
    job.address = Some(address);
    eventually("it is at work", || async {
        target.trees() == source.trees()
    })
    .await;
    arbiter.stop();
    assert!(matches!(job.outcome().await.crash(), Crash::JobDied(_)));
}

#[actix_rt::test]
async fn an_answer_that_does_not_say_so_is_no_written_document() {
    let answers = [
        Answer::bytes(200, "text/html", "<html>a proxy</html>"),
        Answer::json(201, "{\"ok\":false}"),
        Answer::json(202, ""),
    ];
    let runs = answers.map(|answer| async move {
        let (source, target) = two().await;
        let first = Mutex::new(Some(answer));
        target.fault(move |request| {
            let is_put = request.call() == "attached";
            is_put.then(|| first.lock().unwrap().take()).flatten()
        });
        replicate(&source.url(), &target.url()).await;
        assert_eq!(target.trees(), source.trees());
    });
    join_all(runs).await;
}

/// Servers that fail in every way, all the time; when they are healed, both sides are equal.
#[actix_rt::test]
async fn whatever_fails_nothing_is_lost() {
    let mut random = TestRandom::for_test("whatever_fails_nothing_is_lost");
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
        // Whoever runs jobs starts them again.
        if let Ok(Some(_)) = timeout(Duration::from_millis(30), job.next()).await {
            crashes += 1;
            job = Job::start(&body);
        }
    }
    job.stopped_or_crashed().await;
    source.heal();
    target.heal();
    let done = run(&crate::job::body(&source.url(), &target.url()))
        .await
        .normal()
        .1;
    println!("{written} writes, {crashes} crashes, {done:?}");
    let (mut ours, theirs) = (target.trees(), source.trees());
    // A revision that was replaced before it was read is known by name alone.
    for (id, tree) in &mut ours {
        assert_eq!(tree.1, theirs[id].1, "{id}");
        tree.0.retain(|rev, _| theirs[id].0.contains_key(rev));
    }
    assert_eq!(ours, theirs);
    assert_eq!(done.doc_write_failures, 0);
}

#[actix_rt::test]
async fn a_large_attachment_passes_through_a_slow_connection() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    let bytes: Vec<u8> = (0..20_000_000u32).map(|n| (n % 253) as u8).collect();
    let mut gzipped = attachment("big", bytes);
    gzipped.encoding = Some("gzip".to_owned());
    source.put_with("large", None, json!({}), vec![gzipped]);
    replicate(&source.url(), &target.url()).await;
    assert_eq!(target.trees(), source.trees());
    let put = target
        .server
        .received()
        .into_iter()
        .find(|request| request.kind() == "PUT doc")
        .unwrap();
    let told: usize = put.headers["content-length"].parse().unwrap();
    assert_eq!(told, put.body.len());
    assert!(memchr::memmem::find(&put.body[..2000], b"Content-Encoding: gzip").is_some());
    let parts: Vec<Bytes> = crate::couch::parts(&put.headers["content-type"], &put.body);
    assert_eq!(parts[1].len(), 20_000_000);
}
