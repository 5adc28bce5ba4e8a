//! After a process's use: it becomes idle, is reset, forgets, is replaced, or is stopped.
//!
//! SUMMARY   Handles `ret_proc`, and the end of a client that holds a process.
//! PROMISES  Only a process's holder can return it, once (PM-3). A process that must stop never becomes idle (PM-13).
//! CALLED    By [`super::Pools::handle`], which flushes afterwards.
//! SOURCE    couch_proc_manager 001: return_proc; pidq: the process of a crashed consumer.

use super::{
    ClientId, Condition, OnClientCrash, PoolAction, PoolKind, Proc, ProcState, ReturnStatus,
    StopReason, Token, Turn,
};

impl Turn<'_> {
    /// `ret_proc`. A return by another client or with another token changes nothing (PM-3).
    pub fn ret_proc(
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
                self.take_back(number, holder.0, condition);
            }
            ReturnStatus::Fail => {
                self.pool.totals.failed += 1;
                self.stop_broken(number, StopReason::Failed);
            }
            ReturnStatus::Lost => self.take_back_from_dead(number, holder.0, false, condition),
        }
    }

    /// Reclaims a process from a client that ended.
    pub fn take_back_from_dead(
        &mut self,
        number: u64,
        client: ClientId,
        normal: bool,
        condition: Condition,
    ) {
        if normal {
            self.pool.totals.returned += 1;
            self.take_back(number, client, condition);
        } else {
            self.pool.totals.taken_back += 1;
            match self.pool.settings.on_client_crash {
                OnClientCrash::Return => self.take_back(number, client, condition),
                OnClientCrash::Replace => self.replace(number, StopReason::ClientCrashed),
            }
        }
    }

    /// Ends a client's loan of a process, and decides what to do with the process.
    pub fn take_back(&mut self, number: u64, client: ClientId, condition: Condition) {
        let proc = self.pool.procs.get(&number);
        let has_isolates = proc.is_some_and(|proc| proc.isolates_max > 0);
        let can_forget = has_isolates || self.pool.settings.can_forget;
        if condition == Condition::Broken
            || (condition == Condition::NeedsForgetting && !can_forget)
        {
            return self.stop_broken(number, StopReason::Broken);
        }
        self.pool.life.throttle.served();
        self.release(number, client);
        if condition == Condition::NeedsForgetting && has_isolates {
            self.pool.unlearn(number);
        }
        if !self.stays(number) {
            return;
        }
        match condition {
            Condition::NeedsForgetting if !has_isolates => self.forget(number, None),
            Condition::NeedsReset => {
                self.pool.begin_help(number, ProcState::Resetting);
                self.out.push(PoolAction::Reset {
                    proc: self.proc_id(number),
                });
            }
            Condition::Clean | Condition::NeedsForgetting | Condition::Broken => self.rest(number),
        }
    }

    /// Stops a process that must not be lent again. A named pool opens a replacement.
    fn stop_broken(&mut self, number: u64, why: StopReason) {
        match self.pool.settings.kind {
            PoolKind::Language => self.stop(number, why),
            PoolKind::Named => self.replace(number, why),
        }
    }

    /// Makes a transitioning process idle, unless it must stop.
    pub fn settle(&mut self, number: u64) {
        if self.stays(number) {
            self.rest(number);
        }
    }

    fn rest(&mut self, number: u64) {
        self.ledger.returns += 1;
        self.pool
            .make_idle(number, self.ledger.now, self.ledger.returns);
    }

    /// Stops a transitioning process if it must stop. Returns whether it stays.
    fn stays(&mut self, number: u64) -> bool {
        let why = self.reason_to_retire(number);
        if let Some(why) = why {
            self.retire(number, why);
        }
        why.is_none()
    }

    /// Stops a transitioning process. If only its tenant is gone, makes it forget the tenant instead, if it can.
    fn retire(&mut self, number: u64, why: StopReason) {
        match why {
            StopReason::TenantGone if self.pool.settings.can_forget => self.forget(number, None),
            _ => self.stop(number, why),
        }
    }

    fn reason_to_retire(&self, number: u64) -> Option<StopReason> {
        if self.pool.life.removing.is_some() {
            Some(StopReason::Removed)
        } else if self.pool.is_stale(number, self.ledger) {
            Some(StopReason::Stale)
        } else if self.is_orphan(number) {
            Some(StopReason::TenantGone)
        } else if self.pool.is_over_limit() || self.ledger.ceiling.is_over() {
            Some(StopReason::OverLimit)
        } else if self.yields(number) {
            Some(StopReason::Reaped)
        } else {
            self.pool.worn_out(number, self.ledger.now)
        }
    }

    /// Whether a process belongs to the client whose end is being handled.
    fn is_orphan(&self, number: u64) -> bool {
        let leaving = self.ledger.leaving;
        leaving.is_some_and(|client| self.ledger.owned.contains(&(client, self.proc_id(number))))
    }

    /// Stops an ended client's process that it no longer holds; an idle one that can forget the client stays.
    pub fn retire_orphan(&mut self, number: u64) {
        match self.pool.procs.get(&number).map(|proc| &proc.state) {
            None | Some(ProcState::Assigned { .. }) => {}
            Some(ProcState::Idle) => {
                self.pool.take_idle(number);
                self.retire(number, StopReason::TenantGone);
            }
            Some(_) => self.stop(number, StopReason::TenantGone),
        }
    }

    /// Ends a loan, and makes the process transitioning.
    pub fn release(&mut self, number: u64, client: ClientId) {
        let held = self.ledger.held.remove(&(client, self.proc_id(number)));
        debug_assert!(held, "PM-3: an assigned process is held by its client");
        let proc = self.pool.procs.get(&number);
        if let Some(tenant) = proc.and_then(Proc::used_for).cloned() {
            self.end_use(&tenant);
            self.pool.offenders.note_return(&tenant);
        }
        self.pool.take_busy(number);
    }
}
