//! The commands of the program, as a user calls them.

mod activation;
mod arguments;
mod attach;
mod attach_restart;
mod attach_shared;
mod check_config;
mod conform;
mod couchjs;
mod log_file;
mod man;
mod readme;
mod secrets;
mod serve;
mod status;
