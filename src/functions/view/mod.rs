//! Running a view over documents: map in many processes at once, order, reduce.
//!
//! SUMMARY   [`map`] streams documents through processes and passes the emitted rows to a [`MapSink`]; [`Rows`] sorts
//!           rows into a view's order; [`reduce`] reduces sorted rows, [`Totals`] unsorted ones.
//! CALLED    By `settee map`, by the client layer, and by programs that build views. On one thread: inside an actix
//!           system for a pool of your own, inside any tokio runtime for a service's. Dropping the future returns the
//!           processes.
//! SOURCE    couch_query_servers: start_doc_map/3, map_doc_raw/2, reduce/4, rereduce/4;
//!           couch_mrview_util for grouping.
//! DIFFERS   Documents are pipelined. A document whose process died is retried once in another.

mod answer;
mod check;
mod documents;
mod group;
mod grouping;
mod map;
mod order;
mod processes;
mod prompt_queue;
mod reader;
mod rows;
mod supply;
mod totals;

use std::fmt;

use serde_json::value::RawValue;

pub use answer::Mapped;
pub use check::Members;
pub use documents::{Document, Documents};
pub(crate) use documents::{InputError, MissingId};
pub(crate) use group::{ReducePlan, reduce};
pub(crate) use grouping::Grouping;
pub use map::{Counts, MapSink, Run, map};
pub use order::Order;
pub use processes::Processes;
pub(crate) use processes::{ProcessError, ProcessErrorKind};
pub use reader::{BATCHES_AHEAD, Batches};
pub(crate) use reader::{BadLines, DocumentCutter, DocumentReader, DocumentRules, read_in_thread};
pub use rows::{Row, Rows};
pub(crate) use totals::{BuiltinReducer, Totals};

use crate::messages::proc_manager::CallError;

/// A view to run over documents.
#[derive(Clone, Debug)]
pub struct View {
    /// The language of its functions.
    pub language: String,
    /// Its map functions, as arguments of `add_fun`: in most languages source strings; in `query` definitions, which
    /// are objects. All of them get each document.
    pub funs: Vec<Box<RawValue>>,
    /// Modules that the functions may require, as the argument of `add_lib`. Without any, no `add_lib` is sent.
    pub lib: Option<Box<RawValue>>,
}

/// A part of a view that is sent to a process before any document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The modules.
    Library,
    /// One of the map functions, from 0.
    Function(usize),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library => f.write_str("the library"),
            Self::Function(0) => f.write_str("the map function"),
            Self::Function(index) => write!(f, "map function {}", index + 1),
        }
    }
}

/// Why a view failed.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The documents; the input's fault.
    #[error(transparent)]
    Input(#[from] InputError),
    /// There was no process, or none that behaves like a query server.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A map function, or the library, does not compile; its author's fault.
    #[error("{part} does not compile: {}", compile_error(error))]
    Compile {
        /// The part.
        part: Part,
        /// The query server's error, or how it ended.
        error: Box<ProcessError>,
    },
    /// One document could not be mapped.
    #[error("line {line}: document {id}: {reason}")]
    Document {
        /// The document's line in the input, or its place in an array.
        line: u64,
        /// Its id, as JSON text.
        id: String,
        /// The failure and its remedy.
        reason: String,
        /// Why there was no answer; `None` if the answer had a wrong shape.
        error: Option<Box<ProcessError>>,
    },
    /// The reduce function, or its input; the view's author's fault.
    #[error("reduce{}: {reason}", of_key(key.as_deref()))]
    Reduce {
        /// The key of the group, as JSON text.
        key: Option<String>,
        /// The failure.
        reason: String,
    },
    /// The rows are no longer wanted.
    #[error("the rows are no longer wanted")]
    Unwanted,
}

impl ViewError {
    /// Returns the whole error, if it is about a process of a pool in this program: with the phase, the name, and the
    /// child's exit and last output.
    pub fn cause(&self) -> Option<&CallError> {
        let error = match self {
            Self::Process(error) => Some(error),
            Self::Compile { error, .. } => Some(&**error),
            Self::Document { error, .. } => error.as_deref(),
            Self::Input(_) | Self::Reduce { .. } | Self::Unwanted => None,
        };
        error?.cause.as_deref()
    }
}

/// An error without a name is CouchDB's `os_process_error`.
fn compile_error(error: &ProcessError) -> String {
    match error.kind {
        ProcessErrorKind::Function(_) => error.to_string(),
        _ => format!("os_process_error: {error}"),
    }
}

fn of_key(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!(" of key {key}"))
}
