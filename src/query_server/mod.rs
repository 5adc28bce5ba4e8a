//! The query-server protocol and the languages.

pub mod languages;
pub mod sandbox;
