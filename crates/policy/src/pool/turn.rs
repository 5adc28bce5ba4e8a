//! One event on one pool: its changes, before waiters are flushed.
//!
//! SUMMARY   [`Turn`], and the handlers of events of processes: `spawn_ok`, `spawn_error`, `EXIT`, `os_proc_idle`,
//!           the end of teaching; and of reload and shutdown.
//! PROMISES  When a handler ends, a process removed from one table is in another, unless it has exited.
//! CALLED    By [`super::Pools::handle`], which flushes afterwards.
//! SOURCE    couch_proc_manager 001: handle_call, handle_cast, handle_info, remove_proc.

use std::time::Duration;

use super::tables::known;
use super::{
    Ledger, Pool, PoolAction, PoolId, Proc, ProcId, ProcState, Refusal, StopReason, Tenant,
};
use crate::admission::{EARLY_END, Failure};

/// A pool, and the parts that it shares with others, while it handles one event.
pub(super) struct Turn<'a> {
    pub id: PoolId,
    pub pool: &'a mut Pool,
    pub ledger: &'a mut Ledger,
    pub out: &'a mut Vec<PoolAction>,
}

impl Turn<'_> {
    pub const fn proc_id(&self, number: u64) -> ProcId {
        ProcId {
            pool: self.id,
            number,
        }
    }

    /// `spawn_ok`: the process goes to its request, or becomes idle if that has ended. At shutdown, and in a pool being
    /// removed, it is stopped.
    pub fn spawn_ok(&mut self, number: u64) {
        let Some(opening) = self.pool.finish_opening(number, self.ledger.now) else {
            return;
        };
        self.pool.totals.started += 1;
        self.pool.life.excused_up_to = self.ledger.last_number;
        self.pool.life.throttle.succeeded();
        match opening.request {
            _ if self.ledger.shutting_down => self.stop(number, StopReason::Shutdown),
            _ if self.pool.life.removing.is_some() => self.stop(number, StopReason::Removed),
            Some(request) => self.hand_over(request, number),
            None => self.settle(number),
        }
    }

    /// `spawn_error` and every other failed opening: the slot is free again (PM-7), its request is refused, and the
    /// failure counts toward throttling.
    pub fn spawn_error(&mut self, number: u64, failure: Failure) {
        let Some(opening) = self.pool.fail_opening(number) else {
            return;
        };
        self.ledger.ceiling.live -= 1;
        self.pool.totals.start_failures += 1;
        if let Some(request) = opening.request {
            self.refuse(request, Refusal::SpawnFailed);
        }
        // One does not count if another start succeeded meanwhile: many simultaneous starts may be slow although the
        // command is right.
        self.failed(failure, number <= self.pool.life.excused_up_to);
    }

    /// Teaching, resetting or forgetting ended.
    pub fn teach_or_reset_done(&mut self, number: u64, ok: bool) {
        let Some(proc) = self.pool.procs.get(&number) else {
            return;
        };
        match proc.state.clone() {
            ProcState::Teaching { request, ddoc } if ok => {
                self.pool.take_busy(number);
                self.pool.learn(number, ddoc);
                match request {
                    Some(request) => self.answer(request, number),
                    None => self.settle(number),
                }
            }
            state @ ProcState::Teaching { .. } => {
                self.let_go(&state);
                self.stop(number, StopReason::TeachFailed);
            }
            ProcState::Resetting if ok => {
                self.pool.take_busy(number);
                known(&mut self.pool.procs, number).left_by = None;
                self.settle(number);
            }
            ProcState::Resetting => self.stop(number, StopReason::ResetFailed),
            ProcState::Forgetting { request } if ok => {
                self.pool.totals.forgot += 1;
                self.pool.take_busy(number);
                match request {
                    Some(request) => self.hand_over(request, number),
                    None => self.settle(number),
                }
            }
            state @ ProcState::Forgetting { .. } => {
                self.let_go(&state);
                self.stop(number, StopReason::ForgetFailed);
            }
            ProcState::Idle | ProcState::Assigned { .. } | ProcState::Transitioning => {}
        }
    }

    /// Ends a process's work for a request: if the process was being taught for it, the request is refused; if it
    /// was forgetting, the request waits for another process.
    fn let_go(&mut self, state: &ProcState) {
        match *state {
            ProcState::Teaching {
                request: Some(request),
                ..
            } => self.refuse(request, Refusal::TeachFailed),
            ProcState::Forgetting {
                request: Some(request),
            } => self.wait_again(request),
            _ => {}
        }
    }

    /// A process ended before any work: if that happens soon after its start, it counts as a failed start.
    pub fn proc_failed(&mut self, number: u64, age: Duration) {
        let is_known =
            self.pool.procs.contains_key(&number) || self.pool.stopping.contains(&number);
        self.end(number);
        if is_known && age < EARLY_END {
            self.failed(Failure::EarlyEnd, number <= self.pool.life.forgiven_up_to);
        }
    }

    /// `EXIT` of a process, in any state, expected or not.
    pub fn proc_exit(&mut self, number: u64) {
        let proc = self.pool.procs.get(&number);
        if proc.is_some_and(|proc| proc.uses > 0) {
            self.pool.life.throttle.served();
        }
        self.end(number);
    }

    fn end(&mut self, number: u64) {
        if self.pool.stopping.remove(&number) {
            self.ledger.ceiling.ending -= 1;
            if self.pool.life.deferred {
                self.cull_idle();
            }
            return;
        }
        if let Some(proc) = self.remove(number) {
            self.pool.totals.died += 1;
            self.let_go(&proc.state);
            if proc.uses == 0 {
                // Processes that repeatedly end unused must not keep the machine busy.
                self.pause_background();
            }
        }
    }

    /// Stores the memory use of a process, in bytes. The process is stopped at the hard limit, even if it is in use;
    /// at the soft limit only if it is idle.
    pub fn memory(&mut self, number: u64, bytes: u64) {
        let recycle = self.pool.settings.recycle;
        let Some(proc) = self.pool.procs.get_mut(&number) else {
            return;
        };
        proc.memory = Some(bytes);
        let state = proc.state.clone();
        if recycle.memory_hard.is_some_and(|hard| bytes >= hard) {
            self.let_go(&state);
            self.take_away(number, StopReason::MemoryHard);
        } else if state == ProcState::Idle
            && let Some(why) = self.pool.worn_out(number, self.ledger.now)
        {
            self.stop(number, why);
        }
    }

    /// `os_proc_idle`: stops an idle process if the pool has at least `soft_limit` processes; a tagged one in any case,
    /// unless it can forget its tenant and knows no design document. `init_size` and `min_free` processes remain. A
    /// pool with culling ignores the event.
    pub fn os_proc_idle(&mut self, number: u64) {
        if self.pool.settings.cull.is_some() || self.pool.surplus() == 0 {
            return;
        }
        let Some(proc) = self.pool.procs.get(&number) else {
            return;
        };
        let settings = &self.pool.settings;
        let serves_one = proc.tenant.is_some() && !(settings.can_forget && proc.ddocs.is_empty());
        let spare = serves_one
            || (self.pool.count() >= settings.limits.soft_limit && self.pool.surplus_free() > 0);
        if proc.is_idle() && spare {
            self.stop(number, StopReason::Idle);
        }
    }

    /// Stops a process that an operator ends, if it is idle: it must not be lent until it has exited.
    pub fn stop_idle(&mut self, number: u64) {
        if self.pool.procs.get(&number).is_some_and(Proc::is_idle) {
            self.stop(number, StopReason::Removed);
        }
    }

    /// Stops the idle processes that are stale ([`Pool::is_stale`]), oldest first.
    pub fn stop_stale(&mut self) {
        for number in self.numbers_sorted() {
            let is_idle = self.pool.procs[&number].is_idle();
            if is_idle && self.pool.is_stale(number, self.ledger) {
                self.stop(number, StopReason::Stale);
            }
        }
    }

    /// Stops every process in any state. Openings are stopped once they succeed.
    pub fn stop_all(&mut self) {
        for number in self.numbers_sorted() {
            self.stop(number, StopReason::Shutdown);
        }
    }

    /// Removes a process from all tables and stops it.
    pub fn stop(&mut self, number: u64, why: StopReason) {
        if self.remove(number).is_some() {
            self.pool.stopping.insert(number);
            self.ledger.ceiling.ending += 1;
            self.pool.totals.stopped[why as usize] += 1;
            self.out.push(PoolAction::Stop {
                proc: self.proc_id(number),
                why,
            });
        }
    }

    fn remove(&mut self, number: u64) -> Option<Proc> {
        let proc = self.pool.remove(number)?;
        self.ledger.ceiling.live -= 1;
        if let Some(Tenant::Client(client)) = proc.tenant {
            self.ledger.owned.remove(&(client, self.proc_id(number)));
        }
        if let ProcState::Assigned { client, .. } = proc.state {
            let held = self.ledger.held.remove(&(client, self.proc_id(number)));
            debug_assert!(held, "PM-3: an assigned process is held by its client");
            if let Some(tenant) = proc.used_for() {
                self.end_use(tenant);
                if proc.isolates_max > 0 {
                    self.pool.offenders.note_end(tenant);
                }
            }
        }
        Some(proc)
    }

    pub fn numbers_sorted(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.pool.procs.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }
}
