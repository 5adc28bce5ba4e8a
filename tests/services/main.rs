//! Services: sockets whose connections are each lent one process.

#![allow(clippy::unwrap_used, reason = "tests")]

mod backlog;
mod connection;
mod harness;
mod logbook;
