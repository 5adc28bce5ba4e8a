//! Maintains a pool's size: opens in the background, culls, recycles by age.
//!
//! SUMMARY   A pool's work without a request: at the end of an event, on a timer, and when a stopping process has
//!           ended.
//! PROMISES  Idle processes are stopped one reap batch at a time. There is one timer for each pool, set only if there
//!           is pending work. A pool without settings that need upkeep pays only for this check.
//! CALLED    By the flush that ends every event, and by the clock.
//! SOURCE    pidq (init_size, min_free); pooler (cull_interval, max_age); Postfix master (idle children are replaced
//!           when stress begins).

use std::time::Duration;

use super::{Cull, Due, Pool, Proc, Reuse, StopReason, Turn, Warning};
use crate::time::Timestamp;

/// How long a pool waits before it opens another process in the background, after a failed start that does not
/// throttle it, or after a process that ended unused.
pub(super) const BACKGROUND_PAUSE: Duration = Duration::from_secs(1);

impl Turn<'_> {
    /// Opens missing processes, and sets the timer.
    pub fn end_upkeep(&mut self) {
        self.top_up();
        // A timer that fires too early checks again, which is cheaper than moving it with each loan.
        if let Some(at) = self.next_wake()
            && self.pool.life.wake.is_none_or(|wake| at < wake)
        {
            self.set_timer(Some(at));
        }
    }

    /// The timer has fired: ends throttle, stress and pause if they are over, then stops idle processes.
    pub fn woken(&mut self) {
        self.set_timer(None);
        let now = self.ledger.now;
        if self.pool.life.throttle.until.expire(now) {
            self.warn(Warning::Unthrottled);
        }
        if self.pool.life.stress.expire(now) {
            self.warn(Warning::Unstressed);
        }
        self.pool.life.pause.expire(now);
        self.cull_idle();
    }

    /// Stops idle processes that are too old, were started without stress, or are surplus, until a batch is full.
    pub fn cull_idle(&mut self) {
        self.pool.life.deferred = false;
        self.stop_aged();
        self.stop_unstressed();
        self.stop_surplus();
    }

    /// Opens processes in the background while there are too few.
    fn top_up(&mut self) {
        let restore_to = self.pool.life.restore_to;
        let now = self.ledger.now;
        if self.ledger.shutting_down || self.pool.life.pause.is_on(now) {
            self.pool.life.restore_to = 0;
            return;
        }
        let below = |pool: &Pool| pool.count() < restore_to || pool.missing() > 0;
        while below(self.pool) && self.may_open() && self.open(None) {}
        let is_short = below(self.pool) && self.pool.may_open(now);
        let short = &mut self.ledger.ceiling.short;
        // An opening that waits for a stopping process's slot, or for a place, is made once the slot or place is free.
        if is_short {
            short.insert(self.id);
            return;
        }
        short.remove(&self.id);
        if self.pool.overdue() == 0 || self.pool.count() >= restore_to {
            self.pool.life.restore_to = 0;
        }
    }

    fn stop_aged(&mut self) {
        while let Some(&(at, number)) = self.pool.life.ages.first() {
            if at > self.ledger.now {
                break;
            }
            if !self.is_idle(number) {
                // It is stopped when it is returned.
                self.pool.life.ages.pop_first();
            } else if self.pool.batch_left() > 0 {
                self.stop(number, StopReason::Age);
            } else {
                self.pool.life.deferred = true;
                break;
            }
        }
    }

    fn stop_unstressed(&mut self) {
        while let Some(&number) = self.pool.life.refresh.first() {
            if !self.is_idle(number) {
                // Busy processes are not interrupted.
                self.pool.life.refresh.pop_first();
            } else if self.pool.batch_left() > 0 {
                self.pool.life.refresh.pop_first();
                self.replace(number, StopReason::Stress);
            } else {
                self.pool.life.deferred = true;
                break;
            }
        }
    }

    fn stop_surplus(&mut self) {
        let Some(cull) = self.pool.settings.cull else {
            return;
        };
        if self
            .pool
            .cull_at(&cull)
            .is_none_or(|at| at > self.ledger.now)
        {
            return;
        }
        let batch = self.pool.batch_left();
        if batch == 0 {
            self.pool.life.deferred = true;
            return;
        }
        self.pool.life.last_cull = self.ledger.now;
        for _ in 0..batch.min(self.pool.surplus() as usize) {
            let Some((number, since)) = self.pool.longest_idle() else {
                break;
            };
            if since + cull.after > self.ledger.now {
                break;
            }
            self.stop(number, StopReason::Culled);
        }
    }

    /// The time of the next due work, except work that waits for a batch.
    fn next_wake(&self) -> Option<Timestamp> {
        let life = &self.pool.life;
        let age = life.ages.first().map(|(at, _)| *at);
        let cull = self.pool.settings.cull;
        let cull = cull.and_then(|cull| self.pool.cull_at(&cull));
        let times = [age, cull].into_iter().flatten();
        // Overdue work is due at once, unless a full batch is stopping: the end of one of its processes resumes it.
        times
            .filter(|at| *at > self.ledger.now || !life.deferred)
            .chain(life.throttle.until.0)
            .chain(life.stress.0)
            .chain(life.pause.0)
            .min()
    }

    /// Sets the timer of the pool's upkeep; `None` turns it off.
    pub fn set_timer(&mut self, at: Option<Timestamp>) {
        Due::Pool(self.id).set(&mut self.pool.life.wake, at, &mut self.ledger.due);
    }

    fn is_idle(&self, number: u64) -> bool {
        self.pool.procs.get(&number).is_some_and(Proc::is_idle)
    }
}

impl Pool {
    /// The next time at which idle processes may be culled, if nothing changes.
    fn cull_at(&self, cull: &Cull) -> Option<Timestamp> {
        if self.surplus() == 0 {
            return None;
        }
        let (_, since) = self.longest_idle()?;
        Some((since + cull.after).max(self.life.last_cull + cull.interval))
    }

    /// The process that has been idle for longest, and since when. In a pool of unshared processes, one without a
    /// tenant is chosen only if more than `min_free` are free, or if none with a tenant is idle.
    pub fn longest_idle(&self) -> Option<(u64, Timestamp)> {
        let tagged = self.idle.unused_longest();
        let keeps_untagged = self.settings.reuse == Reuse::Database && self.surplus_free() == 0;
        let untagged = self
            .idle
            .oldest_untagged()
            .filter(|_| !(keeps_untagged && tagged.is_some()));
        let candidates = [tagged, untagged].into_iter().flatten();
        let since = |number| (number, self.procs[&number].last_use);
        candidates
            .map(since)
            .min_by_key(|(number, since)| (*since, *number))
    }
}
