//! All pools of the service: the entrance of the decision core.
//!
//! SUMMARY   Gives each event to the pools that it concerns, after what time brought about, and
//!           flushes them.
//! PROMISES  Total: an event about something unknown or gone changes nothing. Deterministic: the
//!           same events at the same times give the same actions.
//! CALLED    By the ProcManager actor.
//! SOURCE    couch_proc_manager 000 and 001: the gen_server's calls, casts and infos.

use std::collections::BTreeSet;

use super::event::{
    Action, ClientId, Condition, Event, PoolId, ProcId, Refusal, RequestId, Target, Token,
};
use super::ledger::{Due, Ledger, Place, Request};
use super::reconfigure::{Change, Live, reconfigure};
use super::settings::{PoolSettings, SettingsError};
use super::status::{PoolStatus, PoolTotals};
use super::tables::Pool;
use super::turn::Turn;
use crate::policy::admission::Snapshot;
use crate::policy::time::Timestamp;

/// All pools of the service.
#[derive(Debug)]
pub struct Pools {
    /// Indexed by [`PoolId`].
    pub(in crate::policy) pools: Vec<Pool>,
    /// What they share.
    pub(in crate::policy) ledger: Ledger,
}

impl Default for Pools {
    fn default() -> Self {
        Self::new()
    }
}

impl Pools {
    /// Returns a service without pools.
    pub fn new() -> Self {
        Self {
            pools: Vec::new(),
            ledger: Ledger::new(),
        }
    }

    /// Adds a pool. Identities are 0, 1, 2 and so on, in order, and that of a pool that is gone
    /// before a new one. [`Event::StartPool`] starts it.
    pub fn add_pool(&mut self, settings: impl Into<PoolSettings>) -> PoolId {
        let id = PoolId(self.pools.len() as u32);
        self.pools.push(Pool::new(settings.into()));
        id
    }

    /// Handles an event and appends what is to be done to `out`, in order.
    ///
    /// Whatever is due by `now` happens before the event, as if a [`Event::Tick`] had come first,
    /// so no request is served after its deadline. A `now` before the latest one counts as that.
    ///
    /// A request of an unknown pool, or whose identity is not larger than every earlier one, is
    /// ignored as any other event about something unknown: it gets no answer.
    pub fn handle(&mut self, event: Event, now: Timestamp, out: &mut Vec<Action>) {
        self.ledger.now = self.ledger.now.max(now);
        if self.ledger.overdue().is_some() {
            self.time_passes(out);
        }
        match event {
            Event::GetProc {
                request,
                client,
                target,
                lane: _,
                share: _,
                affinity,
                deadline,
            } => {
                let Target::Pool(pool) = target else { return };
                let row = Request {
                    client,
                    pool,
                    affinity,
                    arrived: self.ledger.now,
                    deadline,
                    place: Place::Queue,
                };
                self.get_proc(request, row, out);
            }
            Event::CancelRequest { request } => self.abandon(&[request], &mut BTreeSet::new(), out),
            Event::RetProc {
                client,
                proc,
                token,
                status,
                condition,
            } => self.on_proc(proc, out, |turn, n| {
                turn.ret_proc(n, (client, token), status, condition);
            }),
            Event::ClientDown {
                client,
                normal: _,
                conditions,
            } => self.client_down(client, conditions, out),
            Event::SpawnOk { proc } => self.on_proc(proc, out, |turn, n| turn.spawn_ok(n)),
            Event::SpawnError { proc } => self.on_proc(proc, out, |turn, n| turn.spawn_error(n)),
            Event::HelperDone { proc, ok } => {
                self.on_proc(proc, out, |turn, n| turn.helper_done(n, ok));
            }
            Event::ProcExit { proc, by_itself: _ } => {
                self.on_proc(proc, out, |turn, n| turn.proc_exit(n))
            }
            Event::OsProcIdle { proc } => self.on_proc(proc, out, |turn, n| turn.os_proc_idle(n)),
            Event::SetThresholdTs => {
                self.ledger.threshold = self.ledger.next_number;
                self.on_all(out, |turn| turn.stop_stale());
            }
            // No stale process becomes idle (PM-13), so that this finds nothing to stop; it keeps
            // its meaning all the same.
            Event::TerminateStaleProcs => self.on_all(out, |turn| turn.stop_stale()),
            Event::Configure { pool, limits } => {
                self.on_pool(pool, out, |turn| turn.configure(limits));
            }
            Event::StartPool { .. }
            | Event::Reconfigure { .. }
            | Event::RemovePool { .. }
            | Event::Unthrottle { .. }
            | Event::Memory { .. }
            | Event::Tick => {}
            Event::Shutdown => self.shut_down(out),
        }
    }

    /// Returns when [`Event::Tick`] is due next: at the earliest deadline of a request, or at the
    /// end of the affinity wait of an oldest waiter.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.ledger.due.first().map(|(at, _)| *at)
    }

    /// Returns whether `client` holds `proc` by the assignment `token` now.
    pub fn holds(&self, client: ClientId, proc: ProcId, token: Token) -> bool {
        self.pool(proc.pool)
            .is_some_and(|pool| pool.is_held(proc.number, (client, token)))
    }

    /// Returns the processes that a client holds, in order of pool and number.
    pub fn held_by(&self, client: ClientId) -> Vec<ProcId> {
        self.ledger.held.of(client)
    }

    /// Returns the open requests of a client, oldest first.
    pub fn requests_of(&self, client: ClientId) -> Vec<RequestId> {
        self.ledger.requests_of(client)
    }

    /// Returns how many processes there are and are being opened, in all pools
    /// (`get_proc_count`).
    pub fn proc_count(&self) -> u32 {
        self.pools.iter().map(|pool| pool.count).sum()
    }

    /// Returns how many rows the tables have that can be many: processes, openings and requests.
    pub fn row_count(&self) -> usize {
        self.proc_count() as usize + self.ledger.requests.len()
    }

    /// Returns how many processes are left from before the last reload
    /// (`get_stale_proc_count`). They go when they come back.
    pub fn stale_proc_count(&self) -> u32 {
        let numbers = self.pools.iter().flat_map(|pool| pool.procs.keys());
        numbers
            .filter(|number| self.ledger.is_stale(**number))
            .count() as u32
    }

    /// Returns a picture of one pool; an empty one when there is no such pool.
    pub fn status(&self, pool: PoolId, now: Timestamp) -> PoolStatus {
        self.pool(pool).map_or_else(PoolStatus::empty, |row| {
            PoolStatus::of(pool, row, &self.ledger, now)
        })
    }

    /// Returns what happened in one pool so far; nothing when there is no such pool.
    pub fn totals(&self, pool: PoolId) -> PoolTotals {
        self.pool(pool)
            .map_or_else(PoolTotals::default, |pool| pool.totals)
    }

    /// Returns what these settings would change in a pool; that is what [`Event::Reconfigure`]
    /// carries out.
    ///
    /// # Errors
    /// Settings that are wrong, or that cannot change; nothing is changed then.
    pub fn plan(&self, pool: PoolId, new: &PoolSettings) -> Result<Vec<Change>, SettingsError> {
        let live = Live::default();
        self.pool(pool)
            .map_or(Ok(Vec::new()), |row| reconfigure(&row.settings, new, live))
    }

    /// Returns whether processes of this pool are to be started with stress on now.
    pub fn is_stressed(&self, _pool: PoolId) -> bool {
        false
    }

    /// Returns the settings of a pool.
    pub fn settings(&self, pool: PoolId) -> Option<&PoolSettings> {
        self.pool(pool).map(|pool| &pool.settings)
    }

    /// Returns what admission is decided by. Costs nothing: it is meant to be looked at after
    /// every event.
    pub fn snapshot(&self, pool: PoolId) -> Snapshot {
        self.pool(pool)
            .map_or_else(Snapshot::default, |pool| Snapshot {
                avail: pool.idle.len() as u32,
                opening: pool.opening.len() as u32,
                total: pool.count + pool.stopping.len() as u32,
                max: Some(pool.settings.limits.hard_limit),
                claims: pool.waiters.len() as u32,
                throttled: false,
            })
    }

    fn get_proc(&mut self, id: RequestId, request: Request, out: &mut Vec<Action>) {
        let Some(pool) = self.pools.get_mut(request.pool.0 as usize) else {
            return;
        };
        if !self.ledger.is_fresh(id) {
            return;
        }
        let why = if self.ledger.shutting_down {
            pool.totals.refused += 1;
            Refusal::ShuttingDown
        } else if request.deadline <= self.ledger.now {
            pool.totals.timed_out += 1;
            let phase = request.place.phase();
            Refusal::Timeout { phase }
        } else {
            return self.on_pool(request.pool, out, |turn| turn.get_proc(id, request));
        };
        out.push(Action::Refuse { request: id, why });
    }

    /// `DOWN` of a client: what it asked for is dropped, what it holds comes back.
    fn client_down(
        &mut self,
        client: ClientId,
        mut conditions: Vec<(ProcId, Condition)>,
        out: &mut Vec<Action>,
    ) {
        conditions.sort_by_key(|(proc, _)| *proc);
        let mut touched = BTreeSet::new();
        for proc in self.ledger.held.of(client) {
            let at = conditions.partition_point(|(other, _)| *other < proc);
            let told = conditions.get(at).filter(|(other, _)| *other == proc);
            let condition = told.map_or(Condition::NeedsReset, |(_, condition)| *condition);
            if let Some(mut turn) = self.turn(proc.pool, out) {
                turn.pool.totals.taken_back += 1;
                turn.take_back(proc.number, client, condition);
                touched.insert(proc.pool);
            }
        }
        let requests = self.ledger.requests_of(client);
        self.abandon(&requests, &mut touched, out);
    }

    /// Drops requests whose answer nobody waits for, and flushes their pools and the `touched`.
    fn abandon(
        &mut self,
        requests: &[RequestId],
        touched: &mut BTreeSet<PoolId>,
        out: &mut Vec<Action>,
    ) {
        for &id in requests {
            let Some(pool) = self.ledger.request(id).map(|request| request.pool) else {
                continue;
            };
            if let Some(mut turn) = self.turn(pool, out) {
                turn.withdraw(id);
                turn.pool.totals.abandoned += 1;
                touched.insert(pool);
            }
        }
        self.flush(touched, out);
    }

    /// Does what is due by now.
    fn time_passes(&mut self, out: &mut Vec<Action>) {
        let mut touched = BTreeSet::new();
        while let Some(due) = self.ledger.overdue() {
            let pool = match due {
                Due::Head(pool) => Some(pool),
                Due::Request(id) => self.ledger.request(id).map(|request| request.pool),
            };
            let pool = pool.expect("PM-12: what is due belongs to a pool");
            let mut turn = self.turn(pool, out).expect("PM-12: the pool exists");
            match due {
                Due::Head(_) => turn.set_head_timer(None),
                Due::Request(id) => turn.time_out(id),
            }
            touched.insert(pool);
        }
        self.flush(&touched, out);
    }

    fn shut_down(&mut self, out: &mut Vec<Action>) {
        self.ledger.shutting_down = true;
        let mut requests: Vec<(RequestId, PoolId)> = self
            .ledger
            .requests
            .iter()
            .map(|(id, request)| (*id, request.pool))
            .collect();
        requests.sort_unstable();
        for (id, pool) in requests {
            if let Some(mut turn) = self.turn(pool, out) {
                turn.refuse(id, Refusal::ShuttingDown);
            }
        }
        self.on_all(out, |turn| turn.stop_all());
    }

    /// Runs a handler on a pool, if it exists, and flushes it.
    fn on_pool(
        &mut self,
        pool: PoolId,
        out: &mut Vec<Action>,
        handler: impl FnOnce(&mut Turn<'_>),
    ) {
        if let Some(mut turn) = self.turn(pool, out) {
            handler(&mut turn);
            turn.flush();
        }
    }

    /// Runs a handler about one process on its pool, if that exists, and flushes the pool.
    fn on_proc(
        &mut self,
        proc: ProcId,
        out: &mut Vec<Action>,
        handler: impl FnOnce(&mut Turn<'_>, u64),
    ) {
        self.on_pool(proc.pool, out, |turn| handler(turn, proc.number));
    }

    /// Runs a handler on every pool and flushes it, in order of their identities.
    fn on_all(&mut self, out: &mut Vec<Action>, handler: impl Fn(&mut Turn<'_>)) {
        for index in 0..self.pools.len() {
            self.on_pool(PoolId(index as u32), out, &handler);
        }
    }

    fn flush(&mut self, pools: &BTreeSet<PoolId>, out: &mut Vec<Action>) {
        for &pool in pools {
            self.on_pool(pool, out, |_| {});
        }
    }

    fn turn<'a>(&'a mut self, id: PoolId, out: &'a mut Vec<Action>) -> Option<Turn<'a>> {
        Some(Turn {
            id,
            pool: self.pools.get_mut(id.0 as usize)?,
            ledger: &mut self.ledger,
            out,
        })
    }

    fn pool(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(id.0 as usize)
    }
}
