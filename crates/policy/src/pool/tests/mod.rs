//! Tests of the decision core, and the simulated world that runs it.
//!
//! SUMMARY   A [`World`] that requests, opens, teaches and returns, and checks every invariant after every event.

mod affinity;
mod bounds;
mod cases;
mod ceiling;
mod defects;
mod edges;
mod exchanges;
mod fair;
mod forgetting;
mod grouped;
mod histories;
mod isolates;
mod model;
mod named;
mod properties;
mod reconfigured;
mod recycling;
mod removed;
mod sabotage;
mod shares;
mod tenants;
mod throttled;
mod trial;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::invariants::violations;
use crate::time::Timestamp;

/// The default deadline of requests in the tests.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pools, a clock, and the latest actions.
struct World {
    pools: Pools,
    now: Timestamp,
    next_request: u64,
    /// The actions of the latest event.
    last: Vec<PoolAction>,
    /// How many events pass between checks of the invariants: one, except in long simulations.
    check_every: u64,
    events: u64,
}

/// A loan as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    client: ClientId,
    proc: ProcId,
    token: Token,
}

fn limits(hard: u32, soft: u32) -> Limits {
    Limits {
        hard_limit: hard,
        soft_limit: soft,
        affinity_wait: Duration::ZERO,
    }
}

fn affinity(db: Option<&str>, ddoc: &str, text: &str) -> Option<Affinity> {
    Some(Affinity {
        tenant: db.map_or(Tenant::Databases, |db| Tenant::Database(db.into())),
        ddoc: Some(DdocKey {
            id: ddoc.into(),
            text: text.into(),
        }),
    })
}

/// The affinity of a request for a tenant's functions, without a design document.
fn plain(tenant: Tenant) -> Option<Affinity> {
    let ddoc = None;
    Some(Affinity { tenant, ddoc })
}

/// The tenant of a database.
fn db(name: &str) -> Tenant {
    Tenant::Database(name.into())
}

/// Teaching without selecting an isolate.
fn taught(proc: ProcId, request: RequestId) -> PoolAction {
    PoolAction::Teach {
        proc,
        request,
        select: None,
    }
}

/// The affinity of a request for a database's design document, always with the same text.
fn tagged(db: &str, ddoc: &str) -> Option<Affinity> {
    affinity(Some(db), ddoc, "1-a")
}

/// A language's own pool, of the first language.
impl From<Limits> for PoolSettings {
    fn from(limits: Limits) -> Self {
        Self::of_language(LanguageId(0), limits)
    }
}

impl World {
    /// One language pool with these limits, without `affinity_wait`: it reaps at once for a waiter.
    fn new(hard: u32, soft: u32) -> Self {
        Self::with(limits(hard, soft))
    }

    fn with(settings: impl Into<PoolSettings>) -> Self {
        let mut world = Self::empty();
        world.pools.add_pool(settings.into());
        world
    }

    /// Without pools.
    fn empty() -> Self {
        Self {
            pools: Pools::default(),
            now: Timestamp::ZERO + Duration::from_secs(1),
            next_request: 1,
            last: Vec::new(),
            check_every: 1,
            events: 0,
        }
    }

    /// A started named pool, with its background openings done.
    fn named(settings: PoolSettings) -> Self {
        let mut world = Self::empty();
        world.add(settings);
        world.run();
        world
    }

    /// Adds a pool and starts it. Leaves the resulting actions in `last`.
    fn add(&mut self, settings: PoolSettings) -> PoolId {
        let pool = self.pools.add_pool(settings);
        self.on(Event::StartPool { pool });
        pool
    }

    /// Handles one event, and returns its actions.
    fn on(&mut self, event: Event) -> Vec<PoolAction> {
        self.last.clear();
        self.pools.handle(event, self.now, &mut self.last);
        self.events += 1;
        if self.events.is_multiple_of(self.check_every)
            && let Some(violation) = violations(&self.pools).next()
        {
            panic!("{violation}");
        }
        self.last.clone()
    }

    /// Changes the limits of the first pool.
    fn limit(&mut self, limits: Limits) -> Vec<PoolAction> {
        let pool = PoolId(0);
        let old = *self.pools.settings(pool).expect("there is a first pool");
        let settings = Box::new(PoolSettings { limits, ..old });
        self.on(Event::Reconfigure { pool, settings })
    }

    fn advance(&mut self, by: Duration) -> Vec<PoolAction> {
        self.now = self.now + by;
        self.on(Event::Tick)
    }

    /// Requests a process from the first pool.
    fn ask(&mut self, client: u64, affinity: Option<Affinity>) -> RequestId {
        self.ask_within(client, affinity, PATIENCE)
    }

    fn ask_within(
        &mut self,
        client: u64,
        affinity: Option<Affinity>,
        patience: Duration,
    ) -> RequestId {
        self.ask_for(client, Target::Pool(PoolId(0)), affinity, patience)
    }

    /// Requests a process from a target.
    fn ask_of(&mut self, client: u64, target: Target) -> RequestId {
        self.ask_for(client, target, None, PATIENCE)
    }

    fn ask_for(
        &mut self,
        client: u64,
        target: Target,
        affinity: Option<Affinity>,
        patience: Duration,
    ) -> RequestId {
        self.ask_in(Lane::default(), client, target, affinity, patience)
    }

    fn ask_in(
        &mut self,
        lane: Lane,
        client: u64,
        target: Target,
        affinity: Option<Affinity>,
        patience: Duration,
    ) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        self.on(Event::GetProc {
            request,
            client: ClientId(client),
            target,
            lane,
            affinity,
            deadline: self.now + patience,
        });
        request
    }

    /// Requests a process and executes actions until it is lent.
    fn take(&mut self, client: u64, affinity: Option<Affinity>) -> Lease {
        let request = self.ask(client, affinity);
        self.run();
        self.lease(request, client).expect("a process")
    }

    /// The loan for this request, if the latest events made it.
    fn lease(&self, request: RequestId, client: u64) -> Option<Lease> {
        self.last.iter().find_map(|action| match *action {
            PoolAction::Assign {
                request: answered,
                proc,
                token,
                ..
            } if answered == request => Some(Lease {
                client: ClientId(client),
                proc,
                token,
            }),
            _ => None,
        })
    }

    /// Executes the latest actions and those that follow: every opener, helper and process succeeds. Leaves all
    /// actions in `last`.
    fn run(&mut self) {
        let mut todo = self.last.clone();
        let mut done = 0;
        while let Some(action) = todo.get(done).cloned() {
            done += 1;
            let event = match action {
                PoolAction::Open { proc, .. } => Event::SpawnOk { proc },
                PoolAction::Teach { proc, .. }
                | PoolAction::Reset { proc }
                | PoolAction::Forget { proc } => Event::TeachOrResetDone { proc, ok: true },
                PoolAction::Stop { proc, .. } => Event::ProcExit { proc },
                PoolAction::Assign { .. }
                | PoolAction::Refuse { .. }
                | PoolAction::ProcRevoked { .. }
                | PoolAction::PoolGone { .. }
                | PoolAction::Warn(..) => continue,
            };
            todo.extend(self.on(event));
        }
        self.last = todo;
    }

    fn give_back(&mut self, lease: Lease) -> Vec<PoolAction> {
        self.give_back_as(lease, ReturnStatus::Ok, Condition::Clean)
    }

    fn give_back_as(
        &mut self,
        lease: Lease,
        status: ReturnStatus,
        condition: Condition,
    ) -> Vec<PoolAction> {
        self.on(Event::RetProc {
            client: lease.client,
            proc: lease.proc,
            token: lease.token,
            status,
            condition,
        })
    }

    /// Ends a client.
    fn down(&mut self, client: u64, normal: bool) -> Vec<PoolAction> {
        self.on(Event::ClientDown {
            client: ClientId(client),
            normal,
            conditions: Vec::new(),
        })
    }

    /// Ends a process, expected or not.
    fn exit(&mut self, proc: ProcId) -> Vec<PoolAction> {
        self.on(Event::ProcExit { proc })
    }

    /// Why the latest actions refuse this request, if they do.
    fn refusal(&self, request: RequestId) -> Option<Refusal> {
        self.last.iter().find_map(|action| match *action {
            PoolAction::Refuse {
                request: refused,
                why,
            } if refused == request => Some(why),
            _ => None,
        })
    }

    /// Used, free and opening.
    fn counts(&self, pool: PoolId) -> (u32, u32, u32) {
        let status = self.pools.status(pool, self.now);
        (status.used, status.free, status.opening)
    }

    fn status(&self) -> PoolStatus {
        self.pools.status(PoolId(0), self.now)
    }

    fn totals(&self) -> PoolTotals {
        self.pools.totals(PoolId(0))
    }
}

/// The settings of a named pool with at most this many processes.
fn named(max: u32) -> PoolSettings {
    PoolSettings::named(LanguageId(0), limits(max, max))
}

/// The processes that these actions stop, with the reasons.
fn stopped(actions: &[PoolAction]) -> Vec<(ProcId, StopReason)> {
    actions
        .iter()
        .filter_map(|action| match *action {
            PoolAction::Stop { proc, why } => Some((proc, why)),
            _ => None,
        })
        .collect()
}

/// The processes that these actions open, with the requests.
fn opened(actions: &[PoolAction]) -> Vec<(ProcId, Option<RequestId>)> {
    actions
        .iter()
        .filter_map(|action| match *action {
            PoolAction::Open { proc, request } => Some((proc, request)),
            _ => None,
        })
        .collect()
}
