//! Services with a store of their own on disk.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::daemon::{Service, configure, directory};
use crate::support::http_client::{Response, Web, command as http_command};

pub fn file(directory: &Path) -> PathBuf {
    directory.join("state").join("store.redb")
}

/// Returns the command of a service that keeps its store in the directory.
pub fn command(directory: &Path, extra: &str) -> Command {
    let config = configure(directory, extra);
    let mut command = http_command(&config);
    command.env("SETTEE__STORE__PATH", file(directory));
    command
}

pub fn start_in(directory: TempDir, extra: &str) -> Web {
    let command = command(directory.path(), extra);
    let mut service = Service::start_command(directory, command);
    let address = service.next_address("http://");
    Web { service, address }
}

pub fn start(extra: &str) -> Web {
    start_in(directory(), extra)
}

pub fn put(web: &Web, path: &str, body: &Value) -> Response {
    web.send("PUT", path, &body.to_string())
}

pub fn post(web: &Web, path: &str, body: &Value) -> Response {
    web.send("POST", path, &body.to_string())
}

/// Writes a new document, and returns its revision.
#[track_caller]
pub fn create(web: &Web, id: &str, body: &Value) -> String {
    let answer = put(web, &format!("/_replicator/{id}"), body);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["rev"].as_str().unwrap().to_owned()
}

/// A document as another database has it, with the hashes of its revisions, newest first.
pub fn foreign(id: &str, hashes: &[&str]) -> Value {
    json!({
        "_id": id,
        "_rev": format!("{}-{}", hashes.len(), hashes[0]),
        "_revisions": {"start": hashes.len(), "ids": hashes},
        "source": "http://127.0.0.1:1/a",
        "target": format!("http://127.0.0.1:1/{id}"),
        "continuous": true,
    })
}
