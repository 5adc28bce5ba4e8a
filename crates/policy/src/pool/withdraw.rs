//! Requests that end without a process (dropped, refused, timed out), or have to wait for another one.
//!
//! PROMISES  A withdrawn request is in no table. Work begun for it continues without a request.
//! CALLED    By the handlers of events of one pool, and of several pools.
//! SOURCE    couch_proc_manager 001: the ends of a gen_server:call.

use super::{PoolAction, ProcState, Refusal, RequestId, RequestPlace, RequestRow, Turn};

impl Turn<'_> {
    /// Removes a request and closes it, without an answer.
    pub fn withdraw(&mut self, id: RequestId) -> Option<RequestRow> {
        let request = self.ledger.close(id)?;
        match request.place {
            RequestPlace::Queue => {
                self.pool.dequeue(id, &request);
                self.ledger.tenants.leave(&request.tenant);
            }
            RequestPlace::Opening(number) => {
                self.end_use(&request.tenant);
                if let Some(opening) = self.pool.opening.get_mut(&number) {
                    opening.request = None;
                }
            }
            RequestPlace::Teaching(number) => {
                self.end_use(&request.tenant);
                match self.pool.procs.get_mut(&number).map(|row| &mut row.state) {
                    Some(ProcState::Teaching { request, .. }) => *request = None,
                    Some(ProcState::Forgetting { request }) => {
                        *request = None;
                        self.untag(number);
                    }
                    _ => {}
                }
            }
        }
        Some(request)
    }

    /// Returns a request to its place in the queue: it lost its process, and another one can serve it.
    pub fn wait_again(&mut self, id: RequestId) {
        self.undo_use(id);
        if let Some(request) = self.ledger.requests.get(&id) {
            self.ledger.tenants.wait(&request.tenant);
            self.pool.enqueue(id, request, self.ledger);
            self.ledger.place_back(id);
        }
    }

    /// Withdraws a request and answers it with an error.
    pub fn refuse(&mut self, id: RequestId, why: Refusal) {
        if self.withdraw(id).is_some() {
            self.out.push(PoolAction::Refuse { request: id, why });
        }
    }

    /// Withdraws a request whose deadline passed, and reports its phase.
    pub fn time_out(&mut self, id: RequestId) {
        if let Some(row) = self.withdraw(id) {
            self.pool.totals.timed_out += 1;
            let phase = row.place.phase();
            let why = Refusal::Timeout { phase };
            self.out.push(PoolAction::Refuse { request: id, why });
        }
    }
}
