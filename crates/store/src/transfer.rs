//! Documents on their way out of the store and into it: `settee jobs export` and `import`.
//!
//! SUMMARY   An export is read some documents at a time, in the order of their ids, with what is kept of their
//!           jobs. An import writes documents that are not there.
//! PROMISES  Another document of the same id is replaced only where that is asked for.
//! LIMITS    [`DOCUMENTS_MAX`] documents, or [`BYTES_MAX`] bytes and one document, are read at a time.

/// Documents that are read at a time.
pub(super) const DOCUMENTS_MAX: usize = 500;

/// Bytes of bodies after which no more documents are read at a time.
pub(super) const BYTES_MAX: usize = 256 << 10;

/// A document to import.
#[derive(Clone, Debug)]
pub struct Import {
    /// Its id.
    pub id: String,
    /// As in [`Document`](super::Document).
    pub body: String,
    /// What is to be kept of its job.
    pub kept: Option<String>,
}

/// The result of importing a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// There was none of this id.
    Created,
    /// The same document is there already.
    Unchanged,
    /// Another one was there, and is replaced.
    Replaced,
    /// Another one is there, and stays.
    Conflict,
}
