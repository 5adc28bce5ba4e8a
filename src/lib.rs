//! Settee keeps pools of query servers and lends each to one client at a time.

pub mod actors;
pub mod app;
pub mod auth;
mod blocking;
pub mod cli;
pub mod client;
pub mod config;
pub mod conform;
pub mod http;
mod in_flight;
mod listening;
pub mod logging;
mod machine_bounds;
pub mod messages;
pub mod metrics;
pub mod policy;
pub mod query_server;
pub mod replication;
mod replicator;
mod store;
pub mod testkit;
