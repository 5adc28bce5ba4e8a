//! A process of the built-in JavaScript serves one database after another.

use serde_json::{Value, json};

use crate::support::daemon::Service;

/// Answers whether an earlier call left a global.
const SHOW: &str =
    "function(doc, req) { var seen = typeof left; globalThis.left = doc; return seen; }";

fn call(db: &str) -> Value {
    let ddoc = json!({"_id": "_design/d", "shows": {"s": SHOW}});
    json!({"call": "show", "db": db, "ddoc": ddoc, "name": "s", "doc": {"_id": db}, "req": {}})
}

/// Calls functions of ten databases in turn; returns how many processes were started, and how often one forgot.
fn started_and_forgot(reuse: &str) -> (u64, u64) {
    let service = Service::start(&format!(
        "[query_server_config]\nos_process_limit = 2\nreuse = \"{reuse}\""
    ));
    let mut client = service.connect();
    for round in 0..3 {
        for db in 0..10 {
            let shown = client.ok(&call(&format!("db{db}")));
            assert_eq!(shown["body"], "undefined", "{reuse}, round {round}, db{db}");
        }
    }
    // Within one database the function keeps its realm, so it sees what it left.
    assert_eq!(client.ok(&call("db9"))["body"], "object");
    let totals = &client.pool("javascript")["totals"];
    let [started, forgot] = ["started", "forgot"].map(|name| totals[name].as_u64().unwrap());
    service.stop();
    (started, forgot)
}

#[test]
fn calls_of_many_databases_start_no_process_beyond_the_limit() {
    let (started, forgot) = started_and_forgot("any");
    assert_eq!(started, 2);
    assert!(forgot >= 27, "{forgot}");
}

#[test]
fn no_process_forgets_with_one_database_per_process() {
    let (started, forgot) = started_and_forgot("database");
    assert!(started >= 27, "{started}");
    assert_eq!(forgot, 0);
}

/// Calls of every kind that can have a report, some of which fail.
fn calls_of_every_kind() -> Vec<Value> {
    let ddoc = json!({"_id": "_design/d",
        "views": {"lib": {"m": "exports.n = 1;"}, "v": {"map": "function(doc) { emit(doc.n, 1); }"}},
        "filters": {"f": "function(doc, req) { return !!doc.n; }"},
        "shows": {"s": "function(doc) { return require('views/lib/m').n + doc._id; }",
            "wrong": "function(doc) { return doc.a.b.c; }", "broken": "function(doc) {"},
        "updates": {"u": "function(doc) { return [doc, 'done']; }"},
        "lists": {"l": "function() { var row; while (row = getRow()) send(row.key); return '.'; }"},
        "rewrites": "function(req) { return '_show/s'; }",
        "validate_doc_update": "function(doc) { if (!doc.n) throw {forbidden: 'n'}; }"});
    let docs = json!([{"_id": "a", "n": 1}, {"_id": "b"}]);
    let count = "function(keys, values) { return values.length; }";
    let plain = [
        json!({"call": "map_docs", "funs": ["function(doc) { emit(require('views/lib/m').n); }"],
            "lib": {"m": "exports.n = 1;"}, "docs": docs}),
        json!({"call": "map_docs", "funs": ["function(doc) { log('no'); doc.a.b.c; }"], "docs": docs}),
        json!({"call": "map_docs", "funs": ["function(doc) {"], "docs": docs}),
        json!({"call": "reduce", "funs": [count], "rows": [[["k", "a"], 2]]}),
        json!({"call": "reduce", "funs": ["function() { throw 'no'; }"], "rows": [[["k", "a"], 2]]}),
        json!({"call": "rereduce", "funs": [count], "values": [1, 2]}),
        json!({"call": "index_docs", "fun": "function(doc) { index('default', doc._id); }", "docs": docs}),
        json!({"call": "try_compile", "name": "v", "fun": "function(doc) { emit(doc.n); }"}),
        json!({"call": "try_compile", "name": "v", "fun": "function("}),
    ];
    let of_ddoc = [
        json!({"call": "ddoc_prompt", "path": ["shows", "s"], "args": [{"_id": "a"}, {}]}),
        json!({"call": "validate_docs", "docs": [{"newDoc": {"_id": "a"}}]}),
        json!({"call": "filter_docs", "name": "f", "docs": docs}),
        json!({"call": "filter_view", "name": "v", "docs": docs}),
        json!({"call": "show", "name": "s", "doc": {"_id": "a"}}),
        json!({"call": "show", "name": "wrong", "doc": {"_id": "a"}}),
        json!({"call": "show", "name": "broken", "doc": {"_id": "a"}}),
        json!({"call": "update", "name": "u", "doc": {"_id": "a"}}),
        json!({"call": "list", "name": "l", "rows": [{"id": "a", "key": "x"}]}),
        json!({"call": "rewrite", "req": {"path": []}}),
    ];
    let plain = plain.map(|mut call| {
        call["lang"] = json!("javascript");
        call
    });
    let of_ddoc = of_ddoc.map(|mut call| {
        call["ddoc"] = ddoc.clone();
        call
    });
    [plain.as_slice(), &of_ddoc].concat()
}

#[test]
fn no_kind_of_call_starts_a_process_for_another_database() {
    let service = Service::start("[query_server_config]\nos_process_limit = 1");
    let mut client = service.connect();
    for mut call in calls_of_every_kind() {
        for report in [false, true] {
            call["report"] = json!(report);
            for db in ["a", "b"] {
                call["db"] = json!(db);
                let reply = client.call(&call);
                assert_eq!(reply.get("cost").is_some(), report, "{call}: {reply}");
            }
            let totals = &client.pool("javascript")["totals"];
            assert_eq!(totals["started"], 1, "{call}");
        }
    }
    service.stop();
}
