//! The README's pictures: the architecture, generated from its source, and the dashboard of a busy service.
//!
//! To regenerate the dashboard's: SETTEE_PICTURE=docs/images/dashboard.png cargo test --locked --examples --test external picture::

use std::env;
use std::fs;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use crate::support::http_client::Web;
use crate::support::program::project;
use crate::webdriver::Browser;

/// Maximum size of the picture, in bytes.
const BYTES_MAX: usize = 150_000;

/// Two pools, and a short timeout that stops the endless function.
const CONFIG: &str = "[couchdb]\nos_process_timeout = 3000\n\
    [query_server_config]\nsandbox = \"strict\"\n\
    [pools.customers]\nlanguage = \"javascript\"\nmax = 3\nfairness = \"per_db\"\nreuse = \"database\"\n\
    [pools.reports]\nlanguage = \"javascript\"\nmax = 2\ninit_size = 1\n";

/// The customers' functions: pool, database, name, source, number of calls.
const FUNCTIONS: [(&str, &str, &str, &str, u32); 6] = [
    (
        "customers",
        "acme",
        "invoice",
        "function(doc) { return doc.item + ': ' + doc.price }",
        400,
    ),
    (
        "customers",
        "acme",
        "label",
        "function(doc) { return doc.item.toUpperCase() }",
        150,
    ),
    (
        "customers",
        "globex",
        "page",
        "function(doc) { var s = ''; for (var i = 0; i < 3e4; i++) s += i; return s.length + '' }",
        60,
    ),
    (
        "customers",
        "initech",
        "total",
        "function(doc) { return doc.price.gross.toFixed(2) }",
        25,
    ),
    (
        "reports",
        "umbrella",
        "chart",
        "function(doc) { var end = Date.now() + 40; while (Date.now() < end); return '' }",
        20,
    ),
    (
        "reports",
        "umbrella",
        "endless",
        "function(doc) { while (true) {} }",
        1,
    ),
];

fn call(web: &Web, (pool, db, name, source, times): (&str, &str, &str, &str, u32)) {
    let body = json!({
        "pool": pool, "db": db, "path": ["shows", name],
        "args": [{"_id": "1", "item": "tea", "price": 4}, {}],
        "ddoc": {"_id": "_design/shop", "shows": {name: source}},
    });
    let mut connection = web.connect();
    let json = [("Content-Type", "application/json")];
    for _ in 0..times {
        connection.request("POST", "/_query/ddoc", &json, &body.to_string());
    }
}

/// Borrows a process of the `customers` pool without returning it.
fn hold(web: &Web, db: &str) -> (crate::support::daemon::Client, Value) {
    let mut client = web.service.connect();
    let asked =
        json!({"id": 1, "call": "get_proc", "pool": "customers", "db": db, "timeout_ms": 60_000});
    let lent = client.ok(&asked);
    (client, lent)
}

#[test]
fn the_architecture_picture_matches_its_source() {
    let text = project().join("docs/images/overview.py");
    let made = Command::new("python3").arg(&text).output().unwrap();
    let picture = fs::read(text.with_extension("svg")).unwrap();
    assert!(made.status.success() && made.stdout == picture, "{made:?}");
}

#[test]
fn the_picture_of_a_busy_dashboard_is_small() {
    let service = Web::start(CONFIG);
    let web = &service;
    let path = env::var_os("SETTEE_PICTURE");
    // In a saved picture the charts cover a few minutes.
    let samples = if path.is_some() { 8 } else { 0 };
    loop {
        thread::scope(|scope| {
            for function in FUNCTIONS {
                scope.spawn(move || call(web, function));
            }
        });
        let history = web.get("/_dashboard/history").ok();
        if history["at"].as_array().unwrap().len() >= samples {
            break;
        }
    }
    let held: Vec<_> = ["acme", "globex", "initech"].map(|db| hold(web, db)).into();
    let mut waiter = web.service.connect();
    waiter.send(&json!({"id": 1, "call": "get_proc", "pool": "customers", "db": "umbrella", "timeout_ms": 60_000}));
    let browser = Browser::open(&format!("http://{}/_dashboard", web.address));
    browser.resize(1280, 960, "light");
    browser.click("#procs-list summary");
    browser.wait_for("1 request waits for a process");
    browser.wait_for("6 functions in the last ");
    let picture = browser.picture();
    assert!(picture.starts_with(b"\x89PNG"), "{:?}", &picture[..8]);
    assert!(picture.len() < BYTES_MAX, "{} bytes", picture.len());
    if let Some(path) = path {
        fs::write(project().join(path), picture).unwrap();
    }
    browser.close();
    drop(held);
    service.service.stop();
}
