//! Replications, end to end: between servers that we did not write (express-pouchdb), and with a
//! server of our own that does everything they can not, and everything a server should not.

#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "each kind of test uses a part of what they share")]

mod client;
mod command;
mod couch;
mod http;
mod job;
mod pouch;

mod faults;
mod filters;
mod pouchdb;
mod protocol;
mod scheduled;
mod tls;
