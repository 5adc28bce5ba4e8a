//! The dashboard's page and its files.

use serde_json::{Value, json};

use crate::support::daemon::wait_until;
use crate::support::http_client::Web;

#[test]
fn the_page_may_use_nothing_but_its_own_files() {
    let web = Web::start("");
    for (path, content_type) in [
        ("/_dashboard", "text/html; charset=utf-8"),
        ("/_dashboard/page.css", "text/css; charset=utf-8"),
        ("/_dashboard/page.js", "text/javascript; charset=utf-8"),
        ("/_dashboard/dom.js", "text/javascript; charset=utf-8"),
    ] {
        let response = web.get(path);
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), Some(content_type));
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        let policy = response.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
    }
    web.get("/_dashboard/other").error(404, "not_found");
    web.send("POST", "/_dashboard", "")
        .error(405, "method_not_allowed");
    let state = web.get("/_dashboard/state").ok();
    assert_eq!(state["jobs"]["total"], 0);
    assert!(state["status"]["pools"].is_array());
    assert_eq!(state["may"][2], "operate");
    web.service.stop();
}

#[test]
fn every_file_that_a_file_of_the_page_names_is_there_and_all_are_small() {
    let web = Web::start("");
    let (mut asked, mut bytes) = (vec!["/_dashboard".to_owned()], 0);
    let mut at = 0;
    while let Some(path) = asked.get(at).cloned() {
        let response = web.get(&path);
        assert_eq!(response.status, 200, "{path}");
        bytes += response.body.len();
        let named = response
            .body
            .split('"')
            .filter(|part| part.starts_with("./") || part.starts_with("/_dashboard/page."));
        for part in named {
            let path = part.replace("./", "/_dashboard/");
            if !asked.contains(&path) {
                asked.push(path);
            }
        }
        at += 1;
    }
    assert_eq!(asked.len(), 13, "{asked:?}");
    assert!(bytes < 66_000, "{bytes} bytes");
    web.service.stop();
}

#[test]
fn the_history_has_the_calls_of_the_daemon_and_of_a_pool() {
    let web = Web::start("");
    let history = |query: &str| web.get(&format!("/_dashboard/history{query}")).ok();
    let sum = |history: &Value, name: &str| -> u64 {
        let values = history[name].as_array().unwrap().iter();
        values.map(|value| value.as_u64().unwrap()).sum()
    };
    for source in ["function() { return 'x' }", "function() { throw 'x' }"] {
        let body = json!({"db": "shop", "path": ["shows", "s"], "args": [null, {}],
            "ddoc": {"_id": "_design/d", "shows": {"s": source}}});
        web.send("POST", "/_query/ddoc", &body.to_string());
    }
    // A sample is taken every 30 s.
    wait_until("the sample with both calls", || {
        sum(&history(""), "calls") == 2
    });
    let all = history("");
    assert_eq!(all["period"], 30);
    assert_eq!(sum(&all, "errors"), 1);
    assert_eq!(sum(&all, "docs_written"), 0);
    assert_eq!(
        all["pending"].as_array().unwrap().len(),
        all["at"].as_array().unwrap().len()
    );
    let pool = history("?pool=javascript");
    assert_eq!((sum(&pool, "calls"), sum(&pool, "errors")), (2, 1));
    assert_eq!(pool.get("pending"), None);
    assert_eq!(sum(&history("?pool=none"), "calls"), 0);
    web.service.stop();
}
