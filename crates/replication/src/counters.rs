//! What is counted of the work of all replications together.
//!
//! SUMMARY   [`Counters`] belong to what all replications share ([`super::endpoint::Http`]); whoever does
//!           something counts it there.
//! SOURCE    couch_replicator's stats: the names below `couch_replicator`, but for those of jobs, which the
//!           scheduler counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of all replications of a service.
#[derive(Debug, Default)]
pub struct Counters {
    /// Tries of requests.
    pub(crate) requests: Count,
    /// Requests that were answered.
    pub(crate) responses_success: Count,
    /// Requests that were not, however often they were tried.
    pub(crate) responses_failure: Count,
    /// Requests whose answers come as streams, and began to.
    pub(crate) stream_responses_success: Count,
    /// Those whose did not.
    pub(crate) stream_responses_failure: Count,
    /// Requests that went elsewhere than their URL says.
    pub(crate) connect_to_applied: Count,
    /// Runs that could not begin.
    pub failed_starts: Count,
    /// Checkpoints that were written.
    pub checkpoints_success: Count,
    /// Checkpoints that were not.
    pub checkpoints_failure: Count,
    /// Times that reading changes failed, and was tried again or not.
    pub(crate) changes_read_failures: Count,
    /// Changes readers that ended a run.
    pub changes_reader_deaths: Count,
    /// Changes managers that ended a run.
    pub changes_manager_deaths: Count,
    /// Workers that ended a run.
    pub worker_deaths: Count,
    /// Workers that were started.
    pub workers_started: Count,
    /// Times that the replicator database was read from its beginning.
    pub db_scans: Count,
    /// Replicator databases that were found by that.
    pub docs_dbs_found: Count,
    /// Updates of documents that were looked at.
    pub docs_db_changes: Count,
    /// Documents that were marked as failed.
    pub docs_failed: Count,
    /// Documents that were marked as completed.
    pub docs_completed: Count,
}

impl Counters {
    /// Returns all of them: CouchDB's name below `couch_replicator`, what it means, and the number.
    pub fn all(&self) -> [(&'static str, &'static str, u64); 19] {
        [
            ("requests", &self.requests),
            ("responses.success", &self.responses_success),
            ("responses.failure", &self.responses_failure),
            ("stream_responses.success", &self.stream_responses_success),
            ("stream_responses.failure", &self.stream_responses_failure),
            ("connect_to_applied", &self.connect_to_applied),
            ("failed_starts", &self.failed_starts),
            ("checkpoints.success", &self.checkpoints_success),
            ("checkpoints.failure", &self.checkpoints_failure),
            ("changes_read_failures", &self.changes_read_failures),
            ("changes_reader_deaths", &self.changes_reader_deaths),
            ("changes_manager_deaths", &self.changes_manager_deaths),
            ("worker_deaths", &self.worker_deaths),
            ("workers_started", &self.workers_started),
            ("db_scans", &self.db_scans),
            ("docs.dbs_found", &self.docs_dbs_found),
            ("docs.db_changes", &self.docs_db_changes),
            ("docs.failed_state_updates", &self.docs_failed),
            ("docs.completed_state_updates", &self.docs_completed),
        ]
        .map(|(name, count)| (name, help(name), count.get()))
    }
}

/// Returns what a counter means.
fn help(name: &str) -> &'static str {
    match name {
        "requests" => "HTTP requests to databases that are replicated, every try counted",
        "responses.success" => "HTTP requests of replications that were answered",
        "responses.failure" => {
            "HTTP requests of replications that failed, however often they were tried"
        }
        "stream_responses.success" => {
            "HTTP requests of replications for streams that were answered"
        }
        "stream_responses.failure" => "HTTP requests of replications for streams that failed",
        "connect_to_applied" => "HTTP requests of replications that went elsewhere by `connect_to`",
        "failed_starts" => "Runs of replications that could not begin",
        "checkpoints.success" => "Checkpoints that were written",
        "checkpoints.failure" => "Checkpoints that could not be written",
        "changes_read_failures" => "Failures to read changes, whether they were tried again or not",
        "changes_reader_deaths" => "Runs that ended because changes could not be read",
        "changes_manager_deaths" => "Runs that ended because their changes manager did",
        "worker_deaths" => "Runs that ended because a worker failed",
        "workers_started" => "Workers of replications that were started",
        "db_scans" => "Times that the replicator database was read from its beginning",
        "docs.dbs_found" => "Replicator databases that were found at a start",
        "docs.db_changes" => "Updates of replicator documents that were looked at",
        "docs.failed_state_updates" => "Replicator documents that were marked as failed",
        "docs.completed_state_updates" => "Replicator documents that were marked as completed",
        _ => "",
    }
}
