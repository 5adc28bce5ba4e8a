//! Messages between actors, client requests and function calls, with their replies and errors.

pub(crate) mod arguments;
pub mod client;
pub mod client_error;
pub mod config_listener;
pub(crate) mod costs;
pub(crate) mod fleet_member;
pub mod function;
pub mod opener;
pub mod pools;
pub mod proc_manager;
pub mod proc_token;
pub mod process;
pub(crate) mod ps;
pub mod replication_job;
pub mod replication_scheduler;
