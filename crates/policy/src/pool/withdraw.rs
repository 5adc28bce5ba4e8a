//! Requests that end without a process: dropped, refused, or out of time.
//!
//! PROMISES  A request that is withdrawn is in no table any more. What was begun for it goes on, for
//!           nobody.
//! CALLED    By the handlers of one pool's events, and by those that look at several pools.
//! SOURCE    couch_proc_manager 001: the ends of a gen_server:call.

use super::action::{Action, Refusal};
use super::id::RequestId;
use super::ledger::{RequestPlace, RequestRow};
use super::tables::ProcState;
use super::turn::Turn;

impl Turn<'_> {
    /// Takes a request from where it is and closes it, without an answer.
    ///
    /// What was begun for it goes on, for nobody.
    pub(super) fn withdraw(&mut self, id: RequestId) -> Option<RequestRow> {
        let request = self.ledger.close(id)?;
        match request.place {
            RequestPlace::Queue => self.pool.dequeue(id, &request),
            RequestPlace::Opening(number) => {
                if let Some(opening) = self.pool.opening.get_mut(&number) {
                    opening.request = None;
                }
            }
            RequestPlace::Teaching(number) => {
                if let Some(proc) = self.pool.procs.get_mut(&number)
                    && let ProcState::Teaching { request, .. } = &mut proc.state
                {
                    *request = None;
                }
            }
        }
        Some(request)
    }

    /// Withdraws a request and answers it with an error.
    pub(super) fn refuse(&mut self, id: RequestId, why: Refusal) {
        if self.withdraw(id).is_some() {
            self.out.push(Action::Refuse { request: id, why });
        }
    }

    /// Withdraws a request whose deadline passed, and says what it waited for.
    pub(super) fn time_out(&mut self, id: RequestId) {
        if let Some(row) = self.withdraw(id) {
            self.pool.totals.timed_out += 1;
            let phase = row.place.phase();
            let why = Refusal::Timeout { phase };
            self.out.push(Action::Refuse { request: id, why });
        }
    }
}
