//! The replicator as a service: documents, jobs, what outlives a restart.

#[path = "../browser/mod.rs"]
mod browser;
#[path = "../service/mod.rs"]
mod service;

mod changes;
mod documents;
mod kept;
mod store;
