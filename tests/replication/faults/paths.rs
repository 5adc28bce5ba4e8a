//! Ids and names that a URL can carry only escaped, or not at all.

use serde_json::json;
use settee::messages::replication_job::JobEnd;

use super::attachment;
use crate::support::couch::Couch;
use crate::support::http_server::Answer;
use crate::support::job::{body, body_with, run};

const ODD_IDS: [&str; 24] = [
    ".",
    "..",
    "...",
    "a/../b",
    "../..",
    "/",
    "//",
    "a//b",
    "a/",
    "/a",
    "%2e%2e",
    "%2E",
    "%",
    "a\\b",
    "\\",
    "..\\x",
    "?x=1",
    "#x",
    "a?b#c",
    "a b+c&d",
    "\u{1}\t\n\r",
    "é\u{1F600}",
    ";",
    ":",
];
const ODD_DESIGN_DOCS: [&str; 6] = [
    "_design/.",
    "_design/..",
    "_design/../..",
    "_design/%2e%2e",
    "_design/a/../b",
    "_design/a\\b",
];

async fn odd(with_attachments: bool) -> Couch {
    let couch = Couch::start().await;
    for id in ODD_IDS.into_iter().chain(ODD_DESIGN_DOCS) {
        let attachments = match with_attachments {
            true => vec![
                attachment("x", b"attached".to_vec()),
                attachment("..", b"odd".to_vec()),
            ],
            false => Vec::new(),
        };
        couch.put_with(id, None, json!({ "is": id }), attachments);
    }
    couch
}

/// Asserts that every request stays below the database's path.
fn assert_stays_inside(couch: &Couch) {
    for request in couch.server.received() {
        assert!(
            request.path.starts_with("db/"),
            "{} {}",
            request.method,
            request.path
        );
        let is_database =
            request.path == "db/" && request.method == "GET" && request.query.is_empty();
        assert!(is_database || !request.call().is_empty(), "{request:?}");
    }
}

#[actix_rt::test]
async fn ids_that_a_url_cannot_carry_are_replicated() {
    for with_attachments in [false, true] {
        for use_bulk_get in [true, false] {
            let (source, target) = (odd(with_attachments).await, Couch::start().await);
            let options = json!({"use_bulk_get": use_bulk_get});
            let outcome = run(&body_with(&source.url(), &target.url(), options)).await;
            assert_eq!(outcome.refused, []);
            let stats = outcome.normal().1;
            assert_eq!(
                (
                    stats.docs_read,
                    stats.docs_written,
                    stats.doc_write_failures
                ),
                (30, 30, 0)
            );
            assert_eq!(target.trees(), source.trees());
            assert_stays_inside(&source);
            assert_stays_inside(&target);
        }
    }
}

#[actix_rt::test]
async fn documents_that_cannot_be_requested_are_refused_by_name_and_the_job_continues() {
    let (source, target) = (odd(true).await, Couch::start().await);
    source.fails(
        "POST _bulk_get",
        usize::MAX,
        Answer::error(405, "method_not_allowed", "x"),
    );
    let outcome = run(&body(&source.url(), &target.url())).await;
    let mut refused: Vec<&str> = outcome.refused.iter().map(|doc| doc.id.as_str()).collect();
    refused.sort_unstable();
    assert_eq!(refused, [".", "..", "_design/.", "_design/.."]);
    assert!(
        outcome.refused.iter().all(|doc| doc.rev.is_some()),
        "{:?}",
        outcome.refused
    );
    let stats = outcome.normal().1;
    assert_eq!((stats.docs_written, stats.doc_write_failures), (26, 4));
    assert_stays_inside(&source);
    assert_stays_inside(&target);
}

#[actix_rt::test]
async fn ids_that_name_other_resources_of_a_database_are_refused() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    let reserved = [
        "_security",
        "_local/x",
        "_local/..",
        "_all_docs",
        "_bulk_docs",
        "_",
        "_design",
        "_design/",
    ];
    for id in reserved {
        source.put_with(id, None, json!({}), vec![attachment("x", b"y".to_vec())]);
    }
    source.put("plain", None, json!({}));
    let outcome = run(&body(&source.url(), &target.url())).await;
    let mut refused: Vec<&str> = outcome.refused.iter().map(|doc| doc.id.as_str()).collect();
    refused.sort_unstable();
    let mut expected = reserved;
    expected.sort_unstable();
    assert_eq!(refused, expected);
    assert!(
        outcome
            .refused
            .iter()
            .all(|doc| doc.error == "illegal_docid")
    );
    let stats = outcome.normal().1;
    assert_eq!((stats.docs_written, stats.doc_write_failures), (1, 8));
    for couch in [&source, &target] {
        let received = couch.server.received();
        let named = |request: &&crate::support::http_server::Received| {
            let is_checkpoint = request.call().starts_with("_local/") && request.call().len() == 39;
            !is_checkpoint && reserved.contains(&request.call()) && request.call() != "_bulk_docs"
        };
        assert_eq!(
            received.iter().find(named).map(|request| &request.path),
            None
        );
    }
}

#[actix_rt::test]
async fn attachment_names_that_a_url_cannot_carry_are_replicated_from_plain_json() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    let names = [".", "..", "a/../b", "%2e%2e", "\\", "?", "#", "a\"b\r\nc"];
    let attached = |name: &&str| attachment(name, format!("bytes of {name}").into_bytes());
    let rev = source.put_with("a", None, json!({}), names.iter().map(attached).collect());
    let stubs: serde_json::Map<String, serde_json::Value> = names
        .iter()
        .map(|name| {
            let length = format!("bytes of {name}").len();
            let stub =
                json!({"content_type": "text/plain", "revpos": 1, "length": length, "stub": true});
            ((*name).to_owned(), stub)
        })
        .collect();
    let document = json!([{"ok": {"_id": "a", "_rev": rev, "_attachments": stubs,
        "_revisions": {"start": 1, "ids": [rev.split_once('-').unwrap().1]}}}]);
    source
        .fault(move |request| (request.kind() == "GET doc").then(|| Answer::json(200, &document)));
    let outcome = run(&body(&source.url(), &target.url())).await;
    assert!(
        matches!(outcome.end, JobEnd::Normal { .. }),
        "{:?}",
        outcome.end
    );
    assert_eq!(target.trees(), source.trees());
    assert_stays_inside(&source);
}
