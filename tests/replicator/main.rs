//! The replicator as a service: documents, jobs, what outlives a restart.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../browser/mod.rs"]
mod browser;
#[path = "../replication/client.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod client;
#[path = "../replication/couch/mod.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod couch;
#[path = "../replication/http.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod http;
#[path = "../service/mod.rs"]
mod service;

mod calls;
mod changes;
mod crashes;
mod documents;
mod jobs;
mod kept;
mod listings;
mod orders;
mod outgoing;
mod resumes;
mod store;
mod transfer;
mod upkeep;
mod world;
