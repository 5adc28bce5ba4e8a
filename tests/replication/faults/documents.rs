//! Documents that the source does not deliver or the target does not accept.

use std::sync::Mutex;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::json;
use settee::messages::replication_job::JobEnd;
use settee::replication::crash::Crash;

use super::{attachment, two};
use crate::support::couch::Couch;
use crate::support::http_server::Answer;
use crate::support::job::{body, body_with, replicate, run};

#[actix_rt::test]
async fn a_document_cut_off_in_its_attachment_is_read_again_and_never_stored_partially() {
    let (source, target) = two().await;
    let whole = "--outer\r\nContent-Type: multipart/related; boundary=\"inner\"\r\n\r\n--inner\r\n\
        Content-Type: application/json\r\n\r\n{\"_id\":\"attached\",\"_rev\":\"1-x\",\
        \"_revisions\":{\"start\":1,\"ids\":[\"x\"]},\"_attachments\":{\"x\":{\"content_type\":\"a/b\",\
        \"revpos\":1,\"length\":200000,\"follows\":true}}}\r\n--inner\r\n\r\n";
    let body = [whole.as_bytes(), &[b'x'; 150_000]].concat();
    let kind = "multipart/mixed; boundary=\"outer\"";
    // First the connection is cut, then the attachment is too short.
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
async fn documents_are_read_one_by_one_where_bulk_get_fails() {
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
async fn documents_that_a_target_refuses_are_skipped() {
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
async fn a_document_refused_before_its_attachments_are_sent_is_skipped() {
    let (source, target) = two().await;
    let id = format!("{}-one", crate::support::http_server::TOO_LARGE);
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
async fn an_attachment_that_the_target_lost_is_sent_again() {
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
async fn an_attachment_new_in_one_branch_is_sent_even_if_the_target_has_a_longer_branch() {
    let (source, target) = two().await;
    let old = attachment("x", b"old".to_vec());
    let first = source.put_with("a", None, json!({}), vec![old.clone()]);
    replicate(&source.url(), &target.url()).await;
    let second = source.put_with("a", Some(&first), json!({"long": 2}), vec![old.clone()]);
    let third = source.put_with("a", Some(&second), json!({"long": 3}), vec![old.clone()]);
    replicate(&source.url(), &target.url()).await;
    let new = attachment("x", b"new".to_vec());
    source.put_with("a", Some(&first), json!({"short": 2}), vec![new]);
    source.put_with("a", Some(&third), json!({"long": 4}), vec![old]);
    replicate(&source.url(), &target.url()).await;
    assert_eq!(target.trees(), source.trees());
    let mut requests = source.server.received().into_iter();
    let last = requests
        .rfind(|request| request.kind() == "GET doc")
        .unwrap();
    let known = json!([third]).to_string();
    assert_eq!(
        last.param("atts_since"),
        Some(&*known),
        "the ancestor of the longer branch alone"
    );
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
async fn requests_with_too_long_a_url_are_split() {
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
async fn a_missing_revision_is_retried_once() {
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
async fn plain_json_answers_are_accepted_and_their_attachments_read_one_by_one() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    let rev = source.put("a", None, json!({}));
    let (told, hash) = (rev.clone(), rev.trim_start_matches("1-"));
    let document = json!({"_id": "a", "_rev": rev, "b": 1, "_revisions": {"start": 1, "ids": [hash]},
        "_attachments": {"e/f g": {"content_type": "text/plain", "revpos": 1, "length": 5, "stub": true},
            "h": {"content_type": "text/css", "revpos": 1, "length": 0, "stub": true}}});
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
                (true, Some(&*told))
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
    let (body, _, attachments) = target.trees()["a"].1[&rev].clone();
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
async fn an_ambiguous_answer_does_not_count_as_a_write() {
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

#[actix_rt::test]
async fn a_large_gzipped_attachment_is_sent_whole_with_its_content_length() {
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
    let parts: Vec<Bytes> = crate::support::couch::parts(&put.headers["content-type"], &put.body);
    assert_eq!(parts[1].len(), 20_000_000);
}
