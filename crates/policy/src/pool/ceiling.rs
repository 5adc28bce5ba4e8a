//! The ceiling over all pools: the maximum number of processes together, and which pool gets the next place. A place is
//! one process below the ceiling; a slot is one process below the limit of its pool.
//!
//! SUMMARY   [`Ceiling`] counts taken places, including those of stopping processes, and tracks pools with a waiter
//!           that lacks a place. [`Pools::share`] runs at the end of each event: it grants free places, frees places by
//!           stopping idle processes, and sets the timer for those that must not be stopped yet.
//! PROMISES  Nothing is opened without a free place. Waiters precede processes that pools keep in advance. No process
//!           in use is stopped. Places alternate between the pool with the fewest processes in use and the pool whose
//!           waiters have gone unserved for longest: no waiter starves, and no pool takes all places by asking more
//!           often. An idle process stays for its own pool's next request for [`EXCHANGE_AFTER`], then it may go to any
//!           pool with a waiter. A returned process goes at once to a pool with at least two fewer in use. It goes to a
//!           pool with none in use if [`EXCHANGE_AFTER`] has passed since the process started and since that pool's
//!           waiter began to wait, unless its own pool has an older waiter, which it then serves first. So an exchange
//!           is worth the start that it costs.
//! CALLED    By [`Pools::handle`], and before a process is opened.
//! SOURCE    None: CouchDB has a limit for each language, Postfix one for each service and none for
//!           all (`default_process_limit` is a default).
//! LIMITS    Costs two comparisons until the ceiling is reached. From then on, granting or freeing a place scans all
//!           pools.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Due, Ledger, Pool, PoolId, Pools, ProcId, RequestId, StopReason, Turn};
use crate::time::Timestamp;

/// How long a process stays with its pool, after its start and while idle, although another pool has a waiter. About
/// the duration of a start, so at least half of the time goes into calls; and longer than a client's pause between
/// two calls, so its process is not stopped during one.
pub(crate) const EXCHANGE_AFTER: Duration = Duration::from_millis(50);

/// The places of all pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ceiling {
    /// Their number; `None`: no limit.
    pub max: Option<u32>,
    /// Processes and openings.
    pub live: u32,
    /// Stopping processes.
    pub ending: u32,
    /// Pools whose next waiter needs a place.
    pub needy: BTreeMap<PoolId, Need>,
    /// Pools that keep fewer processes in advance than configured, for lack of places.
    pub short: BTreeSet<PoolId>,
    /// The pool that may take the next place.
    pub granted: Option<PoolId>,
    /// Places granted so far.
    grants: u64,
    /// Whether no place was free after the latest event.
    was_full: bool,
    /// When the next idle process may be stopped, while a waiter needs its place.
    pub wake: Option<Timestamp>,
}

/// A pool's need for places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The next waiter.
    head: RequestId,
    /// The later of its arrival and the time when its pool last served a request.
    since: Timestamp,
    /// Number of waiters that need freed places. 0: the next one waits for a process of its own database, and takes
    /// only a free place.
    places: u32,
    /// The pool's processes in use or being opened.
    busy: u32,
}

impl Ceiling {
    pub fn has_room(&self) -> bool {
        self.max.is_none_or(|max| self.live + self.ending < max)
    }

    /// Whether a pool may take a place: one is free, and no other pool is first.
    pub fn may_open(&self, pool: PoolId) -> bool {
        self.has_room() && (self.needy.is_empty() || self.granted == Some(pool))
    }

    /// Whether the ceiling was lowered below the number of taken places.
    pub fn is_over(&self) -> bool {
        self.max.is_some_and(|max| self.live > max)
    }

    pub fn opened(&mut self, pool: PoolId) {
        debug_assert!(self.has_room(), "PM-23: nothing is opened at the ceiling");
        self.live += 1;
        self.granted.take_if(|granted| *granted == pool);
    }

    /// Removes a pool.
    pub fn forget(&mut self, pool: PoolId) {
        self.needy.remove(&pool);
        self.short.remove(&pool);
    }

    /// The number of places that still have to be freed for waiters, beyond those being freed.
    pub fn unmet(&self) -> u32 {
        let places: u32 = self.needy.values().map(|need| need.places).sum();
        places.saturating_sub(self.ending)
    }

    /// The number of pools that need a place and have no process in use, less the places being freed.
    fn starving(&self) -> u32 {
        let needs = self.needy.values();
        let starving = needs.filter(|need| need.busy == 0 && need.places > 0);
        (starving.count() as u32).saturating_sub(self.ending)
    }

    /// The pool that gets the next place.
    fn next(&mut self) -> Option<PoolId> {
        let by_use = self.grants.is_multiple_of(2);
        let next = self.needy.iter().min_by_key(|(_, need)| {
            let busy = if by_use { need.busy } else { 0 };
            (busy, need.since, need.head)
        });
        let next = next.map(|(pool, _)| *pool);
        self.grants += u64::from(next.is_some());
        next.or_else(|| self.short.pop_first())
    }
}

impl Pools {
    /// Grants free places, and frees places for waiters that need one.
    pub(super) fn share(&mut self) {
        let mut wake = None;
        let ceiling = &self.ledger.ceiling;
        let is_quiet = ceiling.needy.is_empty() && ceiling.short.is_empty() && !ceiling.is_over();
        if !(is_quiet || self.ledger.shutting_down) {
            while self.ledger.ceiling.has_room()
                && let Some(pool) = self.ledger.ceiling.next()
            {
                self.ledger.ceiling.granted = Some(pool);
                self.on_pool(pool, |_| {});
                self.ledger.ceiling.granted = None;
            }
            wake = self.make_places();
        }
        self.ledger.set_places_timer(wake);
        if std::mem::take(&mut self.ledger.ceiling.was_full) && self.ledger.ceiling.has_room() {
            // A place is free again: another pool may serve the waiters of a full one.
            for index in 0..self.pools.len() {
                if self.ledger.roaming.is_empty() || !self.ledger.ceiling.has_room() {
                    break;
                }
                self.take_over(PoolId(index as u32));
            }
        }
        self.ledger.ceiling.was_full = !self.ledger.ceiling.has_room();
    }

    /// Stops idle processes beyond a lowered ceiling, and for waiters that need a place. Returns when the next one may
    /// be stopped for a waiter.
    fn make_places(&mut self) -> Option<Timestamp> {
        while self.ledger.ceiling.is_over()
            && let Some((_, proc)) = self.longest_unused(true, Duration::ZERO)
        {
            self.on_pool(proc.pool, |turn| {
                turn.stop(proc.number, StopReason::OverLimit);
            });
        }
        while !self.ledger.ceiling.has_room()
            && self.ledger.ceiling.unmet() > 0
            && let all = self.ledger.ceiling.starving() > 0
            && let Some((from, proc)) = self.longest_unused(all, EXCHANGE_AFTER)
        {
            if from > self.ledger.now {
                return Some(from);
            }
            self.on_pool(proc.pool, |turn| {
                turn.stop(proc.number, StopReason::Reaped);
            });
        }
        None
    }

    /// The idle process that may be stopped first, and from when: once it has been idle for `stay`, or at once if its
    /// own pool needs a place. Among those that may be stopped now, prefers one that its pool does not keep in advance,
    /// then the one idle longest. Processes kept in advance are candidates only if `all`.
    fn longest_unused(&self, all: bool, stay: Duration) -> Option<(Timestamp, ProcId)> {
        let Ledger { ceiling, now, .. } = &self.ledger;
        let pools = (0..).map(PoolId).zip(&self.pools);
        let candidates = pools.filter_map(|(pool, row)| {
            let is_kept = row.surplus() == 0;
            let (number, since) = row.longest_idle()?;
            let need = ceiling.needy.get(&pool);
            let from = if need.is_some_and(|need| need.places > 0) {
                *now
            } else {
                since + stay
            };
            let proc = ProcId { pool, number };
            (all || !is_kept).then_some((from.max(*now), is_kept, since, proc))
        });
        let first = candidates.min();
        first.map(|(from, _, _, proc)| (from, proc))
    }
}

impl Ledger {
    /// Sets the timer for the next idle process that may be stopped.
    pub fn set_places_timer(&mut self, next: Option<Timestamp>) {
        Due::Places.set(&mut self.ceiling.wake, next, &mut self.due);
    }
}

impl Turn<'_> {
    /// Whether another process may be opened.
    pub fn may_open(&self) -> bool {
        self.pool.may_open(self.ledger.now) && self.ledger.ceiling.may_open(self.id)
    }

    /// Records that the next waiter needs a place and none is free. `waits`: its affinity wait goes on. `is_for_db`: a
    /// process of its own database is in use, so only one process is exchanged for it.
    pub fn note_need(&mut self, head: RequestId, waits: bool, is_for_db: bool) {
        let settings = &self.pool.settings;
        let one_by_one = is_for_db || settings.interactive_reserved > 0;
        let free = settings.limits.hard_limit.saturating_sub(self.pool.count());
        let places = match (waits, one_by_one) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => free.min(self.pool.waiters.open as u32),
        };
        let arrived = self.ledger.request(head).map(|row| row.arrived);
        let need = Need {
            head,
            since: self.pool.waits_since(arrived.unwrap_or(self.ledger.now)),
            places,
            busy: self.pool.busy(),
        };
        self.ledger.ceiling.needy.insert(self.id, need);
    }

    /// Whether a transitioning process goes to another pool: one with at least two fewer in use, or one with none in
    /// use and an older waiter, once that is worth a start.
    pub fn yields(&self, number: u64) -> bool {
        let Ledger { ceiling, now, .. } = &*self.ledger;
        if ceiling.needy.is_empty() {
            return false;
        }
        let born = self.pool.procs.get(&number).map_or(*now, |proc| proc.born);
        let busy = self.pool.busy();
        let own = self.pool.next_waiter();
        let own = own.and_then(|own| self.ledger.request(own));
        if own.is_none() && !self.pool.is_spare() {
            return false;
        }
        let own = own.map_or(*now, |own| self.pool.waits_since(own.arrived));
        let deserves = |need: &Need| {
            let worth_from = born.max(need.since) + EXCHANGE_AFTER;
            let is_its_turn = need.busy == 0 && need.since < own && worth_from <= *now;
            need.places > 0 && (need.busy + 1 < busy || is_its_turn)
        };
        let needy = ceiling.needy.iter();
        let deserving = needy.filter(|(pool, need)| **pool != self.id && deserves(need));
        // That many pools already get the places of stopping processes.
        deserving.count() as u32 > ceiling.ending
    }
}

impl Pool {
    /// Processes in use or being opened.
    fn busy(&self) -> u32 {
        self.count().saturating_sub(self.idle.len() as u32)
    }

    /// The later of a waiter's arrival and the time when its pool last served a request.
    fn waits_since(&self, arrived: Timestamp) -> Timestamp {
        arrived.max(self.last_served)
    }
}
