//! Isolates of the built-in JavaScript server: how tenants share its memory, in the cell too.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::program::SETTEE;

const NONCE: &str = "nonce";

/// Takes all memory in small pieces, so that the engine has no room for an exception and raises `null`.
const EXHAUSTING: &str = "var first = {}; for (;;) first = {next: first};";

/// A server that the test talks to line by line.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have exited by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(sandbox: &str) -> Self {
        let mut child = Command::new(SETTEE)
            .args(["couchjs", "--text-reasons", "--sandbox", sandbox])
            .env("SETTEE_ISOLATES_MAX", "64")
            .env("SETTEE_TENANT_NONCE", NONCE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Server {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn ask(&mut self, command: &Value) -> Value {
        writeln!(self.input, "{command}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Calls a function of a tenant; returns the tenants evicted for it, and the answer's second member.
    fn call(&mut self, tenant: &str, body: &str) -> (Value, Value) {
        let selected = self.ask(&json!(["tenant", NONCE, tenant]));
        self.ask(&json!(["reset", {}]));
        let source = format!("function(doc, req) {{ {body} }}");
        self.ask(&json!(["ddoc", "new", "_design/d", {"shows": {"s": source}}]));
        let answer = self.ask(&json!(["ddoc", "_design/d", ["shows", "s"], [null, {}]]));
        (selected["evicted"].clone(), answer[1].clone())
    }

    /// The anonymous memory, in KiB.
    fn anonymous_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
        kib.parse().unwrap()
    }
}

fn body(text: &str) -> Value {
    json!({"body": text})
}

/// A function body that keeps `megabytes` MB.
fn keeping(megabytes: usize) -> String {
    format!(
        "globalThis.kept = []; for (var i = 0; i < {megabytes}; i++) kept.push('y'.repeat(1e6) + i); return 'kept'"
    )
}

#[test]
fn a_tenant_that_exhausts_memory_gets_an_error_and_the_process_exits() {
    for (sandbox, exhausting) in [
        ("off", EXHAUSTING),
        ("standard", EXHAUSTING),
        ("standard", "var all = []; for (;;) all.push({});"),
    ] {
        let mut server = Server::start(sandbox);
        let none = json!([]);
        assert_eq!(server.call("b", "return 'b'"), (none.clone(), body("b")));
        let (_, answer) = server.call("a", exhausting);
        assert_eq!(answer, "out_of_memory", "{sandbox}");
        assert_eq!(server.child.wait().unwrap().code(), Some(255), "{sandbox}");
    }
}

#[test]
fn the_selected_isolate_may_take_the_whole_limit_and_idle_ones_are_evicted_for_it() {
    let mut server = Server::start("standard");
    let kept = (json!([]), body("kept"));
    assert_eq!(server.call("a", &keeping(30)), kept);
    assert_eq!(server.call("b", &keeping(30)), kept);
    assert_eq!(server.call("c", &keeping(55)), kept);
    // The first two are evicted; the third may be too, if the system does not get their memory back.
    let (evicted, answer) = server.call("d", &keeping(55));
    let expected = (&json!("a"), &json!("b"), body("kept"));
    assert_eq!((&evicted[0], &evicted[1], answer), expected);
    assert_eq!(server.call("d", "throw null").1, "TypeError");
}

#[test]
fn an_idle_isolate_with_a_function_takes_less_than_300_kib() {
    let mut server = Server::start("standard");
    let mut measured = |isolates: std::ops::Range<usize>| {
        for number in isolates {
            server.call(&format!("t{number}"), "return 'shown'");
        }
        server.anonymous_kib()
    };
    let (few, many) = (measured(0..3), measured(3..43));
    let each = many.saturating_sub(few) / 40;
    assert!(each < 300, "{each} KiB");
}
