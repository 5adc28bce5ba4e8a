//! The commands of the program, as a user calls them.

#[path = "../program/mod.rs"]
mod program;
#[path = "../service/mod.rs"]
mod service;

mod arguments;
mod attach;
mod attach_shared;
mod check_config;
mod conform;
mod couchjs;
mod readme;
mod serve;
mod status;
