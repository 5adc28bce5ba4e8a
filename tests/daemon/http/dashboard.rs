//! The dashboard's page and its files.

use std::collections::BTreeSet;
use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::support::daemon::wait_until;
use crate::support::http_client::Web;

#[test]
fn the_page_may_load_only_its_own_files() {
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

/// The maximum size of all files of the page, in bytes.
const PLAIN_MAX: usize = 76_800;

/// The maximum size of all files when compressed, in bytes.
const SENT_MAX: usize = 29_200;

#[test]
fn every_file_that_the_page_references_exists_and_is_small() {
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
    assert_eq!(asked.len(), 14, "{asked:?}");
    // The bound on the plain size keeps the page readable, and small without compression; a visitor waits for the
    // compressed size.
    assert!(bytes < PLAIN_MAX, "{bytes} bytes");
    let sent: usize = asked.iter().map(|path| compressed(&web, path).len()).sum();
    assert!(sent < SENT_MAX, "{sent} bytes");
    web.service.stop();
}

/// Requests a path as a browser does, and returns the compressed body.
fn compressed(web: &Web, path: &str) -> Vec<u8> {
    let mut connection = web.connect();
    let gzip = [("Accept-Encoding", "gzip, deflate, br, zstd")];
    connection.send("GET", path, &gzip, "");
    let head = connection.head();
    assert_eq!(head.status, 200, "{path}");
    assert_eq!(head.header("content-encoding"), Some("gzip"), "{path}");
    assert_eq!(head.header("vary"), Some("Accept-Encoding"), "{path}");
    let mut body = vec![0; head.header("content-length").unwrap().parse().unwrap()];
    connection.read_exact(&mut body);
    body
}

fn unpacked(gzip: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(gzip).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_file_is_the_same_with_gzip_and_is_not_sent_again_if_unchanged() {
    let web = Web::start("");
    for path in ["/_dashboard", "/_dashboard/page.js", "/_dashboard/page.css"] {
        let plain = web.get(path);
        assert_eq!(plain.header("content-encoding"), None);
        assert_eq!(plain.header("vary"), Some("Accept-Encoding"));
        let gzip = compressed(&web, path);
        assert_eq!(unpacked(&gzip), plain.body, "{path}");
        for (encoding, length) in [("gzip", gzip.len()), ("identity", plain.body.len())] {
            let accepts = [("Accept-Encoding", encoding)];
            let head = web.connect().request("HEAD", path, &accepts, "");
            assert_eq!(head.header("content-length"), Some(&*length.to_string()));
        }
        let tag = plain.header("etag").unwrap();
        let again = [("If-None-Match", tag)];
        let known = web.connect().request("GET", path, &again, "");
        assert_eq!((known.status, &*known.body), (304, ""), "{path}");
        assert_eq!(known.header("etag"), Some(tag));
        let other = [("If-None-Match", "W/\"other\"")];
        assert_eq!(web.connect().request("GET", path, &other, "").status, 200);
    }
    let state: Value =
        serde_json::from_str(&unpacked(&compressed(&web, "/_dashboard/state"))).unwrap();
    assert_eq!(state["jobs"]["total"], 0);
    web.service.stop();
}

#[test]
fn requests_in_quick_succession_share_a_state_and_later_ones_get_a_new_one() {
    let web = Web::start("");
    let state = || web.get("/_dashboard/state").body;
    // The age of the process tells states apart.
    let mut holder = web.service.connect();
    let proc = holder.get_proc("python");
    let age = |state: &str| {
        let state: Value = serde_json::from_str(state).unwrap();
        let mut pools = state["status"]["pools"].as_array().unwrap().iter();
        let pool = pools.find(|pool| pool["name"] == "python")?;
        pool["procs"][0]["age_ms"].as_u64()
    };
    let mut first = None;
    wait_until("the state with the process", || {
        first = age(&state());
        first.is_some()
    });
    // Far more answers than states.
    let mut ages = BTreeSet::new();
    let mut asked = 0;
    wait_until("another state", || {
        asked += 1;
        ages.insert(age(&state()).unwrap());
        ages.len() > 2
    });
    assert!(asked > 3 * ages.len(), "{asked} answers, {ages:?}");
    assert!(holder.ret_proc(&proc));
    web.service.stop();
}

#[test]
fn the_history_counts_the_calls_of_the_daemon_and_of_each_pool_even_refused_ones() {
    let web = Web::start("[query_servers]\nbad = \"false\"\n[pools.flaky]\nlanguage = \"bad\"\n");
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
    let map = json!({"db": "shop", "lang": "bad", "pool": "flaky", "timeout_ms": 1000, "funs": ["f"], "docs": [{"_id": "a"}]});
    let mut failed = 0;
    wait_until("the pool refuses calls", || {
        let answer = web.send("POST", "/_query/map", &map.to_string());
        failed += 1;
        answer.json()["error"] == "throttled"
    });
    // A sample is taken every 30 s.
    wait_until("the sample with all calls", || {
        sum(&history(""), "calls") == 2 + failed
    });
    let all = history("");
    assert_eq!(all["period"], 30);
    assert_eq!(sum(&all, "errors"), 1 + failed);
    let refused = history("?pool=flaky");
    assert!(sum(&refused, "calls") > 0, "{refused}");
    assert_eq!(sum(&refused, "calls"), sum(&refused, "errors"));
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
