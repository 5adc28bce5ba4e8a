//! `/_pools` over HTTP.

use policy::admission::FAILURES_MIN;
use serde_json::{Value, json};

use super::support::{give_back, take, take_request, wait_until_gone};
use crate::support::http_client::{Response, Web};

fn put(web: &Web, name: &str, body: &Value) -> Response {
    web.send("PUT", &format!("/_pools/{name}"), &body.to_string())
}

#[test]
fn a_pool_is_added_shown_changed_and_removed() {
    let web = Web::start("");
    let added = put(
        &web,
        "P",
        &json!({"language": "python", "max": 2, "init_size": 1}),
    );
    assert_eq!(added.status, 201, "{added:?}");
    let added = added.json();
    assert_eq!((&added["ok"], &added["pool"]), (&json!(true), &json!("p")));
    assert_eq!(added["changes"][0], json!({"add": "p"}));
    let changed = put(&web, "p", &json!({"max": 3})).ok();
    assert_eq!(changed["changes"], json!([{"set": "max", "value": 3}]));
    let shown = web.get("/_pools/p").ok();
    assert_eq!(
        (&shown["language"], &shown["hard_limit"]),
        (&json!("python"), &json!(3))
    );
    assert!(shown.get("procs").is_none());
    let all = web.get("/_pools").ok();
    let names: Vec<&Value> = all["pools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["name"])
        .collect();
    assert!(
        names.contains(&&json!("p")) && names.contains(&&json!("javascript")),
        "{all}"
    );
    assert_eq!(all["total_rows"], names.len());
    let mut client = web.service.connect();
    client.wait_for_pool("p", &[("free", 1)]);
    let procs = web.get("/_pools/p/_procs").ok();
    assert_eq!(
        (&procs["total_rows"], &procs["procs"][0]["state"]),
        (&json!(1), &json!("idle"))
    );
    let removed = web.send("DELETE", "/_pools/p", "").ok();
    let expected = json!([{"remove": "p", "mode": "graceful"}, {"stop_idle": 1}]);
    assert_eq!(removed["changes"], expected);
    wait_until_gone(&mut client, "p");
    assert_eq!(
        web.get("/_pools/p").error(404, "not_found"),
        "there is no pool named 'p'"
    );
    web.service.stop();
}

#[test]
fn mode_immediate_removes_a_pool_at_once() {
    let web = Web::start("[pools.p]\nlanguage = \"python\"\n");
    let mut holder = web.service.connect();
    let held = take(&mut holder, "p");
    web.send("DELETE", "/_pools/p?mode=soon", "")
        .error(400, "bad_request");
    web.send("DELETE", "/_pools/p?mode=immediate", "").ok();
    assert_eq!(holder.reply()["down"], held.proc.as_str());
    wait_until_gone(&mut holder, "p");
    web.send("DELETE", "/_pools/p", "").error(404, "not_found");
    web.service.stop();
}

#[test]
fn invalid_requests_are_refused_and_change_nothing() {
    let web = Web::start("");
    let wrong = [
        json!({"max": 2}),
        json!({"language": "perl"}),
        json!({"language": "python", "maxx": 2}),
        json!({"language": "python", "command": "sh"}),
        json!({"language": "python", "name": "q"}),
        json!([1]),
    ];
    for body in wrong {
        put(&web, "p", &body).error(400, "bad_request");
        web.get("/_pools/p").error(404, "not_found");
    }
    put(&web, "_p", &json!({"language": "python"})).error(400, "bad_request");
    web.send("DELETE", "/_pools/javascript", "")
        .error(400, "bad_request");
    for path in ["_terminate_stale", "_unthrottle"] {
        web.send("POST", &format!("/_pools/p/{path}"), "")
            .error(404, "not_found");
        web.send("POST", &format!("/_pools/javascript/{path}"), "")
            .ok();
        web.get(&format!("/_pools/javascript/{path}"))
            .error(405, "method_not_allowed");
    }
    web.get("/_pools/javascript/_nothing")
        .error(404, "not_found");
    web.service.stop();
}

#[test]
fn a_busy_pool_answers_503_with_retry_after() {
    let web = Web::start("[pools.js]\nlanguage = \"javascript\"\nmax = 1\nqueue_max = 0\n");
    let mut holder = web.service.connect();
    let held = take(&mut holder, "js");
    let map = json!({"lang": "javascript", "pool": "js", "docs": [{"_id": "a"}],
                     "funs": ["function(doc) { emit(1, 2) }"]});
    let busy = web.send("POST", "/_query/map", &map.to_string());
    busy.error(503, "pool_busy");
    assert_eq!(busy.header("retry-after"), Some("1"));
    let metrics = web.get("/metrics").body;
    let counted = "settee_pool_refusals_total{pool=\"js\",reason=\"busy\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
    assert!(
        metrics.contains("settee_pool_throttled{pool=\"js\"} 0\n"),
        "{metrics}"
    );
    assert!(give_back(&mut holder, &held, "ok"));
    let rows = web.send("POST", "/_query/map", &map.to_string()).ok();
    assert_eq!(rows["ok"], json!([[[[1, 2]]]]));
    web.service.stop();
}

#[test]
fn a_throttled_pool_answers_503_with_retry_after() {
    let extra = "[query_servers]\nbad = \"/nonexistent/server\"\n[pools.b]\nlanguage = \"bad\"\n\
                 throttle_delay = 300\n";
    let web = Web::start(extra);
    let mut client = web.service.connect();
    for _ in 0..FAILURES_MIN {
        assert_eq!(client.error(&take_request("b"))["name"], "os_process_error");
    }
    let map = json!({"lang": "bad", "pool": "b", "docs": [{"_id": "a"}], "funs": ["x"]});
    let refused = web.send("POST", "/_query/map", &map.to_string());
    let reason = refused.reason(503, "throttled");
    assert!(reason.contains("/nonexistent/server"), "{reason}");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((2..=300).contains(&seconds), "{seconds}");
    let metrics = web.get("/metrics").body;
    assert!(
        metrics.contains("settee_pool_throttled{pool=\"b\"} 1\n"),
        "{metrics}"
    );
    let lifted = web.send("POST", "/_pools/b/_unthrottle", "").ok();
    assert_eq!(lifted, json!({"ok": true, "was_throttled": true}));
    web.service.stop();
}

#[test]
fn pools_are_not_changed_without_a_login() {
    let web = Web::start("[admins]\nann = \"secret\"\n");
    let refused = put(&web, "p", &json!({"language": "python"}));
    assert_eq!(refused.status, 401, "{refused:?}");
    for path in ["/_pools/javascript", "/_pools/javascript/_unthrottle"] {
        let method = if path.ends_with('t') {
            "DELETE"
        } else {
            "POST"
        };
        assert_eq!(web.send(method, path, "").status, 401);
    }
    web.service.stop();
}

#[test]
fn a_dry_run_shows_the_changes_and_makes_none() {
    let web = Web::start("[pools.p]\nlanguage = \"python\"\nmax = 1\n");
    let mut client = web.service.connect();
    let held = take(&mut client, "p");
    let mut waiters: Vec<_> = (0..3).map(|_| web.service.connect()).collect();
    for (waiter, count) in waiters.iter_mut().zip(1..) {
        waiter.send(&take_request("p"));
        client.wait_for_pool("p", &[("waiting", count)]);
    }
    let put = |query: &str, name: &str, body: Value| {
        web.send("PUT", &format!("/_pools/{name}{query}"), &body.to_string())
    };
    let before = web.get("/_pools/p").ok()["settings"].clone();
    let settings = json!({"max": 2, "queue_max": 1});
    let planned = put("?dry_run=true", "p", settings.clone()).ok();
    let expected = json!([
        {"set": "max", "value": 2}, {"set": "queue_max", "value": 1},
        {"shrink_queue": 1}, {"start": 1},
    ]);
    assert_eq!(planned["changes"], expected);
    let after = web.get("/_pools/p").ok();
    assert_eq!(
        (&after["settings"], &after["waiting"]),
        (&before, &json!(3))
    );
    let added = put(
        "?dry_run=true",
        "q",
        json!({"language": "python", "init_size": 2}),
    );
    assert_eq!(added.status, 200, "{added:?}");
    assert_eq!(added.json()["changes"][0], json!({"add": "q"}));
    web.get("/_pools/q").error(404, "not_found");
    let gone = web
        .send("DELETE", "/_pools/p?mode=immediate&dry_run=true", "")
        .ok();
    let expected = json!([
        {"remove": "p", "mode": "immediate"}, {"shrink_queue": 3}, {"stop_used": 1},
    ]);
    assert_eq!(gone["changes"], expected);
    let mistakes = ["?dry_run=perhaps", "?dryrun=true"];
    for query in mistakes {
        assert_eq!(put(query, "p", json!({"max": 5})).status, 400, "{query}");
    }
    // Without a dry run, the same request makes the changes that it announced.
    let done = put("?dry_run=false", "p", settings).ok();
    assert_eq!(done["changes"], planned["changes"]);
    assert_eq!(waiters[2].reply()["error"]["name"], "pool_busy");
    assert!(give_back(&mut client, &held, "ok"));
    web.service.stop();
}
