//! Documents that a replication skips, reported to a listener.
//!
//! SOURCE    CouchDB only counts them (`doc_write_failures`) and writes a line to its log.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

/// A document that is missing at the target, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedDoc {
    pub id: String,
    /// The revision, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rev: Option<String>,
    /// The error's name, for example `forbidden`.
    pub error: String,
    /// The target's reason, or why the document was not written to it.
    pub reason: String,
}

/// Listener for refused documents. It must not block.
pub type RefusalListener = Rc<dyn Fn(RefusedDoc)>;
