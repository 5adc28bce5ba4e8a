//! The changes feed of the source: asked for, read for as long as it takes, and queued.

pub mod feed;
pub mod query;
pub mod queue;
pub mod reader;
