//! The library: the pool and its actors, functions, languages, and documentation checked against the code.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod app;
mod architecture;
mod cells;
mod chaos;
mod children;
mod docs;
mod functions;
mod languages;
mod links;
mod manager;
mod openapi;
mod operations;
mod packaging;
mod ports;
mod published;
mod readme;
mod tokens;
