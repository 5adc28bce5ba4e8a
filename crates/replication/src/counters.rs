//! Counters of the work of all replications.
//!
//! SUMMARY   [`Counters`] are shared by all replications ([`super::endpoint::Http`]).
//! SOURCE    couch_replicator's stats: the names below `couch_replicator`, except those of jobs, which the scheduler
//!           counts. couch_replicator_stats: each of [`Stats`] starts with the larger of the scheduler's value and the
//!           last checkpoint's.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use strum::{EnumCount, IntoStaticStr, VariantArray};

/// The counters, with CouchDB's names below `couch_replicator`.
#[derive(Clone, Copy, Debug, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Counter {
    /// HTTP requests to replicated databases, including retries
    Requests,
    /// Answered HTTP requests of replications
    #[strum(serialize = "responses.success")]
    ResponsesSuccess,
    /// Failed HTTP requests of replications, each counted once with its retries
    #[strum(serialize = "responses.failure")]
    ResponsesFailure,
    /// Answered HTTP stream requests of replications
    #[strum(serialize = "stream_responses.success")]
    StreamResponsesSuccess,
    /// Failed HTTP stream requests of replications
    #[strum(serialize = "stream_responses.failure")]
    StreamResponsesFailure,
    /// HTTP requests of replications redirected by `connect_to`
    ConnectToApplied,
    /// Runs of replications that could not begin
    FailedStarts,
    /// Checkpoints that were written
    #[strum(serialize = "checkpoints.success")]
    CheckpointsSuccess,
    /// Checkpoints that could not be written
    #[strum(serialize = "checkpoints.failure")]
    CheckpointsFailure,
    /// Failures to read changes, retried or not
    ChangesReadFailures,
    /// Runs that ended because changes could not be read
    ChangesReaderDeaths,
    /// Runs that ended because their changes manager did
    ChangesManagerDeaths,
    /// Runs that ended because a worker failed
    WorkerDeaths,
    /// Replication workers started
    WorkersStarted,
    /// Documents that were written to targets
    DocsWritten,
    /// Times that the replicator database was read from its beginning
    DbScans,
    /// Replicator databases that were found at a start
    #[strum(serialize = "docs.dbs_found")]
    DocsDbsFound,
    /// Updates of replicator documents that were processed
    #[strum(serialize = "docs.db_changes")]
    DocsDbChanges,
    /// Replicator documents that were marked as failed
    #[strum(serialize = "docs.failed_state_updates")]
    DocsFailed,
    /// Replicator documents that were marked as completed
    #[strum(serialize = "docs.completed_state_updates")]
    DocsCompleted,
}

/// The counters of all replications of a service. Never decreased.
#[derive(Debug, Default)]
pub struct Counters([AtomicU64; Counter::COUNT]);

impl Counters {
    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    pub fn add(&self, counter: Counter, count: u64) {
        self.0[counter as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }

    /// Returns the name and value of each.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        Counter::VARIANTS
            .iter()
            .zip(&self.0)
            .map(|(counter, number)| (counter.into(), number.load(Ordering::Relaxed)))
            .collect()
    }
}

/// The counters of a run, shared by its parts.
#[derive(Debug, Default)]
pub struct RunCounters {
    stats: Cell<Stats>,
    bytes_written: Cell<u64>,
}

impl RunCounters {
    /// Starts with the counts of earlier runs.
    pub fn starting_with(stats: Stats) -> Self {
        Self {
            stats: Cell::new(stats),
            ..Self::default()
        }
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Stats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    /// Counts bytes of documents and attachments sent to the target.
    pub(crate) fn count_bytes(&self, bytes: usize) {
        let before = self.bytes_written.get();
        self.bytes_written.set(before.saturating_add(bytes as u64));
    }

    pub fn stats(&self) -> Stats {
        self.stats.get()
    }

    /// Returns the bytes of documents and attachments sent to the target in this run.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.get()
    }
}

/// Counters of a replication. They grow over the whole life of a replication id: a run starts with the counts of the
/// previous run, or of the last checkpoint. Of two records of one run, the smaller is the older.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Revisions seen in the changes feed.
    pub missing_checked: u64,
    /// Of these, those missing at the target.
    pub missing_found: u64,
    /// Revisions read from the source.
    pub docs_read: u64,
    /// Revisions accepted by the target.
    pub docs_written: u64,
    /// Revisions refused by the target, and skipped documents.
    pub doc_write_failures: u64,
    /// Revisions delivered by `_bulk_get`.
    pub bulk_get_docs: u64,
    /// Revisions requested from `_bulk_get`.
    pub bulk_get_attempts: u64,
}

impl Stats {
    /// Adds other counters to these.
    pub fn add(&mut self, other: &Self) {
        self.merge(other, u64::saturating_add);
    }

    /// Returns the larger of each counter: of two records of one history, either may be older.
    pub fn max(mut self, other: &Self) -> Self {
        self.merge(other, u64::max);
        self
    }

    /// Returns the increase since `before`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_of_a_run_starts_with_the_larger_of_the_kept_and_the_recorded_value() {
        let recorded = Stats {
            docs_read: 6,
            docs_written: 2,
            ..Stats::default()
        };
        let kept = Stats {
            docs_read: 4,
            docs_written: 9,
            ..Stats::default()
        };
        let run_counters = RunCounters::starting_with(kept.max(&recorded));
        run_counters.count(|stats| stats.docs_read += 1);
        let stats = run_counters.stats();
        assert_eq!((stats.docs_read, stats.docs_written), (7, 9));
        assert_eq!(stats.missing_found, 0);
    }
}
