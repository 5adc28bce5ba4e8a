//! The languages that Settee brings along.

pub mod javascript;
