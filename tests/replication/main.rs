//! Replications end to end against a fake CouchDB that can misbehave, and the replicator as a service.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod command;
mod db_updates;
mod faults;
mod filters;
mod protocol;
mod remedies;
mod replicator;
mod tls;
mod verify;
