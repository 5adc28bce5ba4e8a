//! JSON as CouchDB reads, orders and encodes it.
//!
//! SUMMARY   [`cursor`] scans a text without building a tree, and [`string`] reads its strings; [`object_end`] finds
//!           the end of an object that arrives in pieces. [`collation`] is CouchDB's order of values, [`number`] its
//!           numbers, [`erlang`] their form in Erlang. [`RawObject`] is an object whose values stay text,
//!           [`JsonList`] an array of many values. [`shown`] defines which characters are unsafe to show.

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
