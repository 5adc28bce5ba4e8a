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

#[test]
fn calls_of_many_databases_start_no_process_beyond_the_limit() {
    for reuse in ["any", "database"] {
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
        assert_eq!(totals["started"], 2, "{reuse}: {totals}");
        assert!(totals["forgot"].as_u64() >= Some(27), "{reuse}: {totals}");
        service.stop();
    }
}
