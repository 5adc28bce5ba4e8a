//! Documents that a replication skips, reported to a listener.
//!
//! SOURCE    CouchDB only counts them (`doc_write_failures`) and writes a line to its log.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

/// A document that is not at the target, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedDoc {
    pub id: String,
    /// The revision, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rev: Option<String>,
    /// The error's name, for example `forbidden`.
    pub error: String,
    /// Why, in the words of the target.
    pub reason: String,
}

/// Where refused documents are reported. It must not block.
pub type RefusalListener = Rc<dyn Fn(RefusedDoc)>;
