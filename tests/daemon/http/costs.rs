//! Records of function calls: costs, slow calls, the access log.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::daemon::{Service, configure, directory, wait_until};
use crate::support::http_client::{Web, command};
use crate::support::program::run;

/// Calls a function of a design document; its name says what it does.
fn call(web: &Web, function: &str) {
    let body = json!({
        "db": "shop",
        "path": ["shows", function],
        "args": [null, {}],
        "ddoc": {"_id": "_design/d", "shows": {
            "quick": "function() { return 'quick' }",
            "slow": "function() { var end = Date.now() + 60, n = 0; while (Date.now() < end || n < 3e5) n++; return 'slow' }",
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

/// Returns what a database has cost.
fn cost_of(web: &Web, db: &str) -> Value {
    let page = web.get(&format!("/_tenants?db={db}")).ok();
    page["tenants"][0].clone()
}

#[test]
fn costs_of_a_database_are_counted_across_restarts_and_shown_as_differences() {
    let directory = directory();
    let folder = directory.path().to_owned();
    let costs = folder.join("costs");
    let config = configure(&folder, &format!("[log]\ncosts = {costs:?}\n"));
    let start = |directory| {
        let mut service = Service::start_command(directory, command(&config));
        let address = service.next_address("http://");
        Web { service, address }
    };
    let first = start(directory);
    for function in ["quick", "quick", "wrong"] {
        call(&first, function);
    }
    let shop = cost_of(&first, "shop");
    assert_eq!((&shop["calls"], &shop["errors"]), (&json!(3), &json!(1)));
    assert!(
        shop["run_us"].as_u64() > Some(0) && shop["bytes"].as_u64() > Some(0),
        "{shop}"
    );
    let by_db = ["top", "--by-db", "--json"];
    let saved = folder.join("saved.json");
    let output = run(&mut first.service.client(&by_db), b"");
    fs::write(&saved, output.stdout).unwrap();
    let directory = first.service.stop_and_keep();

    let second = start(directory);
    assert_eq!(cost_of(&second, "shop"), shop);
    call(&second, "quick");
    assert_eq!(cost_of(&second, "shop")["calls"], 4);
    let since = ["--since", saved.to_str().unwrap()];
    let output = run(
        &mut second.service.client(&[&by_db[..], &since].concat()),
        b"",
    );
    let added: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(added["tenants"][0]["db"], "shop");
    assert_eq!(added["tenants"][0]["calls"], 1, "{added}");
    let output = run(&mut second.service.client(&["top", "--by-db"]), b"");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.contains("1 database from ") && table.contains("\nshop"),
        "{table}"
    );
    let output = run(
        &mut second.service.client(&["top", "--by-db", "--by", "p99"]),
        b"",
    );
    assert_eq!(output.status.code(), Some(64));
    second.service.stop();
}

#[test]
fn an_unreadable_cost_file_is_left_unchanged() {
    let directory = directory();
    let costs = directory.path().join("costs");
    fs::write(&costs, "nonsense").unwrap();
    let config = configure(directory.path(), &format!("[log]\ncosts = {costs:?}\n"));
    let mut service = Service::start_command(directory, command(&config));
    let address = service.next_address("http://");
    let web = Web { service, address };
    web.service
        .wait_for_log("costs of databases cannot be read");
    call(&web, "quick");
    assert_eq!(cost_of(&web, "shop")["calls"], 1);
    let _directory = web.service.stop_and_keep();
    assert_eq!(fs::read_to_string(costs).unwrap(), "nonsense");
}

#[test]
fn costs_are_shown_by_database_design_document_and_function() {
    let web = Web::start("");
    for function in ["quick", "quick", "slow", "wrong"] {
        call(&web, function);
    }
    let rows = functions(&web, "period=hour");
    assert_eq!(rows.len(), 3);
    let runs: Vec<_> = rows.iter().map(|row| row["run_us"].as_u64()).collect();
    assert!(runs.is_sorted_by(|one, next| one >= next), "{runs:?}");
    let slow = named(&rows, "shows/slow");
    assert!(slow["run_us"].as_u64().unwrap() >= 50_000);
    assert!(slow["cpu_us"].as_u64().unwrap() > 0);
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
    let in_trouble = functions(&web, "sort=trouble");
    let names: Vec<_> = in_trouble.iter().map(|row| &row["function"]).collect();
    assert_eq!(names, ["shows/wrong", "shows/slow", "shows/quick"]);
    let by_p99 = functions(&web, "sort=p99");
    let p99: Vec<_> = by_p99
        .iter()
        .map(|row| row["run_p99_us"].as_u64())
        .collect();
    assert!(p99.is_sorted_by(|one, next| one >= next), "{p99:?}");
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
    let body = json!({"db": "shop", "lang": "javascript", "docs": [{"_id": "a"}],
        "funs": ["function(doc) { emit('x'.repeat(5e8)) }"]});
    let told = web.send("POST", "/_query/map", &body.to_string());
    assert_eq!(told.json()["error"], "out_of_memory");
    let row = named(&functions(&web, ""), "map_docs");
    assert_eq!((&row["errors"], &row["kills"]), (&json!(2), &json!(2)));
    web.service.stop();
}

#[test]
fn an_unknown_period_or_order_is_refused_and_the_known_ones_are_listed() {
    let web = Web::start("");
    let reason = web
        .get("/_functions?period=day")
        .reason(400, "query_parse_error");
    assert_eq!(reason, "'period' must be one of: minute, hour");
    let reason = web
        .get("/_functions?sort=name")
        .reason(400, "query_parse_error");
    assert!(reason.contains("run, p50, p99, wait, cpu"), "{reason}");
    web.service.stop();
}

#[test]
fn a_call_that_takes_longer_than_the_limit_is_logged_with_its_cost() {
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
    for call in &slow {
        let parts = ["wait_us", "teach_us", "run_us"].map(|part| call[part].as_u64().unwrap());
        assert!(parts.iter().sum::<u64>() >= 39_000, "{call}");
    }
    let slow = named(&slow, "shows/slow");
    assert_eq!(slow["db"], "shop");
    assert!(slow["run_us"].as_u64().unwrap() >= 50_000);
    assert!(slow["argument_bytes"].as_u64().unwrap() > 100);
    assert!(slow["request_id"].is_string());
    web.service.stop();
}

/// A service with an access log.
struct Logged {
    web: Web,
    file: PathBuf,
}

impl Logged {
    /// Starts a service with these further settings in `[log]`.
    fn start(log: &str) -> Self {
        let directory = directory();
        let file = directory.path().join("access.log");
        let config = format!("[log]\naccess_log = {file:?}\n{log}");
        let config = configure(directory.path(), &config);
        let web = Web::start_command(directory, command(&config));
        Self { web, file }
    }

    /// Waits until the access log has `count` lines, and returns all.
    fn lines(&self, count: usize) -> Vec<Value> {
        let text = || fs::read_to_string(&self.file).unwrap();
        wait_until("the lines", || text().lines().count() >= count);
        let lines = text();
        let lines = lines.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap()
    }
}

#[test]
fn the_run_time_of_a_stream_excludes_waits_for_its_client() {
    let logged = Logged::start("");
    let web = &logged.web;
    call(web, "quick");
    let mut connection = web.connect();
    let begun = Instant::now();
    connection.begin_chunked("/_query/map?report=true", "application/x-ndjson");
    let start = json!({"funs": ["function(doc) { emit(1) }"]});
    connection.send_chunk(&format!("{start}\n{{\"_id\":\"a\"}}\n"));
    assert_eq!(connection.head().status, 200);
    connection.chunk().unwrap();
    // The stream has nothing to do meanwhile.
    (0..20).for_each(|_| call(web, "slow"));
    connection.end_chunks();
    let rest: String = std::iter::from_fn(|| connection.chunk()).collect();
    let whole = begun.elapsed().as_micros();
    let lines = logged.lines(22);
    let run_of = |function: &str| -> u128 {
        let lines = lines.iter().filter(|line| line["function"] == function);
        lines
            .map(|line| u128::from(line["run_us"].as_u64().unwrap()))
            .sum()
    };
    let (stream, others) = (run_of("map_docs"), run_of("shows/slow"));
    assert!(others >= 1_000_000 && stream > 0, "{lines:?}");
    assert!(
        stream + others <= whole,
        "{stream} us of {whole} us, {others} us of others"
    );
    let cost: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(
        cost["cost"]["run_us"],
        named(&functions(web, ""), "map_docs")["run_us"]
    );
    logged.web.service.stop();
}

#[test]
fn every_call_is_a_line_of_the_access_log() {
    let logged = Logged::start("");
    let web = &logged.web;
    call(web, "quick");
    call(web, "wrong");
    let lines = logged.lines(2);
    let told: Vec<_> = lines
        .iter()
        .map(|line| (&line["function"], &line["error"]))
        .collect();
    let (quick, wrong) = (json!("shows/quick"), json!("shows/wrong"));
    assert_eq!(told[0], (&quick, &Value::Null));
    assert_eq!(told[1].0, &wrong);
    assert!(told[1].1.is_string());
    assert_eq!(lines[0]["pool"], "javascript");
    logged.web.service.stop();
}

/// A map function that never returns.
const LOOPS: &str = "function(doc) { while (true); }";

fn looping() -> Value {
    json!({"lang": "javascript", "funs": [LOOPS], "docs": [{"_id": "a"}]})
}

/// A way to disconnect during a call.
type Leave = fn(&Web);

#[test]
fn a_call_whose_client_disconnects_is_recorded_however_it_is_dropped() {
    let logged = Logged::start("slow_log_timeout = \"1ms\"\n");
    let ways: [(&str, Leave); 5] = [
        ("an HTTP request", |web| {
            let mut connection = web.connect();
            let json = [("Content-Type", "application/json")];
            connection.send("POST", "/_query/map", &json, &looping().to_string());
            web.wait_until_used();
            connection.disconnect();
        }),
        ("a call on the socket", |web| {
            let mut client = web.service.connect();
            let mut call = looping();
            call["id"] = json!(1);
            call["call"] = json!("map_docs");
            client.send(&call);
            web.wait_until_used();
        }),
        ("a stream in the middle of a document", |web| {
            let mut connection = web.connect();
            connection.begin_chunked("/_query/map", "application/x-ndjson");
            let start = json!({"funs": [LOOPS]});
            connection.send_chunk(&format!("{start}\n{{\"_id\":\"a\"}}\n"));
            web.wait_until_used();
            connection.disconnect();
        }),
        ("a stream between two documents", |web| {
            let mut connection = web.connect();
            connection.begin_chunked("/_query/map", "application/x-ndjson");
            let start = json!({"funs": ["function(doc) { emit(1) }"]});
            connection.send_chunk(&format!("{start}\n{{\"_id\":\"a\"}}\n"));
            assert_eq!(connection.head().status, 200);
            assert_eq!(connection.chunk().as_deref(), Some("[[[1,null]]]\n"));
            connection.disconnect();
        }),
        ("a list in the middle of its rows", |web| {
            let mut connection = web.connect();
            connection.begin_chunked("/_query/list", "application/x-ndjson");
            let list = "function() { send('begun'); while (getRow()); return 'end' }";
            let ddoc = json!({"_id": "_design/d", "lists": {"l": list}});
            let start = json!({"db": "shop", "ddoc": ddoc, "name": "l", "head": {}, "req": {}});
            connection.send_chunk(&format!(
                "{start}\n{{\"id\":\"a\",\"key\":1,\"value\":1}}\n"
            ));
            assert_eq!(connection.head().status, 200);
            connection.disconnect();
        }),
    ];
    for (count, (what, leave)) in ways.into_iter().enumerate() {
        leave(&logged.web);
        let lines = logged.lines(count + 1);
        assert_eq!(lines.len(), count + 1, "{what}");
        assert_eq!(lines[count]["error"], "disconnected", "{what}: {lines:?}");
        assert_eq!(lines[count]["pool"], "javascript", "{what}");
        logged.web.wait_until_idle();
    }
    let rows = functions(&logged.web, "");
    let (map, list) = (named(&rows, "map_docs"), named(&rows, "lists/l"));
    let counts = |row: &Value| ["calls", "errors", "kills"].map(|name| row[name].clone());
    assert_eq!(counts(&map), [4, 4, 0].map(Value::from));
    assert_eq!(counts(&list), [1, 1, 0].map(Value::from));
    let log = logged.web.service.log();
    let slow = log
        .lines()
        .filter(|line| line.contains("function call was slow"));
    let slow: Vec<_> = slow
        .filter(|line| line.contains("\"error\":\"disconnected\""))
        .collect();
    assert!(slow.len() >= 3, "{log}");
    logged.web.service.stop();
}

#[test]
fn a_stream_that_fails_is_recorded_with_its_error() {
    let logged = Logged::start("");
    let (map, list) = (
        json!({"funs": ["function(doc) {}"]}),
        json!({"db": "shop", "name": "l", "head": {}, "req": {},
        "ddoc": {"_id": "_design/d", "lists": {"l": "function() { while (getRow()); }"}}}),
    );
    for (count, (path, start)) in [("/_query/map", map), ("/_query/list", list)]
        .into_iter()
        .enumerate()
    {
        let mut connection = logged.web.connect();
        connection.begin_chunked(path, "application/x-ndjson");
        connection.send_chunk(&format!("{start}\nnot JSON\n"));
        connection.end_chunks();
        connection.response();
        let lines = logged.lines(count + 1);
        assert_eq!(lines[count]["error"], "bad_request", "{path}: {lines:?}");
    }
    logged.web.service.stop();
}

#[test]
fn a_call_cut_off_by_shutdown_is_recorded() {
    let logged = Logged::start("[server]\nshutdown_grace = \"100ms\"\n");
    let mut connection = logged.web.connect();
    let json = [("Content-Type", "application/json")];
    connection.send("POST", "/_query/map", &json, &looping().to_string());
    let mut client = logged.web.service.connect();
    let mut call = looping();
    call["id"] = json!(1);
    call["call"] = json!("map_docs");
    client.send(&call);
    let mut other = logged.web.service.connect();
    other.wait_for_pool("javascript", &[("used", 2)]);
    drop(other);
    let Logged { web, file } = logged;
    let _directory = web.service.stop_and_keep();
    let text = fs::read_to_string(&file).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    let lines: Vec<Value> = lines.collect::<Result<_, _>>().unwrap();
    assert_eq!(lines.len(), 2, "{text}");
    for line in &lines {
        // The call's connection or the pool may end first.
        assert!(
            ["disconnected", "shutting_down"].contains(&line["error"].as_str().unwrap()),
            "{line}"
        );
    }
}
