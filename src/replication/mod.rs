//! The replication protocol: what a replication is, how it is named, and how it speaks to databases.
//!
//! SUMMARY   [`spec`] says what is to be replicated, [`id`] names it, [`endpoint`] speaks HTTP to one
//!           database, [`open`] opens one, [`log`] keeps checkpoints in both.
//! SOURCE    CouchDB's couch_replicator, as of 3.5. The wire is CouchDB's HTTP API.

pub mod endpoint;
pub mod filter;
pub mod id;
pub mod log;
pub mod open;
pub mod seq;
pub mod spec;
pub mod stats;
#[cfg(test)]
mod testing;
