//! JSON as CouchDB reads, orders and encodes it.
//!
//! SUMMARY   [`collation`] is CouchDB's order of values, [`number`] its numbers, [`external_term`] their form in
//!           Erlang; [`json_scan`] and [`elements`] take a text apart without making a tree of it.

pub mod collation;
pub mod elements;
pub mod external_term;
pub mod json_scan;
pub mod number;
