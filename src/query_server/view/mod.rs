//! Running a view over documents: map in many processes at once, order, reduce.
//!
//! SUMMARY   [`map`] streams documents through processes and rows out; [`Rows`] puts rows into the
//!           order of a view; [`reduce`] turns ordered rows into reduced ones.
//! CALLED    By `settee map`, and by programs that build views themselves. On one thread: inside an
//!           actix system for a pool of one's own, inside any tokio runtime for a service's.
//! SOURCE    couch_query_servers: start_doc_map/3, map_doc_raw/2, reduce/4, rereduce/4;
//!           couch_mrview_util
//!           for grouping.
//! DIFFERS   Documents are pipelined. A document whose process died gets one more try in another.

mod documents;
mod group;
mod map;
mod processes;
mod rows;

use std::collections::BTreeMap;

pub use documents::{Batches, Document, DocumentReader, InputError, read_in_thread};
pub use group::{Grouping, Reducer, reduce};
pub use map::{Counts, RowSink, Run, map};
pub use processes::{Process, ProcessError, Processes};
pub use rows::{Row, Rows};

/// What is run over the documents.
#[derive(Clone, Debug)]
pub struct View {
    /// The language of its functions.
    pub language: String,
    /// The source of the map function.
    pub map: String,
    /// Modules that the map function may require as `views/lib/NAME`: name -> source, or a
    /// further level of names.
    pub lib: Library,
}

/// Modules by name.
pub type Library = BTreeMap<String, Module>;

/// A module, or a directory of them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(untagged)]
pub enum Module {
    /// A source.
    Source(String),
    /// More modules.
    Directory(Library),
}

/// Why a view could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The documents. The input is at fault.
    #[error(transparent)]
    Input(#[from] InputError),
    /// No process, or none that does what a query server has to.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The map function, or its library, does not compile. Its author is at fault.
    #[error("the map function does not compile: {name}: {reason}")]
    Compile {
        /// The error's name, as the query server has it.
        name: String,
        /// What it says.
        reason: String,
    },
    /// One document could not be mapped.
    #[error("line {line}: document {id}: {reason}")]
    Document {
        /// The document's line in the input.
        line: u64,
        /// Its id, as JSON text.
        id: String,
        /// What happened, and what to do.
        reason: String,
    },
    /// The reduce function, or what it was given. The view's author is at fault.
    #[error("reduce{}: {reason}", of_key(key.as_deref()))]
    Reduce {
        /// The key of the group, as JSON text.
        key: Option<String>,
        /// What happened.
        reason: String,
    },
    /// The rows are not wanted any more: whoever takes them said so.
    #[error("the rows are not wanted any more")]
    Unwanted,
}

fn of_key(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!(" of key {key}"))
}
