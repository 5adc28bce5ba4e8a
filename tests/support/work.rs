//! Support for tests of `settee map`: files, documents, and checks of its output and exit code.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::folder::open_folder;
use super::program::{program, run};

/// A directory of files for one test.
pub struct Work(TempDir);

impl Work {
    pub fn new() -> Self {
        Self(open_folder())
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Prepares `settee map` with this map function.
    pub fn map(&self, function: &str, arguments: &[&str]) -> Command {
        let mut command = program(&["map", "--map", &self.file("map.js", function)]);
        command.args(arguments);
        command
    }
}

pub fn lines(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// One line per document: each has an id and one of these values as `v`.
pub fn documents(members: &[Value]) -> String {
    let mut text = String::new();
    for (number, value) in members.iter().enumerate() {
        writeln!(
            text,
            "{}",
            json!({"_id": format!("d{number:05}"), "v": value})
        )
        .unwrap();
    }
    text
}

pub const EMIT: &str = "function(doc) { emit(doc.v, doc._id) }";
pub const ONE: &str = "function(doc) { emit(doc.v, 1) }";

pub fn fails(command: &mut Command, input: impl AsRef<[u8]>, code: i32, words: &[&str]) -> Output {
    let output = run(command, input.as_ref());
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "'{word}' is not in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    output
}
