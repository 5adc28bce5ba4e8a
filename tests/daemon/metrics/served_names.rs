//! Metrics of a running service: it serves exactly those that `docs/metrics.md` lists, in both formats,
//! and they count what its clients do.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::daemon::{Order, wait_until};
use crate::support::http_client::Web;

const STATS: &str = "/_node/_local/_stats";

/// The documented names: `_stats` paths and Prometheus names.
fn documented() -> (BTreeSet<String>, BTreeSet<String>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("## Metrics\n").unwrap();
    let cell = |at: usize| {
        // Skips the heading and its ruler.
        let rows = table.lines().filter(|line| line.contains('|')).skip(2);
        let cells = rows.map(move |row| row.split('|').nth(at).unwrap().trim().replace('`', ""));
        cells.filter(|cell| !cell.is_empty()).collect()
    };
    (cell(1), cell(2))
}

/// Every leaf of `_stats` by its path.
fn leaves(place: &Value, path: &str, found: &mut BTreeSet<String>) {
    let members = place.as_object().unwrap();
    if members.contains_key("type") && members.contains_key("desc") {
        found.insert(path.to_owned());
        return;
    }
    for (name, below) in members {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        leaves(below, &path, found);
    }
}

fn number(web: &Web, path: &str) -> u64 {
    let leaf = web.get(&format!("{STATS}{path}")).ok();
    let value = leaf["value"].as_u64();
    value.unwrap_or_else(|| panic!("{path}: {leaf}"))
}

#[test]
fn exactly_the_documented_metrics_are_served() {
    let web = Web::start(
        "[query_server_config]\nsandbox = \"standard\"\n[services.js]\nlisten = \"localhost:0\"\nlanguage = \"javascript\"\n",
    );
    let mut client = web.service.connect();
    let proc = client.get_proc("javascript");
    client.prompt(&proc, json!(["reset", {}]));
    assert!(client.ret_proc(&proc));
    wait_until("the layers of the cell", || {
        let layers = client.pool("javascript")["sandbox"]["layers"].clone();
        layers.as_array().is_some_and(|layers| !layers.is_empty())
    });
    // A request is counted once it is answered, so the next one sees it.
    web.get("/_up").ok();
    let (paths, names) = documented();
    assert!(paths.len() > 50 && names.len() > 50, "{}", names.len());

    let mut served = BTreeSet::new();
    leaves(&web.get(STATS).ok(), "", &mut served);
    for path in &paths {
        let is_there = |leaf: &String| leaf == path || leaf.starts_with(&format!("{path}."));
        assert!(served.iter().any(is_there), "{path} is not served");
    }
    for leaf in &served {
        let is_known = |path: &String| leaf == path || leaf.starts_with(&format!("{path}."));
        assert!(paths.iter().any(is_known), "{leaf} is not documented");
    }

    for path in ["/metrics", "/_node/_local/_prometheus"] {
        let response = web.get(path);
        assert_eq!(response.status, 200);
        let kind = response.header("content-type").unwrap();
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        let types = response
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "));
        let types: BTreeSet<_> = types
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect();
        assert_eq!(types, names, "{path}");
    }
    drop(client);
    web.service.stop();
}

#[test]
fn calls_are_counted_and_a_client_counts_while_it_is_connected() {
    let web = Web::start("");
    assert_eq!(number(&web, "/settee/clients"), 0);
    let mut client = web.service.connect();
    let proc = client.get_proc("javascript");
    client.prompt(&proc, json!(["reset", {}]));
    let source = "function(doc) { emit(doc._id, 1); }";
    client.prompt(&proc, json!(["add_fun", source]));
    for number in 0..5 {
        client.prompt(&proc, json!(["map_doc", {"_id": number.to_string()}]));
    }
    assert!(client.ret_proc(&proc));
    let at = |path: &str| number(&web, &format!("/couchdb/query_server/{path}"));
    for (path, expected) in [
        ("process_starts", 1),
        ("acquired_processes", 1),
        ("process_prompts", 7),
        ("process_errors", 0),
        ("process_exits", 0),
        ("process_error_exits", 0),
        ("process_count", 1),
        ("calls/reset", 1),
        ("calls/add_fun", 1),
        ("calls/map", 5),
        ("calls/spawn_proc", 1),
        ("calls/other", 0),
    ] {
        assert_eq!(at(path), expected, "{path}");
    }
    assert!(at("time/map") > 0 && at("time/spawn_proc") > 0);
    assert_eq!(number(&web, "/settee/clients"), 1);
    assert_eq!(number(&web, "/settee/clients_accepted"), 1);
    assert_eq!(number(&web, "/settee/pool_returns/javascript/ok"), 1);
    drop(client);
    wait_until("the end of the connection", || {
        number(&web, "/settee/clients") == 0
    });
    assert_eq!(number(&web, "/settee/clients_accepted"), 1);
    web.service.stop();
}

#[test]
fn every_byte_from_and_to_a_client_is_counted() {
    let web = Web::start("");
    let mut client = web.service.connect();
    let request = "{\"id\": 1, \"call\": \"cancel\", \"request\": 0}\n";
    client.send_raw(request.as_bytes());
    let reply = client.line().unwrap();
    let received = number(&web, "/settee/client_received_bytes");
    assert_eq!(received, request.len() as u64);
    let sent = number(&web, "/settee/client_sent_bytes");
    assert_eq!(sent, reply.len() as u64);
    drop(client);
    web.service.stop();
}

#[test]
fn functions_over_http_are_counted_as_prompts_and_as_requests() {
    let web = Web::start("");
    let function = "function(doc) { if (!doc.ok) { throw({forbidden: 'no'}); } }";
    let ddoc = json!({"_id": "_design/d", "_rev": "1-a", "validate_doc_update": function});
    let validate = |doc: Value| {
        let body = json!({"db": "db", "ddoc": ddoc, "path": ["validate_doc_update"],
                          "args": [doc, null, {}, {}]});
        web.send("POST", "/_query/ddoc", &body.to_string())
    };
    validate(json!({"ok": true})).ok();
    assert_eq!(validate(json!({})).status, 403);
    let at = |path: &str| number(&web, &format!("/couchdb/query_server/{path}"));
    for (path, expected) in [
        ("vdu_rejects", 1),
        ("calls/ddoc_vdu", 2),
        ("calls/ddoc_new", 1),
        ("calls/reset", 3),
        ("acquired_processes", 2),
        ("process_starts", 1),
    ] {
        assert_eq!(at(path), expected, "{path}");
    }
    let time = web
        .get(&format!("{STATS}/couchdb/query_server/vdu_process_time"))
        .ok();
    assert_eq!(time["type"], "histogram");
    assert_eq!(time["value"]["n"], 2);
    assert_eq!(number(&web, "/couchdb/httpd_status_codes/403"), 1);
    assert_eq!(number(&web, "/couchdb/httpd_request_methods/POST"), 2);
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn an_unknown_stats_path_is_null_and_a_reload_resets_no_counter() {
    let web = Web::start("");
    let mut client = web.service.connect();
    let proc = client.get_proc("javascript");
    assert!(client.ret_proc(&proc));
    assert_eq!(
        web.get(&format!("{STATS}/couchdb/no/such")).ok(),
        Value::Null
    );
    let reload = Order::new("POST", "/_reload_query_servers", json!({}));
    client.operator.ok(&reload);
    client.wait_for_pool("javascript", &[("free", 0), ("stopping", 0)]);
    assert_eq!(number(&web, "/couchdb/query_server/process_starts"), 1);
    assert_eq!(number(&web, "/settee/pool_stops/javascript/stale"), 1);
    drop(client);
    web.service.stop();
}
