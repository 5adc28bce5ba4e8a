//! What is kept of function calls: what functions cost, slow calls, the access log.

use std::fs;

use serde_json::{Value, json};

use crate::support::daemon::{configure, directory, wait_until};
use crate::support::http_client::{Web, command};

/// Calls a function of a design document, which says what it is to do.
fn call(web: &Web, function: &str) {
    let body = json!({
        "db": "shop",
        "path": ["shows", function],
        "args": [null, {}],
        "ddoc": {"_id": "_design/d", "shows": {
            "quick": "function() { return 'quick' }",
            "slow": "function() { var end = Date.now() + 50, n = 0; while (Date.now() < end || n < 3e5) n++; return 'slow' }",
            "wrong": "function() { throw new Error('wrong') }",
        }},
    });
    web.send("POST", "/_query/ddoc", &body.to_string());
}

fn functions(web: &Web, query: &str) -> Vec<Value> {
    let page = web.get(&format!("/_functions?{query}")).ok();
    page["functions"].as_array().unwrap().clone()
}

fn named(rows: &[Value], function: &str) -> Value {
    let mut found = rows.iter().filter(|row| row["function"] == function);
    found.next().unwrap().clone()
}

#[test]
fn what_functions_cost_is_told_by_database_design_document_and_function() {
    let web = Web::start("");
    for function in ["quick", "quick", "slow", "wrong"] {
        call(&web, function);
    }
    let rows = functions(&web, "period=hour");
    assert_eq!(rows.len(), 3);
    let times: Vec<_> = rows.iter().map(|row| row["run_us"].as_u64()).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "the most time first");
    let slow = named(&rows, "shows/slow");
    assert!(slow["run_us"].as_u64().unwrap() >= 50_000);
    assert!(slow["cpu_us"].as_u64().unwrap() >= 10_000);
    let quick = named(&rows, "shows/quick");
    assert_eq!(
        (&quick["db"], &quick["ddoc"]),
        (&json!("shop"), &json!("_design/d"))
    );
    assert_eq!((&quick["calls"], &quick["errors"]), (&json!(2), &json!(0)));
    assert!(quick["bytes"].as_u64().unwrap() > 200);
    let wrong = named(&rows, "shows/wrong");
    assert_eq!(
        (&wrong["calls"], &wrong["errors"], &wrong["kills"]),
        (&json!(1), &json!(1), &json!(0))
    );
    let most_called = functions(&web, "sort=calls&limit=1");
    assert_eq!(most_called.len(), 1);
    assert_eq!(most_called[0]["function"], "shows/quick");
    let top = web
        .service
        .client(&["top", "--by", "errors"])
        .output()
        .unwrap();
    let table = String::from_utf8(top.stdout).unwrap();
    let first = table.lines().nth(3).unwrap();
    assert!(first.contains("shows/wrong"), "{table}");
    web.service.stop();
}

#[test]
fn a_call_that_ended_its_process_is_counted_as_a_kill() {
    let web = Web::start("[couchdb]\nos_process_timeout = 3000\n");
    let body = json!({"db": "shop", "lang": "javascript", "funs": ["function(doc) { while (true); }"], "docs": [{"_id": "a"}]});
    let told = web.send("POST", "/_query/map", &body.to_string()).json();
    assert_eq!(told["error"], "timeout");
    let row = named(&functions(&web, ""), "map_docs");
    assert_eq!((&row["errors"], &row["kills"]), (&json!(1), &json!(1)));
    web.service.stop();
}

#[test]
fn another_period_or_order_is_refused_with_those_there_are() {
    let web = Web::start("");
    let reason = web
        .get("/_functions?period=day")
        .reason(400, "query_parse_error");
    assert_eq!(reason, "'period' must be one of: minute, hour");
    let reason = web
        .get("/_functions?sort=name")
        .reason(400, "query_parse_error");
    assert!(reason.contains("run, wait, cpu"), "{reason}");
    web.service.stop();
}

#[test]
fn a_call_that_takes_longer_than_the_limit_is_logged_with_what_it_cost() {
    let text = "[log]\nformat = \"json\"\nslow_log_timeout = ";
    let web = Web::start(&format!("{text}\"1h\"\n"));
    call(&web, "slow");
    let config = web.service.path("settee.toml");
    let now = fs::read_to_string(&config).unwrap();
    fs::write(config, now.replace("1h", "40ms")).unwrap();
    web.service.signal("HUP");
    web.service.wait_for_log("configuration changed");
    call(&web, "slow");
    web.service.wait_for_log("shows/slow");
    let log = web.service.log();
    let slow = log
        .lines()
        .filter(|line| line.contains("function call was slow"));
    let slow: Vec<Value> = slow
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(slow.len(), 1, "{log}");
    assert_eq!(slow[0]["function"], "shows/slow");
    assert_eq!(slow[0]["db"], "shop");
    assert!(slow[0]["run_us"].as_u64().unwrap() >= 50_000);
    assert!(slow[0]["argument_bytes"].as_u64().unwrap() > 100);
    assert!(slow[0]["request_id"].is_string());
    web.service.stop();
}

#[test]
fn every_call_is_a_line_of_the_access_log() {
    let directory = directory();
    let file = directory.path().join("access.log");
    let config = configure(directory.path(), &format!("[log]\naccess_log = {file:?}\n"));
    let web = Web::start_command(directory, command(&config));
    call(&web, "quick");
    call(&web, "wrong");
    let lines = || fs::read_to_string(&file).unwrap();
    wait_until("both lines", || lines().lines().count() == 2);
    let lines: Vec<Value> = lines()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told: Vec<_> = lines
        .iter()
        .map(|line| (&line["function"], &line["error"]))
        .collect();
    let (quick, wrong) = (json!("shows/quick"), json!("shows/wrong"));
    assert_eq!(told[0], (&quick, &Value::Null));
    assert_eq!(told[1].0, &wrong);
    assert!(told[1].1.is_string());
    assert_eq!(lines[0]["pool"], "javascript");
    web.service.stop();
}
