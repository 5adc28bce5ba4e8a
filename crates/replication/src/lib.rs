//! The replication protocol: replications, their ids, and their requests to databases.
//!
//! SUMMARY   [`spec`] describes a replication, [`id`] names it, [`endpoint`] speaks HTTP to one database, [`open`]
//!           opens one, [`log`] keeps checkpoints in both. [`changes`] reads changes, [`db_updates`] waits until a
//!           server reports one, [`progress`] tracks a run, [`crash`] has the reasons why runs end. [`verify`]
//!           compares two databases afterwards.
//! SOURCE    CouchDB's couch_replicator, as of 3.5. The wire is CouchDB's HTTP API.

mod average;
pub mod changes;
pub mod counters;
pub mod crash;
pub mod db_updates;
pub mod endpoint;
pub mod filter;
pub mod id;
pub mod log;
pub mod multipart;
mod offload;
pub mod open;
pub mod progress;
pub mod refused;
pub mod seq;
pub mod spec;
#[cfg(test)]
mod testing;
pub mod verify;
pub mod worker;
