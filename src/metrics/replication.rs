//! What is counted of replications and their jobs.
//!
//! SOURCE    couch_replicator's stats: the names under `couch_replicator.jobs`.
//! DIFFERS   `duplicate_adds`, which nothing counts there, are jobs that were added again unchanged.
//!           Gauges are exact at any time, where CouchDB counts every five seconds.

use std::sync::{Arc, OnceLock};

use super::cells::{Counter, Gauge};
use super::job_groups::JobGroups;
use policy::schedule::{Census, Totals};
use replication::counters::{self, Counters};
use replication::endpoint::Http;

/// The numbers of all replications.
#[derive(Debug, Default)]
pub struct ReplicationMetrics {
    /// Jobs that became known.
    pub adds: Counter,
    /// Jobs that were added again, and asked for the same as before.
    pub duplicate_adds: Counter,
    /// Jobs that were removed, or replaced.
    pub removes: Counter,
    /// Runs that were begun.
    pub starts: Counter,
    /// Runs that were stopped.
    pub stops: Counter,
    /// Runs of jobs with a document that crashed.
    pub crashes: Counter,
    /// Jobs without a document that crashed, and are gone.
    pub failures: Counter,
    /// Jobs that did their work.
    pub completions: Counter,
    /// Jobs that are known.
    pub total: Gauge,
    /// Those that run.
    pub running: Gauge,
    /// Those that wait.
    pub pending: Gauge,
    /// Those that wait because they crashed.
    pub crashed: Gauge,
    /// Those that are paused.
    pub paused: Gauge,
    /// Jobs by group.
    pub(crate) groups: JobGroups,
    /// What is counted where the work is done.
    work: OnceLock<Arc<Counters>>,
}

impl ReplicationMetrics {
    /// Shows, from now on, what these replications count. Those of one service only: a second call
    /// changes nothing.
    pub fn watch(&self, http: &Http) {
        let _ = self.work.set(Arc::clone(http.counters()));
    }

    /// Returns what is counted where the work is done, by its name below `couch_replicator`.
    pub(super) fn work(&self) -> Vec<(&'static str, u64)> {
        match self.work.get() {
            Some(work) => work.all(),
            None => Counters::default().all(),
        }
    }

    /// Returns how many documents were written to targets.
    pub(crate) fn docs_written(&self) -> u64 {
        let work = self.work.get();
        work.map_or(0, |work| work.get(counters::Counter::DocsWritten))
    }

    /// Takes in what an event changed: how many jobs there are now, and what was counted before it
    /// and after.
    pub(crate) fn publish(&self, census: &Census, before: &Totals, after: &Totals) {
        let counters = [
            (&self.adds, before.adds, after.adds),
            (&self.removes, before.removes, after.removes),
            (&self.starts, before.starts, after.starts),
            (&self.stops, before.stops, after.stops),
            (&self.crashes, before.crashes, after.crashes),
            (&self.failures, before.failures, after.failures),
            (&self.completions, before.completions, after.completions),
        ];
        for (counter, before, after) in counters {
            counter.add(after - before);
        }
        let gauges = [
            (&self.total, census.total),
            (&self.running, census.running),
            (&self.pending, census.pending),
            (&self.crashed, census.crashed),
            (&self.paused, census.paused),
        ];
        for (gauge, number) in gauges {
            gauge.set(number as u64);
        }
    }
}
