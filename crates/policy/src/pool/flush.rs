//! Serves requests: with an idle process, a new one in a free slot, one that forgets its tenant, or by reaping; and
//! determines their order.
//!
//! SUMMARY   `get_proc`, and the flush that ends every event.
//! PROMISES  After a flush, neither the next waiter nor one that may overtake it could be served (PM-5). A flush takes
//!           time logarithmic in the queue's length for each served waiter, and for one more.
//! SOURCE    couch_proc_manager 001: get_proc, flush_waiters, find_proc, teach_ddoc,
//!           make_proc, replenish, reap_idle.
//! DIFFERS   The affinity wait and overtaking, see [`super`]. Teaching is only started here.

use super::select::{Choice, Fit};
use super::tables::{Opening, known};
use super::{
    DdocKey, Due, Lane, PoolAction, ProcState, Refusal, RequestId, RequestPlace, RequestRow,
    StopReason, Tenant, Turn,
};
use crate::time::Timestamp;

impl Turn<'_> {
    /// Accepts a request: answers it if an idle process is ready for it; otherwise queues it, if it may wait.
    pub fn get_proc(&mut self, id: RequestId, request: RequestRow) {
        // Without waiters this request would be first in the flush, so if it only needs an idle process it may skip the
        // tables.
        let is_held_back = self.ledger.tenants.is_held_back(&request.tenant);
        if self.pool.waiters.len == 0
            && !is_held_back
            && self.pool.is_open_to(request.lane)
            && let Some(Choice {
                number,
                fit: Fit::Ready,
            }) = self.pool.choose(&request)
        {
            self.pool.join(&request.tenant);
            self.begin_use(&request.tenant);
            self.take_idle(number, request.lane);
            self.assign(id, &request, number);
            return;
        }
        if let Some(why) = self.hopeless(&request) {
            self.out.push(PoolAction::Refuse { request: id, why });
            return;
        }
        if !is_held_back {
            self.note_stress(&request);
        }
        self.ledger.tenants.wait(&request.tenant);
        self.pool.enqueue(id, &request, self.ledger);
        self.ledger.accept(id, request);
        self.keep_queue_short(id);
    }

    /// Refuses the newest request if it would exceed the queue's maximum.
    fn keep_queue_short(&mut self, newest: RequestId) {
        let Some(most) = self.pool.settings.queue_max else {
            return;
        };
        if self.pool.waiters.counted > most as usize {
            self.flush();
            let row = self.ledger.request(newest);
            let row = row.filter(|row| row.place == RequestPlace::Queue);
            let counts = row.is_some_and(|row| !self.ledger.tenants.has_own_queue(&row.tenant));
            if counts && self.pool.waiters.counted > most as usize {
                self.pool.totals.busy += 1;
                self.refuse(newest, Refusal::PoolBusy);
            }
        }
    }

    /// Serves waiters while the next one, or one that may overtake it, can be served.
    pub fn flush(&mut self) {
        let mut head_until = None;
        self.ledger.ceiling.needy.remove(&self.id);
        while let Some(head) = self.next_waiter() {
            head_until = None;
            if self.pool.life.shrunk {
                self.displace_hopeless();
                continue;
            }
            if !self.may_serve(head) {
                break;
            }
            if self.serve_idle(head) {
                continue;
            }
            if self.pool.is_blocked(self.ledger.now) {
                // This waiter waits for an existing process; other waiters may find theirs.
                if self.forget_for(head) || self.serve_overtaking() {
                    continue;
                }
                break;
            }
            let has_slot = self.pool.has_slot();
            if has_slot && self.may_open() {
                if self.ledger.ceiling.granted == Some(self.id) && self.affinity_end(head).is_some()
                {
                    self.pool.last_impatience = self.ledger.now;
                }
                if !self.open(Some(head)) {
                    self.refuse(head, Refusal::SpawnFailed);
                }
                continue;
            }
            let patience = self.affinity_end(head);
            if patience.is_some_and(|until| self.ledger.now < until) {
                head_until = patience;
                if self.serve_overtaking() {
                    continue;
                }
                if has_slot {
                    self.note_need(head, true, true);
                }
                break;
            }
            if !self.forget_for(head) {
                if has_slot {
                    // Places are freed at the end of the event, in any pool with a spare one.
                    self.note_need(head, false, patience.is_some());
                    break;
                }
                // For a waiter whose affinity wait has ended, only one process is stopped, and the next such waiter
                // waits again: under too high a load, the pool must not spend its time on restarts.
                let most = if patience.is_some() { 1 } else { usize::MAX };
                if !self.reap(most) {
                    break;
                }
            }
            if patience.is_some() {
                self.pool.last_impatience = self.ledger.now;
            }
        }
        self.set_head_timer(head_until);
        if self.pool.settings.needs_upkeep() || self.pool.life.restore_to > 0 {
            self.end_upkeep();
        }
    }

    /// Gives a transitioning process to its request, taught first if necessary.
    pub fn hand_over(&mut self, id: RequestId, number: u64) {
        let ddoc = self.ledger.request(id).and_then(|row| row.ddoc.clone());
        match ddoc {
            None => self.answer(id, number),
            Some(ddoc) => self.teach(id, number, ddoc),
        }
    }

    /// Closes a request and answers it with a transitioning process.
    pub fn answer(&mut self, id: RequestId, number: u64) {
        if let Some(request) = self.ledger.close(id) {
            self.assign(id, &request, number);
        }
    }

    /// Serves a waiter from an idle process, if one fits.
    fn serve_idle(&mut self, id: RequestId) -> bool {
        let Some(request) = self.ledger.requests.get(&id) else {
            return false;
        };
        let Some(Choice { number, fit }) = self.pool.choose(request) else {
            return false;
        };
        let lane = request.lane;
        // If processes can forget, a process without lessons is available to others again at once; a process with
        // isolates always is.
        let settings = &self.pool.settings;
        let keeps_it =
            settings.isolates_max == 0 && (request.ddoc.is_some() || !settings.can_forget);
        self.leave_queue(id);
        self.take_idle(number, lane);
        if fit == Fit::Tag && keeps_it && self.may_open() {
            self.open(None);
        }
        match fit {
            Fit::Ready => self.answer(id, number),
            Fit::Teach | Fit::Tag => self.hand_over(id, number),
            Fit::Forget => self.forget(number, Some(id)),
        }
        true
    }

    /// Makes an idle process forget its tenant for a waiter that no idle process fits. Returns false if none can.
    fn forget_for(&mut self, id: RequestId) -> bool {
        let Some(request) = self.ledger.request(id) else {
            return false;
        };
        let lane = request.lane;
        let forgetful = self.pool.forgetful();
        let Some(number) = forgetful.or_else(|| self.pool.taken_over_for(&request.tenant)) else {
            return false;
        };
        self.leave_queue(id);
        self.take_idle(number, lane);
        match self.pool.settings.isolates_max {
            0 => self.forget(number, Some(id)),
            // The least recently used isolate is evicted.
            _ => self.hand_over(id, number),
        }
        true
    }

    /// Removes a waiter from the queue to serve it.
    fn leave_queue(&mut self, id: RequestId) {
        let Some(request) = self.ledger.requests.get_mut(&id) else {
            return;
        };
        request.begun = self.ledger.now;
        self.pool.last_served = self.ledger.now;
        self.pool.dequeue(id, request);
        let tenant = request.tenant.clone();
        self.begin_use(&tenant);
        self.ledger.tenants.leave(&tenant);
    }

    /// Serves the oldest waiter behind the head that an idle process fits, if any.
    ///
    /// No idle process is useful to the head, so every idle one is tagged.
    fn serve_overtaking(&mut self) -> bool {
        // A bulk waiter must not use reserved processes; an interactive one would have been first.
        let Some(later) = self.next_servable().filter(|id| self.may_serve(*id)) else {
            return false;
        };
        let served = self.serve_idle(later);
        debug_assert!(served, "PM-11: a matched waiter has an idle process");
        served
    }

    /// Opens a process, for a waiter or in the background. Returns false if admission refuses.
    pub fn open(&mut self, request: Option<RequestId>) -> bool {
        if !self.admitted(request) {
            return false;
        }
        self.ledger.last_number += 1;
        let number = self.ledger.last_number;
        let mut opening = Opening {
            request,
            tenant: None,
            bulk: false,
            isolates_max: self.pool.settings.isolates_max,
        };
        if let Some(id) = request
            && let Some(row) = self.ledger.requests.get(&id)
        {
            opening.tenant = self.pool.settings.wanted(row).tenant().cloned();
            opening.bulk = row.lane == Lane::Bulk;
            self.leave_queue(id);
            self.ledger.place(id, RequestPlace::Opening(number));
        }
        self.pool.begin_opening(number, opening);
        self.ledger.ceiling.opened(self.id);
        self.out.push(PoolAction::Open {
            proc: self.proc_id(number),
            request,
        });
        true
    }

    /// Makes an idle process transitioning for a request of this lane.
    fn take_idle(&mut self, number: u64, lane: Lane) {
        self.pool.take_idle(number);
        if lane == Lane::Bulk {
            let proc = known(&mut self.pool.procs, number);
            debug_assert!(!proc.bulk, "PM-18: it serves nobody");
            proc.bulk = true;
            self.pool.bulk += 1;
        }
    }

    /// Whether the lane of this request may get a process now.
    fn may_serve(&self, id: RequestId) -> bool {
        let lane = self.ledger.request(id).map(|row| row.lane);
        lane.is_none_or(|lane| self.pool.is_open_to(lane))
    }

    /// Makes a transitioning process forget everything. The process then belongs to the request's tenant, or to none
    /// if there is no request.
    pub fn forget(&mut self, number: u64, request: Option<RequestId>) {
        self.untag(number);
        if let Some(id) = request {
            self.reserve(number, id);
        }
        let state = ProcState::Forgetting { request };
        self.pool.begin_help(number, state);
        self.out.push(PoolAction::Forget {
            proc: self.proc_id(number),
        });
    }

    /// Tags a transitioning process for the request that it will learn or forget for.
    fn reserve(&mut self, number: u64, id: RequestId) {
        let row = self.ledger.request(id);
        if let Some(tenant) = row.and_then(|row| self.pool.settings.wanted(row).tenant().cloned()) {
            self.tag(number, &tenant);
        }
        self.ledger.place(id, RequestPlace::Teaching(number));
    }

    /// Begins to teach a transitioning process. It is tagged from now on: partial knowledge belongs to this database.
    fn teach(&mut self, id: RequestId, number: u64, ddoc: DdocKey) {
        let row = self.ledger.request(id);
        let select = row.and_then(|row| self.pool.select(number, &row.tenant, self.ledger.now));
        self.reserve(number, id);
        let request = Some(id);
        let state = ProcState::Teaching { request, ddoc };
        self.pool.begin_help(number, state);
        self.out.push(PoolAction::Teach {
            proc: self.proc_id(number),
            request: id,
            select,
        });
    }

    /// Lends a transitioning process. If processes are not shared, it belongs to the request's tenant from now on.
    fn assign(&mut self, id: RequestId, request: &RequestRow, number: u64) {
        let select = self.pool.select(number, &request.tenant, self.ledger.now);
        if self.pool.settings.keeps_apart() {
            self.tag(number, &request.tenant);
        }
        let (client, proc) = (request.client, self.proc_id(number));
        self.ledger.last_token.0 += 1;
        let token = self.ledger.last_token;
        let reset = self.pool.assign(number, client, &request.tenant, token);
        self.ledger.held.insert((client, proc));
        self.out.push(PoolAction::Assign {
            request: id,
            proc,
            token,
            reset,
            select,
        });
    }

    fn tag(&mut self, number: u64, tenant: &Tenant) {
        if self.pool.tag(number, tenant)
            && let Tenant::Client(client) = *tenant
        {
            let proc = self.proc_id(number);
            self.ledger.owned.insert((client, proc));
        }
    }

    pub fn untag(&mut self, number: u64) {
        if let Some(Tenant::Client(client)) = self.pool.untag(number) {
            let proc = self.proc_id(number);
            self.ledger.owned.remove(&(client, proc));
        }
    }

    /// Returns when the next waiter stops waiting for a process of its own tenant; `None` if it does not.
    fn affinity_end(&self, head: RequestId) -> Option<Timestamp> {
        let request = self.ledger.request(head)?;
        let tenant = self.pool.settings.wanted(request).tenant()?;
        let is_in_use = self.pool.idle.in_use(tenant) > 0;
        let waits = is_in_use && !self.pool.settings.limits.affinity_wait.is_zero();
        waits.then(|| self.pool.affinity_end(request.arrived))
    }

    /// Stops the least recently used idle tagged processes: at most `most`, and at most a batch. Returns false if there
    /// are none.
    fn reap(&mut self, most: usize) -> bool {
        let batch = self.pool.reapable().min(most);
        for _ in 0..batch {
            if let Some(number) = self.pool.idle.oldest_used() {
                self.stop(number, StopReason::Reaped);
            }
        }
        batch > 0
    }

    /// Records when a flush is due even if no event occurs.
    pub fn set_head_timer(&mut self, until: Option<Timestamp>) {
        Due::Head(self.id).set(&mut self.pool.head_until, until, &mut self.ledger.due);
    }
}
