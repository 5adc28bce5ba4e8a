//! The worked example of docs/pools.md, step by step, with every command that it shows.

use std::path::Path;

use serde_json::Value;

use super::support::prints;
use crate::support::http_client::Web;

/// The document's code blocks of one kind, in order.
fn blocks(kind: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pools.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut found = Vec::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find("```") {
        let (head, body) = rest[start + 3..].split_once('\n').unwrap();
        let (block, after) = body.split_once("```").unwrap();
        if head.trim() == kind {
            found.push(block.to_owned());
        }
        rest = after;
    }
    found
}

#[test]
fn every_step_of_the_worked_example_succeeds() {
    let configuration = blocks("toml").remove(0);
    // Skips the document's command: the test has its own.
    let pools = configuration.split_once("[pools.").unwrap().1;
    let web = Web::start(&format!("[pools.{pools}"));
    let mut client = web.service.connect();
    for name in ["python-1", "python-2"] {
        client.wait_for_pool(name, &[("free", 1), ("opening", 0)]);
        assert_eq!(client.pool(name)["group"], "python");
    }

    // The command line.
    let mut commands = 0;
    for line in blocks("sh").iter().flat_map(|block| block.lines()) {
        let Some(command) = line.strip_prefix("settee ") else {
            continue;
        };
        if command.starts_with("serve") || command.contains("--watch") {
            continue;
        }
        let arguments: Vec<&str> = command.split_whitespace().collect();
        prints(&web.service, &arguments);
        commands += 1;
    }
    assert!(commands >= 6, "{commands} commands");

    // HTTP.
    let mut requests = 0;
    for line in blocks("http").iter().flat_map(|block| block.lines()) {
        let mut words = line.splitn(3, ' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let answer = web.send(method, path, words.next().unwrap_or_default());
        assert!((200..300).contains(&answer.status), "{line}: {answer:?}");
        requests += 1;
    }
    assert!(requests >= 5, "{requests} requests");

    // The socket: TOKEN in the document names the process that was lent last.
    let mut token = Value::Null;
    let mut calls = 0;
    for line in blocks("json").iter().flat_map(|block| block.lines()) {
        let mut request: Value = serde_json::from_str(line).unwrap();
        if request.get("call").is_none() {
            continue;
        }
        if request["proc"] == "TOKEN" {
            request["proc"] = token.clone();
        }
        let value = client.ok(&request);
        if request["call"] == "get_proc" {
            token = value["proc"].clone();
        }
        calls += 1;
    }
    assert!(calls >= 3, "{calls} calls");
    let status = client.operator.get("/_status");
    assert!(status["pools"].as_array().unwrap().len() >= 3);
    web.service.stop();
}
