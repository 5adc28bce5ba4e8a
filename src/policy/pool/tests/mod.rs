//! Tests of the decision core, and the world in which they run it.
//!
//! SUMMARY   A [`World`] that asks, opens, teaches and returns, and checks every invariant after
//!           every event.

mod affinity;
mod cases;
mod defects;
mod edges;
mod model;
mod properties;
mod sabotage;

use std::time::Duration;

use super::*;
use crate::policy::invariants::check_all;
use crate::policy::time::Timestamp;

/// How long requests of the tests may take, unless a test says otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pools, a clock, and what came out.
struct World {
    pools: Pools,
    now: Timestamp,
    next_request: u64,
    /// The actions of the latest event.
    last: Vec<Action>,
}

/// An assignment as its client knows it.
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

fn affinity(db: Option<&str>, ddoc: &str, rev: &str) -> Option<Affinity> {
    Some(Affinity {
        db: db.map(Into::into),
        ddoc: DdocKey {
            id: ddoc.into(),
            rev: rev.into(),
        },
    })
}

/// A design-document client of a database, in the only revision there is.
fn tagged(db: &str, ddoc: &str) -> Option<Affinity> {
    affinity(Some(db), ddoc, "1-a")
}

impl World {
    /// One pool with these limits, which reaps at once.
    fn new(hard: u32, soft: u32) -> Self {
        Self::with(limits(hard, soft))
    }

    fn with(limits: Limits) -> Self {
        let mut pools = Pools::new();
        pools.add_pool(limits);
        Self {
            pools,
            now: Timestamp::ZERO + Duration::from_secs(1),
            next_request: 1,
            last: Vec::new(),
        }
    }

    /// Handles one event, and returns what is to be done.
    fn on(&mut self, event: Event) -> Vec<Action> {
        self.last.clear();
        self.pools.handle(event, self.now, &mut self.last);
        if let Err(violation) = check_all(&self.pools) {
            panic!("{violation}");
        }
        self.last.clone()
    }

    fn advance(&mut self, by: Duration) -> Vec<Action> {
        self.now = self.now + by;
        self.on(Event::Tick)
    }

    /// Asks the first pool for a process, and returns the request.
    fn ask(&mut self, client: u64, affinity: Option<Affinity>) -> RequestId {
        self.ask_within(client, affinity, PATIENCE)
    }

    fn ask_within(
        &mut self,
        client: u64,
        affinity: Option<Affinity>,
        patience: Duration,
    ) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        self.on(Event::GetProc {
            request,
            client: ClientId(client),
            target: Target::Pool(PoolId(0)),
            lane: Lane::default(),
            share: None,
            affinity,
            deadline: self.now + patience,
        });
        request
    }

    /// Asks for a process and does whatever must be done until it is there.
    fn take(&mut self, client: u64, affinity: Option<Affinity>) -> Lease {
        let request = self.ask(client, affinity);
        self.run();
        self.lease(request, client)
            .expect("the client gets a process")
    }

    /// The assignment of this request, if the latest events brought it.
    fn lease(&self, request: RequestId, client: u64) -> Option<Lease> {
        self.last.iter().find_map(|action| match *action {
            Action::Assign {
                request: answered,
                proc,
                token,
            } if answered == request => Some(Lease {
                client: ClientId(client),
                proc,
                token,
            }),
            _ => None,
        })
    }

    /// Carries out the latest actions and those that follow: every opener, helper and process
    /// does what it should. Leaves all actions in `last`.
    fn run(&mut self) {
        let mut todo = self.last.clone();
        let mut done = 0;
        while let Some(action) = todo.get(done).cloned() {
            done += 1;
            let event = match action {
                Action::Open { proc, .. } => Event::SpawnOk { proc },
                Action::Teach { proc, .. } | Action::Reset { proc } => {
                    Event::HelperDone { proc, ok: true }
                }
                Action::Stop { proc, .. } => Event::ProcExit {
                    proc,
                    by_itself: false,
                },
                Action::Assign { .. }
                | Action::Refuse { .. }
                | Action::HolderDown { .. }
                | Action::PoolGone { .. }
                | Action::Warn(_) => continue,
            };
            todo.extend(self.on(event));
        }
        self.last = todo;
    }

    fn give_back(&mut self, lease: Lease) -> Vec<Action> {
        self.give_back_as(lease, ReturnStatus::Ok, Condition::Clean)
    }

    fn give_back_as(
        &mut self,
        lease: Lease,
        status: ReturnStatus,
        condition: Condition,
    ) -> Vec<Action> {
        self.on(Event::RetProc {
            client: lease.client,
            proc: lease.proc,
            token: lease.token,
            status,
            condition,
        })
    }

    fn status(&self) -> PoolStatus {
        self.pools.status(PoolId(0), self.now)
    }

    fn totals(&self) -> PoolTotals {
        self.pools.totals(PoolId(0))
    }
}

/// The processes that these actions stop, with the reason.
fn stopped(actions: &[Action]) -> Vec<(ProcId, StopReason)> {
    actions
        .iter()
        .filter_map(|action| match *action {
            Action::Stop { proc, why } => Some((proc, why)),
            _ => None,
        })
        .collect()
}

/// The processes that these actions open, with the request.
fn opened(actions: &[Action]) -> Vec<(ProcId, Option<RequestId>)> {
    actions
        .iter()
        .filter_map(|action| match *action {
            Action::Open { proc, request } => Some((proc, request)),
            _ => None,
        })
        .collect()
}
