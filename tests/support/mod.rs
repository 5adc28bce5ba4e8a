//! Shared by the test programs: a daemon, its clients, and a fake CouchDB with faults.

#![allow(dead_code, reason = "each program uses a part of it")]

pub mod activation;
pub mod ask;
pub mod couch;
pub mod daemon;
pub mod filters;
pub mod folder;
pub mod heads;
pub mod http_client;
pub mod http_server;
pub mod job;
pub mod metrics;
pub mod pages;
pub mod program;
pub mod refused_calls;
pub mod store;
pub mod tls;
pub mod work;
