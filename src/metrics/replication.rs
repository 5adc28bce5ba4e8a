//! Metrics of replications and their jobs.
//!
//! SOURCE    couch_replicator's stats: the names under `couch_replicator.jobs`.
//! DIFFERS   `duplicate_adds` counts jobs added again unchanged; CouchDB never counts it. Gauges are always exact,
//!           while CouchDB updates them every five seconds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use super::cells::{Counter, Gauge};
use super::definition::metrics;
use super::job_groups::JobGroups;
use crate::lock;
use policy::schedule::{Census, Totals};
use replication::counters::{self, Counters};
use replication::endpoint::Http;

/// Maximum number of replications whose refused documents are counted by name; others are counted as [`OTHERS`].
const REFUSED_NAMES_MAX: usize = 100;

/// The name under which further replications are counted.
const OTHERS: &str = "others";

metrics! {
    /// The numbers of all replications. Metrics without a field here are counted where the work is done, or by group.
    #[derive(Debug, Default)]
    pub struct ReplicationMetrics {
        /// Replication jobs added
        Counter("couch_replicator.jobs.adds", "couchdb_couch_replicator_jobs_adds_total")
            => pub adds: Counter;
        /// Replication jobs added again unchanged
        Counter("couch_replicator.jobs.duplicate_adds", "couchdb_couch_replicator_jobs_duplicate_adds_total")
            => pub duplicate_adds: Counter;
        /// Replication jobs removed or replaced
        Counter("couch_replicator.jobs.removes", "couchdb_couch_replicator_jobs_removes_total")
            => pub removes: Counter;
        /// Replication jobs started
        Counter("couch_replicator.jobs.starts", "couchdb_couch_replicator_jobs_starts_total")
            => pub starts: Counter;
        /// Stopped replication runs whose jobs remain: to let other jobs run, by a pause or by a restart
        Counter("couch_replicator.jobs.stops", "couchdb_couch_replicator_jobs_stops_total")
            => pub stops: Counter;
        /// Replication jobs that failed and are retried
        Counter("couch_replicator.jobs.crashes", "couchdb_couch_replicator_jobs_crashes_total")
            => pub crashes: Counter;
        /// Replication jobs
        Gauge("couch_replicator.jobs.total", "couchdb_couch_replicator_jobs_total")
            => pub total: Gauge;
        /// Running replication jobs
        Gauge("couch_replicator.jobs.running", "couchdb_couch_replicator_jobs_running")
            => pub running: Gauge;
        /// Replication jobs waiting for their turn, or paused
        Gauge("couch_replicator.jobs.pending", "couchdb_couch_replicator_jobs_pending")
            => pub pending: Gauge;
        /// Replication jobs not running whose last run failed
        Gauge("couch_replicator.jobs.crashed", "couchdb_couch_replicator_jobs_crashed")
            => pub crashed: Gauge;
        /// HTTP requests of replications to databases, including retries
        Counter("couch_replicator.requests", "couchdb_couch_replicator_requests_total");
        /// Answered HTTP requests of replications
        Counter("couch_replicator.responses.success", "couchdb_couch_replicator_responses_success_total");
        /// Failed HTTP requests of replications, each counted once with its retries
        Counter("couch_replicator.responses.failure", "couchdb_couch_replicator_responses_failure_total");
        /// Answered HTTP stream requests of replications
        Counter("couch_replicator.stream_responses.success", "couchdb_couch_replicator_stream_responses_success_total");
        /// Failed HTTP stream requests of replications
        Counter("couch_replicator.stream_responses.failure", "couchdb_couch_replicator_stream_responses_failure_total");
        /// HTTP requests of replications sent elsewhere by `connect_to`
        Counter("couch_replicator.connect_to_applied", "couchdb_couch_replicator_connect_to_applied_total");
        /// Replication runs that could not start
        Counter("couch_replicator.failed_starts", "couchdb_couch_replicator_failed_starts_total");
        /// Checkpoints written
        Counter("couch_replicator.checkpoints.success", "couchdb_couch_replicator_checkpoints_success_total");
        /// Checkpoints that could not be written
        Counter("couch_replicator.checkpoints.failure", "couchdb_couch_replicator_checkpoints_failure_total");
        /// Failures to read changes, retried or not
        Counter("couch_replicator.changes_read_failures", "couchdb_couch_replicator_changes_read_failures_total");
        /// Runs that ended because changes could not be read
        Counter("couch_replicator.changes_reader_deaths", "couchdb_couch_replicator_changes_reader_deaths_total");
        /// Runs that ended because their changes manager did
        Counter("couch_replicator.changes_manager_deaths", "couchdb_couch_replicator_changes_manager_deaths_total");
        /// Runs that ended because a worker failed
        Counter("couch_replicator.worker_deaths", "couchdb_couch_replicator_worker_deaths_total");
        /// Replication workers started
        Counter("couch_replicator.workers_started", "couchdb_couch_replicator_workers_started_total");
        /// Documents written to targets
        Counter("couch_replicator.docs_written", "couchdb_couch_replicator_docs_written_total");
        /// Full scans of the replicator database
        Counter("couch_replicator.db_scans", "couchdb_couch_replicator_db_scans_total");
        /// Replicator databases found at a start
        Counter("couch_replicator.docs.dbs_found", "couchdb_couch_replicator_docs_dbs_found_total");
        /// Updates of replicator documents processed
        Counter("couch_replicator.docs.db_changes", "couchdb_couch_replicator_docs_db_changes_total");
        /// Replicator documents marked as failed
        Counter("couch_replicator.docs.failed_state_updates", "couchdb_couch_replicator_docs_failed_state_updates_total");
        /// Replicator documents marked as completed
        Counter("couch_replicator.docs.completed_state_updates", "couchdb_couch_replicator_docs_completed_state_updates_total");
        /// Replication jobs completed
        Counter("settee.replication_jobs_completed", "settee_replication_jobs_completed_total")
            => pub completions: Counter;
        /// Failed replication jobs without a document
        Counter("settee.replication_jobs_failed", "settee_replication_jobs_failed_total")
            => pub failures: Counter;
        /// Documents not replicated: refused by a target, or with an id that is too long or illegal
        Counter("settee.replication_documents_refused", "settee_replication_documents_refused_total")
            => pub refused: Counter;
        /// Paused replication jobs
        Gauge("settee.replication_jobs_paused", "settee_replication_jobs_paused")
            => pub paused: Gauge;
        /// Failed replicator documents without a job (of all daemons in a fleet)
        Gauge("settee.replication_docs_failed", "settee_replication_docs_failed")
            => pub docs_failed: Gauge;
        /// Source changes left to replicate, as each job last knew
        Gauge("settee.replication_lag_changes", "settee_replication_lag_changes").labels("group");
        /// Failing replication jobs, without paused ones
        Gauge("settee.replication_jobs_failing", "settee_replication_jobs_failing").labels("group");
        /// How long the longest-failing job has failed; 0: none
        Gauge("settee.replication_oldest_failing", "settee_replication_oldest_failing_seconds").labels("group");
    }
    beside {
        /// Jobs by group.
        pub(crate) groups: JobGroups;
        /// Counted where the work is done.
        work: OnceLock<Arc<Counters>>;
        /// The number of documents that each replication did not replicate, by the replication's document or id.
        refused_by: Mutex<BTreeMap<String, u64>>;
    }
}

impl ReplicationMetrics {
    /// Shows the counters of these replications from now on. Only the first call has an effect.
    pub fn watch(&self, http: &Http) {
        let _ = self.work.set(Arc::clone(http.counters()));
    }

    /// Returns the counters of the work, by name below `couch_replicator`.
    pub(super) fn work(&self) -> Vec<(&'static str, u64)> {
        match self.work.get() {
            Some(work) => work.all(),
            None => Counters::default().all(),
        }
    }

    /// Counts a document that this replication did not replicate; the replication is named by its document or id.
    pub(crate) fn refuse(&self, replication: String) {
        self.refused.one();
        let mut by = lock(&self.refused_by);
        let name = if by.len() < REFUSED_NAMES_MAX || by.contains_key(&replication) {
            replication
        } else {
            OTHERS.to_owned()
        };
        *by.entry(name).or_default() += 1;
    }

    /// Returns the number of documents not replicated since the start, by the replication's document or id, or
    /// [`OTHERS`].
    pub(crate) fn refused_by(&self) -> BTreeMap<String, u64> {
        lock(&self.refused_by).clone()
    }

    /// Returns the number of documents written to targets.
    pub(crate) fn docs_written(&self) -> u64 {
        let work = self.work.get();
        work.map_or(0, |work| work.get(counters::Counter::DocsWritten))
    }

    /// Publishes an event's changes: the current number of jobs, and the counts before and after it.
    pub(crate) fn publish(&self, census: &Census, before: &Totals, after: &Totals) {
        for (counter, before, after) in [
            (&self.adds, before.adds, after.adds),
            (&self.removes, before.removes, after.removes),
            (&self.starts, before.starts, after.starts),
            (&self.stops, before.stops, after.stops),
            (&self.crashes, before.crashes, after.crashes),
            (&self.failures, before.failures, after.failures),
            (&self.completions, before.completions, after.completions),
        ] {
            counter.add(after - before);
        }
        for (gauge, number) in [
            (&self.total, census.total),
            (&self.running, census.running),
            (&self.pending, census.pending),
            (&self.crashed, census.crashed),
            (&self.paused, census.paused),
        ] {
            gauge.set(number as u64);
        }
    }
}
