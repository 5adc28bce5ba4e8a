//! Refused documents: only an error about the document itself counts as its refusal.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use actix::Actor;
use futures_util::future::join_all;
use serde_json::{Value, json};
use settee::actors::replication_job::ReplicationJob;
use settee::messages::replication_job::JobEnd;

use super::{attachment, two};
use crate::support::couch::Couch;
use crate::support::http_server::{Answer, Received};
use crate::support::job::{Job, Outcome, body, body_with, run};

/// Adds sessions to a server; only the latest is valid. Returns its number.
fn with_sessions(
    couch: &Couch,
    fault: impl Fn(&Received, &AtomicUsize) -> Option<Answer> + Send + Sync + 'static,
) -> Arc<AtomicUsize> {
    let current = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&current);
    couch.fault(move |request| {
        let cookie = format!("AuthSession=c{}", now.load(Ordering::SeqCst));
        let is_valid = request.headers.get("cookie") == Some(&cookie);
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "_session") => {
                let cookie = format!("AuthSession=c{}", now.fetch_add(1, Ordering::SeqCst) + 1);
                let mut answer = Answer::json(200, json!({"ok": true}));
                answer.headers.push(("Set-Cookie".into(), cookie));
                Some(answer)
            }
            ("GET", "_session") => {
                let name = is_valid.then_some("ann");
                Some(Answer::json(
                    200,
                    json!({"ok": true, "userCtx": {"name": name, "roles": []}}),
                ))
            }
            // Anyone may read, as in a database without members.
            ("GET", _) => None,
            _ if is_valid => fault(request, &now),
            _ => Some(Answer::error(
                401,
                "unauthorized",
                "You may not write here.",
            )),
        }
    });
    current
}

fn ann(url: &str) -> String {
    url.replace("http://", "http://ann:secret@")
}

#[actix_rt::test]
async fn a_lost_session_is_not_a_refusal() {
    let (source, target) = two().await;
    let left = AtomicUsize::new(1);
    // The session expires once the attachment's body has arrived.
    with_sessions(&target, move |request, current| {
        let is_it = request.call() == "attached" && request.method == "PUT";
        if !is_it
            || left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_err()
        {
            return None;
        }
        current.fetch_add(1, Ordering::SeqCst);
        Some(Answer::error(
            401,
            "unauthorized",
            "You may not write here.",
        ))
    });
    let outcome = run(&body(&source.url(), &ann(&target.url()))).await;
    assert_eq!(outcome.refused, []);
    let stats = outcome.normal().1;
    assert_eq!(
        (
            stats.docs_written,
            stats.doc_write_failures,
            stats.docs_read
        ),
        (22, 0, 22)
    );
    assert_eq!(target.trees(), source.trees());
}

#[actix_rt::test]
async fn a_document_that_is_refused_in_a_valid_session_is_skipped() {
    let answers = [
        Answer::error(401, "unauthorized", "log in first"),
        Answer::error(403, "forbidden", "no"),
        Answer::json(403, json!({"error": "forbidden", "reason": {"field": "x"}})),
    ];
    join_all(answers.map(|answer| async move {
        let (source, target) = two().await;
        with_sessions(&target, move |request, _| {
            (request.call() == "attached" && request.method == "PUT").then(|| answer.clone())
        });
        let outcome = run(&body(&source.url(), &ann(&target.url()))).await;
        assert_eq!(outcome.refused[0].id, "attached");
        assert_eq!(outcome.normal().1.doc_write_failures, 1);
    }))
    .await;
}

/// Asserts that nothing was skipped and no checkpoint written; returns the error.
fn ends_without_checkpoint(outcome: Outcome, source: &Couch, target: &Couch, what: &str) -> String {
    assert_eq!(outcome.refused, [], "{what}");
    assert!(
        source.locals().is_empty() && target.locals().is_empty(),
        "{what}: a checkpoint"
    );
    let crash = match outcome.end {
        JobEnd::Crashed(crash) => crash,
        end => panic!("{what}: {end:?}"),
    };
    crash.to_string()
}

#[actix_rt::test]
async fn a_user_losing_rights_during_the_run_ends_the_job() {
    for (status, error) in [(401, "unauthorized"), (403, "forbidden")] {
        let (source, target) = two().await;
        let lost = AtomicUsize::new(0);
        target.fault(move |request| {
            if request.kind() == "PUT doc" && request.call() == "attached" {
                lost.store(1, Ordering::SeqCst);
            }
            let is_lost = lost.load(Ordering::SeqCst) == 1 && !request.path.is_empty();
            is_lost
                .then(|| Answer::error(status, error, "You are not authorized to access this db."))
        });
        let outcome = run(&body(&source.url(), &target.url())).await;
        let words = ends_without_checkpoint(outcome, &source, &target, error);
        assert!(words.contains("not authorized to access"), "{words}");
    }
}

#[actix_rt::test]
async fn an_error_that_is_not_about_a_document_is_not_a_refusal() {
    let html = |status| Answer::bytes(status, "text/html", "<html>a firewall</html>");
    let answers = [
        html(401),
        html(403),
        html(415),
        Answer::json(403, json!({"message": "blocked"})),
        Answer::error(401, "forbidden", "x"),
        Answer::error(404, "not_found", "Database does not exist."),
        Answer::error(409, "conflict", "x"),
        Answer::error(412, "precondition_failed", "x"),
        Answer::error(400, "bad_request", "x"),
        Answer::error(507, "insufficient_storage", "x"),
    ];
    join_all(answers.map(|answer| async move {
        for times in [1, usize::MAX] {
            let (source, target) = two().await;
            let what = format!("{answer:?}");
            let left = Mutex::new(times);
            let answer = answer.clone();
            target.fault(move |request| {
                if request.call() != "attached" {
                    return None;
                }
                let mut left = left.lock().unwrap();
                *left = left.checked_sub(1)?;
                Some(answer.clone())
            });
            let outcome = run(&body(&source.url(), &target.url())).await;
            if times == 1 && matches!(outcome.end, JobEnd::Normal { .. }) {
                assert_eq!(outcome.refused, [], "{what}");
                assert_eq!(target.trees(), source.trees(), "{what}");
            } else {
                ends_without_checkpoint(outcome, &source, &target, &what);
            }
        }
    }))
    .await;
}

/// Replicates; the first `times` writes of `doc-7` are answered with `entry` by `_bulk_docs`.
async fn with_entry(entry: Value, times: usize) -> (Outcome, Couch, Couch) {
    let (source, target) = two().await;
    let left = Mutex::new(times);
    target.rewrite_bulk_docs(move |docs| {
        let place = docs.iter().position(|doc| doc["_id"] == "doc-7")?;
        let mut left = left.lock().unwrap();
        *left = left.checked_sub(1)?;
        docs.remove(place);
        Some(json!([entry]))
    });
    let outcome = run(&body(&source.url(), &target.url())).await;
    (outcome, source, target)
}

#[actix_rt::test]
async fn a_temporary_error_of_bulk_docs_is_retried() {
    let entries = [
        json!({"id": "doc-7", "error": "internal_server_error", "reason": "x"}),
        json!({"id": "doc-7", "error": "timeout", "reason": "x"}),
        json!({"id": "doc-7", "error": "service_unavailable", "status": 503}),
        json!({"id": "doc-7", "error": "forbidden", "status": 500}),
        json!({"id": "doc-7", "error": "TypeError", "reason": "{[]}", "status": 500}),
        json!({"id": "doc-7", "error": true, "name": "unknown_error", "status": 500}),
        json!({"id": "doc-7", "ok": false}),
        json!({"id": "doc-7", "error": "conflict", "reason": "Document update conflict."}),
        json!({"error": "internal_server_error"}),
        json!({"ok": true, "id": "somebody else", "rev": "1-x"}),
    ];
    join_all(entries.map(|entry| async move {
        let what = entry.to_string();
        let (outcome, source, target) = with_entry(entry.clone(), 2).await;
        assert_eq!(outcome.refused, [], "{what}");
        let stats = outcome.normal().1;
        assert_eq!(
            (stats.docs_written, stats.doc_write_failures),
            (22, 0),
            "{what}"
        );
        assert_eq!(target.trees(), source.trees(), "{what}");
        let (outcome, source, target) = with_entry(entry, usize::MAX).await;
        let words = ends_without_checkpoint(outcome, &source, &target, &what);
        assert!(
            words.starts_with("bulk_docs_failed: ") && words.contains("document 'doc-"),
            "{what}: {words}"
        );
    }))
    .await;
}

#[actix_rt::test]
async fn a_permanent_error_of_bulk_docs_is_a_refusal() {
    let entries = [
        json!({"id": "doc-7", "error": "forbidden", "reason": "x"}),
        json!({"id": "doc-7", "error": "unauthorized", "reason": "x"}),
        json!({"id": "doc-7", "error": "doc_validation", "reason": "x"}),
        json!({"id": "doc-7", "error": "illegal_docid", "reason": "x"}),
        json!({"id": "doc-7", "error": "request_entity_too_large", "reason": "x"}),
        json!({"id": "doc-7", "error": true, "name": "forbidden", "status": 403, "message": "x"}),
    ];
    join_all(entries.map(|entry| async move {
        let what = entry.to_string();
        let (outcome, _, target) = with_entry(entry, usize::MAX).await;
        let told: Vec<_> = outcome
            .refused
            .iter()
            .map(|doc| (doc.id.as_str(), doc.reason.as_str()))
            .collect();
        assert_eq!(told, [("doc-7", "x")], "{what}");
        let stats = outcome.normal().1;
        assert_eq!(
            (stats.docs_written, stats.doc_write_failures),
            (21, 1),
            "{what}"
        );
        assert_eq!(target.trees().len(), 21, "{what}");
    }))
    .await;
}

/// CouchDB's answers where a validation function crashes, or throws neither `forbidden` nor `unauthorized`.
fn of_validation() -> [Value; 5] {
    [
        json!({"id": "doc-7", "error": "TypeError", "reason": "{[]}"}),
        json!({"id": "doc-7", "error": "unknown_error", "reason": "x"}),
        json!({"id": "doc-7", "error": "foo", "reason": 1}),
        json!({"id": "doc-7", "error": "whatever", "reason": null}),
        json!({"id": "doc-7", "error": {"odd": 1}, "reason": "x"}),
    ]
}

#[actix_rt::test]
async fn a_document_that_crashes_validation_is_refused_when_its_neighbours_are_written() {
    join_all(of_validation().map(|entry| async move {
        let what = entry.to_string();
        let (source, target) = two().await;
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let sent = Arc::clone(&sizes);
        target.rewrite_bulk_docs(move |docs| {
            sent.lock().unwrap().push(docs.len());
            let place = docs.iter().position(|doc| doc["_id"] == "doc-7")?;
            docs.remove(place);
            Some(json!([entry]))
        });
        let outcome = run(&body(&source.url(), &target.url())).await;
        let told: Vec<&str> = outcome.refused.iter().map(|doc| &*doc.id).collect();
        assert_eq!(told, ["doc-7"], "{what}");
        let stats = outcome.normal().1;
        assert_eq!(
            (stats.docs_written, stats.doc_write_failures),
            (21, 1),
            "{what}"
        );
        assert_eq!(target.trees().len(), 21, "{what}");
        assert!(!source.locals().is_empty(), "{what}: no checkpoint");
        let sizes = sizes.lock().unwrap().clone();
        assert_eq!(
            sizes,
            [20, 1],
            "{what}: the document is retried alone, once"
        );
    }))
    .await;
}

#[actix_rt::test]
async fn a_document_that_crashes_validation_once_is_written() {
    join_all(of_validation().map(|entry| async move {
        let (outcome, source, target) = with_entry(entry, 1).await;
        assert_eq!(outcome.refused, []);
        assert_eq!(outcome.normal().1.docs_written, 22);
        assert_eq!(target.trees(), source.trees());
    }))
    .await;
}

#[actix_rt::test]
async fn a_batch_of_which_nothing_is_written_has_no_refused_documents() {
    let (source, target) = two().await;
    target.rewrite_bulk_docs(|docs| {
        let entry = |doc: &Value| json!({"id": doc["_id"], "error": "TypeError", "reason": "{[]}"});
        let entries = docs.iter().map(entry).collect();
        docs.clear();
        Some(entries)
    });
    let outcome = run(&body(&source.url(), &target.url())).await;
    let words = ends_without_checkpoint(outcome, &source, &target, "all of them");
    assert!(words.starts_with("bulk_docs_failed: "), "{words}");
}

#[actix_rt::test]
async fn an_error_that_changes_each_time_is_not_a_refusal() {
    let (source, target) = two().await;
    let times = AtomicUsize::new(0);
    target.rewrite_bulk_docs(move |docs| {
        let place = docs.iter().position(|doc| doc["_id"] == "doc-7")?;
        docs.remove(place);
        let reason = format!("the {}th", times.fetch_add(1, Ordering::SeqCst));
        Some(json!([{"id": "doc-7", "error": "TypeError", "reason": reason}]))
    });
    let outcome = run(&body(&source.url(), &target.url())).await;
    let words = ends_without_checkpoint(outcome, &source, &target, "it changes");
    assert!(words.contains("document 'doc-7': TypeError: "), "{words}");
}

#[actix_rt::test]
async fn a_lone_document_is_refused_once_the_target_has_taken_others_of_the_replication() {
    let trips = |couch: &Couch| {
        couch.rewrite_bulk_docs(|docs| {
            let place = docs.iter().position(|doc| doc["_id"] == "lone")?;
            docs.remove(place);
            Some(json!([{"id": "lone", "error": "TypeError", "reason": "{[]}"}]))
        });
    };
    let (source, target) = (Couch::start().await, Couch::start().await);
    source.put("lone", None, json!({}));
    trips(&target);
    let outcome = run(&body(&source.url(), &target.url())).await;
    ends_without_checkpoint(outcome, &source, &target, "nothing else was ever written");

    let (source, target) = two().await;
    trips(&target);
    run(&body(&source.url(), &target.url())).await.normal();
    source.put("lone", None, json!({}));
    let outcome = run(&body(&source.url(), &target.url())).await;
    assert_eq!(outcome.refused[0].id, "lone");
    assert_eq!(outcome.normal().1.doc_write_failures, 1);
}

/// Replicates; the target answers the n-th write of a design document with `answers(n)`.
async fn with_design(
    answers: impl Fn(usize) -> Option<Answer> + Send + Sync + 'static,
) -> (Outcome, Couch, Couch) {
    let (source, target) = two().await;
    source.put("_design/m", None, json!({}));
    let times = AtomicUsize::new(0);
    target.fault(move |request| {
        let is_asked = request.call() == "_design/m";
        is_asked.then(|| answers(times.fetch_add(1, Ordering::SeqCst)))?
    });
    let outcome = run(&body(&source.url(), &target.url())).await;
    (outcome, source, target)
}

#[actix_rt::test]
async fn a_document_rejected_in_a_single_write_is_refused_once_others_are_written() {
    let errors = [
        (400, "compilation_error"),
        (400, "invalid_design_doc"),
        (422, "x"),
    ];
    join_all(errors.map(|(status, error)| async move {
        let (outcome, source, target) =
            with_design(move |_| Some(Answer::error(status, error, "why"))).await;
        let told: Vec<_> = outcome
            .refused
            .iter()
            .map(|doc| (&*doc.id, &*doc.error, &*doc.reason))
            .collect();
        assert_eq!(told, [("_design/m", error, "why")]);
        let stats = outcome.normal().1;
        assert_eq!(
            (
                stats.docs_read,
                stats.docs_written,
                stats.doc_write_failures
            ),
            (23, 22, 1)
        );
        assert_eq!(target.trees().len(), 22);
        assert!(!source.locals().is_empty(), "no checkpoint");
        // Two accepted documents, and this one twice.
        assert_eq!(target.server.count("PUT doc"), 4);
    }))
    .await;
}

#[actix_rt::test]
async fn a_single_write_may_succeed_on_retry_and_one_whose_error_changes_ends_the_run() {
    let once = |time| (time == 0).then(|| Answer::error(400, "compilation_error", "why"));
    let (outcome, source, target) = with_design(once).await;
    assert_eq!(outcome.refused, []);
    assert_eq!(outcome.normal().1.docs_written, 23);
    assert_eq!(target.trees(), source.trees());

    let changing = |time| {
        Some(Answer::error(
            400,
            "compilation_error",
            &format!("the {time}th"),
        ))
    };
    let (outcome, source, target) = with_design(changing).await;
    ends_without_checkpoint(outcome, &source, &target, "it changes");
}

#[actix_rt::test]
async fn a_document_rejected_in_a_single_write_ends_the_run_if_no_other_was_written() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    source.put("_design/m", None, json!({}));
    let all = |request: &Received| {
        (request.call() == "_design/m").then(|| Answer::error(400, "compilation_error", "why"))
    };
    target.fault(all);
    let outcome = run(&body(&source.url(), &target.url())).await;
    ends_without_checkpoint(outcome, &source, &target, "nothing else was ever written");
}

#[actix_rt::test]
async fn documents_taken_before_the_target_was_recreated_do_not_prove_a_refusal() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    source.put("_design/m", None, json!({}));
    target.fault(|request| {
        (request.call() == "_design/m").then(|| Answer::error(400, "compilation_error", "why"))
    });
    let (mut start, mut job) = Job::prepare(&body(&source.url(), &target.url()));
    start.run.earlier.docs_written = 5;
    job.address = Some(ReplicationJob::new(start).start());
    let outcome = job.outcome().await;
    ends_without_checkpoint(outcome, &source, &target, "this target has taken nothing");
}

#[actix_rt::test]
async fn a_batch_rejected_for_one_document_is_written_without_it() {
    let (source, target) = two().await;
    target.fault(|request| {
        let spoiled = request.kind() == "POST _bulk_docs"
            && request.body.windows(7).any(|window| window == b"\"doc-7\"");
        spoiled.then(|| Answer::error(400, "doc_validation", "Bad special document member: _x"))
    });
    let outcome = run(&body(&source.url(), &target.url())).await;
    assert_eq!(
        (
            outcome.refused[0].id.as_str(),
            outcome.refused[0].error.as_str()
        ),
        ("doc-7", "doc_validation")
    );
    assert_eq!(outcome.refused.len(), 1);
    assert_eq!(outcome.normal().1.docs_written, 21);
}

#[actix_rt::test]
async fn a_retried_document_is_counted_once() {
    let (source, target) = two().await;
    source.put_with(
        "attached",
        None,
        json!({"another": "leaf"}),
        vec![attachment("x", vec![1; 9])],
    );
    target.fails("PUT doc", 2, Answer::error(503, "unavailable", "x"));
    let options = json!({"use_bulk_get": false, "retries_per_request": 5});
    let stats = run(&body_with(&source.url(), &target.url(), options))
        .await
        .normal()
        .1;
    assert_eq!(
        (stats.docs_read, stats.docs_written, stats.missing_found),
        (23, 23, 23)
    );
}
