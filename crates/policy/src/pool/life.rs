//! A pool's state besides its tables: the lifetime of its processes, whether it may open any, and whether it is
//! being removed.
//!
//! SUMMARY   [`Life`], and decisions from it and the tables.
//! CALLED    By the handlers of one pool's events, and by their checks.
//! SOURCE    Postfix master (throttle, stress); pooler (culling, age).

use std::collections::BTreeSet;

use super::random::mix;
use super::{
    Lane, Ledger, Pool, PoolKind, Proc, Recycle, RemoveMode, RequestRow, Reuse, StopReason,
};
use crate::admission::{Snapshot, Throttle};
use crate::time::{Timestamp, Until};

/// The state of one pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// Until when failed starts prevent openings.
    pub throttle: Throttle,
    /// Whether processes are started with stress on.
    pub stress: Until,
    /// Processes up to this number began to open before the latest change of settings that replaces processes: they
    /// are treated as stale.
    pub renewed_up_to: u64,
    /// The mode of its removal, if it is being removed.
    pub removing: Option<RemoveMode>,
    /// Whether it is gone: its id waits to be reused.
    pub gone: bool,
    /// (end of life, number) of the processes not found too old yet; ordered by time.
    pub ages: BTreeSet<(Timestamp, u64)>,
    /// Processes that were idle when stress began and are not replaced yet.
    pub refresh: BTreeSet<u64>,
    /// Openings up to this number began before the latest successful start, or before the throttle was lifted: their
    /// failure does not implicate the current command.
    pub excused_up_to: u64,
    /// Processes up to this number began to open before the throttle was last lifted: their early end does not
    /// implicate the current command either.
    pub forgiven_up_to: u64,
    /// When idle processes were last culled.
    pub last_cull: Timestamp,
    /// Until when nothing is opened in the background, after a failure that does not throttle.
    pub pause: Until,
    /// The size to restore after processes were stopped to be replaced.
    pub restore_to: u32,
    /// Whether idle processes must be stopped once fewer are stopping.
    pub deferred: bool,
    /// Whether something that waiters may have waited for is gone.
    pub shrunk: bool,
    /// The next deadline.
    pub wake: Option<Timestamp>,
}

impl Pool {
    /// How many stopping processes keep their slots: those beyond one reap batch.
    pub fn overdue(&self) -> u32 {
        if self.stopping.is_empty() || self.settings.kind == PoolKind::Language {
            return 0;
        }
        let batch = self.settings.limits.reap_batch();
        (self.stopping.len() as u32).saturating_sub(batch)
    }

    /// Whether the limit allows one more.
    pub fn has_slot(&self) -> bool {
        self.count() + self.overdue() < self.settings.limits.hard_limit
    }

    /// Whether the queue has reached its limit.
    pub fn queue_is_full(&self) -> bool {
        let most = self.settings.queue_max;
        most.is_some_and(|most| self.waiters.counted >= most as usize)
    }

    /// Whether openings are prevented, for reasons other than the limit.
    pub fn is_blocked(&self, now: Timestamp) -> bool {
        self.life.removing.is_some() || self.life.throttle.until.is_on(now)
    }

    /// Whether one more may be opened.
    pub fn may_open(&self, now: Timestamp) -> bool {
        self.has_slot() && !self.is_blocked(now)
    }

    /// Whether a request of this lane may get a process: the bulk lane leaves some to the other.
    pub fn is_open_to(&self, lane: Lane) -> bool {
        lane == Lane::Interactive || self.unreserved() != Some(0)
    }

    /// How many more processes the bulk lane may get; `None`: any number.
    fn unreserved(&self) -> Option<u32> {
        let reserved = self.settings.interactive_reserved;
        let bulk_max = self.settings.limits.hard_limit.saturating_sub(reserved);
        (reserved > 0).then(|| bulk_max.max(1).saturating_sub(self.bulk))
    }

    /// Whether an idle process can serve this request at once.
    pub fn can_lend(&self, request: &RequestRow, now: Timestamp) -> bool {
        let is_bulk_only = request.lane == Lane::Interactive && self.waiters.is_second_lane_only();
        let is_next = self.waiters.open == 0 || is_bulk_only;
        self.is_open_to(request.lane)
            && if is_next {
                self.choose(request).is_some()
            } else {
                let may_overtake = self.head_until.is_some() || self.is_blocked(now);
                may_overtake && self.choose_own(request).is_some()
            }
    }

    /// The idle process to make forget its tenant for another: the least recently used one. `None` if processes cannot
    /// forget.
    pub fn forgetful(&self) -> Option<u64> {
        self.settings
            .serves_any()
            .then(|| self.idle.oldest_used())
            .flatten()
    }

    /// Whether an idle process can forget its tenant for this request at once.
    pub fn can_forget_for(&self, request: &RequestRow) -> bool {
        let tenant = self.settings.wanted(request).tenant();
        // It would wait for its tenant's process in use.
        let waits = tenant.is_some_and(|tenant| self.idle.in_use(tenant) > 0);
        self.forgetful().is_some()
            && self.is_open_to(request.lane)
            && self.waiters.open == 0
            && !waits
    }

    /// Whether one may be opened for this request, if no other request precedes it.
    pub fn can_open_for(&self, request: &RequestRow, now: Timestamp) -> bool {
        self.is_open_to(request.lane) && self.may_open(now)
    }

    /// Whether the throttle makes waiting useless for this request: no existing process can serve it, and no retry is
    /// due before its deadline.
    pub fn is_hopeless(&self, request: &RequestRow, now: Timestamp) -> bool {
        self.life.throttle.until.is_on(now)
            && !self.could_serve(request)
            && !self.tries_for(request)
    }

    /// Whether openings are retried before this request's deadline.
    pub fn tries_for(&self, request: &RequestRow) -> bool {
        let until = self.life.throttle.until.0;
        until.is_some_and(|until| until < request.deadline)
    }

    /// Whether a process that exists or is being opened can serve this request eventually.
    pub fn could_serve(&self, request: &RequestRow) -> bool {
        let fits = if self.settings.serves_any() || self.lends_any_to(request) {
            !self.procs.is_empty()
        } else {
            self.idle.has_member(self.settings.wanted(request).tag())
        };
        fits || !self.opening.is_empty()
    }

    /// Whether this process began to open before the last reload, or a change of settings that replaces processes.
    pub const fn is_stale(&self, number: u64, ledger: &Ledger) -> bool {
        number <= ledger.threshold || number <= self.life.renewed_up_to
    }

    /// When this process becomes too old. Its number determines the jitter, so that the ends are spread out.
    pub fn end_of_life(&self, number: u64, proc: &Proc) -> Option<Timestamp> {
        let recycle = &self.settings.recycle;
        let age = recycle.max_age?;
        let jitter = f64::from(recycle.jitter_percent.min(100)) / 100.0;
        let fraction = mix(number) as f64 / u64::MAX as f64;
        Some(proc.born + age.mul_f64(1.0 - jitter * fraction))
    }

    /// Why to recycle a process, if it has served long enough.
    pub fn worn_out(&self, number: u64, now: Timestamp) -> Option<StopReason> {
        let recycle = &self.settings.recycle;
        if *recycle == Recycle::default() {
            return None;
        }
        let proc = self.procs.get(&number)?;
        if recycle.max_uses.is_some_and(|max| proc.uses >= max) {
            Some(StopReason::Uses)
        } else if self.end_of_life(number, proc).is_some_and(|end| end <= now) {
            Some(StopReason::Age)
        } else {
            let memory = recycle.memory_soft.zip(proc.memory);
            memory.and_then(|(soft, memory)| (memory >= soft).then_some(StopReason::Memory))
        }
    }

    /// Recomputes when each process becomes too old.
    pub fn rebuild_ages(&mut self) {
        let procs = self.procs.iter();
        let ends =
            procs.filter_map(|(&number, proc)| Some((self.end_of_life(number, proc)?, number)));
        self.life.ages = ends.collect();
    }

    /// How many idle processes may be stopped now: one reap batch stops at a time.
    pub fn batch_left(&self) -> usize {
        let batch = self.settings.limits.reap_batch() as usize;
        batch.saturating_sub(self.stopping.len())
    }

    /// The number of idle processes beyond `init_size` and `min_free`.
    pub fn surplus(&self) -> u32 {
        let above_size = self.count().saturating_sub(self.settings.init_size);
        above_size.min(self.claimed() + self.surplus_free())
    }

    /// Whether one more free process would be surplus.
    pub fn is_spare(&self) -> bool {
        self.count() > self.settings.init_size && self.free() >= self.settings.min_free
    }

    /// How many are missing for `init_size` and `min_free`.
    pub fn missing(&self) -> u32 {
        let below_size = self.settings.init_size.saturating_sub(self.count());
        below_size.max(self.settings.min_free.saturating_sub(self.free()))
    }

    /// How many free processes exceed `min_free`.
    pub fn surplus_free(&self) -> u32 {
        self.free().saturating_sub(self.settings.min_free)
    }

    /// How many are idle or being opened, for any tenant.
    fn free(&self) -> u32 {
        (self.idle.len() + self.opening.len()) as u32 - self.claimed()
    }

    /// How many idle processes serve only their tenants. One that can forget its tenant does not count.
    fn claimed(&self) -> u32 {
        match self.settings.reuse {
            Reuse::Database if !self.settings.can_forget => self.idle.tagged_len() as u32,
            Reuse::Database | Reuse::Any | Reuse::Isolates => 0,
        }
    }

    /// The input of admission; `stopping`: how many stopping processes count.
    pub fn snapshot(&self, now: Timestamp, stopping: u32) -> Snapshot {
        Snapshot {
            avail: self.idle.len() as u32,
            opening: self.opening.len() as u32,
            total: self.count() + stopping,
            max: self.settings.limits.hard_limit,
            unreserved: self.unreserved(),
            claims: self.waiters.open as u32,
            throttled: self.is_blocked(now),
        }
    }
}
