//! What a pool does when starts fail, and when it runs into its limit.
//!
//! SUMMARY   The throttle: whom it refuses, who may go on waiting, how it ends. Stress: when it
//!           begins. The assertion of what admission promised before every opening.
//! PROMISES  While a pool is throttled nothing is opened, and nobody waits for a process that cannot
//!           come: whoever no process that is there can serve is refused at once.
//! CALLED    By the handlers of one pool's events.
//! SOURCE    Postfix master: master_throttle, master_avail's stress, master_spawn's assertions.
//! DIFFERS   There every request waits in the kernel while a service is throttled; here it gets its
//!           error, with the time of the next try.

use super::action::{Action, Refusal, StopReason, Warning};
use super::id::{Affinity, RequestId};
use super::ledger::Request;
use super::select::choose;
use super::tables::ProcState;
use super::turn::Turn;
use super::upkeep::BACKGROUND_PAUSE;
use crate::admission::{Need, StressEntry, is_pressed, may_spawn};

impl Turn<'_> {
    /// A process could not be started. That throttles the pool, unless another start succeeded
    /// while this one was under way: many that start at once may be slow, and the command is right.
    pub(super) fn start_failed(&mut self, number: u64) {
        if self.pool.life.removing.is_some() || self.ledger.shutting_down {
            return;
        }
        let now = self.ledger.now;
        let excused = number < self.pool.life.excused_below;
        let Some(settings) = self.pool.settings.throttle.filter(|_| !excused) else {
            return self.pause_background();
        };
        if let Some(until) = self.pool.life.throttle.failed(now, &settings) {
            self.pool.life.shrunk = true;
            let pool = self.id;
            self.out
                .push(Action::Warn(Warning::Throttled { pool, until }));
        }
    }

    /// Opens nothing in the background for a moment. Requests try at once, each on its own account.
    pub(super) fn pause_background(&mut self) {
        let until = self.ledger.now + BACKGROUND_PAUSE;
        self.pool.life.pause = self.pool.upkeep.then_some(until);
    }

    /// A process has started.
    pub(super) fn start_succeeded(&mut self) {
        self.pool.life.excused_below = self.ledger.next_number;
        self.pool.life.throttle.succeeded();
    }

    /// An operator, or a reload, ends the throttle. What began before may be of a command that was
    /// corrected since.
    pub(super) fn unthrottle(&mut self) {
        self.pool.life.excused_below = self.ledger.next_number;
        if self.pool.life.throttle.lift(self.ledger.now) {
            self.out
                .push(Action::Warn(Warning::Unthrottled { pool: self.id }));
        }
    }

    /// Why a request cannot even wait, if that is so.
    pub(super) fn hopeless(&self, wanted: Option<&Affinity>) -> Option<Refusal> {
        let until = self.pool.life.throttle.until()?;
        let on = self.pool.life.throttle.is_on(self.ledger.now);
        (on && !self.pool.could_serve(wanted)).then_some(Refusal::Throttled { until })
    }

    /// Refuses the waiters whom nothing that is left can serve, in the order of the queue.
    pub(super) fn refuse_hopeless(&mut self) {
        self.pool.life.shrunk = false;
        if !self.pool.life.throttle.is_on(self.ledger.now) {
            return;
        }
        let waiters: Vec<RequestId> = self.pool.waiters.iter().collect();
        for id in waiters {
            let row = self.ledger.request(id);
            let why = row.and_then(|row| self.hopeless(row.affinity.as_ref()));
            if let Some(why) = why {
                self.refuse(id, why);
            }
        }
    }

    /// A request came that no idle process can serve: under stress, if one process more would reach
    /// the limit.
    pub(super) fn press(&mut self, request: &Request) {
        let now = self.ledger.now;
        let stopping = self.pool.stopping.len() as u32;
        if !self.pool.settings.stress
            || choose(&self.pool.idle, request.affinity.as_ref()).is_some()
            || !is_pressed(&self.pool.snapshot(now, stopping))
        {
            return;
        }
        if self.pool.life.stress.pressed(now) == StressEntry::Began {
            self.out
                .push(Action::Warn(Warning::Stressed { pool: self.id }));
            let procs = self.pool.procs.iter();
            let idle = procs.filter(|(_, proc)| proc.state == ProcState::Idle);
            self.pool.life.refresh = idle.map(|(number, _)| *number).collect();
            self.thin_out();
        }
    }

    /// Asserts before an opening what admission promised: nothing that is there could serve the
    /// request, the limit is not reached, and nothing forbids it. A violation is a mistake of
    /// ours: development builds stop on it, others open nothing and say so.
    pub(super) fn admitted(&mut self, request: Option<RequestId>) -> bool {
        let overdue = self.pool.overdue();
        let snapshot = self.pool.snapshot(self.ledger.now, overdue);
        let wanted = request.and_then(|id| self.ledger.request(id));
        let need = wanted.map_or(Need::Reserve, |row| Need::Request {
            suitable: u32::from(choose(&self.pool.idle, row.affinity.as_ref()).is_some()),
        });
        let verdict = may_spawn(&snapshot, need);
        debug_assert_eq!(verdict, Ok(()), "what is opened is admitted");
        if let Err(why) = verdict {
            let pool = self.id;
            self.out
                .push(Action::Warn(Warning::SpawnRefused { pool, why }));
        }
        verdict.is_ok()
    }

    /// Stops a process and remembers that another has to take its place.
    pub(super) fn replace(&mut self, number: u64, why: StopReason) {
        let before = self.pool.count;
        self.stop(number, why);
        let life = &mut self.pool.life;
        life.restore_to = life.restore_to.max(before);
    }
}
