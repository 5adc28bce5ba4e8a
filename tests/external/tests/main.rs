//! What needs programs that are not ours: couchpy, express-pouchdb, Node, Perl, a browser.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../support/mod.rs"]
mod support;

mod attempts;
mod clients;
mod couchpy;
mod couchpy_env;
mod dashboard;
mod filters;
mod languages;
mod own_cell;
mod pouch;
mod pouchdb;
mod readme;
mod webdriver;
