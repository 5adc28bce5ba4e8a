//! A pool's reaction to failed starts, and to reaching its limit.
//!
//! SUMMARY   The throttle: which requests it refuses, which may wait, how it ends. Stress: when it begins. The check
//!           of admission's rules before every opening.
//! PROMISES  While a pool is throttled nothing is opened. A request that no process of the pool can serve waits for
//!           the next try if its deadline allows. Otherwise another pool of its group serves it, or it is refused.
//! CALLED    By the handlers of one pool's events.
//! SOURCE    Postfix master: master_throttle, master_avail's stress, master_spawn's assertions.
//! DIFFERS   There the first failure throttles, and every request waits in the kernel meanwhile; here a request with
//!           an earlier deadline gets an error with the time of the next try.

use super::upkeep::BACKGROUND_PAUSE;
use super::{PoolAction, Refusal, RequestId, RequestRow, StopReason, Turn, Warning};
use crate::admission::{Failure, STRESS_DURATION, may_spawn};

impl Turn<'_> {
    /// A process could not be started, or ended soon after its start, before any work. Several failures in a row throttle
    /// the pool; one that is excused does not count.
    pub fn failed(&mut self, failure: Failure, excused: bool) {
        if self.pool.life.removing.is_some() || self.ledger.shutting_down {
            return;
        }
        let now = self.ledger.now;
        let is_evident = !excused && self.pool.life.throttle.failed(now, failure);
        match self.pool.settings.throttle.filter(|_| is_evident) {
            Some(settings) => {
                let until = self.pool.life.throttle.begin(now, &settings);
                self.pool.life.shrunk = true;
                self.warn(Warning::Throttled { until });
            }
            None => {
                if is_evident && failure == Failure::EarlyEnd {
                    self.warn(Warning::EndsEarly);
                }
                self.pause_background();
            }
        }
    }

    /// Pauses background openings for a moment. Requests still open processes at once.
    pub fn pause_background(&mut self) {
        let until = self.ledger.now + BACKGROUND_PAUSE;
        self.pool.life.pause.0 = self.pool.settings.needs_upkeep().then_some(until);
    }

    /// An operator or a reload lifts the throttle. Earlier starts may be of a command that has been corrected since.
    pub fn unthrottle(&mut self) {
        self.pool.life.excused_up_to = self.ledger.last_number;
        self.pool.life.forgiven_up_to = self.ledger.last_number;
        if self.pool.life.throttle.lift(self.ledger.now) {
            self.warn(Warning::Unthrottled);
        }
    }

    /// Returns why a request cannot even wait; `None` if it can.
    pub fn hopeless(&self, request: &RequestRow) -> Option<Refusal> {
        let until = self.pool.life.throttle.until.0?;
        let is_hopeless = self.pool.is_hopeless(request, self.ledger.now);
        is_hopeless.then_some(Refusal::Throttled { until })
    }

    /// Gives up the waiters that no process of the pool can serve before their deadline, in the order of the queue.
    pub fn displace_hopeless(&mut self) {
        self.pool.life.shrunk = false;
        if !self.pool.life.throttle.until.is_on(self.ledger.now) {
            return;
        }
        let waiters: Vec<RequestId> = self.pool.waiters.iter().collect();
        for id in waiters {
            let row = self.ledger.request(id);
            if let Some(why) = row.and_then(|row| self.hopeless(row))
                && let Some(row) = self.withdraw(id)
            {
                self.ledger.displaced.push((id, row, why));
            }
        }
    }

    /// Records a request that no idle process can serve: the pool is under stress if one more process would reach the
    /// limit.
    pub fn note_stress(&mut self, request: &RequestRow) {
        let now = self.ledger.now;
        let stopping = self.pool.stopping.len() as u32;
        if !self.pool.settings.stress
            || self.pool.choose(request).is_some()
            || !self.pool.snapshot(now, stopping).is_near_limit()
        {
            return;
        }
        if self.pool.life.stress.extend(now, STRESS_DURATION) {
            self.warn(Warning::Stressed);
            let procs = self.pool.procs.iter();
            let idle = procs.filter(|(_, proc)| proc.is_idle());
            self.pool.life.refresh = idle.map(|(number, _)| *number).collect();
            self.cull_idle();
        }
    }

    /// Checks admission's rules before an opening: no idle process could serve the request, the limit
    /// is not reached, and the pool is not throttled. A violation is a bug: development builds
    /// panic, others warn and open nothing.
    pub fn admitted(&mut self, request: Option<RequestId>) -> bool {
        let overdue = self.pool.overdue();
        let snapshot = self.pool.snapshot(self.ledger.now, overdue);
        let row = request.and_then(|id| self.ledger.request(id));
        let is_served = row.is_some_and(|row| self.pool.choose(row).is_some());
        let verdict = may_spawn(&snapshot, is_served);
        debug_assert_eq!(verdict, Ok(()), "an opening is admitted");
        if let Err(why) = verdict {
            self.warn(Warning::SpawnRefused(why));
        }
        verdict.is_ok()
    }

    pub fn warn(&mut self, warning: Warning) {
        self.out.push(PoolAction::Warn(self.id, warning));
    }

    /// Stops a process, and records that another must replace it.
    pub fn replace(&mut self, number: u64, why: StopReason) {
        let before = self.pool.count();
        self.stop(number, why);
        let life = &mut self.pool.life;
        life.restore_to = life.restore_to.max(before);
    }
}
