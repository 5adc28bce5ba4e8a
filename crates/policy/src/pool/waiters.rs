//! The queue of requests waiting for a process, and the order in which they are served.
//!
//! SUMMARY   A queue for each tenant in each lane, in order of arrival. The first waiter of each is in an ordered
//!           set, from which the next one is taken, and in a second set if a process of its tenant is idle, so that
//!           finding the first servable waiter needs no scan. Waiters held back by their tenant's bounds are in
//!           neither.
//! PROMISES  Every change takes time logarithmic in the number of waiters.
//! SOURCE    couch_proc_manager 001, table waiters.
//! DIFFERS   The reference only checks its first row; see [`super`] for when others are considered.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::fairness::{Kept, Standing};
use super::{RequestId, Tenant};

/// A tenant's state, as far as its place in the queue depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TenantState {
    /// Its standing, which determines when it is served.
    pub standing: Standing,
    /// Whether a process of its tag is idle.
    pub has_idle: bool,
    /// Whether it is at its process limit, or in debt of processor time: others overtake its waiters.
    pub is_held_back: bool,
    /// Whether its waiters count against its own bound, not the pool's queue.
    pub has_own_queue: bool,
}

/// The waiters of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiters {
    /// The second lane is served when no waiter of the first may be served.
    lanes: [LaneWaiters; 2],
    pub len: usize,
    /// Waiters that are not held back.
    pub open: usize,
    /// Of these, waiters that count toward the pool's queue bound: their tenants have no queue bound of their own.
    pub counted: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LaneWaiters {
    /// tenant -> its waiters; unordered: looked up by tenant.
    queues: FxHashMap<Tenant, TenantQueue>,
    /// The first waiter of each tenant that is not held back.
    firsts: Firsts,
    /// Of these, those with an idle process of their tag.
    matched: Firsts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TenantQueue {
    /// Ordered: the oldest is the next.
    ids: BTreeSet<RequestId>,
    state: TenantState,
}

/// The first waiters of tenants, by the number of processes that the tenant holds: among tenants with equal numbers,
/// the order does not change with time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Firsts(BTreeMap<u32, BTreeSet<(Kept, RequestId)>>);

impl Firsts {
    fn insert(&mut self, standing: Standing, id: RequestId) {
        let equals = self.0.entry(standing.held).or_default();
        equals.insert((standing.fixed, id));
    }

    fn remove(&mut self, standing: Standing, id: RequestId) {
        let equals = self
            .0
            .get_mut(&standing.held)
            .expect("PM-11: a first waiter is in the ordered set");
        equals.remove(&(standing.fixed, id));
        if equals.is_empty() {
            self.0.remove(&standing.held);
        }
    }

    /// Returns the next waiter; `full` is the contribution of one held process to an account.
    fn next(&self, full: Kept) -> Option<RequestId> {
        let least = self.0.iter().filter_map(|(held, equals)| {
            let (fixed, id) = *equals.first()?;
            let standing = Standing { held: *held, fixed };
            Some((standing.account(full), id))
        });
        least.min().map(|(_, id)| id)
    }
}

impl LaneWaiters {
    /// Changes a tenant's queue, and keeps its first waiter in order. Returns the changes of its counts.
    fn change(&mut self, tenant: &Tenant, change: impl FnOnce(&mut TenantQueue)) -> [isize; 3] {
        let queue = self.queues.entry(tenant.clone()).or_default();
        let before = queue.counts();
        if let Some((standing, first, is_matched)) = queue.first() {
            self.firsts.remove(standing, first);
            if is_matched {
                self.matched.remove(standing, first);
            }
        }
        change(queue);
        let after = queue.counts();
        if let Some((standing, first, is_matched)) = queue.first() {
            self.firsts.insert(standing, first);
            if is_matched {
                self.matched.insert(standing, first);
            }
        }
        if after[0] == 0 {
            self.queues.remove(tenant);
        }
        [0, 1, 2].map(|at| after[at] as isize - before[at] as isize)
    }
}

impl TenantQueue {
    /// Waiters that are not held back.
    fn open(&self) -> usize {
        if self.state.is_held_back {
            0
        } else {
            self.ids.len()
        }
    }

    /// Waiters that count toward the pool's queue bound.
    fn counted(&self) -> usize {
        if self.state.has_own_queue {
            0
        } else {
            self.open()
        }
    }

    fn counts(&self) -> [usize; 3] {
        [self.ids.len(), self.open(), self.counted()]
    }

    /// The first waiter if it is not held back, its standing, and whether it has an idle process.
    fn first(&self) -> Option<(Standing, RequestId, bool)> {
        let first = self.ids.first().filter(|_| !self.state.is_held_back)?;
        Some((self.state.standing, *first, self.state.has_idle))
    }
}

impl Waiters {
    /// Adds a waiter to its tenant's queue, with the tenant's current state.
    pub fn push(&mut self, lane: usize, id: RequestId, tenant: &Tenant, state: TenantState) {
        self.change(lane, tenant, |queue| {
            queue.ids.insert(id);
            queue.state = state;
        });
    }

    /// Removes a waiter, wherever it is in the queue.
    pub fn remove(&mut self, lane: usize, id: RequestId, tenant: &Tenant) {
        self.change(lane, tenant, |queue| {
            let present = queue.ids.remove(&id);
            debug_assert!(present, "PM-4: a queued request is in the queue");
        });
    }

    /// Updates a tenant's state, if it waits.
    pub fn note(&mut self, tenant: &Tenant, note: impl Fn(&mut TenantState)) {
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].queues.contains_key(tenant) {
                self.change(lane, tenant, |queue| note(&mut queue.state));
            }
        }
    }

    /// Updates the state of every waiting tenant.
    pub fn note_all(&mut self, note: impl Fn(&Tenant, &mut TenantState)) {
        let queues = self.lanes.iter().flat_map(|lane| lane.queues.keys());
        let tenants: BTreeSet<Tenant> = queues.cloned().collect();
        for tenant in tenants {
            self.note(&tenant, |state| note(&tenant, state));
        }
    }

    fn change(&mut self, lane: usize, tenant: &Tenant, change: impl FnOnce(&mut TenantQueue)) {
        let [len, open, counted] = self.lanes[lane].change(tenant, change);
        self.len = self.len.saturating_add_signed(len);
        self.open = self.open.saturating_add_signed(open);
        self.counted = self.counted.saturating_add_signed(counted);
    }

    /// Returns the next waiter; `full` is the contribution of one held process to an account.
    pub fn next(&self, full: Kept) -> Option<RequestId> {
        let mut lanes = self.lanes.iter();
        lanes.find_map(|lane| lane.firsts.next(full))
    }

    /// The first waiter with an idle process of its tag.
    pub fn next_servable(&self, full: Kept) -> Option<RequestId> {
        let mut lanes = self.lanes.iter();
        lanes.find_map(|lane| lane.matched.next(full))
    }

    /// The newest waiter that counts toward the pool's queue bound.
    pub fn newest(&self) -> Option<RequestId> {
        let queues = self.lanes.iter().flat_map(|lane| lane.queues.values());
        let counted = queues.filter(|queue| queue.counted() > 0);
        counted.filter_map(|queue| queue.ids.last().copied()).max()
    }

    /// The oldest waiter that is not held back.
    pub fn oldest(&self) -> Option<RequestId> {
        let queues = self.lanes.iter().flat_map(|lane| lane.queues.values());
        queues
            .filter_map(TenantQueue::first)
            .map(|(_, id, _)| id)
            .min()
    }

    /// The oldest waiter of a tenant.
    pub fn oldest_of(&self, tenant: &Tenant) -> Option<RequestId> {
        let queues = self.lanes.iter().filter_map(|lane| lane.queues.get(tenant));
        queues.filter_map(|queue| queue.ids.first().copied()).min()
    }

    /// Whether all waiters that are not held back are of the second lane, which must leave some processes to the first.
    pub fn is_second_lane_only(&self) -> bool {
        let [first, second] = &self.lanes;
        first.firsts.0.is_empty() && !second.firsts.0.is_empty()
    }

    /// Whether a tenant waits.
    pub fn waits(&self, tenant: &Tenant) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.any(|lane| lane.queues.contains_key(tenant))
    }

    /// All waiters, by lane and then in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = RequestId> {
        self.lanes.iter().flat_map(|lane| {
            let queues = lane.queues.values();
            let all: BTreeSet<RequestId> = queues.flat_map(|queue| &queue.ids).copied().collect();
            all
        })
    }
}
