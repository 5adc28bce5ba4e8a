//! The built-in JavaScript serves one database after the other with the same process.

use serde_json::{Value, json};

use crate::support::daemon::Service;

/// Tells whether an earlier call left something.
const SHOW: &str =
    "function(doc, req) { var seen = typeof left; globalThis.left = doc; return seen; }";

fn call(db: &str) -> Value {
    let ddoc = json!({"_id": "_design/d", "shows": {"s": SHOW}});
    json!({"call": "show", "db": db, "ddoc": ddoc, "name": "s", "doc": {"_id": db}, "req": {}})
}

/// Returns how many processes were started for many databases, and how many forgot.
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
    // Within one database the function keeps its realm: what is left would be seen.
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
fn no_process_forgets_where_each_is_to_serve_one_database() {
    let (started, forgot) = started_and_forgot("database");
    assert!(started >= 27, "{started}");
    assert_eq!(forgot, 0);
}
