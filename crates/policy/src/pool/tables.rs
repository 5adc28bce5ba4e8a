//! The tables of one pool, and the only functions that change two of them together.
//!
//! SUMMARY   Procs, opening, stopping, the idle indexes, the waiters.
//! PROMISES  The idle indexes hold exactly the idle processes (PM-2); the queue knows which tags have
//!           an idle process (PM-11).
//! SOURCE    couch_proc_manager 001: its ETS tables. One pool is one language, so keys do not include it.

use rustc_hash::{FxHashMap, FxHashSet};

use super::fairness::{Accounts, lane_place};
use super::idle::IdleIndex;
use super::isolates::Offenders;
use super::life::Life;
use super::waiters::{TenantState, Waiters};
use super::{
    ClientId, DdocKey, Fairness, Ledger, PoolId, PoolKind, PoolSettings, PoolTotals, RequestId,
    RequestPlace, RequestRow, Tenant, Token,
};
use crate::time::Timestamp;

/// One pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    /// The settings in force.
    pub settings: PoolSettings,
    /// number -> process in any state; unordered: looked up by number.
    pub procs: FxHashMap<u64, Proc>,
    /// number -> opening in flight; unordered.
    pub opening: FxHashMap<u64, Opening>,
    /// Stopping processes.
    pub stopping: FxHashSet<u64>,
    /// Maximum procs and openings: the hard limit, or the number in use when it was lowered.
    pub count_max: u32,
    /// The procs and openings that serve the bulk lane.
    pub bulk: u32,
    /// The idle procs, indexed.
    pub idle: IdleIndex,
    /// The requests in the queue.
    pub waiters: Waiters,
    /// Each tenant's recent use of the pool, if that determines the order of waiters.
    pub accounts: Accounts,
    /// Tenants that processes with isolates were serving when they ended.
    pub offenders: Offenders,
    /// Its state besides the tables.
    pub life: Life,
    /// The end of the oldest waiter's affinity wait, while it lasts.
    pub head_until: Option<Timestamp>,
    /// When a process was last reaped, made to forget, or opened in a freed place, because an affinity wait was over.
    pub last_impatience: Timestamp,
    /// When a waiter last left the queue to be served.
    pub last_served: Timestamp,
    /// Counts since the pool was created.
    pub totals: PoolTotals,
}

/// One process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proc {
    pub state: ProcState,
    /// The tenant that it is tagged for, until it forgets everything (PM-8).
    pub tenant: Option<Tenant>,
    /// The design documents it knows, one text per id. Short, so scanned at each lending.
    pub ddocs: Vec<DdocKey>,
    /// The isolates of other tenants, least recently used first.
    pub parked: Vec<Isolate>,
    /// Maximum tenants with an isolate in it; 0: it has no isolates.
    pub isolates_max: u32,
    /// Whether it is reserved for the selected tenant.
    pub is_apart: bool,
    /// How often it was assigned.
    pub uses: u64,
    /// Whether it was assigned since it started or forgot everything.
    pub has_served: bool,
    /// Its latest client and tenant since its start, since its last reset by the service, or since it forgot
    /// everything.
    pub left_by: Option<(ClientId, Tenant)>,
    /// Its order among equals while idle: the largest is lent first.
    pub rank: u64,
    /// Whether it serves the bulk lane.
    pub bulk: bool,
    /// Its memory when last measured, in bytes.
    pub memory: Option<u64>,
    /// When its opening succeeded.
    pub born: Timestamp,
    /// When it last became idle.
    pub last_use: Timestamp,
}

/// A process's state for a tenant that it does not serve now.
#[derive(Clone, Debug)]
pub(crate) struct Isolate {
    pub tenant: Tenant,
    pub ddocs: Vec<DdocKey>,
    /// When another tenant's isolate was selected instead.
    pub left: Timestamp,
}

/// The state of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProcState {
    /// It waits for a client.
    Idle,
    /// Lent: a client holds it.
    Assigned { client: ClientId, token: Token },
    /// It learns a design document.
    Teaching {
        /// The request, while it waits.
        request: Option<RequestId>,
        /// The document that it learns.
        ddoc: DdocKey,
    },
    /// It is being reset after a client.
    Resetting,
    /// It drops everything taught and all effects of functions. Its documents are already removed, and its tag is the
    /// request's.
    Forgetting {
        /// The request, while it waits.
        request: Option<RequestId>,
    },
    /// Being moved between two uses. Never occurs between two events (PM-14).
    #[default]
    Transitioning,
}

impl ProcState {
    /// The waiting request that it learns or forgets for.
    pub const fn request(&self) -> Option<RequestId> {
        match self {
            Self::Teaching { request, .. } | Self::Forgetting { request } => *request,
            Self::Idle | Self::Assigned { .. } | Self::Resetting | Self::Transitioning => None,
        }
    }
}

/// One opening in flight.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    /// The request, while it waits; `None` from the start if it replenishes.
    pub request: Option<RequestId>,
    /// The tag that it is opened for, and under which it counts until then.
    pub tenant: Option<Tenant>,
    /// Whether it is for the bulk lane.
    pub bulk: bool,
    /// Maximum tenants with an isolate in the process.
    pub isolates_max: u32,
}

impl Pool {
    pub fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            count_max: settings.limits.hard_limit,
            ..Self::default()
        }
    }

    /// Returns the number of processes and openings, which the limits apply to.
    pub fn count(&self) -> u32 {
        (self.procs.len() + self.opening.len()) as u32
    }

    /// Whether the limit was lowered below the number in use.
    pub fn is_over_limit(&self) -> bool {
        self.count() > self.settings.limits.hard_limit
    }

    /// When a waiter that arrived at `arrived` stops waiting for a process of its own database, once it is the
    /// oldest.
    pub fn affinity_end(&self, arrived: Timestamp) -> Timestamp {
        arrived.max(self.last_impatience) + self.settings.limits.affinity_wait
    }

    /// How many idle tagged processes may be stopped now to free their slots.
    pub fn reapable(&self) -> usize {
        self.batch_left().min(self.idle.tagged_len())
    }

    /// Takes a slot for an opening.
    pub fn begin_opening(&mut self, number: u64, opening: Opening) {
        debug_assert!(self.has_slot(), "PM-1: nothing is opened at the limit");
        if opening.tenant.is_some() {
            self.idle.join(opening.tenant.as_ref(), &[]);
        }
        self.bulk += u32::from(opening.bulk);
        self.opening.insert(number, opening);
    }

    /// Turns an opening into a transitioning process, and returns the opening.
    pub fn finish_opening(&mut self, number: u64, now: Timestamp) -> Option<Opening> {
        let opening = self.take_opening(number)?;
        let proc = Proc {
            isolates_max: opening.isolates_max,
            rank: number,
            bulk: opening.bulk,
            born: now,
            last_use: now,
            ..Proc::default()
        };
        self.idle.join(None, &[]);
        if let Some(end) = self.end_of_life(number, &proc) {
            self.life.ages.insert((end, number));
        }
        self.procs.insert(number, proc);
        Some(opening)
    }

    /// Ends a failed opening, and frees its slot.
    pub fn fail_opening(&mut self, number: u64) -> Option<Opening> {
        let opening = self.take_opening(number)?;
        self.bulk -= u32::from(opening.bulk);
        self.life.shrunk = true;
        Some(opening)
    }

    fn take_opening(&mut self, number: u64) -> Option<Opening> {
        let opening = self.opening.remove(&number)?;
        if opening.tenant.is_some() {
            self.idle.leave(opening.tenant.as_ref(), &[]);
        }
        Some(opening)
    }

    /// Retags openings for requests after a change of the rules of reuse.
    pub fn retag_openings(&mut self, ledger: &Ledger) {
        for opening in self.opening.values_mut() {
            let Some(request) = opening.request.and_then(|id| ledger.request(id)) else {
                continue;
            };
            if opening.tenant.is_some() {
                self.idle.leave(opening.tenant.as_ref(), &[]);
            }
            opening.tenant = self.settings.wanted(request).tenant().cloned();
            if opening.tenant.is_some() {
                self.idle.join(opening.tenant.as_ref(), &[]);
            }
        }
    }

    /// Makes a transitioning process idle. `returns`: the number of earlier returns, in all pools.
    pub fn make_idle(&mut self, number: u64, now: Timestamp, returns: u64) {
        let proc = transitioning(&mut self.procs, number);
        proc.state = ProcState::Idle;
        proc.last_use = now;
        if self.settings.kind == PoolKind::Named {
            proc.rank = returns;
        }
        self.bulk -= u32::from(std::mem::take(&mut proc.bulk));
        self.idle.put(number, proc);
        if self.waiters.len > 0 {
            for (tenant, _) in proc.known() {
                self.waiters.note(tenant, |state| state.has_idle = true);
            }
        }
    }

    /// Makes an idle process transitioning.
    pub fn take_idle(&mut self, number: u64) {
        let proc = known(&mut self.procs, number);
        debug_assert_eq!(proc.state, ProcState::Idle, "PM-2");
        self.idle.take(number, proc);
        proc.state = ProcState::Transitioning;
        if self.waiters.len > 0 {
            for (tenant, _) in proc.known() {
                let has_idle = self.idle.has_idle(tenant);
                self.waiters.note(tenant, |state| state.has_idle = has_idle);
            }
        }
    }

    /// Makes a process that is not idle transitioning: its use is over.
    pub fn take_busy(&mut self, number: u64) {
        let proc = known(&mut self.procs, number);
        debug_assert_ne!(proc.state, ProcState::Idle, "PM-2");
        proc.state = ProcState::Transitioning;
    }

    /// Begins to teach, reset or forget a transitioning process.
    pub fn begin_help(&mut self, number: u64, state: ProcState) {
        let proc = transitioning(&mut self.procs, number);
        proc.state = state;
    }

    /// Assigns a transitioning process to a client, for a tenant. Returns whether another client may have left
    /// something in it.
    pub fn assign(&mut self, number: u64, client: ClientId, tenant: &Tenant, token: Token) -> bool {
        let proc = transitioning(&mut self.procs, number);
        proc.state = ProcState::Assigned { client, token };
        let left_by = proc.left_by.as_ref();
        let is_its_own = left_by.is_some_and(|(last, of)| *last == client && of == tenant);
        let is_left = left_by.is_some() && !is_its_own;
        if !is_its_own {
            proc.left_by = Some((client, tenant.clone()));
        }
        proc.uses += 1;
        proc.has_served = true;
        self.totals.taken += 1;
        is_left
    }

    /// Whether this client holds this process with this token.
    pub fn is_held(&self, number: u64, holder: (ClientId, Token)) -> bool {
        self.procs.get(&number).is_some_and(|proc| {
            let (client, token) = holder;
            proc.state == ProcState::Assigned { client, token }
        })
    }

    /// Tags a transitioning process for a tenant. Returns false if it was already tagged.
    pub fn tag(&mut self, number: u64, tenant: &Tenant) -> bool {
        let proc = transitioning(&mut self.procs, number);
        if let Some(tag) = &proc.tenant {
            debug_assert_eq!(tag, tenant, "PM-8: only forgetting takes a tag");
            return false;
        }
        self.idle.leave(None, &proc.ddocs);
        self.idle.join(Some(tenant), &proc.ddocs);
        proc.tenant = Some(tenant.clone());
        self.life.shrunk = true;
        true
    }

    /// Removes the tag and the documents of a process that is not idle, because it forgets them. Returns the tag.
    pub fn untag(&mut self, number: u64) -> Option<Tenant> {
        let proc = known(&mut self.procs, number);
        debug_assert_ne!(proc.state, ProcState::Idle, "PM-2");
        self.idle.leave(proc.tenant.as_ref(), &proc.ddocs);
        self.idle.join(None, &[]);
        proc.ddocs.clear();
        proc.has_served = false;
        proc.left_by = None;
        self.life.shrunk = true;
        proc.tenant.take()
    }

    /// Records that a transitioning process knows `ddoc`, and no other text of that id.
    pub fn learn(&mut self, number: u64, ddoc: DdocKey) {
        let proc = transitioning(&mut self.procs, number);
        let same_id = proc.ddocs.iter().position(|known| known.id == ddoc.id);
        let old = same_id.map(|at| proc.ddocs.remove(at));
        self.idle.learn(proc.tenant.as_ref(), &ddoc, old.as_ref());
        proc.ddocs.push(ddoc);
    }

    /// Removes a process in any state, and frees its slot.
    pub fn remove(&mut self, number: u64) -> Option<Proc> {
        if self.procs.get(&number)?.is_idle() {
            self.take_idle(number);
        }
        let proc = self.procs.remove(&number)?;
        for (tenant, ddocs) in proc.shelves() {
            self.idle.leave(tenant, ddocs);
        }
        self.bulk -= u32::from(proc.bulk);
        if let Some(end) = self.end_of_life(number, &proc) {
            self.life.ages.remove(&(end, number));
        }
        self.life.shrunk = true;
        Some(proc)
    }

    /// Whether the tenants' accounts determine the order of waiters.
    pub fn keeps_accounts(&self) -> bool {
        self.settings.fairness == Fairness::PerDb
    }

    /// Opens an account for a requesting tenant, if it needs one.
    pub fn join(&mut self, tenant: &Tenant) {
        if self.keeps_accounts() && !self.waiters.waits(tenant) {
            let waiters = &self.waiters;
            self.accounts.join(tenant, |other| waiters.waits(other));
        }
    }

    pub fn enqueue(&mut self, id: RequestId, request: &RequestRow, ledger: &Ledger) {
        self.join(&request.tenant);
        let lane = lane_place(&self.settings, request.lane);
        let state = self.tenant_state(&request.tenant, ledger);
        self.waiters.push(lane, id, &request.tenant, state);
    }

    pub fn dequeue(&mut self, id: RequestId, request: &RequestRow) {
        let lane = lane_place(&self.settings, request.lane);
        self.waiters.remove(lane, id, &request.tenant);
    }

    /// The next waiter.
    pub fn next_waiter(&self) -> Option<RequestId> {
        self.waiters.next(self.accounts.full)
    }

    fn tenant_state(&self, tenant: &Tenant, ledger: &Ledger) -> TenantState {
        TenantState {
            standing: self.accounts.standing(tenant),
            has_idle: self.idle.has_idle(tenant),
            is_held_back: ledger.tenants.is_held_back(tenant),
            has_own_queue: ledger.tenants.has_own_queue(tenant),
        }
    }

    /// The correct idle indexes, rebuilt from procs and openings.
    pub fn rebuilt_idle(&self) -> IdleIndex {
        let mut idle = IdleIndex::default();
        for opening in self.opening.values().filter(|row| row.tenant.is_some()) {
            idle.join(opening.tenant.as_ref(), &[]);
        }
        for (&number, proc) in &self.procs {
            for (tenant, ddocs) in proc.shelves() {
                idle.join(tenant, ddocs);
            }
            if proc.is_idle() {
                idle.put(number, proc);
            }
        }
        idle
    }

    /// The correct queue of each pool, rebuilt from the requests.
    pub fn rebuilt_waiters(pools: &[Self], ledger: &Ledger) -> Vec<Waiters> {
        let mut rebuilt = vec![Waiters::default(); pools.len()];
        for (request, row) in &ledger.requests {
            if row.place == RequestPlace::Queue {
                let at = row.pool.0 as usize;
                let lane = lane_place(&pools[at].settings, row.lane);
                let state = pools[at].tenant_state(&row.tenant, ledger);
                rebuilt[at].push(lane, *request, &row.tenant, state);
            }
        }
        rebuilt
    }

    /// Returns the tenant of each use: of lent processes, and of those opened, taught or made to forget for a
    /// request. `id`: the pool's.
    pub fn uses<'a>(&'a self, id: PoolId, ledger: &'a Ledger) -> impl Iterator<Item = &'a Tenant> {
        let lent = self.procs.values().filter_map(Proc::used_for);
        let rows = ledger.requests.values();
        let begun = rows.filter(move |row| row.pool == id && row.place != RequestPlace::Queue);
        lent.chain(begun.map(|row| &row.tenant))
    }
}

impl Proc {
    pub fn is_idle(&self) -> bool {
        self.state == ProcState::Idle
    }

    /// The tenants whose functions ran in it, with their known design documents.
    pub fn known(&self) -> impl Iterator<Item = (&Tenant, &[DdocKey])> + Clone {
        let parked = self
            .parked
            .iter()
            .map(|isolate| (&isolate.tenant, &isolate.ddocs[..]));
        let tenant = self.tenant.iter().map(|tenant| (tenant, &self.ddocs[..]));
        tenant.chain(parked)
    }

    /// Its shelves in the idle indexes: one for each tenant, and the untagged one (`None`) if it has isolates or no
    /// tenant.
    pub fn shelves(&self) -> impl Iterator<Item = (Option<&Tenant>, &[DdocKey])> {
        let untagged = match self.tenant {
            None => Some(&self.ddocs[..]),
            Some(_) => (self.isolates_max > 0).then_some(&[][..]),
        };
        let known = self.known().map(|(tenant, ddocs)| (Some(tenant), ddocs));
        known.chain(untagged.map(|ddocs| (None, ddocs)))
    }

    /// Whether it can take a new tenant without evicting another.
    pub fn has_room(&self) -> bool {
        match self.isolates_max {
            0 => self.tenant.is_none(),
            most => !self.is_apart && self.known().count() < most as usize,
        }
    }

    /// When its least recently served tenant was last served.
    pub fn oldest_use(&self) -> Timestamp {
        let parked = self.parked.first().map(|isolate| isolate.left);
        parked.unwrap_or(self.last_use)
    }

    /// The tenant that it is lent for, if it is lent.
    pub fn used_for(&self) -> Option<&Tenant> {
        let is_lent = matches!(self.state, ProcState::Assigned { .. });
        let left_by = self.left_by.as_ref().filter(|_| is_lent);
        left_by.map(|(_, tenant)| tenant)
    }
}

fn transitioning(procs: &mut FxHashMap<u64, Proc>, number: u64) -> &mut Proc {
    let proc = known(procs, number);
    debug_assert_eq!(proc.state, ProcState::Transitioning, "PM-14");
    proc
}

/// The row of a process that another table of the pool names.
pub(super) fn known(procs: &mut FxHashMap<u64, Proc>, number: u64) -> &mut Proc {
    procs
        .get_mut(&number)
        .expect("PM-2: every process that another table names is in procs")
}
