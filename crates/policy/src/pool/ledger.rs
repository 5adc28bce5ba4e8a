//! State shared by all pools: requests, clients, deadlines, and counters of ids.
//!
//! SUMMARY   The rows of requests until they are answered, their clients, the loans, and due times.
//! PROMISES  A request is in all of `requests`, `asked` and `due`, or in none. Finding what a client requested or
//!           holds takes time proportional to the number found.
//! SOURCE    couch_proc_manager 001: the client records, monitors and call timeouts.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::ceiling::Ceiling;
use super::random::Random;
use super::{
    ClientId, DdocKey, Lane, Phase, PoolId, ProcId, Refusal, RequestId, Target, Tenant, Tenants,
    Token,
};
use crate::time::Timestamp;

/// An accepted request without an answer so far.
#[derive(Clone, Debug)]
pub(crate) struct RequestRow {
    pub client: ClientId,
    /// The pools that may serve it.
    pub target: Target,
    /// Its current pool, one of the target's.
    pub pool: PoolId,
    pub lane: Lane,
    /// When a process was chosen or opened for it, once it has left the queue.
    pub begun: Timestamp,
    pub tenant: Tenant,
    /// The design document that the process must know.
    pub ddoc: Option<DdocKey>,
    pub arrived: Timestamp,
    pub deadline: Timestamp,
    pub place: RequestPlace,
}

/// The place of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestPlace {
    /// In the queue of its pool.
    Queue,
    /// Waits for the opening with this number.
    Opening(u64),
    /// Waits for the process with this number, which forgets another tenant or learns its design document.
    Teaching(u64),
}

impl RequestPlace {
    /// Returns the phase reported to the client.
    pub const fn phase(self) -> Phase {
        match self {
            Self::Queue => Phase::Queue,
            Self::Opening(_) => Phase::Open,
            Self::Teaching(_) => Phase::Teach,
        }
    }
}

/// An event due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// The deadline of a request.
    Request(RequestId),
    /// The end of the affinity wait of a pool's oldest waiter.
    Head(PoolId),
    /// Upkeep of a pool.
    Pool(PoolId),
    /// A tenant's debt of processor time has ended.
    Debts,
    /// An idle process may be stopped for a waiter of another pool.
    Places,
}

impl Due {
    /// Sets the timer of this event, which is also in the table of all; `None` turns it off.
    pub fn set(
        self,
        timer: &mut Option<Timestamp>,
        at: Option<Timestamp>,
        all: &mut BTreeSet<(Timestamp, Self)>,
    ) {
        let before = std::mem::replace(timer, at);
        if before == at {
            return;
        }
        if let Some(before) = before {
            all.remove(&(before, self));
        }
        all.extend(at.map(|at| (at, self)));
    }
}

/// Queued requests that several pools might serve, by target and lane; unordered: looked up by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roaming(FxHashMap<(Target, Lane), RoamingKind>);

/// Requests of one target and lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RoamingKind {
    /// Each tenant's requests, oldest first; unordered: looked up by tenant.
    queues: FxHashMap<Tenant, BTreeSet<RequestId>>,
    /// Each tenant's oldest request; ordered: the oldest requests overall are in the queues of the first few tenants.
    firsts: BTreeMap<RequestId, Tenant>,
}

impl Roaming {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a request if several pools may serve it.
    pub fn insert(&mut self, id: RequestId, row: &RequestRow) {
        self.change(row, |queue| queue.insert(id));
    }

    /// Removes a request, if present.
    pub fn remove(&mut self, id: RequestId, row: &RequestRow) {
        self.change(row, |queue| queue.remove(&id));
    }

    fn change(&mut self, row: &RequestRow, change: impl FnOnce(&mut BTreeSet<RequestId>) -> bool) {
        if let Target::Pool(_) = row.target {
            return;
        }
        let kind = self.0.entry((row.target, row.lane)).or_default();
        let queue = kind.queues.entry(row.tenant.clone()).or_default();
        let before = queue.first().copied();
        change(queue);
        let after = queue.first().copied();
        if before != after {
            if let Some(id) = before {
                kind.firsts.remove(&id);
            }
            if let Some(id) = after {
                kind.firsts.insert(id, row.tenant.clone());
            }
        }
        if after.is_none() {
            kind.queues.remove(&row.tenant);
            if kind.queues.is_empty() {
                self.0.remove(&(row.target, row.lane));
            }
        }
    }

    /// Each tenant's oldest request, in order of arrival.
    pub fn firsts(&self, target: Target, lane: Lane) -> impl Iterator<Item = (&Tenant, RequestId)> {
        let kind = self.0.get(&(target, lane)).into_iter();
        kind.flat_map(|kind| kind.firsts.iter().map(|(id, tenant)| (tenant, *id)))
    }

    /// Returns the `most` oldest requests of the tenants for which `serves` holds.
    pub fn oldest(
        &self,
        (target, lane): (Target, Lane),
        most: usize,
        serves: impl Fn(&Tenant) -> bool,
    ) -> Vec<RequestId> {
        let Some(kind) = self.0.get(&(target, lane)) else {
            return Vec::new();
        };
        let tenants = kind.firsts.values().filter(|tenant| serves(tenant));
        let queues = tenants.take(most).map(|tenant| &kind.queues[tenant]);
        let mut oldest: Vec<_> = queues
            .flat_map(|queue| queue.iter().copied().take(most))
            .collect();
        oldest.sort_unstable();
        oldest.truncate(most);
        oldest
    }
}

/// Tables and counters shared by all pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// request -> its row; unordered: looked up by request. Rows are boxed, or growing the table would spend its time
    /// moving the rows of a long queue.
    pub requests: FxHashMap<RequestId, Box<RequestRow>>,
    /// (client, request); ordered: a client's requests are adjacent.
    pub asked: BTreeSet<(ClientId, RequestId)>,
    /// Queued requests that a pool other than theirs might also serve.
    pub roaming: Roaming,
    /// (client, process); ordered: a client's held processes are adjacent.
    pub held: BTreeSet<(ClientId, ProcId)>,
    /// (client, process); ordered: a client's own processes are adjacent.
    pub owned: BTreeSet<(ClientId, ProcId)>,
    /// The client whose end is being handled: its processes must no longer be lent.
    pub leaving: Option<ClientId>,
    /// The request that lost its process in this event: another pool may serve it.
    pub waits_again: Option<RequestId>,
    /// Requests that a pool gave up in this event, each with the refusal if no other pool can serve it.
    pub displaced: Vec<(RequestId, RequestRow, Refusal)>,
    /// (instant, event); ordered by due time.
    pub due: BTreeSet<(Timestamp, Due)>,
    /// The current time, which never runs backwards.
    pub now: Timestamp,
    /// Openings of processes up to this number were decided before the last reload.
    pub threshold: u64,
    /// Whether the service is ending.
    pub shutting_down: bool,
    /// The number of the newest process.
    pub last_number: u64,
    /// The token of the newest loan.
    pub last_token: Token,
    /// The number of times that a process has become idle.
    pub returns: u64,
    /// Usage of tenants with bounds.
    pub tenants: Tenants,
    /// Limits the total number of processes in all pools.
    pub ceiling: Ceiling,
    /// For uniform choices.
    pub random: Random,
    /// The newest request so far.
    newest_request: Option<RequestId>,
}

impl Ledger {
    /// Whether this id is larger than every earlier one, as required. If so, records it as the newest.
    pub fn is_fresh(&mut self, request: RequestId) -> bool {
        let fresh = self.newest_request < Some(request);
        if fresh {
            self.newest_request = Some(request);
        }
        fresh
    }

    /// Adds the row of a request.
    pub fn accept(&mut self, id: RequestId, request: RequestRow) {
        self.asked.insert((request.client, id));
        self.roaming.insert(id, &request);
        self.due.insert((request.deadline, Due::Request(id)));
        self.requests.insert(id, Box::new(request));
        debug_assert_eq!(self.requests.len(), self.asked.len(), "PM-12");
    }

    /// Removes the row of a request that is answered or abandoned.
    pub fn close(&mut self, id: RequestId) -> Option<RequestRow> {
        let request = self.requests.remove(&id)?;
        let asked = self.asked.remove(&(request.client, id));
        let due = self.due.remove(&(request.deadline, Due::Request(id)));
        debug_assert!(asked && due, "PM-12: a request is in all tables or in none");
        self.roaming.remove(id, &request);
        Some(*request)
    }

    pub fn request(&self, id: RequestId) -> Option<&RequestRow> {
        self.requests.get(&id).map(Box::as_ref)
    }

    /// Moves a request from the queue to the place that serves it.
    pub fn place(&mut self, id: RequestId, place: RequestPlace) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.place = place;
            self.roaming.remove(id, request);
        }
    }

    /// Moves a request back to the queue.
    pub fn place_back(&mut self, id: RequestId) {
        self.waits_again = Some(id);
        if let Some(request) = self.requests.get_mut(&id) {
            request.place = RequestPlace::Queue;
            self.roaming.insert(id, request);
        }
    }

    /// Returns the next overdue event, if any.
    pub fn overdue(&self) -> Option<Due> {
        let (at, due) = self.due.first()?;
        (*at <= self.now).then_some(*due)
    }
}
