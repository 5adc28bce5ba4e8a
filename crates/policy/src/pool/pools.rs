//! All pools of the service: the entry point of the decision core.
//!
//! SUMMARY   First handles everything due by now, then passes each event to the affected pools, and flushes them.
//! PROMISES  Total: an event about anything unknown or gone changes nothing. Deterministic: the
//!           same events at the same times give the same actions.
//! CALLED    By the ProcManager actor.
//! SOURCE    couch_proc_manager 000 and 001: the gen_server's calls, casts and infos.

use std::collections::BTreeSet;

use super::random::Random;
use super::route::GroupMembers;
use super::{
    Affinity, ClientId, Condition, Due, Event, Lane, Ledger, Phase, Pool, PoolAction, PoolId,
    PoolSettings, PoolStatus, PoolTotals, ProcId, ProcStatus, Refusal, RequestId, RequestPlace,
    RequestRow, Target, Tenant, TenantBound, Token, Turn,
};
use crate::admission::{Failure, Snapshot};
use crate::time::Timestamp;

/// The pool of a request without one.
const NOWHERE: PoolId = PoolId(u32::MAX);

/// All pools of the service.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    /// Indexed by [`PoolId`].
    pub(crate) pools: Vec<Pool>,
    /// Tables that all pools share.
    pub(crate) ledger: Ledger,
    /// Groups and languages, by pool.
    pub(super) members: GroupMembers,
    /// Ids of removed pools, for new ones.
    pub(super) vacant: Vec<PoolId>,
    /// The actions of the event that is being handled.
    pub(super) out: Vec<PoolAction>,
}

impl Pools {
    /// Returns a service without pools. The seed determines which pool of a group is drawn.
    pub fn with_seed(seed: u64) -> Self {
        let mut pools = Self::default();
        pools.ledger.random = Random(seed);
        pools
    }

    /// Handles an event, and appends the actions to `out`, in order.
    ///
    /// Everything due by `now` happens before the event, as if an [`Event::Tick`] had preceded it, so no request is
    /// served after its deadline. A `now` earlier than a previous one is ignored.
    ///
    /// A request of an unknown pool, or with an id that is not larger than all earlier ones, is ignored like any
    /// event about something unknown: it gets no answer.
    pub fn handle(&mut self, event: Event, now: Timestamp, out: &mut Vec<PoolAction>) {
        self.out = std::mem::take(out);
        self.ledger.now = self.ledger.now.max(now);
        if self.ledger.overdue().is_some() {
            self.time_passes();
        }
        match event {
            Event::GetProc {
                request,
                client,
                target,
                lane,
                affinity,
                deadline,
            } => self.get_proc(request, client, target, lane, affinity, deadline),
            Event::RetProc {
                client,
                proc,
                token,
                status,
                condition,
            } => self.on_proc(proc, |turn, n| {
                turn.ret_proc(n, (client, token), status, condition);
            }),
            Event::ClientDown {
                client,
                normal,
                conditions,
            } => self.client_down(client, normal, conditions),
            Event::Withdraw { request } => {
                if let Some(row) = self.withdraw(request) {
                    self.on_pool(row.pool, |_| {});
                }
            }
            Event::SpawnOk { proc } => self.on_proc(proc, |turn, n| turn.spawn_ok(n)),
            Event::SpawnError { proc } => self.spawn_error(proc, Failure::Start),
            Event::SpawnKilled { proc } => self.spawn_error(proc, Failure::KilledStart),
            Event::Evicted { proc, tenants } => {
                self.on_proc(proc, |turn, n| turn.pool.evict(n, &tenants));
            }
            Event::TeachOrResetDone { proc, ok } => {
                self.on_proc(proc, |turn, n| turn.teach_or_reset_done(n, ok));
            }
            Event::ProcExit { proc } => self.on_proc(proc, |turn, n| turn.proc_exit(n)),
            Event::ProcFailed { proc, age } => self.on_proc(proc, |turn, n| {
                turn.proc_failed(n, age);
            }),
            Event::OsProcIdle { proc } => self.on_proc(proc, |turn, n| turn.os_proc_idle(n)),
            Event::StopIdle { proc } => self.on_proc(proc, |turn, n| turn.stop_idle(n)),
            Event::SetThresholdTs => {
                self.ledger.threshold = self.ledger.last_number;
                self.on_all(|turn| {
                    turn.unthrottle();
                    turn.stop_stale();
                });
            }
            Event::SetCeiling { max } => self.ledger.ceiling.max = max,
            Event::Charge { db, cost } => self.charge(&db, cost),
            Event::SetTenants { rules } => self.set_tenants(*rules),
            Event::StartPool { pool } => self.on_pool(pool, |_| {}),
            Event::Reconfigure { pool, settings } => self.reconfigure(pool, *settings),
            Event::RemovePool { pool, mode } => self.remove_pool(pool, mode),
            Event::Unthrottle { pool } => self.on_pool(pool, |turn| turn.unthrottle()),
            Event::Memory { proc, bytes } => self.on_proc(proc, |turn, n| turn.memory(n, bytes)),
            Event::Tick => {}
            Event::Shutdown => self.shut_down(),
        }
        self.settle_tenants();
        self.share();
        *out = std::mem::take(&mut self.out);
    }

    fn spawn_error(&mut self, proc: ProcId, failure: Failure) {
        self.on_proc(proc, |turn, n| turn.spawn_error(n, failure));
    }

    /// Returns when [`Event::Tick`] is due next: at the earliest deadline of a request, at the end of an oldest
    /// waiter's affinity wait, when an idle process may be stopped for another pool, when a tenant's debt ends, or when
    /// a pool needs upkeep.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.ledger.due.first().map(|(at, _)| *at)
    }

    /// Returns whether `client` now holds `proc` under `token`.
    pub fn holds(&self, client: ClientId, proc: ProcId, token: Token) -> bool {
        self.pool(proc.pool)
            .is_some_and(|pool| pool.is_held(proc.number, (client, token)))
    }

    /// Returns the processes that a client holds, in order of pool and number.
    pub fn held_by(&self, client: ClientId) -> Vec<ProcId> {
        of_client(&self.ledger.held, client)
    }

    /// Returns the open requests of a client, oldest first.
    pub fn requests_of(&self, client: ClientId) -> Vec<RequestId> {
        let range = (client, RequestId(0))..=(client, RequestId(u64::MAX));
        self.ledger.asked.range(range).map(|(_, id)| *id).collect()
    }

    /// Returns the number of processes in all pools, including those being opened (`get_proc_count`).
    pub fn proc_count(&self) -> u32 {
        self.pools.iter().map(Pool::count).sum()
    }

    /// Returns whether a request waits because all pools together have reached their maximum.
    pub fn is_full(&self) -> bool {
        !self.ledger.ceiling.needy.is_empty()
    }

    /// Returns which bound of a tenant holds its requests back, and until when, if known.
    pub fn held_back_by(&self, tenant: &Tenant) -> Option<(TenantBound, Option<Timestamp>)> {
        self.ledger.tenants.held_back_by(tenant)
    }

    /// Returns the number of rows in the large tables: processes, openings and requests.
    pub fn row_count(&self) -> usize {
        self.proc_count() as usize + self.ledger.requests.len()
    }

    /// Returns the number of processes from before the last reload, or from before a change of settings that replaces
    /// them (`get_stale_proc_count`). They are stopped on return.
    pub fn stale_proc_count(&self) -> u32 {
        let stale = |pool: &Pool| {
            let numbers = pool.procs.keys();
            let stale = numbers.filter(|number| pool.is_stale(**number, &self.ledger));
            stale.count() as u32
        };
        self.pools.iter().map(stale).sum()
    }

    /// Returns a snapshot of one pool; an empty one if there is no such pool.
    pub fn status(&self, pool: PoolId, now: Timestamp) -> PoolStatus {
        let row = self.pool(pool);
        row.map(|row| PoolStatus::of(pool, row, &self.ledger, now))
            .unwrap_or_default()
    }

    /// Returns a snapshot of one process, if it exists.
    pub fn proc(&self, id: ProcId, now: Timestamp) -> Option<ProcStatus> {
        let proc = self.pool(id.pool)?.procs.get(&id.number)?;
        Some(ProcStatus::of(id, proc, now))
    }

    /// Returns the totals of one pool so far; zeros if there is no such pool.
    pub fn totals(&self, pool: PoolId) -> PoolTotals {
        self.pool(pool).map(|pool| pool.totals).unwrap_or_default()
    }

    /// Returns the settings of a pool; `None` if there is no such pool.
    pub fn settings(&self, pool: PoolId) -> Option<&PoolSettings> {
        self.pool(pool).map(|pool| &pool.settings)
    }

    /// Returns whether a pool was added, and is neither gone nor being removed.
    pub fn is_open(&self, pool: PoolId) -> bool {
        self.pool(pool)
            .is_some_and(|pool| pool.life.removing.is_none())
    }

    /// Returns whether processes of this pool must now be started with stress on.
    pub fn is_stressed(&self, pool: PoolId) -> bool {
        let now = self.ledger.now;
        self.pool(pool)
            .is_some_and(|pool| pool.life.stress.is_on(now))
    }

    /// Returns the input of admission, as of the latest event. Cheap, as it is read after every event.
    pub fn snapshot(&self, pool: PoolId) -> Snapshot {
        self.pool(pool).map_or_else(Snapshot::default, |pool| {
            pool.snapshot(self.ledger.now, pool.stopping.len() as u32)
        })
    }

    fn get_proc(
        &mut self,
        id: RequestId,
        client: ClientId,
        target: Target,
        lane: Lane,
        affinity: Option<Affinity>,
        deadline: Timestamp,
    ) {
        let is_unknown = |pool: PoolId| pool.0 as usize >= self.pools.len();
        if matches!(target, Target::Pool(pool) if is_unknown(pool)) || !self.ledger.is_fresh(id) {
            return;
        }
        let (tenant, ddoc) = match affinity {
            Some(Affinity { tenant, ddoc }) => (tenant, ddoc),
            None => (Tenant::Client(client), None),
        };
        let mut request = RequestRow {
            client,
            target,
            pool: NOWHERE,
            lane,
            begun: Timestamp::ZERO,
            tenant,
            ddoc,
            arrived: self.ledger.now,
            deadline,
            place: RequestPlace::Queue,
        };
        let why = if self.ledger.shutting_down {
            Refusal::ShuttingDown
        } else if deadline <= self.ledger.now {
            if let Target::Pool(pool) = target {
                self.pools[pool.0 as usize].totals.timed_out += 1;
            }
            let phase = Phase::Queue;
            Refusal::Timeout { phase }
        } else {
            match self.route(&request) {
                Ok(pool) => {
                    request.pool = pool;
                    self.on_pool(pool, |turn| turn.get_proc(id, request));
                    return self.keep_tenant_queue_short(id);
                }
                Err(why) => why,
            }
        };
        self.out.push(PoolAction::Refuse { request: id, why });
    }

    /// `DOWN` of a client: drops its requests and takes back its processes.
    fn client_down(
        &mut self,
        client: ClientId,
        normal: bool,
        mut conditions: Vec<(ProcId, Condition)>,
    ) {
        conditions.sort_by_key(|(proc, _)| *proc);
        self.ledger.leaving = Some(client);
        let mut touched = BTreeSet::new();
        for proc in self.held_by(client) {
            let at = conditions.partition_point(|(other, _)| *other < proc);
            let told = conditions.get(at).filter(|(other, _)| *other == proc);
            let condition = told.map_or(Condition::NeedsReset, |(_, condition)| *condition);
            if let Some(mut turn) = self.turn(proc.pool) {
                turn.take_back_from_dead(proc.number, client, normal, condition);
                touched.insert(proc.pool);
            }
        }
        for id in self.requests_of(client) {
            touched.extend(self.withdraw(id).map(|row| row.pool));
        }
        for proc in of_client(&self.ledger.owned, client) {
            if let Some(mut turn) = self.turn(proc.pool) {
                turn.retire_orphan(proc.number);
                touched.insert(proc.pool);
            }
        }
        self.ledger.leaving = None;
        self.flush(&touched);
    }

    /// Handles everything due by now.
    fn time_passes(&mut self) {
        let mut touched = BTreeSet::new();
        while let Some(due) = self.ledger.overdue() {
            let pool = match due {
                Due::Head(pool) | Due::Pool(pool) => pool,
                Due::Request(id) => {
                    let request = self.ledger.request(id);
                    request.expect("PM-12: what is due is a request").pool
                }
                Due::Debts => {
                    self.ledger.set_debt_time();
                    self.ledger.set_debt_timer();
                    continue;
                }
                Due::Places => {
                    self.ledger.set_places_timer(None);
                    continue;
                }
            };
            let mut turn = self.turn(pool).expect("PM-12: the pool exists");
            match due {
                Due::Head(_) => turn.set_head_timer(None),
                Due::Pool(_) => turn.woken(),
                Due::Request(id) => turn.time_out(id),
                Due::Debts | Due::Places => {}
            }
            touched.insert(pool);
        }
        self.flush(&touched);
        self.settle_tenants();
    }

    fn shut_down(&mut self) {
        self.ledger.shutting_down = true;
        let mut requests: Vec<(RequestId, PoolId)> = self
            .ledger
            .requests
            .iter()
            .map(|(id, request)| (*id, request.pool))
            .collect();
        requests.sort_unstable();
        for (id, pool) in requests {
            if let Some(mut turn) = self.turn(pool) {
                turn.refuse(id, Refusal::ShuttingDown);
            }
        }
        self.on_all(|turn| turn.stop_all());
    }

    /// Runs a handler on a pool, if it exists, and flushes it.
    pub(super) fn on_pool(&mut self, pool: PoolId, handler: impl FnOnce(&mut Turn<'_>)) {
        if let Some(mut turn) = self.turn(pool) {
            handler(&mut turn);
            turn.flush();
            let row = &*turn.pool;
            let is_finished =
                row.life.removing.is_some() && row.count() == 0 && row.stopping.is_empty();
            if !self.ledger.roaming.is_empty() {
                self.take_over(pool);
            }
            if let Some(request) = self.ledger.waits_again.take() {
                self.offer(request);
            }
            self.place_displaced();
            if is_finished {
                self.remove(pool);
            }
        }
    }

    /// Runs a handler about one process on its pool, if that exists, and flushes the pool.
    fn on_proc(&mut self, proc: ProcId, handler: impl FnOnce(&mut Turn<'_>, u64)) {
        self.on_pool(proc.pool, |turn| handler(turn, proc.number));
    }

    /// Runs a handler on every pool and flushes it, in order of their identities.
    pub(super) fn on_all(&mut self, handler: impl Fn(&mut Turn<'_>)) {
        for index in 0..self.pools.len() {
            self.on_pool(PoolId(index as u32), &handler);
        }
    }

    fn flush(&mut self, pools: &BTreeSet<PoolId>) {
        for &pool in pools {
            self.on_pool(pool, |_| {});
        }
    }

    pub(super) fn turn(&mut self, id: PoolId) -> Option<Turn<'_>> {
        let pool = self.pools.get_mut(id.0 as usize)?;
        let mut turn = Turn {
            id,
            pool,
            ledger: &mut self.ledger,
            out: &mut self.out,
        };
        turn.set_time();
        (!turn.pool.life.gone).then_some(turn)
    }

    pub(super) fn pool(&self, id: PoolId) -> Option<&Pool> {
        let pool = self.pools.get(id.0 as usize)?;
        (!pool.life.gone).then_some(pool)
    }
}

/// Returns a client's processes in a table by client, in order of pool and number.
fn of_client(table: &BTreeSet<(ClientId, ProcId)>, client: ClientId) -> Vec<ProcId> {
    let first = ProcId {
        pool: PoolId(0),
        number: 0,
    };
    let rows = table.range((client, first)..);
    let own = rows.take_while(|(other, _)| *other == client);
    own.map(|(_, proc)| *proc).collect()
}
