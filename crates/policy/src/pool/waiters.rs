//! The queue of requests that wait for a process, in the order in which they are served.
//!
//! SUMMARY   One queue, split by what the requests can use, so that the first one that an idle
//!           process would serve is found without looking at the others.
//! PROMISES  Every operation costs a logarithm of the number of waiters.
//! SOURCE    couch_proc_manager 001, table waiters.
//! DIFFERS   The reference only ever looks at its first row; see [`super`] for when we look behind.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::fairness::BULK;
use super::id::{RequestId, Tenant};
use super::select::Wanted;

/// The place of a request in the queue: the smallest is the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    /// Lane and round; the same for all where waiters are served in order of arrival.
    pub(crate) rank: u64,
    /// Among equals the oldest is the next.
    pub(crate) id: RequestId,
}

/// The waiters of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiters {
    /// Every waiter; ordered: the first is the next.
    all: BTreeSet<QueueKey>,
    /// tag -> the waiters that a process of it serves; unordered: always asked for one tag.
    by_tenant: FxHashMap<Tenant, BTreeSet<QueueKey>>,
    /// The first waiter of each tag that has an idle process; ordered: the first is the next.
    matched: BTreeSet<QueueKey>,
}

impl Waiters {
    /// Adds a waiter. `has_idle`: whether a process of its tag is idle.
    pub(super) fn push(&mut self, key: QueueKey, wanted: &Wanted<'_>, has_idle: bool) {
        self.all.insert(key);
        if let Some(tenant) = wanted.tag() {
            self.change(tenant, has_idle, |queue| {
                queue.insert(key);
            });
        }
        debug_assert!(self.matched.len() <= self.all.len());
    }

    /// Removes a waiter, wherever it stands in the queue.
    pub(super) fn remove(&mut self, key: QueueKey, wanted: &Wanted<'_>, has_idle: bool) {
        let present = self.all.remove(&key);
        debug_assert!(present, "PM-4: a queued request is in the queue");
        if let Some(tenant) = wanted.tag() {
            self.change(tenant, has_idle, |queue| {
                queue.remove(&key);
            });
        }
    }

    /// Notes whether a tag has an idle process now.
    pub(super) fn note_idle(&mut self, tenant: &Tenant, has_idle: bool) {
        if self.by_tenant.contains_key(tenant) {
            self.change(tenant, has_idle, |_| {});
        }
    }

    /// Changes the queue of a tag, and keeps its first waiter in `matched` if the tag has an idle
    /// process.
    fn change(
        &mut self,
        tenant: &Tenant,
        has_idle: bool,
        change: impl FnOnce(&mut BTreeSet<QueueKey>),
    ) {
        let queue = self.by_tenant.entry(tenant.clone()).or_default();
        if let Some(first) = queue.first() {
            self.matched.remove(first);
        }
        change(queue);
        match queue.first() {
            Some(first) if has_idle => {
                self.matched.insert(*first);
            }
            Some(_) => {}
            None => {
                self.by_tenant.remove(tenant);
            }
        }
    }

    /// The waiter that is next.
    pub(crate) fn oldest(&self) -> Option<RequestId> {
        self.all.first().map(|key| key.id)
    }

    /// The waiter that came last.
    pub(super) fn newest(&self) -> Option<RequestId> {
        self.iter().max()
    }

    /// The first waiter that has an idle process of its tag.
    pub(super) fn oldest_servable(&self) -> Option<RequestId> {
        self.matched.first().map(|key| key.id)
    }

    /// Whether only the bulk lane waits, for which some processes are not meant.
    pub(super) fn is_bulk_only(&self) -> bool {
        self.all.first().is_some_and(|key| key.rank >= BULK)
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Every waiter, in the order in which they are served.
    pub(crate) fn iter(&self) -> impl Iterator<Item = RequestId> {
        self.all.iter().map(|key| key.id)
    }
}
