//! JSON as CouchDB reads, orders and encodes it.
//!
//! SUMMARY   [`cursor`] takes a text apart without making a tree of it, and [`string`] reads its strings. [`collation`] is
//!           CouchDB's order of values, [`number`] its numbers, [`erlang`] their form in Erlang. [`RawObject`] is an
//!           object whose values stay text.

pub mod collation;
pub mod cursor;
pub mod erlang;
pub mod number;
pub mod object;
pub mod string;

pub use object::RawObject;
