//! Documents through processes: `settee map` and the engine below it.

#[path = "../program/mod.rs"]
mod program;
#[path = "../service/mod.rs"]
mod service;

mod engine;
mod errors;
mod reduce;
mod rows;
mod selector;
mod sources;
