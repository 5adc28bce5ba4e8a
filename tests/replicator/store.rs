//! Services with a store of their own on disk.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::browser::{self, Response, Web};
use crate::service::{Service, configure, directory};

pub fn file(directory: &Path) -> PathBuf {
    directory.join("state").join("store.redb")
}

/// Returns the command of a service that keeps its store in the directory.
pub fn command(directory: &Path, extra: &str) -> Command {
    let config = configure(directory, extra);
    let mut command = browser::command(&config);
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

/// Writes a document that is there not yet, and returns its revision.
#[track_caller]
pub fn create(web: &Web, id: &str, body: &Value) -> String {
    let answer = put(web, &format!("/_replicator/{id}"), body);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["rev"].as_str().unwrap().to_owned()
}
