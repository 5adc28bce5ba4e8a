//! What a replication counts.
//!
//! SOURCE    couch_replicator_stats: the same counters under the same names in checkpoints; two of
//!           them have other names in task lists and documents.

use serde::{Deserialize, Serialize};

/// Counters of a replication. They grow over the whole life of a replication id: a run starts with
/// what the run before it, or the last checkpoint, had counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Revisions seen in the changes feed.
    pub missing_checked: u64,
    /// Of these, those that the target did not have.
    pub missing_found: u64,
    /// Revisions read from the source.
    pub docs_read: u64,
    /// Revisions that the target took.
    pub docs_written: u64,
    /// Revisions that the target refused, and documents that were passed over.
    pub doc_write_failures: u64,
    /// Revisions that `_bulk_get` delivered.
    pub bulk_get_docs: u64,
    /// Revisions that `_bulk_get` was asked for.
    pub bulk_get_attempts: u64,
}

impl Stats {
    /// Adds the counters of a part.
    pub fn add(&mut self, other: &Self) {
        self.merge(other, u64::saturating_add);
    }

    /// Takes the larger of each counter: of two records of one history, each may be the older one.
    pub fn max(mut self, other: &Self) -> Self {
        self.merge(other, u64::max);
        self
    }

    /// Returns what was counted since it was `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.merge(before, u64::saturating_sub);
        self
    }

    fn merge(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        self.missing_checked = with(self.missing_checked, other.missing_checked);
        self.missing_found = with(self.missing_found, other.missing_found);
        self.docs_read = with(self.docs_read, other.docs_read);
        self.docs_written = with(self.docs_written, other.docs_written);
        self.doc_write_failures = with(self.doc_write_failures, other.doc_write_failures);
        self.bulk_get_docs = with(self.bulk_get_docs, other.bulk_get_docs);
        self.bulk_get_attempts = with(self.bulk_get_attempts, other.bulk_get_attempts);
    }
}
