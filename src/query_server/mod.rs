//! The query-server protocol and the languages.

pub mod languages;
