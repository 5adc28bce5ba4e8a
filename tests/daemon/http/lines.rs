//! `/_query/map` and `/_query/list` line by line: order, errors, bounds, disconnects.

use crate::support::daemon::wait_until;
use crate::support::http_client::{Connection, Web};
use serde_json::{Value, json};

const NDJSON: &str = "application/x-ndjson";
const TWICE: &str = "{\"funs\": [\"function(d) { emit(d.n, 1); emit(d.n, 2); }\", \
                     \"function(d) { if (d.loop) { while (true) {} } }\"]}\n";

fn begin(web: &Web, first: &str) -> Connection {
    begin_at(web, "/_query/map", first)
}

fn begin_at(web: &Web, path: &str, first: &str) -> Connection {
    let mut connection = web.connect();
    connection.begin_chunked(path, NDJSON);
    connection.send_chunk(first);
    connection
}

#[test]
fn rows_are_sent_while_documents_still_arrive() {
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
    // The answer began before the request had ended, so no other request may follow.
    assert_eq!(head.header("connection"), Some("close"));
    assert_eq!(stream.closed(), "");
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn a_stream_without_a_language_uses_that_of_its_pool() {
    let web = Web::start("[pools.mango]\nlanguage = \"query\"\n");
    let first = "{\"funs\": [{\"fields\": {\"n\": \"asc\"}}], \"pool\": \"mango\"}\n";
    let mut stream = begin(&web, first);
    stream.send_chunk("{\"_id\": \"a\", \"n\": 1}\n");
    assert_eq!(stream.head().status, 200);
    assert_eq!(stream.chunk().unwrap(), "[[[[1],null]]]\n");
    assert_eq!(web.get("/_active_tasks").ok()[0]["language"], "query");
    stream.end_chunks();
    assert_eq!(stream.chunk(), None);
    let headers = [("Content-Type", NDJSON)];
    let body = first.replace("mango", "none");
    let refused = (web.connect()).request("POST", "/_query/map", &headers, &body);
    assert_eq!(
        refused.reason(404, "not_found"),
        "there is no pool named 'none'"
    );
    let whole = first.replace("}\n", ", \"docs\": [{\"_id\": \"a\", \"n\": 1}]}");
    assert_eq!(
        web.send("POST", "/_query/map", &whole).ok()["ok"],
        json!([[[[[1], null]]]])
    );
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
fn an_error_at_the_start_has_its_status_code() {
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
    let web = Web::start("[couchdb]\nos_process_timeout = 3000\n");
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
fn a_client_that_disconnects_in_the_middle_returns_its_processes() {
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
fn reading_from_a_client_that_does_not_read_its_rows_pauses() {
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
    // The writes fail once the service stops reading.
    while std::io::Write::write_all(&mut stream.stream, piece.as_bytes()).is_ok() {
        sent += piece.len();
        assert!(sent < 200 << 20, "everything is read");
    }
    stream.disconnect();
    web.wait_until_idle();
    web.service.stop();
}

/// The arguments of a list that prints each row's key, and ends at a row without one.
fn list() -> String {
    let function = "function(head, req) { start({code: 201, headers: {'X-A': 'b'}}); \
                    send('n=' + head.total_rows); var row; \
                    while (row = getRow()) { if (row.key === undefined) return 'enough'; \
                    while (row.loop || row.key === 'loop') {} send(row.key) } return 'end' }";
    let arguments = json!({
        "db": "shop", "name": "keys", "head": {"total_rows": 3}, "req": {"query": {}},
        "ddoc": {"_id": "_design/d", "_rev": "1-a", "lists": {"keys": function}},
    });
    format!("{arguments}\n")
}

#[test]
fn a_list_renders_rows_while_more_of_them_are_sent() {
    let web = Web::start("");
    let mut stream = begin_at(&web, "/_query/list", &list());
    stream.send_chunk("{\"key\": \"one\"}\n{\"key\": ");
    assert_eq!(stream.head().status, 200);
    let response: Value = serde_json::from_str(&stream.chunk().unwrap()).unwrap();
    assert_eq!(response["response"]["code"], 201);
    assert_eq!(stream.chunk().unwrap(), "{\"chunk\":\"n=3\"}\n");
    assert_eq!(stream.chunk().unwrap(), "{\"chunk\":\"one\"}\n");
    stream.send_chunk("\"two\"}\n");
    assert_eq!(stream.chunk().unwrap(), "{\"chunk\":\"two\"}\n");
    stream.send_chunk("{\"key\": \"three\"}");
    stream.end_chunks();
    assert_eq!(stream.chunk().unwrap(), "{\"chunk\":\"three\"}\n");
    assert_eq!(stream.chunk().unwrap(), "{\"chunk\":\"end\"}\n");
    assert_eq!(stream.chunk(), None);
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn a_list_that_returns_early_ends_the_answer() {
    let web = Web::start("");
    let mut stream = begin_at(&web, "/_query/list", &list());
    stream.send_chunk("{\"id\": \"a\"}\n");
    stream.head();
    let mut lines = Vec::new();
    while let Some(line) = stream.chunk() {
        lines.push(line);
    }
    assert_eq!(lines.last().unwrap(), "{\"chunk\":\"enough\"}\n");
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn errors_of_a_list_or_its_rows_are_reported_where_they_occur() {
    let web = Web::start("[couchdb]\nos_process_timeout = 3000\n");
    let headers = [("Content-Type", NDJSON)];
    let ask = |body: &str| {
        web.connect()
            .request("POST", "/_query/list", &headers, body)
    };
    let refused = ask("{\"name\": 1}\n");
    refused.error(400, "bad_request");
    assert_eq!(refused.json()["line"], 1);
    for (row, said) in [("7", "line 3: "), ("{\"key\": \"loop\"}", "")] {
        let answer = ask(&format!("{}{{\"key\": 1}}\n{row}\n", list()));
        assert_eq!(answer.status, 200);
        let last: Value = serde_json::from_str(answer.body.lines().last().unwrap()).unwrap();
        assert!(last["error"].is_string(), "{last}");
        let reason = last["reason"].as_str().unwrap();
        assert!(reason.contains(said), "{reason}");
    }
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn a_client_that_disconnects_in_the_middle_of_a_list_returns_its_process() {
    let web = Web::start("");
    let mut stream = begin_at(&web, "/_query/list", &list());
    stream.send_chunk("{\"key\": 1}\n");
    stream.head();
    drop(stream);
    web.wait_until_idle();
    web.service.stop();
}
