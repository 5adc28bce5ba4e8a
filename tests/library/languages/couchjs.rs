//! `settee couchjs` as a child: lines in, lines out.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::support::program::SETTEE;

/// What the server printed, and its exit status.
pub struct Played {
    pub lines: Vec<String>,
    pub status: Option<i32>,
}

impl Played {
    /// The answers, without log lines.
    pub fn answers(&self) -> Vec<Value> {
        let values = self.lines.iter().map(|line| {
            // A Rust string cannot hold a lone surrogate.
            let whole = line
                .replace("\\ud800", "\\ufffd")
                .replace("\\udc00", "\\ufffd");
            serde_json::from_str::<Value>(&whole).unwrap()
        });
        values.filter(|value| value[0] != "log").collect()
    }

    /// The last answer.
    pub fn last(&self) -> Value {
        self.answers().pop().unwrap()
    }
}

/// Sends the server these lines, then end of file, and returns what it printed.
pub fn play(options: &[&str], lines: &[String]) -> Played {
    let mut child = Command::new(SETTEE)
        .arg("couchjs")
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = lines.join("\n") + "\n";
    // A server that exits on one line does not read the rest.
    let writer = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = BufReader::new(child.stdout.take().unwrap());
    let lines = output.lines().map(|line| line.unwrap()).collect();
    writer.join().unwrap();
    let status = child.wait().unwrap().code();
    Played { lines, status }
}

/// As [`play`], with commands as JSON.
pub fn commands(options: &[&str], commands: &[Value]) -> Played {
    let lines: Vec<String> = commands.iter().map(Value::to_string).collect();
    play(options, &lines)
}

/// Maps a document with one function. The last answer is the document's.
pub fn map(options: &[&str], body: &str) -> Played {
    let source = format!("function(doc) {{ {body} }}");
    let map = [json!(["add_fun", source]), json!(["map_doc", {"_id": "a"}])];
    commands(options, &map)
}
