//! Documents that are read and written at the same time.

use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::*;
use crate::counters::Stats;
use crate::testing::{Answer, Server, endpoint, logger};

/// Timeout for required events.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a worker that reads three documents at a time.
fn worker(source: Endpoint, target: Endpoint) -> Worker {
    Worker {
        source,
        target,
        reads: 3,
        retries: 5,
        use_bulk_get: false,
        filter: None,
        missing_doc_retry: Duration::ZERO,
        run_counters: Rc::default(),
        unproven_writes: 0,
        refused: Rc::new(|_| {}),
        averages: RefCell::default(),
        log: logger(),
    }
}

/// Reads documents from a source and writes them to a target. Returns the counters.
async fn replicated(source: &Server, target: &str, ids: &[&str]) -> Stats {
    let worker = worker(source.endpoint(), endpoint(target, |_, _| {}));
    let wanted = ids
        .iter()
        .map(|id| Wanted::new(*id, vec!["1-x".to_owned()]));
    let mut batch = WriteBatch::default();
    let reading = worker.read_single(worker.singles(wanted.collect()), &mut batch);
    let read = timeout(PATIENCE, reading).await;
    read.expect("the documents are read").unwrap();
    worker.run_counters.stats()
}

#[tokio::test]
async fn other_documents_are_read_while_a_batch_is_written() {
    let (batch, put) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let begun = Arc::clone(&batch);
    let source = Server::start(move |request| {
        let id = &request.line["GET /db/".len()..][..1];
        let mut document =
            json!({"_id": id, "_rev": "1-x", "_revisions": {"start": 1, "ids": ["x"]}});
        if id == "a" {
            document["_attachments"] = json!({"x": {"data": "YQ=="}});
        } else {
            document["text"] = "x".repeat(3 << 20).into();
        }
        let answer = Answer::new(200, &json!([{ "ok": document }]).to_string());
        if id == "a" {
            answer.after(&begun)
        } else {
            answer
        }
    });
    let target = Server::start(move |request| {
        if request.line == "POST /db/_bulk_docs" {
            batch.add_permits(1);
            Answer::new(201, "[]").after(&put)
        } else {
            put.add_permits(1);
            Answer::new(201, r#"{"ok":true}"#)
        }
    });
    let (source, target) = (source.await, target.await);
    let stats = replicated(&source, &target.url(""), &["a", "b", "c"]).await;
    assert_eq!((stats.docs_read, stats.docs_written), (3, 2));
}

#[tokio::test]
async fn an_early_refusal_ends_an_upload_that_the_target_does_not_read() {
    const LENGTH: usize = 32 << 20;
    let source = Server::start(|_| {
        let document = json!({"_id": "a", "_rev": "1-x", "_revisions": {"start": 1, "ids": ["x"]},
            "_attachments": {"x": {"length": LENGTH, "follows": true}}});
        let head = format!(
            "--o\r\nContent-Type: multipart/related; boundary=i\r\n\r\n\
             --i\r\nContent-Type: application/json\r\n\r\n{document}\r\n--i\r\n\r\n"
        );
        let attachment = "x".repeat(LENGTH);
        let body = format!("{head}{attachment}\r\n--i--\r\n--o--");
        let kind = ("content-type", "multipart/mixed; boundary=o");
        Answer::with(200, &[kind], &body)
    });
    let source = source.await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/db", listener.local_addr().unwrap());
    let answering = async {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut head = Vec::with_capacity(9000);
        client.read_buf(&mut head).await.unwrap();
        let answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
        client.write_all(answer).await.unwrap();
        // It stays open, and is not read.
        client
    };
    let (_client, stats) = tokio::join!(answering, replicated(&source, &url, &["a"]));
    assert_eq!(stats.doc_write_failures, 1);
}

#[tokio::test]
async fn a_read_that_has_failed_for_half_the_health_threshold_is_not_retried() {
    let server = Server::start(|_| Answer::new(500, "{}")).await;
    let source = endpoint(&server.url(""), |_, settings| {
        settings.health_threshold = Duration::ZERO;
    });
    let worker = worker(source, server.endpoint());
    let singles = worker.singles(vec![Wanted::new("a", vec!["1-x".to_owned()])]);
    let mut batch = WriteBatch::default();
    let reading = timeout(PATIENCE, worker.read_single(singles, &mut batch));
    let read = reading.await.expect("the read ends");
    assert!(matches!(read, Err(Crash::OpenDocRevsFailed { .. })));
    assert_eq!(server.lines().len(), 2, "the first failure is retried");
}
