//! The progress of a replication: which batches of changes are in progress, and up to which
//! sequence everything is known to be at the target.
//!
//! SUMMARY   [`Progress`] tracks when batches are handed to workers and finished, and returns in
//!           [`Progress::through`] what a checkpoint may record.
//! PROMISES  `through` never passes a batch in progress. It may lag behind finished batches until nothing is in
//!           progress, and then catches up. Only batch numbers are compared or ordered, never sequences.
//! CALLED    By the replication's job, with messages in the order of events.
//! SOURCE    `couch_replicator_scheduler_job`: `seqs_in_progress`, `current_through_seq`,
//!           `highest_seq_done`, `committed_seq`.

use std::collections::BTreeMap;

/// The number of a batch: 1, 2, 3, .. in the order of the changes feed. 0 stands for the start.
pub type BatchNumber = u64;

/// The state of one run. `S` is the type of the source's sequences, which are only cloned.
#[derive(Clone, Debug)]
pub struct Progress<S> {
    in_progress: BTreeMap<BatchNumber, S>,
    through: (BatchNumber, S),
    highest_done: (BatchNumber, S),
    committed: (BatchNumber, S),
}

impl<S: Clone> Progress<S> {
    /// Starts at the last checkpoint's sequence; [`Progress::highest_done`] is `nothing_done` until a batch is done.
    pub fn new(start: S, nothing_done: S) -> Self {
        Self {
            in_progress: BTreeMap::new(),
            through: (0, start.clone()),
            highest_done: (0, nothing_done),
            committed: (0, start),
        }
    }

    /// Records that a batch is about to be handed to a worker.
    pub fn begin(&mut self, number: BatchNumber, seq: S) {
        self.in_progress.insert(number, seq);
    }

    /// Records that a worker has finished a batch: the target has its documents or refused them.
    pub fn done(&mut self, number: BatchNumber, seq: S) {
        let oldest = self.in_progress.keys().next().copied();
        self.in_progress.remove(&number);
        if oldest.is_none_or(|oldest| oldest == number) {
            self.through = (number, seq.clone());
        }
        if number > self.highest_done.0 {
            self.highest_done = (number, seq);
        }
        if self.in_progress.is_empty() && self.highest_done.0 > self.through.0 {
            self.through = self.highest_done.clone();
        }
    }

    /// Records that a checkpoint covers everything up to a batch: the value of [`Progress::through`] when the
    /// checkpoint began.
    pub fn commit(&mut self, through: (BatchNumber, S)) {
        self.committed = through;
    }

    /// Returns the position up to which the target has everything.
    pub fn through(&self) -> &(BatchNumber, S) {
        &self.through
    }

    /// Returns the highest finished batch, even if earlier ones are not.
    pub fn highest_done(&self) -> &(BatchNumber, S) {
        &self.highest_done
    }

    /// Returns the position that the last checkpoint recorded.
    pub fn committed(&self) -> &(BatchNumber, S) {
        &self.committed
    }

    /// Returns whether a checkpoint would record something new.
    pub fn has_news(&self) -> bool {
        self.through.0 != self.committed.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(progress: &Progress<&str>) -> (usize, BatchNumber, BatchNumber) {
        let (highest, through) = (progress.highest_done().0, progress.through().0);
        (progress.in_progress.len(), highest, through)
    }

    /// Four workers; B and D finish before A, C last.
    #[test]
    fn a_checkpoint_never_passes_a_batch_in_progress() {
        let mut progress = Progress::new("0", "0");
        let [a, b, c, d] = [(1, "10-a"), (2, "20-b"), (3, "30-c"), (4, "40-d")];
        for (number, seq) in [a, b, c, d] {
            progress.begin(number, seq);
        }
        assert_eq!(numbers(&progress), (4, 0, 0));
        progress.done(b.0, b.1);
        assert_eq!(numbers(&progress), (3, 2, 0), "B is done, but A is not");
        assert!(!progress.has_news(), "a checkpoint would write nothing");
        progress.done(d.0, d.1);
        assert_eq!(numbers(&progress), (2, 4, 0));
        progress.done(a.0, a.1);
        assert_eq!(
            numbers(&progress),
            (1, 4, 1),
            "through is A's, although B is done"
        );
        assert_eq!(progress.through(), &(1, "10-a"));
        assert!(progress.has_news());
        progress.commit(*progress.through());
        assert!(!progress.has_news());
        let e = (5, "50-e");
        progress.begin(e.0, e.1);
        assert_eq!(numbers(&progress), (2, 4, 1));
        progress.done(e.0, e.1);
        assert_eq!(numbers(&progress), (1, 5, 1));
        progress.done(c.0, c.1);
        assert_eq!(numbers(&progress), (0, 5, 5), "nothing left: all is done");
        assert_eq!(progress.through(), &(5, "50-e"));
        assert_eq!(progress.committed(), &(1, "10-a"));
    }

    #[test]
    fn nothing_done_is_nothing_to_commit() {
        let progress = Progress::new("7-x", "0");
        assert!(!progress.has_news() && progress.highest_done().0 == 0);
        assert_eq!(progress.through(), &(0, "7-x"));
        assert_eq!(progress.highest_done(), &(0, "0"));
    }

    #[test]
    fn in_any_order_through_stays_below_the_oldest_in_progress() {
        let mut state = 12345u64;
        let mut below = |bound: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(state >> 33).expect("31 bits") % bound
        };
        for _ in 0..200 {
            let mut progress = Progress::new(0, 0);
            let (mut next, mut open) = (1, Vec::new());
            for _ in 0..60 {
                if open.is_empty() || (open.len() < 5 && below(2) == 0) {
                    progress.begin(next, next);
                    open.push(next);
                    next += 1;
                } else {
                    let number = open.swap_remove(below(open.len()));
                    let before = progress.through().0;
                    progress.done(number, number);
                    assert!(progress.through().0 >= before, "through never goes back");
                }
                let oldest = open.iter().min().copied().unwrap_or(next);
                assert!(progress.through().0 < oldest);
                if open.is_empty() {
                    assert_eq!(progress.through().0, next - 1);
                }
            }
        }
    }
}
