//! Query servers not written for cells (couchpy, the examples, one in PHP) work in a cell without configuration for it.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::pip::couchpy;
use crate::support::daemon::Service;
use crate::support::program::{program, project};

/// Cases that every query server should pass.
const BASIC: &[&str] = &["-k", "basic/"];

/// Maps two documents with this function, and returns the rows.
fn maps(command: &str, function: &str) -> Value {
    let extra = format!(
        "[couchdb]\nos_process_timeout = 30000\n\
         [query_server_config]\nsandbox = \"standard\"\nreuse = \"\"\n[query_servers]\nforeign = \"{command}\"\n"
    );
    let service = Service::start(&extra);
    let mut client = service.connect();
    let docs = json!([{"_id": "a", "n": 1}, {"_id": "b", "n": 2}]);
    let call = json!({"call": "map_docs", "lang": "foreign", "funs": [function], "docs": docs});
    let rows = client.ok(&call);
    assert_eq!(client.pool("foreign")["sandbox"]["mode"], "standard");
    drop(client);
    let log = service.log();
    assert!(
        !log.contains("query server was refused a system call"),
        "{log}"
    );
    service.stop();
    rows
}

fn example(name: &str) -> String {
    project()
        .join("examples/languages")
        .join(name)
        .display()
        .to_string()
}

/// Plays the cases in a strict cell and without a cell: the result of each is the same.
fn conforms(options: &[&str], command: &str) {
    let play = |mode: &str| {
        let mut conform = program(&["conform", "--json", "--timeout", "60", "--sandbox", mode]);
        conform.args(options).arg("--").args(command.split(' '));
        let output = conform.output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let results = |report: &Value| {
        assert_eq!(report["not_run"], 0, "{report}");
        let cases = report["cases"].as_array().unwrap().iter();
        let results = cases.map(|case| (case["id"].clone(), case["result"].clone()));
        results.collect::<Vec<_>>()
    };
    let strict = play("strict");
    let problem = strict["problem"].as_str().unwrap_or_default();
    if problem.contains("layers are missing") {
        return println!("not tried in a strict cell, which this machine lacks: {problem}");
    }
    let strict = results(&strict);
    assert!(
        strict.iter().any(|(_, result)| result == "pass"),
        "{strict:?}"
    );
    assert_eq!(strict, results(&play("off")));
}

#[test]
fn couchpy_works_in_a_cell() {
    let command = couchpy().display().to_string();
    let rows = maps(&command, "def fun(doc):\n    yield doc['_id'], doc['n']\n");
    assert_eq!(rows, json!([[[["a", 1]]], [[["b", 2]]]]));
    conforms(BASIC, &command);
}

#[test]
fn node_works_in_a_cell() {
    let command = format!("node {}", example("node_server.js"));
    let rows = maps(&command, "function(doc) { emit(doc._id, doc.n) }");
    assert_eq!(rows, json!([[[["a", 1]]], [[["b", 2]]]]));
    conforms(BASIC, &command);
}

#[test]
fn perl_works_in_a_cell() {
    let command = format!("perl {}", example("perl_server.pl"));
    let rows = maps(
        &command,
        "sub { my ($doc) = @_; emit($doc->{_id}, $doc->{n}) }",
    );
    assert_eq!(rows, json!([[[["a", 1]]], [[["b", 2]]]]));
    conforms(BASIC, &command);
}

#[test]
fn ruby_works_in_a_cell() {
    let command = format!("ruby {}", example("ruby_server.rb"));
    let rows = maps(&command, "->(doc) { emit(doc['_id'], doc['n']) }");
    assert_eq!(rows, json!([[[["a", 1]]], [[["b", 2]]]]));
    conforms(BASIC, &command);
}

#[test]
fn lua_works_in_a_cell() {
    let command = format!("lua5.4 {}", example("lua_server.lua"));
    let rows = maps(&command, "function(doc) emit(doc._id, doc.n) end");
    assert_eq!(rows, json!([[[["a", 1]]], [[["b", 2]]]]));
    conforms(BASIC, &command);
}

#[test]
fn php_works_in_a_cell() {
    if Command::new("php").arg("--version").output().is_err() {
        return println!("not tried: PHP is not installed");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/external/php");
    let path = |name: &str| folder.join(name).display().to_string();
    let command = format!("php {}", path("server.php"));
    let rows = maps(&command, "function ($doc) { emit($doc->_id, $doc->n); }");
    assert_eq!(rows, json!([[[["a", 1]]], [[["b", 2]]]]));
    conforms(
        &[
            "--language",
            "php",
            "--cases",
            &path("cases.jsonl"),
            "-k",
            "php/",
        ],
        &command,
    );
}
