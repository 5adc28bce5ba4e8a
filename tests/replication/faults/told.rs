//! Error reports: the exact request, and the start of the server's answer.

use futures_util::future::join_all;
use serde_json::json;

use super::two;
use crate::support::http_server::Answer;
use crate::support::job::{body, body_with, run};

#[actix_rt::test]
async fn an_error_names_the_request_and_quotes_the_server() {
    let boom = |status| Answer::error(status, "badarith", "the shard is gone");
    let expected = [
        (
            "source",
            "GET _changes",
            500,
            "GET URL_changes?feed=normal&style=all_docs&since=0&timeout=",
        ),
        (
            "source",
            "GET _changes",
            400,
            "GET URL_changes?feed=normal&style=all_docs&since=0&timeout=",
        ),
        (
            "source",
            "GET doc",
            500,
            "GET URL_design/d?revs=true&open_revs=",
        ),
        (
            "source",
            "GET doc",
            400,
            "GET URL_design/d?revs=true&open_revs=",
        ),
        ("source", "GET db", 500, "GET URL: "),
        ("source", "GET _local", 500, "GET URL_local/"),
        ("source", "GET _local", 400, "GET URL_local/"),
        ("target", "POST _revs_diff", 500, "POST URL_revs_diff: "),
        ("target", "POST _revs_diff", 400, "POST URL_revs_diff: "),
        ("target", "POST _bulk_docs", 500, "POST URL_bulk_docs: "),
        ("target", "POST _bulk_docs", 400, "POST URL_bulk_docs: "),
        (
            "target",
            "PUT doc",
            500,
            "PUT URL_design/d?new_edits=false: ",
        ),
        ("target", "PUT doc", 409, "PUT URL_design/d?new_edits=false"),
        (
            "target",
            "POST _ensure_full_commit",
            500,
            "POST URL_ensure_full_commit: ",
        ),
        ("target", "PUT _local", 400, "PUT URL_local/"),
    ];
    join_all(expected.map(|(side, kind, status, request)| async move {
        let (source, target) = two().await;
        let at = if side == "source" { &source } else { &target };
        at.fault(move |request| {
            let is_it = request.kind() == kind && request.param("limit").is_none();
            is_it.then(|| boom(status))
        });
        let url = format!("{}/", at.url());
        let with_password = |url: String| url.replace("http://", "http://ann:top-secret@");
        let options = json!({"retries_per_request": 1});
        let body = body_with(
            &with_password(source.url()),
            &with_password(target.url()),
            options,
        );
        let words = run(&body).await.crash().to_string();
        let request = request.replace("URL", &url);
        assert!(words.contains(&request), "{kind} {status}: {words}");
        assert!(
            words.contains("the shard is gone"),
            "{kind} {status}: {words}"
        );
        assert!(!words.contains("top-secret"), "{words}");
    }))
    .await;
}

#[actix_rt::test]
async fn an_error_is_short_and_contains_no_password() {
    let (source, target) = two().await;
    let said = format!(
        "you sent top-secret and YW5uOnRvcC1zZWNyZXQ=, \u{1b}[31m{}",
        "x".repeat(100_000)
    );
    source.fails(
        "GET _changes",
        usize::MAX,
        Answer::bytes(500, "text/plain", said),
    );
    let url = source.url().replace("http://", "http://ann:top-secret@");
    let ids: Vec<String> = (0..2000).map(|n| format!("{n}")).collect();
    let options = json!({"retries_per_request": 0, "filter": "_view",
        "query_params": {"view": "a/b", "keys": ids}});
    let words = run(&body_with(&url, &target.url(), options))
        .await
        .crash()
        .to_string();
    assert!(words.len() < 3000, "{} bytes", words.len());
    assert!(
        words.contains("you sent ") && !words.contains("top-secret"),
        "{words}"
    );
    assert!(
        !words.contains("YW5uOnRvcC1zZWNyZXQ=") && !words.contains('\u{1b}'),
        "{words}"
    );
}

#[actix_rt::test]
async fn a_wrong_password_is_reported_as_such() {
    let (source, target) = two().await;
    source.fault(|request| {
        (request.path == "_session")
            .then(|| Answer::error(401, "unauthorized", "Name or password is incorrect."))
    });
    let url = source.url().replace("http://", "http://ann:wrong@");
    let crash = run(&body(&url, &target.url())).await.crash();
    assert_eq!(
        (crash.name(), crash.is_refusal()),
        ("replication_auth_error", true)
    );
    let words = crash.to_string();
    assert!(
        words.starts_with("replication_auth_error: session_request_unauthorized"),
        "{words}"
    );
    assert!(words.contains("Name or password is incorrect."), "{words}");
}
