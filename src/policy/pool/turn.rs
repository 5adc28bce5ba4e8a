//! One event on one pool: what it changes, before the waiters are flushed.
//!
//! SUMMARY   The handlers of `spawn_ok`, `spawn_error`, `ret_proc`, `DOWN`, `EXIT`, `os_proc_idle`,
//!           reload and shutdown.
//! PROMISES  A process that is taken from one table is in another, or stopped, when a handler ends.
//! CALLED    By [`super::Pools::handle`], which flushes afterwards.
//! SOURCE    couch_proc_manager 001: handle_call, handle_cast, handle_info, return_proc,
//!           remove_proc.

use super::event::{
    Action, ClientId, Condition, PoolId, ProcId, Refusal, RequestId, ReturnStatus, StopReason,
    Token,
};
use super::fairness::Rounds;
use super::ledger::{Ledger, Place};
use super::reconfigure::Change;
use super::settings::{Limits, OnClientCrash, PoolKind, PoolSettings};
use super::tables::{Pool, Proc, ProcState};

/// A pool together with what it shares with the others, while it handles one event.
pub(super) struct Turn<'a> {
    pub(super) id: PoolId,
    pub(super) pool: &'a mut Pool,
    pub(super) ledger: &'a mut Ledger,
    pub(super) out: &'a mut Vec<Action>,
}

impl Turn<'_> {
    pub(super) const fn proc_id(&self, number: u64) -> ProcId {
        ProcId {
            pool: self.id,
            number,
        }
    }

    /// `spawn_ok`: the process is for its request, if that one still waits.
    pub(super) fn spawn_ok(&mut self, number: u64) {
        let Some(opening) = self.pool.finish_opening(number, self.ledger.now) else {
            return;
        };
        self.pool.totals.started += 1;
        match opening.request {
            _ if self.ledger.shutting_down => self.stop(number, StopReason::Shutdown),
            _ if self.pool.life.removing.is_some() => self.stop(number, StopReason::Removed),
            Some(request) => self.hand_over(request, number),
            None => self.settle(number),
        }
    }

    /// `spawn_error` and every other end of an opener: the slot is free again (PM-7).
    pub(super) fn spawn_error(&mut self, number: u64) {
        let Some(opening) = self.pool.fail_opening(number) else {
            return;
        };
        self.pool.totals.start_failures += 1;
        if let Some(request) = opening.request {
            self.refuse(request, Refusal::SpawnFailed);
        }
        self.start_failed();
    }

    /// Teaching or resetting ended.
    pub(super) fn helper_done(&mut self, number: u64, ok: bool) {
        let state = self.pool.procs.get(&number).map(|proc| &proc.state);
        match (state.cloned(), ok) {
            (Some(ProcState::Teaching { request, ddoc }), true) => {
                self.pool.take_busy(number);
                self.start_succeeded(number);
                self.pool.learn(number, ddoc);
                self.pool.totals.taught += 1;
                match request {
                    Some(request) => self.answer(request, number),
                    None => self.settle(number),
                }
            }
            (Some(ProcState::Teaching { request, .. }), false) => {
                self.refuse_if_waiting(request, Refusal::TeachFailed);
                self.stop(number, StopReason::TeachFailed);
            }
            (Some(ProcState::Resetting), true) => {
                self.pool.take_busy(number);
                self.settle(number);
            }
            (Some(ProcState::Resetting), false) => self.stop(number, StopReason::ResetFailed),
            (Some(ProcState::Idle | ProcState::Assigned { .. } | ProcState::InHand) | None, _) => {}
        }
    }

    /// `ret_proc`. A return by another client or with another token changes nothing (PM-3).
    pub(super) fn ret_proc(
        &mut self,
        number: u64,
        holder: (ClientId, Token),
        status: ReturnStatus,
        condition: Condition,
    ) {
        if !self.pool.is_held(number, holder) {
            return;
        }
        match status {
            ReturnStatus::Ok => {
                self.pool.totals.returned += 1;
                self.start_succeeded(number);
                self.take_back(number, holder.0, condition);
            }
            ReturnStatus::Fail => {
                self.pool.totals.failed += 1;
                match self.pool.settings.kind {
                    PoolKind::Language => self.stop(number, StopReason::Failed),
                    PoolKind::Named => self.replace(number, StopReason::Failed),
                }
            }
        }
    }

    /// Takes a process back from a client that ended.
    pub(super) fn take_back_from_dead(
        &mut self,
        number: u64,
        client: ClientId,
        normal: bool,
        condition: Condition,
    ) {
        let crash = self.pool.settings.on_client_crash;
        if normal {
            self.pool.totals.returned += 1;
            self.take_back(number, client, condition);
        } else {
            self.pool.totals.taken_back += 1;
            match crash {
                OnClientCrash::Return => self.take_back(number, client, condition),
                OnClientCrash::Replace => self.replace(number, StopReason::ClientCrashed),
            }
        }
    }

    /// Takes a process back from the client that holds it.
    fn take_back(&mut self, number: u64, client: ClientId, condition: Condition) {
        match condition {
            Condition::Broken => match self.pool.settings.kind {
                PoolKind::Language => self.stop(number, StopReason::Broken),
                PoolKind::Named => self.replace(number, StopReason::Broken),
            },
            Condition::Clean => {
                self.release(number, client);
                self.settle(number);
            }
            Condition::NeedsReset => match self.reason_to_retire(number) {
                Some(why) => self.stop(number, why),
                None => {
                    self.release(number, client);
                    self.pool.begin_help(number, ProcState::Resetting);
                    self.out.push(Action::Reset {
                        proc: self.proc_id(number),
                    });
                }
            },
        }
    }

    /// `EXIT` of a process, asked or unasked.
    ///
    /// A child that ended by itself before it served its first request is a failing start, also
    /// when its client was faster in saying that it is broken.
    pub(super) fn proc_exit(&mut self, number: u64, by_itself: bool) {
        if self.pool.stopping.remove(&number) {
            if self.pool.life.suspects.remove(&number) && by_itself {
                self.start_failed();
            }
            if self.pool.life.deferred {
                self.thin_out();
            }
            return;
        }
        if let Some(proc) = self.remove(number) {
            self.pool.totals.died += 1;
            if let ProcState::Teaching { request, .. } = proc.state {
                self.refuse_if_waiting(request, Refusal::TeachFailed);
            }
            if by_itself && !proc.served {
                self.start_failed();
            }
        }
    }

    /// What the operating system says of a process's memory.
    pub(super) fn memory(&mut self, number: u64, bytes: u64) {
        let recycle = self.pool.settings.recycle;
        let Some(proc) = self.pool.procs.get_mut(&number) else {
            return;
        };
        proc.memory = Some(bytes);
        let state = proc.state.clone();
        if recycle.memory_hard.is_some_and(|hard| bytes >= hard) {
            if let ProcState::Teaching { request, .. } = state {
                self.refuse_if_waiting(request, Refusal::TeachFailed);
            }
            self.take_away(number, StopReason::MemoryHard);
        } else if state == ProcState::Idle
            && let Some(why) = self.reason_to_retire(number)
        {
            self.stop(number, why);
        }
    }

    /// `os_proc_idle`: the pool shrinks to one below its soft limit; tagged processes always go,
    /// down to `init_size` and `min_free`. A pool that is culled shrinks by that alone.
    pub(super) fn os_proc_idle(&mut self, number: u64) {
        if self.pool.settings.cull.is_some() || self.pool.surplus() == 0 {
            return;
        }
        let Some(proc) = self.pool.procs.get(&number) else {
            return;
        };
        let spare = self.pool.count >= self.pool.settings.limits.soft_limit || proc.db.is_some();
        if proc.state == ProcState::Idle && spare {
            self.stop(number, StopReason::Idle);
        }
    }

    /// Stops the idle processes from before the last reload, oldest first.
    pub(super) fn stop_stale(&mut self) {
        for number in self.numbers_sorted() {
            let is_idle = self.pool.procs[&number].state == ProcState::Idle;
            if is_idle && self.ledger.is_stale(number) {
                self.stop(number, StopReason::Stale);
            }
        }
    }

    /// `reload_config`: idle processes above the limit go, tagged ones first, then the oldest.
    pub(super) fn configure(&mut self, limits: Limits) {
        self.pool.settings.limits = limits;
        while self.pool.is_over_limit() && self.stop_idle_over_limit() {}
        self.pool.count_max = self.pool.count.max(limits.hard_limit);
    }

    /// New settings are in force, and what they bring about is done; what can only be done when
    /// processes come back, or in the background, follows by itself.
    pub(super) fn reconfigure(&mut self, new: PoolSettings, changes: &[Change]) {
        let old = std::mem::replace(&mut self.pool.settings, new);
        self.pool.upkeep = Pool::needs_upkeep(&new);
        self.pool.rebuild_ages();
        if old.fairness != new.fairness || old.interactive_reserved != new.interactive_reserved {
            self.queue_anew();
        }
        if new.throttle.is_none() {
            self.unthrottle();
        }
        if !new.stress {
            self.pool.life.stress.end();
            self.pool.life.refresh.clear();
        }
        for change in changes {
            match *change {
                Change::StopIdle(count) => {
                    for _ in 0..count {
                        self.stop_idle_over_limit();
                    }
                }
                Change::ShrinkQueue(count) => {
                    for _ in 0..count {
                        if let Some(newest) = self.pool.waiters.newest() {
                            self.turn_away(newest);
                        }
                    }
                }
                // By the settings that are in force now, at the end of this event and of others.
                Change::Set { .. } | Change::StopReturned(_) | Change::Start(_) => {}
            }
        }
        self.pool.count_max = self.pool.count.max(new.limits.hard_limit);
    }

    fn stop_idle_over_limit(&mut self) -> bool {
        let idle = &self.pool.idle;
        let Some(number) = idle.oldest_used().or_else(|| idle.oldest_untagged()) else {
            return false;
        };
        self.stop(number, StopReason::OverLimit);
        true
    }

    /// Ranks the waiters anew, in the order in which they stand.
    fn queue_anew(&mut self) {
        let waiters: Vec<RequestId> = self.pool.waiters.iter().collect();
        self.pool.rounds = Rounds::default();
        for id in &waiters {
            if let Some(row) = self.ledger.requests.get(id) {
                self.pool.dequeue(*id, row);
            }
        }
        for id in waiters {
            if let Some(row) = self.ledger.requests.get_mut(&id) {
                self.pool.enqueue(id, row);
            }
        }
    }

    /// Stops every process in whatever state. Openings are stopped when they are born.
    pub(super) fn stop_all(&mut self) {
        for number in self.numbers_sorted() {
            self.stop(number, StopReason::Shutdown);
        }
    }

    /// Takes a request from where it is and closes it, without an answer.
    ///
    /// What was begun for it goes on, for nobody. Returns where it was.
    pub(super) fn withdraw(&mut self, id: RequestId) -> Option<Place> {
        let request = self.ledger.close(id)?;
        match request.place {
            Place::Queue => self.pool.dequeue(id, &request),
            Place::Opening(number) => {
                if let Some(opening) = self.pool.opening.get_mut(&number) {
                    opening.request = None;
                }
            }
            Place::Teaching(number) => {
                if let Some(proc) = self.pool.procs.get_mut(&number)
                    && let ProcState::Teaching { request, .. } = &mut proc.state
                {
                    *request = None;
                }
            }
        }
        Some(request.place)
    }

    /// Withdraws a request and answers it with an error.
    pub(super) fn refuse(&mut self, id: RequestId, why: Refusal) {
        if self.withdraw(id).is_some() {
            self.pool.totals.refused += 1;
            self.out.push(Action::Refuse { request: id, why });
        }
    }

    /// Withdraws a request whose deadline passed, and says what it waited for.
    pub(super) fn time_out(&mut self, id: RequestId) {
        if let Some(place) = self.withdraw(id) {
            self.pool.totals.timed_out += 1;
            let phase = place.phase();
            let why = Refusal::Timeout { phase };
            self.out.push(Action::Refuse { request: id, why });
        }
    }

    fn refuse_if_waiting(&mut self, request: Option<RequestId>, why: Refusal) {
        if let Some(request) = request {
            self.refuse(request, why);
        }
    }

    /// Makes a process in hand idle, unless it is to go.
    fn settle(&mut self, number: u64) {
        match self.reason_to_retire(number) {
            Some(why) => self.stop(number, why),
            None => {
                let returns = self.ledger.fresh_return();
                self.pool.make_idle(number, self.ledger.now, returns);
            }
        }
    }

    fn reason_to_retire(&self, number: u64) -> Option<StopReason> {
        if self.pool.life.removing.is_some() {
            Some(StopReason::Removed)
        } else if self.ledger.is_stale(number) {
            Some(StopReason::Stale)
        } else if self.pool.is_over_limit() {
            Some(StopReason::OverLimit)
        } else {
            self.pool.worn_out(number, self.ledger.now)
        }
    }

    /// Ends an assignment, and takes the process in hand.
    fn release(&mut self, number: u64, client: ClientId) {
        let held = self.ledger.held.remove(client, self.proc_id(number));
        debug_assert!(held, "PM-3: an assigned process is held by its client");
        self.pool.take_busy(number);
    }

    /// Removes a process from all tables and tells it to end.
    pub(super) fn stop(&mut self, number: u64, why: StopReason) {
        if let Some(proc) = self.remove(number) {
            self.pool.stopping.insert(number);
            if !proc.served && self.pool.settings.throttle.is_some() && !why.is_polite() {
                self.pool.life.suspects.insert(number);
            }
            self.pool.totals.note_stop(why);
            self.out.push(Action::Stop {
                proc: self.proc_id(number),
                why,
            });
        }
    }

    fn remove(&mut self, number: u64) -> Option<Proc> {
        let proc = self.pool.remove(number)?;
        if let ProcState::Assigned { client, .. } = proc.state {
            let held = self.ledger.held.remove(client, self.proc_id(number));
            debug_assert!(held, "PM-3: an assigned process is held by its client");
        }
        Some(proc)
    }

    pub(super) fn numbers_sorted(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.pool.procs.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }
}
