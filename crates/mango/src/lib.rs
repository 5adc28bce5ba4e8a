//! Mango: CouchDB's query language of selectors, as a library without actors, clocks or files.
//!
//! SUMMARY   [`Selector`] matches documents; [`Index`] makes a document's index entries; [`id_form`] is a selector's
//!           form in replication ids.
//! CALLED    By the language `query`, by replications, by `settee map --selector`, and by other programs.
//! SOURCE    CouchDB's applications mango and couch; `docs/mango.md` lists the differences.
//!
//! ```
//! use mango::Selector;
//!
//! let selector = Selector::parse(r#"{"year": {"$gte": 1990}, "tags": {"$all": ["crime"]}}"#)?;
//! let document = r#"{"_id": "b1", "year": 1994, "tags": ["nordic", "crime"]}"#;
//! assert_eq!(selector.matches(document), Ok(true));
//! # Ok::<(), mango::SelectorError>(())
//! ```

mod condition;
mod error;
mod field;
mod id_form;
mod index;
mod members;
mod modulo;
mod normal;
mod operand;
mod operator;
mod pattern;
mod selector;
mod terms;
mod text;

#[cfg(test)]
mod tests;

pub use error::{MatchError, SelectorError, SelectorErrorKind};
pub use id_form::id_form;
pub use index::{Index, IndexError};
pub use members::last_members;
pub use selector::Selector;
