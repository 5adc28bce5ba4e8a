//! Feeds that fall silent, never end, or are cut.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use settee_testkit::eventually;

use super::two;
use crate::support::http_server::{Answer, Piece};
use crate::support::job::{Job, body_with, replicate};

#[actix_rt::test]
async fn a_feed_that_falls_silent_is_requested_again() {
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
    eventually("everything is replicated", || async {
        target.trees() == source.trees()
    })
    .await;
    job.stopped().await;
}

#[actix_rt::test]
async fn an_endless_feed_is_followed_while_heartbeats_arrive() {
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
async fn a_feed_that_is_cut_resumes_after_the_last_row_read() {
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
        // The first rows after `since`; then the connection is cut.
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
