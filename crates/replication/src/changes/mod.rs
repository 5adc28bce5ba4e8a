//! The changes feed of the source: requested, read and queued.

pub mod feed;
pub mod query;
pub mod queue;
pub mod reader;
