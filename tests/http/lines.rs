//! `/_query/map` line by line: order, errors, bounds, disconnects.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::browser::{Connection, Web};
use crate::service::wait_until;
use serde_json::{Value, json};

const NDJSON: &str = "application/x-ndjson";
const TWICE: &str = "{\"funs\": [\"function(d) { emit(d.n, 1); emit(d.n, 2); }\", \
                     \"function(d) { if (d.loop) { while (true) {} } }\"]}\n";

fn begin(web: &Web, first: &str) -> Connection {
    let mut connection = web.connect();
    connection.begin_chunked("/_query/map", NDJSON);
    connection.send_chunk(first);
    connection
}

#[test]
fn rows_come_while_documents_are_still_sent() {
    let web = Web::start("");
    let mut stream = begin(&web, TWICE);
    stream.send_chunk("{\"_id\": \"a\", \"n\": 1}\n");
    let head = stream.head();
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some(NDJSON));
    assert_eq!(stream.chunk().unwrap(), "[[[1,1],[1,2]],[]]\n");
    stream.send_chunk("{\"_id\": \"b\", ");
    stream.send_chunk("\"n\": 2}\n");
    assert_eq!(stream.chunk().unwrap(), "[[[2,1],[2,2]],[]]\n");
    let tasks = web.get("/_active_tasks").ok();
    assert_eq!(tasks[0]["type"], "query_map");
    assert_eq!(tasks[0]["language"], "javascript");
    assert_eq!(tasks[0]["docs_read"], 2);
    assert_eq!(tasks[0]["docs_written"], 2);
    assert!(tasks[0]["started_on"].as_u64() <= tasks[0]["updated_on"].as_u64());
    stream.send_chunk("{\"_id\": \"c\", \"n\": null}");
    stream.end_chunks();
    assert_eq!(stream.chunk().unwrap(), "[[[null,1],[null,2]],[]]\n");
    assert_eq!(stream.chunk(), None);
    assert_eq!(web.get("/_active_tasks").ok(), json!([]));
    // The answer began before the request had ended, so that nothing may follow.
    assert_eq!(head.header("connection"), Some("close"));
    assert_eq!(stream.closed(), "");
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn many_documents_are_answered_in_order() {
    let web = Web::start("");
    let documents: String = (0..3000)
        .map(|n| format!("{{\"_id\": \"{n}\", \"n\": {n}}}\n"))
        .collect();
    let body = format!("{TWICE}{documents}");
    let headers = [("Content-Type", NDJSON)];
    let response = web
        .connect()
        .request("POST", "/_query/map", &headers, &body);
    assert_eq!(response.status, 200);
    let expected: String = (0..3000)
        .map(|n| format!("[[[{n},1],[{n},2]],[]]\n"))
        .collect();
    assert_eq!(response.body, expected);
    let nothing = web
        .connect()
        .request("POST", "/_query/map", &headers, TWICE);
    assert_eq!((nothing.status, nothing.body.as_str()), (200, ""));
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn what_is_wrong_at_the_start_has_its_code() {
    let web = Web::start("");
    let headers = [("Content-Type", NDJSON)];
    let ask = |body: &str| web.connect().request("POST", "/_query/map", &headers, body);
    let cases = [
        ("", 400, "bad_request"),
        ("{}\n", 400, "bad_request"),
        ("{\"funs\": [], \"timeout_ms\": 1e99}\n", 400, "bad_request"),
        (
            "{\"funs\": [\"function( {\"]}\n{\"_id\": \"a\"}\n",
            400,
            "compilation_error",
        ),
        (
            "{\"lang\": \"x\", \"funs\": []}\n{\"_id\": \"a\"}\n",
            500,
            "unknown_query_language",
        ),
        (
            "{\"funs\": [\"function(d) {}\"]}\nno document\n",
            400,
            "bad_request",
        ),
    ];
    for (body, status, name) in cases {
        ask(body).error(status, name);
    }
    assert_eq!(
        ask("{\"funs\": [\"function(d) {}\"]}\n\n[]\n").json()["line"],
        3
    );
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn an_error_in_the_middle_is_the_last_line() {
    let web = Web::start("[couchdb]\nos_process_timeout = 300\n");
    for (bad, name) in [
        ("nonsense", "bad_request"),
        ("{\"_id\": \"x\", \"loop\": 1}", "timeout"),
    ] {
        let mut stream = begin(&web, TWICE);
        stream.send_chunk("{\"_id\": \"a\", \"n\": 1}\n");
        stream.head();
        assert_eq!(stream.chunk().unwrap(), "[[[1,1],[1,2]],[]]\n");
        stream.send_chunk(&format!("{bad}\n"));
        let last: Value = serde_json::from_str(&stream.chunk().unwrap()).unwrap();
        assert_eq!(last["error"], name, "{last}");
        assert_eq!(last["line"], 3, "{last}");
        assert!(last["reason"].is_string(), "{last}");
        assert_eq!(stream.chunk(), None);
    }
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn a_client_that_goes_away_in_the_middle_gives_its_processes_back() {
    let web = Web::start("[couchdb]\nos_process_timeout = 600000\n");
    for document in ["{\"_id\": \"b\", \"loop\": 1}\n", ""] {
        let mut stream = begin(&web, TWICE);
        stream.send_chunk("{\"_id\": \"a\", \"n\": 1}\n");
        stream.head();
        stream.chunk().unwrap();
        if !document.is_empty() {
            stream.send_chunk(document);
        }
        web.wait_until_used();
        stream.disconnect();
        web.wait_until_idle();
        wait_until("the end of the task", || {
            web.get("/_active_tasks").ok() == json!([])
        });
    }
    web.service.stop();
}

#[test]
fn who_does_not_read_is_not_read_from() {
    let web = Web::start("");
    let big = "x".repeat(1000);
    let first = format!("{{\"funs\": [\"function(d) {{ emit('{big}{big}', d); }}\"]}}\n");
    let mut stream = begin(&web, &first);
    stream
        .stream
        .set_write_timeout(Some(std::time::Duration::from_millis(500)))
        .unwrap();
    let document = format!("{{\"_id\": \"{big}\"}}\n").repeat(100);
    let piece = format!("{:x}\r\n{document}\r\n", document.len());
    let mut sent = 0;
    // Ends when nothing is taken any more; a service that took everything would never stop.
    while std::io::Write::write_all(&mut stream.stream, piece.as_bytes()).is_ok() {
        sent += piece.len();
        assert!(sent < 200 << 20, "everything is taken");
    }
    stream.disconnect();
    web.wait_until_idle();
    web.service.stop();
}
