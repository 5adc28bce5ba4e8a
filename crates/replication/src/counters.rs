//! What is counted of the work of all replications together.
//!
//! SUMMARY   [`Counters`] belong to what all replications share ([`super::endpoint::Http`]).
//! SOURCE    couch_replicator's stats: the names below `couch_replicator`, but for those of jobs, which the
//!           scheduler counts.

use std::sync::atomic::{AtomicU64, Ordering};

use strum::{EnumCount, IntoStaticStr, VariantArray};

/// What is counted, by CouchDB's name below `couch_replicator`.
#[derive(Clone, Copy, Debug, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Counter {
    /// HTTP requests to databases that are replicated, every try counted
    Requests,
    /// HTTP requests of replications that were answered
    #[strum(serialize = "responses.success")]
    ResponsesSuccess,
    /// HTTP requests of replications that failed, however often they were tried
    #[strum(serialize = "responses.failure")]
    ResponsesFailure,
    /// HTTP requests of replications for streams that were answered
    #[strum(serialize = "stream_responses.success")]
    StreamResponsesSuccess,
    /// HTTP requests of replications for streams that failed
    #[strum(serialize = "stream_responses.failure")]
    StreamResponsesFailure,
    /// HTTP requests of replications that went elsewhere by `connect_to`
    ConnectToApplied,
    /// Runs of replications that could not begin
    FailedStarts,
    /// Checkpoints that were written
    #[strum(serialize = "checkpoints.success")]
    CheckpointsSuccess,
    /// Checkpoints that could not be written
    #[strum(serialize = "checkpoints.failure")]
    CheckpointsFailure,
    /// Failures to read changes, whether they were tried again or not
    ChangesReadFailures,
    /// Runs that ended because changes could not be read
    ChangesReaderDeaths,
    /// Runs that ended because their changes manager did
    ChangesManagerDeaths,
    /// Runs that ended because a worker failed
    WorkerDeaths,
    /// Workers of replications that were started
    WorkersStarted,
    /// Documents that were written to targets
    DocsWritten,
    /// Times that the replicator database was read from its beginning
    DbScans,
    /// Replicator databases that were found at a start
    #[strum(serialize = "docs.dbs_found")]
    DocsDbsFound,
    /// Updates of replicator documents that were looked at
    #[strum(serialize = "docs.db_changes")]
    DocsDbChanges,
    /// Replicator documents that were marked as failed
    #[strum(serialize = "docs.failed_state_updates")]
    DocsFailed,
    /// Replicator documents that were marked as completed
    #[strum(serialize = "docs.completed_state_updates")]
    DocsCompleted,
}

/// The counters of all replications of a service. They only grow.
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

    /// Returns the name and the number of each.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        let all = Counter::VARIANTS.iter().zip(&self.0);
        all.map(|(counter, number)| (counter.into(), number.load(Ordering::Relaxed)))
            .collect()
    }
}
