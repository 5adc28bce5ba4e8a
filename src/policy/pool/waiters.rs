//! The queue of requests that wait for a process, in order of arrival.
//!
//! SUMMARY   One FIFO, split by what the requests can use, so that the oldest one that an idle
//!           process would serve is found without looking at the others.
//! PROMISES  Every operation costs a logarithm of the number of waiters.
//! SOURCE    couch_proc_manager 001, table waiters.
//! DIFFERS   The reference only ever looks at its first row; see [`super`] for when we look behind.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::event::{Affinity, DbKey, RequestId};

/// The waiters of one pool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct Waiters {
    /// Every waiter; ordered: the first is the oldest.
    all: BTreeSet<RequestId>,
    /// The waiters that want no design document and take any process.
    untagged: BTreeSet<RequestId>,
    /// tag -> the waiters that want a process of it; unordered: always asked for one tag.
    by_db: FxHashMap<DbKey, DbQueue>,
    /// The oldest waiter of each tag that has an idle process; ordered: the first is the oldest.
    matched: BTreeSet<RequestId>,
}

/// The waiters for one tag.
#[derive(Debug, Default, PartialEq, Eq)]
struct DbQueue {
    /// Ordered: the first is the oldest.
    waiters: BTreeSet<RequestId>,
    /// Which of them stands in `matched`.
    matched: Option<RequestId>,
}

impl Waiters {
    /// Adds a waiter. `has_idle`: whether a process of its tag is idle.
    pub(super) fn push(&mut self, request: RequestId, affinity: Option<&Affinity>, has_idle: bool) {
        self.all.insert(request);
        match affinity {
            None => {
                self.untagged.insert(request);
            }
            Some(Affinity { db: Some(db), .. }) => {
                let queue = self.by_db.entry(db.clone()).or_default();
                queue.waiters.insert(request);
                queue.settle(&mut self.matched, has_idle);
            }
            Some(Affinity { db: None, .. }) => {}
        }
        debug_assert!(self.untagged.len() + self.matched.len() <= self.all.len());
    }

    /// Removes a waiter, wherever it stands in the queue.
    pub(super) fn remove(
        &mut self,
        request: RequestId,
        affinity: Option<&Affinity>,
        has_idle: bool,
    ) {
        let present = self.all.remove(&request);
        debug_assert!(present, "PM-4: a queued request is in the queue");
        match affinity {
            None => {
                self.untagged.remove(&request);
            }
            Some(Affinity { db: Some(db), .. }) => {
                let queue = self
                    .by_db
                    .get_mut(db)
                    .expect("PM-11: a waiter for a tag stands in its queue");
                queue.waiters.remove(&request);
                queue.settle(&mut self.matched, has_idle);
                if queue.waiters.is_empty() {
                    self.by_db.remove(db);
                }
            }
            Some(Affinity { db: None, .. }) => {}
        }
    }

    /// Notes whether the tag `db` has an idle process now.
    pub(super) fn note_idle(&mut self, db: &DbKey, has_idle: bool) {
        if let Some(queue) = self.by_db.get_mut(db) {
            queue.settle(&mut self.matched, has_idle);
        }
    }

    /// The oldest waiter.
    pub(in crate::policy) fn oldest(&self) -> Option<RequestId> {
        self.all.first().copied()
    }

    /// The oldest waiter that has an idle process of its tag, or that takes any when `any_idle`.
    pub(super) fn oldest_servable(&self, any_idle: bool) -> Option<RequestId> {
        let tagged = self.matched.first();
        let untagged = self.untagged.first().filter(|_| any_idle);
        match (tagged, untagged) {
            (Some(tagged), Some(untagged)) => Some(*tagged.min(untagged)),
            (one, other) => one.or(other).copied(),
        }
    }

    /// How many wait.
    pub(in crate::policy) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Every waiter, oldest first.
    pub(in crate::policy) fn iter(&self) -> impl Iterator<Item = RequestId> {
        self.all.iter().copied()
    }
}

impl DbQueue {
    /// Makes `matched` name the first waiter exactly when the tag has an idle process.
    fn settle(&mut self, matched: &mut BTreeSet<RequestId>, has_idle: bool) {
        let oldest = self.waiters.first().copied().filter(|_| has_idle);
        if oldest == self.matched {
            return;
        }
        if let Some(before) = self.matched {
            matched.remove(&before);
        }
        if let Some(now) = oldest {
            matched.insert(now);
        }
        self.matched = oldest;
    }
}
