//! Settee keeps pools of query servers, lends each process to one client at a time, and schedules CouchDB's
//! replications.
//!
//! `docs/library.md` lists what programs may build on.

#![warn(missing_docs)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use settee_config::Config;
use tokio::sync::watch;

pub mod actors;
pub mod app;
mod aside;
pub mod audit;
pub mod auth;
pub mod cli;
pub mod conform_target;
mod drain;
pub mod functions;
mod health;
mod http;
mod in_flight;
pub mod languages;
pub mod logging;
mod machine_bounds;
pub mod messages;
pub mod metrics;
pub mod operations;
pub mod otp;
mod pace;
pub mod query_server;
mod replicator;
mod tls;

pub use app::{Daemon, DaemonBuilder};
pub use settee_client as client;
pub use settee_config as config;
pub use {conform, mango, policy, replication};

/// Follows the configuration in force.
pub(crate) type ConfigWatch = watch::Receiver<Arc<Config>>;

/// Locks what stays usable if a thread panics while it holds the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
