//! Settee keeps pools of query servers, lends each process to one client at a time, and schedules CouchDB's
//! replications.
//!
//! `docs/library.md` lists what programs may build on.

#![warn(missing_docs)]

pub mod actors;
pub mod app;
mod aside;
pub mod audit;
pub mod auth;
pub mod cli;
pub mod conform_target;
mod drain;
pub mod functions;
mod health;
pub mod http;
mod in_flight;
pub mod languages;
pub mod logging;
mod machine_bounds;
pub mod messages;
pub mod metrics;
pub mod operations;
pub mod otp;
mod pace;
pub mod query_server;
mod replicator;
mod tls;

pub use app::{Daemon, DaemonBuilder};
pub use settee_client as client;
pub use settee_config as config;
pub use {conform, mango, policy, replication};
