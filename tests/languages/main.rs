//! Languages: the recorded transcripts, Mango, and the examples that the recipes lead to.

#[path = "../program/mod.rs"]
mod program;
#[path = "../service/mod.rs"]
mod service;

mod couchjs;
mod examples;
mod javascript_errors;
mod javascript_memory;
mod javascript_rows;
mod javascript_transcripts;
mod mango;
