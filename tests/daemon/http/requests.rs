//! HTTP over real sockets: paths, functions, errors, limits, disconnects, shutdown.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::support::daemon::{configure, directory, in_time, wait_until};
use crate::support::http_client::{Web, command};
use serde_json::{Value, json};

/// Accepts documents with `ok` and forbids others; `login` is unauthorized, `loop` never ends.
const VALIDATE: &str = "function(doc) { if (doc.loop) { while (true) {} } \
    if (doc.login) { throw({unauthorized: 'who?'}); } \
    if (!doc.ok) { throw({forbidden: 'not ok'}); } }";

fn ddoc() -> Value {
    json!({"_id": "_design/d", "_rev": "1-a", "validate_doc_update": VALIDATE,
        "shows": {"hi": "function(doc, req) { return 'hi ' + doc.n; }",
                  "none": "function() { throw(['error', 'not_found', 'no such thing']); }",
                  "bad": "function( {"}})
}

fn validate(doc: &Value) -> String {
    json!({"db": "db", "ddoc": ddoc(), "path": ["validate_doc_update"],
           "args": [doc, null, {}, {}]})
    .to_string()
}

fn show(name: &str) -> String {
    json!({"db": "db", "ddoc": ddoc(), "path": ["shows", name], "args": [{"n": 7}, {}]}).to_string()
}

#[test]
fn the_service_reports_its_name_version_and_health() {
    let web = Web::start("");
    let mut connection = web.connect();
    let mut get = |path: &str| connection.request("GET", path, &[], "").ok();
    let welcome = get("/");
    assert_eq!(welcome["settee"], "Welcome");
    assert_eq!(welcome["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(welcome["uuid"].as_str().unwrap().len(), 32);
    assert!(welcome["features"].is_array());
    assert!(welcome["vendor"]["name"].is_string());
    assert_eq!(get("/_up"), json!({"status": "ok"}));
    assert_eq!(get("/_active_tasks"), json!([]));
    assert_eq!(get("/_fleet"), json!({"daemons": [], "age_s": null}));
    let counts = json!({"os_proc_count": 0, "stale_proc_count": 0});
    assert_eq!(get("/_node/_local/_system"), counts);
    for path in ["/", "/_up", "/_active_tasks", "/_node/_local/_config"] {
        let (head, whole) = (web.connect().request("HEAD", path, &[], ""), web.get(path));
        assert_eq!(head.status, 200);
        let length = whole.body.len().to_string();
        assert_eq!(head.header("content-length"), Some(length.as_str()));
    }
    web.service.stop();
}

#[test]
fn head_of_a_feed_is_answered_with_a_head_only() {
    let web = Web::start("");
    let mut connection = web.connect();
    let feed = connection.request("HEAD", "/_tenants/shop/log?follow", &[], "");
    assert_eq!(feed.status, 200);
    let next = connection.request("GET", "/_up", &[], "");
    assert_eq!(next.ok(), json!({"status": "ok"}));
    web.service.stop();
}

#[test]
fn missing_resources_and_wrong_methods_are_answered_as_in_couchdb() {
    let web = Web::start("");
    for path in [
        "/x",
        "/_query",
        "/_query/none",
        "/_node/_local",
        "/_node/_local/x/y",
        "/_up/x",
    ] {
        web.send("POST", path, "{}").error(404, "not_found");
    }
    let reason = web.get("/_node/other/_config").reason(404, "not_found");
    assert!(reason.contains("no such node: other"), "{reason}");
    for (method, path, allowed) in [
        ("POST", "/", "GET,HEAD"),
        ("DELETE", "/_up", "GET,HEAD"),
        ("GET", "/_query/ddoc", "POST"),
        ("GET", "/_reload_query_servers", "POST"),
        ("GET", "/_node/_local/_config/_reload", "POST"),
        ("PUT", "/_node/_local/_config", "GET,HEAD"),
        (
            "POST",
            "/_node/_local/_config/log/level",
            "GET,HEAD,PUT,DELETE",
        ),
        ("PUT", "/_session", "GET,HEAD,POST,DELETE"),
    ] {
        let response = web.send(method, path, "{}");
        response.error(405, "method_not_allowed");
        assert_eq!(response.header("allow"), Some(allowed), "{method} {path}");
    }
    web.get("/%ff").error(400, "bad_request");
    web.service.stop();
}

#[test]
fn a_functions_result_has_the_status_that_couchdb_gives_it() {
    let web = Web::start("");
    let ask = |body: &str| web.send("POST", "/_query/ddoc", body);
    assert_eq!(ask(&validate(&json!({"ok": true}))).ok(), json!({"ok": 1}));
    let refused = ask(&validate(&json!({})));
    assert_eq!(refused.error(403, "forbidden"), "not ok");
    let refused = ask(&validate(&json!({"login": true})));
    assert_eq!(refused.error(401, "unauthorized"), "who?");
    let shown = ask(&show("hi")).ok();
    assert_eq!(shown["ok"][1]["body"], "hi 7");
    assert_eq!(ask(&show("none")).error(404, "not_found"), "no such thing");
    ask(&show("bad")).error(400, "compilation_error");
    ask(&show("gone")).error(404, "not_found");
    let unknown = json!({"db": "db", "ddoc": {"_id": "_design/d", "_rev": "1-a", "language": "x"},
                         "path": ["shows", "a"], "args": []});
    ask(&unknown.to_string()).error(500, "unknown_query_language");
    web.wait_until_idle();
    web.service.stop();
}

/// Runs the examples of `docs/socket.md` by their HTTP names.
#[test]
fn every_example_of_the_socket_page_is_answered_the_same_over_http() {
    const OTHERS: [(&str, &str); 7] = [
        ("map_docs", "map"),
        ("ddoc_prompt", "ddoc"),
        ("validate_docs", "validate"),
        ("filter_docs", "filter"),
        ("index_docs", "index"),
        ("try_compile", "compile"),
        ("list", "list"),
    ];
    let web = Web::start("");
    let mut connection = web.connect();
    let json_type = [("Content-Type", "application/json")];
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/socket.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut lines = page.lines();
    let mut answered = 0;
    while let Some(line) = lines.next() {
        let Some(request) = line.strip_prefix("> ") else {
            continue;
        };
        let mut call: Value = serde_json::from_str(request).unwrap();
        let reply = lines.next().unwrap().strip_prefix("< ").unwrap();
        let reply: Value = serde_json::from_str(reply).unwrap();
        let name = call["call"].as_str().unwrap();
        let other = OTHERS.iter().find(|(known, _)| *known == name);
        let name = other.map_or(name, |(_, name)| name);
        let path = format!("/_query/{name}");
        let answer = connection.request("POST", &path, &json_type, request);
        assert_eq!(answer.ok(), json!({"ok": reply["ok"]}), "{request}");
        call["unknwn"] = json!(1);
        let answer = connection.request("POST", &path, &json_type, &call.to_string());
        let reason = answer.reason(400, "bad_request");
        assert!(reason.contains("no argument 'unknwn'"), "{reason}");
        answered += 1;
    }
    assert_eq!(answered, 15);
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn a_malformed_request_is_refused_with_a_reason() {
    let web = Web::start("[server]\nbody_max = 2000\nline_max = 2000\n");
    let ask = |body: &str| web.send("POST", "/_query/ddoc", body);
    for body in ["", "{", "[]", "7", "{}", "{\"db\": 1}"] {
        ask(body).error(400, "bad_request");
    }
    for other in ["application/x-www-form-urlencoded", "text/plain"] {
        let mut connection = web.connect();
        let headers = [("Content-Type", other)];
        let response = connection.request("POST", "/_query/ddoc", &headers, "{}");
        response.error(415, "bad_content_type");
    }
    let limits = web.get("/_query/limits").ok();
    let expected = json!({"line_max": 2000, "body_max": 2000, "ddoc_sha256": true});
    assert_eq!(limits["ok"], expected);
    let reason = ask(&"x".repeat(2001)).reason(413, "too_large");
    assert!(
        reason.contains("2000 bytes: send less at a time, or raise [server] body_max"),
        "{reason}"
    );
    let mut connection = web.connect();
    connection.begin_chunked("/_query/ddoc", "application/json");
    connection.send_chunk(&"x".repeat(1500));
    connection.send_chunk(&"x".repeat(1500));
    connection.response().error(413, "too_large");
    web.service.stop();
}

#[test]
fn invalid_or_excessive_http_ends_only_its_connection() {
    let web = Web::start("");
    let mut other = web.connect();
    assert_eq!(other.request("GET", "/_up", &[], "").status, 200);
    for (text, status) in [
        ("GARBAGE\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
    ] {
        let mut connection = web.connect();
        connection.write(text);
        assert_eq!(connection.response().status, status, "{text}");
        connection.closed();
    }
    let mut connection = web.connect();
    let huge = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(140_000));
    connection.write(&huge);
    assert_eq!(connection.response().status, 431);
    assert_eq!(other.request("GET", "/_up", &[], "").status, 200);
    web.service.stop();
}

#[test]
fn an_unfinished_request_head_times_out_and_its_connection_is_closed() {
    let web = Web::start("");
    let mut connection = web.connect();
    connection.write("GET /_up HT");
    assert!(connection.closed().starts_with("HTTP/1.1 408 "));
    web.service.stop();
}

#[test]
fn a_call_with_long_arguments_is_reported_and_recorded_like_any_other() {
    let web = Web::start("");
    let shows = "function(doc, req) { log('n is ' + doc.n); return doc.text; }";
    let text = "x".repeat(3 << 20);
    let body = json!({"db": "db", "ddoc": {"_id": "_design/d", "shows": {"s": shows}}, "path": ["shows", "s"],
        "args": [{"n": 7, "text": text}, {"cookie": {"a": "b"}}], "report": true});
    let answer = web.send("POST", "/_query/ddoc", &body.to_string()).ok();
    assert_eq!(answer["ok"][1]["body"], text);
    assert_eq!(answer["logs"][0]["message"], "n is 7");
    let functions = web.get("/_functions").ok();
    assert_eq!(functions["functions"][0]["calls"], 1, "{functions}");
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn a_slow_function_times_out_and_the_error_names_the_phase() {
    let web = Web::start("[couchdb]\nos_process_timeout = 3000\n");
    let body = validate(&json!({"loop": true}));
    let response = web.send("POST", "/_query/ddoc", &body);
    let reason = response.reason(500, "timeout");
    assert!(reason.contains("3000 ms"), "{reason}");
    assert_eq!(response.json()["phase"], "ddoc call");
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn a_client_that_disconnects_returns_its_process() {
    let web = Web::start("[couchdb]\nos_process_timeout = 600000\n");
    // A call with long arguments runs on another thread.
    for length in [0, 1 << 20] {
        let mut connection = web.connect();
        let body = validate(&json!({"loop": true, "text": "x".repeat(length)}));
        let json = [("Content-Type", "application/json")];
        connection.send("POST", "/_query/ddoc", &json, &body);
        web.wait_until_used();
        connection.disconnect();
        web.wait_until_idle();
    }
    // The pool still works.
    let body = validate(&json!({"ok": true}));
    assert_eq!(web.send("POST", "/_query/ddoc", &body).ok()["ok"], 1);
    web.service.stop();
}

#[test]
fn many_connections_are_served_concurrently() {
    let web = Web::start("[query_server_config]\nos_process_limit = 3\n");
    let (yes, no) = (validate(&json!({"ok": true})), validate(&json!({})));
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut connection = web.connect();
                let json = [("Content-Type", "application/json")];
                for _ in 0..10 {
                    let response = connection.request("POST", "/_query/ddoc", &json, &yes);
                    assert_eq!(response.status, 200, "{response:?}");
                    let response = connection.request("POST", "/_query/ddoc", &json, &no);
                    assert_eq!(response.status, 403, "{response:?}");
                }
            });
        }
    });
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn query_servers_are_reloaded_by_any_request_but_a_form() {
    let web = Web::start("");
    let body = validate(&json!({"ok": true}));
    web.send("POST", "/_query/ddoc", &body).ok();
    let reload = web.send("POST", "/_reload_query_servers", "");
    assert_eq!(reload.ok(), json!({"ok": true}));
    wait_until("the end of the old process", || {
        web.get("/_node/_local/_system").ok()["os_proc_count"] == 0
    });
    let ask = |headers: &[(&str, &str)]| {
        let mut connection = web.connect();
        connection.request("POST", "/_reload_query_servers", headers, "")
    };
    assert_eq!(ask(&[]).ok(), json!({"ok": true}));
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let reason = ask(&form).reason(415, "bad_content_type");
    assert_eq!(reason, "Content-Type must be application/json");
    web.service.stop();
}

#[test]
fn a_request_in_progress_is_answered_before_the_service_stops() {
    let web = Web::start("");
    let mut stream = web.connect();
    stream.begin_chunked("/_query/map", "application/x-ndjson");
    let mut idle = web.connect();
    idle.request("GET", "/_up", &[], "").ok();
    stream.send_chunk("{\"funs\": [\"function(d) { emit(d._id, 1); }\"]}\n{\"_id\": \"a\"}\n");
    assert_eq!(stream.head().status, 200);
    assert_eq!(stream.chunk().unwrap(), "[[[\"a\",1]]]\n");
    web.service.signal("TERM");
    web.service.wait_for_log("\"stopped listening\"");
    // An idle connection is closed at once, one with a request in progress is not.
    assert_eq!(idle.closed(), "");
    stream.send_chunk("{\"_id\": \"b\"}\n");
    assert_eq!(stream.chunk().unwrap(), "[[[\"b\",1]]]\n");
    stream.end_chunks();
    assert_eq!(stream.chunk(), None);
    web.service.exits_cleanly();
}

#[test]
fn a_second_signal_aborts_requests_in_progress() {
    let web = Web::start("[couchdb]\nos_process_timeout = 600000\n");
    let mut connection = web.connect();
    let json = [("Content-Type", "application/json")];
    let body = validate(&json!({"loop": true}));
    connection.send("POST", "/_query/ddoc", &json, &body);
    web.wait_until_used();
    web.service.signal("TERM");
    web.service.wait_for_log("\"stopped listening\"");
    web.service.signal("TERM");
    // The connection is cut, or still gets the error.
    let answer = connection.closed();
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 50"),
        "{answer}"
    );
    web.service.exits_cleanly();
}

#[test]
fn an_address_in_use_is_reported_with_its_key_and_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = directory();
    let config = configure(directory.path(), "");
    let mut command = command(&config);
    command.env(
        "SETTEE__SERVER__HTTP",
        taken.local_addr().unwrap().to_string(),
    );
    let output = command.output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(75), "{complaint}");
    for part in [
        "[server] http = \"127.0.0.1:",
        "port 0 for any free one",
        "\"off\"",
    ] {
        assert!(complaint.contains(part), "{complaint}");
    }
    assert!(!crate::support::daemon::socket_of(directory.path()).exists());
}

#[test]
fn metrics_are_served_as_json_and_in_the_prometheus_format() {
    let web = Web::start("");
    let body = validate(&json!({"ok": true}));
    web.send("POST", "/_query/ddoc", &body).ok();
    web.get("/nothing").error(404, "not_found");
    let stats = web.get("/_node/_local/_stats").ok();
    let starts = &stats["couchdb"]["query_server"]["process_starts"];
    assert_eq!(starts["value"], 1);
    assert_eq!(starts["type"], "counter");
    let part = web.get("/_node/_local/_stats/couchdb/query_server/process_starts");
    assert_eq!(part.ok(), *starts);
    assert_eq!(stats["couchdb"]["httpd_status_codes"]["404"]["value"], 1);
    for path in ["/metrics", "/_node/_local/_prometheus"] {
        let text = web.get(path);
        assert_eq!(text.status, 200);
        let kind = text.header("content-type").unwrap();
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        let line = "couchdb_query_server_process_starts_total 1\n";
        assert!(text.body.contains(line), "{}", text.body);
    }
    web.service.stop();
}

#[test]
fn requests_on_open_connections_soon_after_the_order_to_stop_are_answered() {
    /// More than can be served within [`SOON`].
    const CONNECTIONS: usize = 400;
    /// How long requests are sent, one after another, after the order: shorter than the server's wait for them.
    const SOON: Duration = Duration::from_millis(150);
    in_time("answers", |_| {
        let web = Web::start("");
        let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| web.connect()).collect();
        let used = &mut connections[0];
        used.request("GET", "/_up", &[], "").ok();
        web.service.signal("TERM");
        web.service.wait_for_log("stopped listening");
        let told = Instant::now();
        for connection in &mut connections {
            connection.send("GET", "/", &[], "");
            let answer = connection.closed();
            if answer.is_empty() {
                return None;
            }
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(answer.contains("connection: close"), "{answer}");
            if told.elapsed() > SOON {
                break;
            }
        }
        drop(connections);
        web.service.exits_cleanly();
        Some(())
    });
}
