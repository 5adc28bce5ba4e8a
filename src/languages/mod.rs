//! The languages built into Settee.

pub mod command;
pub mod echo;
pub mod native;
pub mod query;
