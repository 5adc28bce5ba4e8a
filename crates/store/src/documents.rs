//! Documents in stores, and the types of requests for them.
//!
//! SUMMARY   A document has a single revision, which a writer has to name.

use std::time::{SystemTime, UNIX_EPOCH};

use super::revision::Revision;

/// A document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its id.
    pub id: String,
    /// Its revision.
    pub revision: Revision,
    /// Whether it is deleted.
    pub deleted: bool,
    /// The sequence number of its last update.
    pub seq: u64,
    /// JSON text of an object without `_id`, `_rev` and `_deleted`.
    pub body: String,
}

/// A document to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The document's id.
    pub id: String,
    /// The revision to replace.
    pub expected: Option<Revision>,
    /// Whether to delete it.
    pub deleted: bool,
    /// As [`Document::body`].
    pub body: String,
}

/// The writer did not name the current revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict;

/// Documents in the order of their updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The documents.
    pub documents: Vec<Document>,
    /// The last sequence number.
    pub update_seq: u64,
    /// See [`Info::mark`].
    pub mark: String,
}

/// Counts of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Documents that are not deleted.
    pub documents: u64,
    /// Deleted ones.
    pub deleted: u64,
    /// The last sequence number.
    pub update_seq: u64,
    /// Identifies the sequence: numbers with another mark mean nothing here. It contains the store's id, and changes
    /// after a failover, which may have lost updates.
    pub mark: String,
    /// Total size of the documents' bodies, in bytes.
    pub bytes: u64,
}

/// A `_local/` document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalDocument {
    /// The number of times it was written; its revision is `0-NUMBER`.
    pub number: u64,
    /// JSON text without `_id` and `_rev`.
    pub body: String,
}

/// The result of a purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// The number of purged documents.
    pub removed: usize,
    /// The last checked update; `None` if there are no more.
    pub last: Option<u64>,
}

/// Digits of the store's id in a mark.
const MARK_DIGITS: usize = 8;

/// Returns the mark of the store with this id, before any failover.
pub(super) fn mark(uuid: &str) -> &str {
    uuid.get(..MARK_DIGITS).unwrap_or(uuid)
}

/// Returns the time, in seconds since 1970.
pub fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
