//! What the workers of one run count into together.
//!
//! SUMMARY   A [`RunCounters`] starts with the numbers of earlier runs and is shared by the parts of a
//!           run.
//! SOURCE    `couch_replicator_stats`: of what the scheduler kept and what the last checkpoint
//!           recorded, the larger of each number counts.
//! LIMITS    It is for one thread.

use std::cell::Cell;

use super::stats::Stats;

/// The counters of a run.
#[derive(Debug, Default)]
pub struct RunCounters {
    stats: Cell<Stats>,
    bytes_written: Cell<u64>,
}

impl RunCounters {
    /// Starts with what earlier runs counted.
    pub fn starting_with(stats: Stats) -> Self {
        Self {
            stats: Cell::new(stats),
            bytes_written: Cell::new(0),
        }
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Stats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    /// Counts bytes of documents and attachments that are sent to the target.
    pub(crate) fn count_bytes(&self, bytes: usize) {
        let before = self.bytes_written.get();
        self.bytes_written.set(before.saturating_add(bytes as u64));
    }

    pub fn stats(&self) -> Stats {
        self.stats.get()
    }

    /// Returns the bytes of documents and attachments that were sent to the target in this run.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_starts_with_the_larger_of_each_number_that_earlier_runs_left() {
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
