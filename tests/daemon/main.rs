//! A running daemon: its commands, its sockets, HTTP, services, pools and metrics.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod command;
mod http;
mod map;
mod metrics;
mod pools;
mod services;
mod socket;
