//! `settee drain`: a daemon that takes no new work, and what it still has.

use serde_json::{Value, json};

use super::support::{complains, prints, take, take_request};
use crate::support::daemon::wait_until;
use crate::support::http_client::Web;

/// A call of a function over HTTP.
const MAP: &str = r#"{"lang": "javascript", "db": "shop", "funs": ["function(doc) { emit(1); }"], "docs": [{"_id": "a"}]}"#;

fn kinds(web: &Web) -> Vec<Value> {
    let health = web.get("/_health").ok();
    let problems = health["problems"].as_array().unwrap().iter();
    problems.map(|problem| problem["kind"].clone()).collect()
}

#[test]
fn a_drained_daemon_refuses_new_calls_and_finishes_accepted_ones() {
    let web = Web::start("[pools.python]\nmax = 1\n");
    let mut holder = web.service.connect();
    let lent = take(&mut holder, "python");
    let mut waiter = web.service.connect();
    waiter.send(&take_request("python"));
    holder.wait_for_pool("python", &[("waiting", 1)]);
    assert_eq!(web.get("/_up").ok(), json!({"status": "ok"}));

    let said = prints(&web.service, &["drain"]);
    assert!(said.starts_with("drained since "), "{said}");
    assert!(
        said.ends_with("; requests waiting: 1, processes lent: 1, replications running: 0\n"),
        "{said}"
    );
    let up = web.get("/_up");
    assert_eq!(
        (up.status, up.json()),
        (404, json!({"status": "maintenance_mode"}))
    );
    let refused = web.send("POST", "/_query/map", MAP);
    refused.reason(503, "draining");
    assert!(refused.header("retry-after").is_some());
    let error = web.service.connect().error(&take_request("python"));
    assert_eq!(
        (&error["name"], &error["retry"]),
        (&json!("draining"), &json!(true)),
        "{error}"
    );
    let body = json!({"source": "http://127.0.0.1:1/a", "target": "http://127.0.0.1:1/b"});
    let refused = web.send("POST", "/_replicate", &body.to_string());
    refused.reason(503, "draining");
    wait_until("the problem", || kinds(&web) == ["drained"]);
    let said = complains(&web.service, 75, &["drain", "--wait", "0"]);
    assert!(said.contains("work remains after 0 s"), "{said}");

    // The holder keeps working, and the waiter gets the process after it.
    assert_eq!(holder.prompt(&lent.proc, json!(["reset"])), true);
    assert!(holder.ret_proc(&lent.proc));
    let proc = waiter.reply()["ok"]["proc"].clone();
    assert!(waiter.ret_proc(proc.as_str().unwrap()));
    let state = prints(&web.service, &["drain", "--wait", "60", "--json"]);
    let state: Value = serde_json::from_str(&state).unwrap();
    let since = state["since"].clone();
    assert_eq!(
        state,
        json!({"draining": true, "since": since, "waiting": 0, "lent": 0, "running": 0})
    );
    assert_eq!(web.get("/_drain").ok(), state);

    let over = web.send("DELETE", "/_drain", "").ok();
    assert_eq!(
        (&over["draining"], &over["since"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(web.get("/_up").ok(), json!({"status": "ok"}));
    web.send("POST", "/_query/map", MAP).ok();
    web.service.stop();
}

#[test]
fn each_order_to_drain_is_audited_with_the_previous_state() {
    let web = Web::start("");
    web.send("PUT", "/_drain", "").ok();
    prints(&web.service, &["drain", "--wait", "60"]);
    let said = prints(&web.service, &["drain", "--off"]);
    assert_eq!(said, "the daemon takes work\n");
    web.send("DELETE", "/_drain", "").ok();
    let audit = web.get("/_audit").ok();
    let records = audit["records"].as_array().unwrap().iter();
    let row = |record: &Value| {
        let before = &record["before"]["draining"];
        json!([record["what"], record["count"], before])
    };
    let rows: Vec<_> = records.map(row).collect();
    assert_eq!(
        rows,
        [
            json!(["undrain", 0, false]),
            json!(["undrain", 1, true]),
            json!(["drain", 0, true]),
            json!(["drain", 1, false]),
        ]
    );
    web.service.stop();
}
