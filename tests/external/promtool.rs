//! promtool accepts the metrics that Settee names itself, and Settee's alerts.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::http_client::Web;
use crate::support::program::run;

/// Pools with and without a cell, one that cannot be started, and a service.
const CONFIG: &str = "\
[query_server_config]
sandbox = \"standard\"
[query_servers]
missing = \"/nonexistent/server\"
[pools.one]
language = \"javascript\"
max = 1
queue_max = 1
[pools.free]
language = \"python\"
sandbox = \"off\"
[services.js]
listen = \"localhost:0\"
language = \"javascript\"
";

/// Runs functions that succeed, fail, never end, and cannot be started, and a replication that fails.
fn keep_busy(web: &Web) {
    let map = |language: &str, source: &str| json!({"db": "d", "lang": language, "funs": [source], "docs": [{"_id": "a"}], "timeout_ms": 1000});
    let send = |path: &str, body: &Value| web.send("POST", path, &body.to_string()).status;
    let good = map("javascript", "function(doc) { emit(doc._id, 1); }");
    assert_eq!(send("/_query/map", &good), 200);
    let mut elsewhere = good.clone();
    elsewhere["pool"] = json!("one");
    assert_eq!(send("/_query/map", &elsewhere), 200);
    let mistaken = map("javascript", "function(doc) {");
    assert_eq!(send("/_query/map", &mistaken), 400);
    let endless = map("javascript", "function(doc) { while (true) {} }");
    assert_eq!(send("/_query/map", &endless), 500);
    assert_eq!(send("/_query/map", &map("missing", "f")), 500);
    let nowhere = json!({"source": "http://127.0.0.1:1/a", "target": "http://127.0.0.1:1/b"});
    assert_ne!(send("/_replicate", &nowhere), 200);
    let mut client = web.service.connect();
    let got = client.ok(&json!({"id": 1, "call": "get_proc", "pool": "free"}));
    assert!(client.ret_proc(got["proc"].as_str().unwrap()));
}

#[test]
fn promtool_accepts_the_metrics_that_settee_names() {
    let web = Web::start(CONFIG);
    keep_busy(&web);
    let text = web.get("/_node/_local/_prometheus").body;
    for sample in [
        "settee_pool_open_failures_total{pool=\"missing\",reason=\"query_server\"} 1",
        "settee_kills_total{language=\"javascript\",reason=\"timeout\"} 1",
        "settee_pool_processes{pool=\"free\",state=\"idle\"} 1",
    ] {
        assert!(text.contains(sample), "{sample} is not in {text}");
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    let output = run(&mut promtool, text.as_bytes());
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8(printed).unwrap();
    // CouchDB's names are kept even if promtool objects.
    let is_ours = |line: &&str| !line.starts_with("couchdb_");
    let ours: Vec<_> = printed.lines().filter(is_ours).collect();
    assert!(ours.is_empty(), "{ours:#?}");
    // 3: promtool parsed everything, and reported lint problems.
    assert_eq!(output.status.code(), Some(3), "{printed}");
    web.service.stop();
}

#[test]
fn every_alert_rule_is_valid_and_fires_in_a_passing_test() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/monitoring");
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        let mut promtool = Command::new("promtool");
        promtool.current_dir(folder).args(arguments);
        let output = run(&mut promtool, b"");
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8(printed).unwrap();
        assert!(output.status.success(), "{printed}");
    }
    // Every rule fires in a test.
    let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
    let (rules, tests) = (read("alerts.yml"), read("alerts_test.yml"));
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap();
        let mut cases = tests.split("alertname: ").skip(1);
        let fires = |case: &str| {
            let mut lines = case.lines();
            lines.next() == Some(name)
                && lines.next().is_some_and(|line| line.contains("exp_alerts"))
        };
        assert!(cases.any(fires), "{name} never fires");
    }
}
