//! The commands of the program, as a user calls them.

mod arguments;
mod attach;
mod attach_shared;
mod check_config;
mod conform;
mod couchjs;
mod readme;
mod secrets;
mod serve;
mod status;
