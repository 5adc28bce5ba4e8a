//! JSON as CouchDB reads, orders and encodes it.
//!
//! SUMMARY   [`cursor`] takes a text apart without making a tree of it, and [`string`] reads its strings; [`object_end`]
//!           finds where an object ends that comes in pieces. [`collation`] is CouchDB's order of values, [`number`] its
//!           numbers, [`erlang`] their form in Erlang. [`RawObject`] is an object whose values stay text, [`JsonList`] an array of
//!           many. [`shown`] knows the characters that are not shown.

pub mod collation;
pub mod cursor;
pub mod erlang;
pub mod list;
pub mod number;
pub mod object;
pub mod object_end;
pub mod shown;
pub mod string;

pub use list::{JsonList, JsonListBuilder};
pub use object::RawObject;
