//! Removes a pool, gracefully or at once.
//!
//! SUMMARY   From the moment of removal nothing is opened or lent, and no death counts as a failure.
//!           Waiters are answered. Idle processes stop; held ones stop on return, or now. The pool ends
//!           with its last process.
//! PROMISES  Each step can be repeated. A removed pool ends as soon as its processes and openings have ended.
//! CALLED    By [`super::Pools`].
//! SOURCE    pidq (remove_pool, graceful and immediate); Postfix master_avail_cleanup (throttled
//!           first, so nothing replaces a stopped process).

use super::{PoolAction, ProcState, RemoveMode, StopReason, Turn};

impl Turn<'_> {
    /// Stops the processes that are not held; with [`RemoveMode::Immediate`] also the others, notifying their
    /// holders.
    pub fn stop_for_removal(&mut self, mode: RemoveMode) {
        for number in self.numbers_sorted() {
            let held = matches!(self.pool.procs[&number].state, ProcState::Assigned { .. });
            if !held || mode == RemoveMode::Immediate {
                self.take_away(number, StopReason::Removed);
            }
        }
    }

    /// Stops a process in any state; its holder is notified.
    pub fn take_away(&mut self, number: u64, why: StopReason) {
        let state = self.pool.procs.get(&number).map(|proc| &proc.state);
        if let Some(&ProcState::Assigned { client, token }) = state {
            let proc = self.proc_id(number);
            self.out.push(PoolAction::ProcRevoked {
                client,
                proc,
                token,
                why,
            });
        }
        self.stop(number, why);
    }
}
