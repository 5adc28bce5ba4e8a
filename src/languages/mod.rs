//! The languages that Settee brings along.

pub mod command;
pub mod echo;
pub mod native;
pub mod query;
