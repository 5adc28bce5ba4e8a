//! A model of the pool: slow, in plain vectors, and short enough to be obviously right.
//!
//! SUMMARY   A second implementation of the whole decision core. Every choice is a scan; a request is stored in one
//!           place; there are no indexes, timers or skipped flushes.
//! CALLED    By the property tests, which require the same actions from both.

mod life;
mod pool;
mod proc;
mod queue;
mod tenants;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use pool::{Ask, ModelOpening, ModelPool};
use proc::{ModelProc, State};

/// The CPU time that a share of a thousandth of a core gives in a second: 1 ms, in picoseconds.
const SECOND: i128 = 1_000_000_000;

/// The model of all pools.
pub(super) struct Model {
    pools: Vec<ModelPool>,
    now: Timestamp,
    threshold: u64,
    numbers: u64,
    tokens: u64,
    newest: Option<RequestId>,
    shutting_down: bool,
    /// The client whose end is being handled.
    leaving: Option<ClientId>,
    rules: TenantRules,
    /// The levels of buckets that are not full, in picoseconds of CPU time.
    left: BTreeMap<DbKey, i128>,
    /// The tenants held back.
    held_back: BTreeSet<DbKey>,
    out: Vec<PoolAction>,
}

impl Model {
    pub(super) fn new(limits: &[Limits]) -> Self {
        let pool = |limits: &Limits| ModelPool {
            limits: *limits,
            reuse: Reuse::Any,
            can_forget: false,
            isolates_max: 0,
            lends_taught: false,
            renewed: 0,
            procs: Vec::new(),
            opening: Vec::new(),
            stopping: Vec::new(),
            last_impatience: Timestamp::ZERO,
            queue: Vec::new(),
            offenders: BTreeMap::new(),
        };
        Self {
            pools: limits.iter().map(pool).collect(),
            now: Timestamp::ZERO,
            threshold: 0,
            numbers: 1,
            tokens: 1,
            newest: None,
            shutting_down: false,
            leaving: None,
            rules: TenantRules::default(),
            left: BTreeMap::new(),
            held_back: BTreeSet::new(),
            out: Vec::new(),
        }
    }

    pub(super) fn handle(&mut self, event: Event, now: Timestamp) -> Vec<PoolAction> {
        let before = self.now;
        self.now = self.now.max(now);
        self.fill(self.now.since(before));
        let mut late: Vec<(Timestamp, RequestId, usize)> = Vec::new();
        for (at, pool) in self.pools.iter().enumerate() {
            let asks = pool.asks().into_iter();
            let asks = asks.filter(|ask| ask.deadline <= self.now);
            late.extend(asks.map(|ask| (ask.deadline, ask.id, at)));
        }
        late.sort_unstable();
        for (_, id, at) in late {
            if let Some((_, phase)) = self.pools[at].pull(id) {
                self.refuse(id, Refusal::Timeout { phase });
            }
        }
        self.flush_all();
        self.free();
        self.event(event);
        self.flush_all();
        std::mem::take(&mut self.out)
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::GetProc {
                request,
                client,
                target: Target::Pool(pool),
                affinity,
                deadline,
                ..
            } => {
                let ask = Ask {
                    id: request,
                    client,
                    affinity,
                    arrived: self.now,
                    deadline,
                };
                self.ask(pool.0 as usize, ask);
            }
            Event::RetProc {
                client,
                proc,
                token,
                status,
                condition,
            } => {
                let holder = (client, token);
                if self
                    .find(proc)
                    .is_some_and(|found| self.holds(found, holder))
                {
                    match status {
                        ReturnStatus::Fail => self.stop(proc, StopReason::Failed),
                        ReturnStatus::Ok | ReturnStatus::Lost => self.returned(proc, condition),
                    }
                }
            }
            Event::ClientDown {
                client, conditions, ..
            } => self.down(client, &conditions),
            Event::Withdraw { request } => {
                for pool in &mut self.pools {
                    pool.pull(request);
                }
            }
            Event::SpawnOk { proc } => self.spawned(proc),
            Event::SpawnError { proc } => self.not_spawned(proc),
            Event::Evicted { proc, tenants } => {
                if self.find(proc).is_some() && !self.row(proc).is_idle() {
                    let is_gone = |tenant: &Tenant| tenants.contains(tenant);
                    self.row(proc)
                        .parked
                        .retain(|(tenant, ..)| !is_gone(tenant));
                }
            }
            Event::TeachOrResetDone { proc, ok } => self.helped(proc, ok),
            Event::ProcExit { proc, .. } => self.ended(proc),
            Event::OsProcIdle { proc } => self.idle_for_long(proc),
            Event::SetThresholdTs => {
                self.threshold = self.numbers;
                self.stop_stale();
            }
            Event::Reconfigure { pool, settings } => {
                self.configure(pool.0 as usize, &settings);
            }
            Event::Charge { db, cost } => self.charge(db, cost),
            Event::SetTenants { rules } => self.set_rules(*rules),
            Event::Tick => {}
            Event::Shutdown => self.shut_down(),
            other => panic!("the model knows language pools only: {other:?}"),
        }
    }

    fn holds(&self, (at, index): (usize, usize), (client, token): (ClientId, Token)) -> bool {
        let state = &self.pools[at].procs[index].state;
        matches!(state, State::Assigned(c, t) if (*c, *t) == (client, token))
    }

    fn held_by(&self, client: ClientId) -> Vec<ProcId> {
        let procs = self.pools.iter().flat_map(|pool| &pool.procs);
        let held = procs.filter(|proc| matches!(proc.state, State::Assigned(c, _) if c == client));
        let mut held: Vec<ProcId> = held.map(|proc| proc.id).collect();
        held.sort_unstable();
        held
    }

    fn refuse(&mut self, request: RequestId, why: Refusal) {
        self.out.push(PoolAction::Refuse { request, why });
    }

    fn find(&self, proc: ProcId) -> Option<(usize, usize)> {
        let at = proc.pool.0 as usize;
        let index = self.pools.get(at)?.position(proc)?;
        Some((at, index))
    }

    fn row(&mut self, proc: ProcId) -> &mut ModelProc {
        let (at, index) = self.find(proc).expect("the caller found it");
        &mut self.pools[at].procs[index]
    }

    /// The number of processes, including those being opened.
    pub(super) fn count(&self) -> usize {
        self.pools.iter().map(ModelPool::count).sum()
    }

    /// The number of unanswered requests.
    pub(super) fn open_requests(&self) -> usize {
        self.pools.iter().map(|pool| pool.asks().len()).sum()
    }
}
