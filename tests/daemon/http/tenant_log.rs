//! `/_tenants/DB/log` and `settee logs`: the log lines and errors of a database's functions.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::http_client::{Response, Web};
use crate::support::program::run;

/// Maps a document of a database with a function.
fn map(web: &Web, db: &str, fun: &str) -> Response {
    let body = json!({"db": db, "lang": "javascript", "funs": [fun], "docs": [{"_id": "a"}]});
    web.send("POST", "/_query/map", &body.to_string())
}

fn log(web: &Web, path: &str) -> Vec<Value> {
    let answer = web.get(path);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    lines(&answer.body)
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_log_of_a_database_has_only_the_lines_and_errors_of_its_functions() {
    let web = Web::start("");
    map(&web, "shop/eu", "function(doc) { log('seen ' + doc._id) }").ok();
    map(&web, "other", "function(doc) { log('not yours') }").ok();
    let ddoc =
        json!({"_id": "_design/d", "shows": {"s": "function() { throw new Error('no luck') }"}});
    let show = |report: bool| json!({"db": "shop/eu", "path": ["shows", "s"], "args": [null, {}], "ddoc": ddoc, "report": report});
    let failed = web.send("POST", "/_query/ddoc", &show(false).to_string());
    assert_eq!(failed.status, 500);
    let all = log(&web, "/_tenants/shop%2Feu/log");
    let first = &all[0];
    let members = ["kind", "pool", "function", "message"].map(|name| first[name].clone());
    assert_eq!(
        json!(members),
        json!(["log", "javascript", "map_docs", "seen a"])
    );
    assert!(first["time"].as_str().unwrap().ends_with('Z'), "{first}");
    assert!(!first["request_id"].as_str().unwrap().is_empty(), "{first}");
    let error = all.last().unwrap();
    let members = ["kind", "ddoc", "function"].map(|name| error[name].clone());
    assert_eq!(json!(members), json!(["error", "_design/d", "shows/s"]));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("no luck"), "{error}");
    let text = json!(all).to_string();
    assert!(!text.contains("not yours"), "{text}");
    assert_eq!(log(&web, "/_tenants/none/log"), Vec::<Value>::new());

    // A client resumes after its last line. An error that the query server has reported is logged once.
    let since = error["seq"].as_u64().unwrap();
    let later = format!("/_tenants/shop%2Feu/log?since={since}");
    assert_eq!(log(&web, &later), Vec::<Value>::new());
    web.send("POST", "/_query/ddoc", &show(true).to_string());
    let newer = log(&web, &later);
    let errors: Vec<_> = newer
        .iter()
        .filter(|line| line["kind"] == "error")
        .collect();
    assert_eq!(errors.len(), 1, "{newer:?}");
    assert_eq!(errors[0]["line"], 1, "{newer:?}");
    assert_eq!(newer[0]["seq"], since + 1);
    // A call that is refused before a function runs has no line.
    let refused = json!({"db": "shop/eu", "lang": "none", "funs": [], "docs": []});
    assert_ne!(
        web.send("POST", "/_query/map", &refused.to_string()).status,
        200
    );
    assert_eq!(log(&web, &later).len(), newer.len());

    let printed = run(&mut web.service.client(&["logs", "shop/eu"]), b"");
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert_eq!(
        printed.lines().count(),
        all.len() + newer.len(),
        "{printed}"
    );
    let line = printed.lines().next().unwrap();
    assert!(line.ends_with("Z log map_docs: seen a"), "{line}");
    let since = since.to_string();
    let printed = run(
        &mut web
            .service
            .client(&["logs", "shop/eu", "--json", "--since", &since]),
        b"",
    );
    assert_eq!(lines(&String::from_utf8(printed.stdout).unwrap()), newer);
    web.get("/_tenants/shop/log?follow=x")
        .error(400, "query_parse_error");
    web.get("/_tenants/shop/log?since=x")
        .error(400, "query_parse_error");
    web.service.stop();
}

#[test]
fn a_follower_gets_lines_as_they_are_logged_until_shutdown() {
    let web = Web::start("");
    let mut feed = web.connect();
    feed.send("GET", "/_tenants/shop/log?follow", &[], "");
    // The head is sent before the first line.
    assert_eq!(feed.head().status, 200);
    assert_eq!(feed.chunk().as_deref(), Some("\n"));
    let mut command = web.service.client(&["logs", "shop", "--follow"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
    for number in 0..3 {
        map(
            &web,
            "shop",
            &format!("function(doc) {{ log('line {number}') }}"),
        )
        .ok();
        map(&web, "other", "function(doc) { log('not yours') }").ok();
        let came = lines(&feed.chunk().unwrap());
        assert_eq!(came.len(), 1, "{came:?}");
        let message = format!("line {number}");
        assert_eq!(came[0]["message"], message);
        let line = printed.next().unwrap().unwrap();
        assert!(line.ends_with(&message), "{line}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let ending = std::thread::spawn(move || assert_eq!(feed.chunk(), None));
    web.service.stop();
    ending.join().unwrap();
}

#[test]
fn a_slow_reader_loses_lines_and_gets_their_number() {
    let web = Web::start("");
    let mut feed = web.connect();
    feed.send("GET", "/_tenants/shop/log?follow", &[], "");
    assert_eq!(feed.head().status, 200);
    assert_eq!(feed.chunk().as_deref(), Some("\n"));
    // More than the buffers of both ends of a connection hold.
    let flood = "function(doc) { var line = Array(4001).join('x'); for (var i = 0; i < 1000; i++) log(line) }";
    for _ in 0..10 {
        map(&web, "shop", flood).ok();
    }
    map(&web, "shop", "function(doc) { log('the last') }").ok();
    let (mut last, mut lost, mut came) = (None, 0, 0);
    'all: loop {
        for line in lines(&feed.chunk().unwrap()) {
            if line["kind"] == "lost" {
                lost += line["lines"].as_u64().unwrap();
                last = last.map(|seq: u64| seq + line["lines"].as_u64().unwrap());
                continue;
            }
            came += 1;
            let seq = line["seq"].as_u64().unwrap();
            assert_eq!(
                last.map_or(seq, |last| last + 1),
                seq,
                "no line is lost silently"
            );
            last = Some(seq);
            if line["message"] == "the last" {
                break 'all;
            }
        }
    }
    assert!(lost > 0, "{came} arrived");
    assert_eq!(came + lost, 10_001);
    feed.disconnect();
    web.service.stop();
}
