//! Runs the core and the naive model in parallel, for property tests.
//!
//! SUMMARY   A [`Step`] is an event; a [`Trial`] passes it to both, compares their actions, and checks every
//!           invariant.

use std::collections::{BTreeMap, BTreeSet};

use super::model::Model;
use super::*;

/// One step of a history. Numbers select among existing objects.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Ask {
        client: u64,
        pool: u32,
        affinity: Option<Affinity>,
        patience_ms: u64,
    },
    Return {
        lease: usize,
        status: ReturnStatus,
        condition: Condition,
        /// Whether the right client returns it with the right token.
        rightful: bool,
    },
    Down {
        client: u64,
        condition: Option<Condition>,
    },
    Withdraw(usize),
    EndOpening(usize, bool),
    EndHelp(usize, bool),
    EndStopping(usize),
    /// An event about any process that ever existed.
    Stray(usize, u8),
    Advance(u64),
    AdvanceToDeadline,
    Reload,
    Configure(u32, Limits),
    Reuse(u32, Reuse),
    CanForget(u32, bool),
    Isolates(u32, u32),
    /// A process in use evicts one of its parked isolates.
    Evict(usize, usize),
    LendsTaught(u32, bool),
    /// A database's share in thousandths of a core, and its maximum queue length; 0 is no bound.
    Bound(&'static str, u32, u32),
    /// A use has cost this database this many milliseconds of CPU time.
    Charge(&'static str, u64),
    Shutdown,
}

/// Both implementations, and the state that a manager would keep of their actions.
pub(super) struct Trial {
    pub(super) pools: Pools,
    model: Model,
    now: Timestamp,
    next_request: u64,
    opening: Vec<ProcId>,
    helping: Vec<ProcId>,
    stopping: Vec<ProcId>,
    leases: Vec<Lease>,
    procs: Vec<ProcId>,
    asked: BTreeMap<RequestId, (ClientId, Option<Affinity>)>,
    pub(super) unanswered: BTreeSet<RequestId>,
    tokens: BTreeSet<Token>,
    /// Those of `helping` that are forgetting.
    forgetting: BTreeSet<ProcId>,
    /// The tenant whose design documents a process has served since it forgot.
    served: BTreeMap<ProcId, Tenant>,
    /// The tenant that an unshared process has served since it forgot.
    ran_for: BTreeMap<ProcId, Tenant>,
    /// The state of processes with isolates.
    isolates: BTreeMap<ProcId, Isolates>,
    /// Evicted isolates not reported yet.
    evicted: Vec<(ProcId, Tenant)>,
    /// Pool -> the newest process when its settings last replaced processes.
    renewed: [u64; 2],
    rules: BTreeMap<String, TenantRule>,
}

/// A process's isolates.
#[derive(Default)]
struct Isolates {
    max: usize,
    /// The selected one is last.
    known: Vec<(Tenant, BTreeMap<Arc<str>, DdocKey>)>,
    /// The design document that the selected one is learning.
    lesson: Option<DdocKey>,
}

impl Isolates {
    /// Selects a tenant's isolate. Returns the tenant whose isolate this evicts, if any.
    fn select(&mut self, Select { tenant, is_new }: Select) -> Option<Tenant> {
        let place = self.known.iter().position(|(other, _)| *other == tenant);
        assert!(
            is_new || place.is_some(),
            "PM-24: {tenant:?} has no isolate"
        );
        let before = place.map(|place| self.known.remove(place).1);
        let before = before.filter(|_| !is_new).unwrap_or_default();
        self.known.push((tenant, before));
        (self.known.len() > self.max).then(|| self.known.remove(0).0)
    }

    /// Evicts an isolate that is not selected, if there is one, and returns its tenant.
    fn end(&mut self, n: usize) -> Option<Tenant> {
        let parked = self.known.len().checked_sub(1)?;
        Some(self.known.remove(n.checked_rem(parked)?).0)
    }

    /// Requires that the process can serve a tenant at once.
    fn serves(&self, tenant: &Tenant, ddoc: Option<&DdocKey>) {
        let (selected, ddocs) = self.known.last().expect("PM-24: nothing is selected");
        assert_eq!(
            selected, tenant,
            "PM-24: another tenant's isolate is selected"
        );
        if let Some(ddoc) = ddoc {
            assert_eq!(ddocs.get(&ddoc.id), Some(ddoc), "it knows the document");
        }
    }
}

impl Trial {
    pub(super) fn new(limits: &[Limits]) -> Self {
        let mut pools = Pools::default();
        for (index, limits) in limits.iter().enumerate() {
            assert_eq!(pools.add_pool((*limits).into()), PoolId(index as u32));
        }
        Self {
            pools,
            model: Model::new(limits),
            now: Timestamp::ZERO,
            next_request: 1,
            opening: Vec::new(),
            helping: Vec::new(),
            stopping: Vec::new(),
            leases: Vec::new(),
            procs: Vec::new(),
            asked: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            tokens: BTreeSet::new(),
            forgetting: BTreeSet::new(),
            served: BTreeMap::new(),
            ran_for: BTreeMap::new(),
            isolates: BTreeMap::new(),
            evicted: Vec::new(),
            renewed: [0; 2],
            rules: BTreeMap::new(),
        }
    }

    pub(super) fn step(&mut self, step: Step) {
        let event = match step {
            Step::Ask {
                client,
                pool,
                affinity,
                patience_ms,
            } => return self.ask(client, pool, affinity, patience_ms),
            Step::Return {
                lease,
                status,
                condition,
                rightful,
            } => match pick(&self.leases, lease) {
                Some(lease) => lease.returned(status, condition, rightful),
                None => return,
            },
            Step::Down { client, condition } => return self.down(ClientId(client), condition),
            Step::Withdraw(n) => match self.withdrawn(n) {
                Some(event) => event,
                None => return,
            },
            Step::EndOpening(n, ok) => match take(&mut self.opening, n) {
                Some(proc) if ok => Event::SpawnOk { proc },
                Some(proc) => Event::SpawnError { proc },
                None => return,
            },
            Step::EndHelp(n, ok) => match take(&mut self.helping, n) {
                Some(proc) => Event::TeachOrResetDone { proc, ok },
                None => return,
            },
            Step::EndStopping(n) => match take(&mut self.stopping, n) {
                Some(proc) => Event::ProcExit { proc },
                None => return,
            },
            Step::Stray(n, kind) => match self.stray(n, kind) {
                Some(event) => event,
                None => return,
            },
            Step::Advance(ms) => {
                self.now = self.now + Duration::from_millis(ms);
                Event::Tick
            }
            Step::AdvanceToDeadline => {
                self.now = self.now.max(self.pools.next_deadline().unwrap_or(self.now));
                Event::Tick
            }
            Step::Reload => Event::SetThresholdTs,
            Step::Configure(pool, limits) => self.reconfigured(PoolId(pool), |settings| {
                settings.limits = limits;
            }),
            Step::Reuse(pool, reuse) => self.renewed(pool, |settings| settings.reuse = reuse),
            Step::CanForget(pool, can) => self.renewed(pool, |settings| settings.can_forget = can),
            Step::Isolates(pool, max) => self.renewed(pool, |settings| settings.isolates_max = max),
            Step::LendsTaught(pool, lends) => {
                self.renewed(pool, |settings| settings.lends_taught = lends)
            }
            Step::Evict(n, isolate) => match self.evict(n, isolate) {
                Some(event) => event,
                None => return,
            },
            Step::Bound(db, share, queue) => self.bounded(db, share, queue),
            Step::Charge(db, ms) => Event::Charge {
                db: db.into(),
                cost: Duration::from_millis(ms),
            },
            Step::Shutdown => Event::Shutdown,
        };
        self.on(event);
    }

    fn withdrawn(&mut self, n: usize) -> Option<Event> {
        let open: Vec<RequestId> = self.unanswered.iter().copied().collect();
        let request = pick(&open, n)?;
        self.unanswered.remove(&request);
        Some(Event::Withdraw { request })
    }

    /// Changes settings in a way that replaces processes.
    fn renewed(&mut self, pool: u32, change: impl FnOnce(&mut PoolSettings)) -> Event {
        let newest = self.procs.iter().map(|proc| proc.number).max();
        self.renewed[pool as usize] = newest.unwrap_or_default();
        self.reconfigured(PoolId(pool), change)
    }

    fn evict(&mut self, n: usize, isolate: usize) -> Option<Event> {
        let used = self.leases.iter().map(|lease| lease.proc);
        let used: Vec<ProcId> = used.chain(self.helping.iter().copied()).collect();
        let proc = pick(&used, n)?;
        let tenants = vec![self.isolates.get_mut(&proc)?.end(isolate)?];
        Some(Event::Evicted { proc, tenants })
    }

    fn reconfigured(&self, pool: PoolId, change: impl FnOnce(&mut PoolSettings)) -> Event {
        let mut settings = self.pools.settings(pool).copied().unwrap_or_default();
        change(&mut settings);
        let settings = Box::new(settings);
        Event::Reconfigure { pool, settings }
    }

    fn bounded(&mut self, db: &str, share: u32, queue: u32) -> Event {
        let rule = TenantRule {
            cpu_share: Some(share),
            queue_max: Some(queue),
            ..TenantRule::default()
        };
        self.rules.insert(db.to_owned(), rule);
        let rules = Box::new(TenantRules::new(self.rules.clone()));
        Event::SetTenants { rules }
    }

    fn ask(&mut self, client: u64, pool: u32, affinity: Option<Affinity>, patience_ms: u64) {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        let client = ClientId(client);
        // Pool 2 does not exist: requests to it are ignored.
        if (pool as usize) < 2 {
            self.asked.insert(request, (client, affinity.clone()));
            self.unanswered.insert(request);
        }
        self.on(Event::GetProc {
            request,
            client,
            target: Target::Pool(PoolId(pool)),
            lane: Lane::default(),
            affinity,
            deadline: self.now + Duration::from_millis(patience_ms),
        });
    }

    fn down(&mut self, client: ClientId, condition: Option<Condition>) {
        let asked = &self.asked;
        self.unanswered.retain(|request| asked[request].0 != client);
        let held = self.pools.held_by(client).into_iter();
        let conditions = held.filter_map(|proc| Some((proc, condition?))).collect();
        self.on(Event::ClientDown {
            client,
            normal: false,
            conditions,
        });
    }

    fn stray(&self, n: usize, kind: u8) -> Option<Event> {
        let proc = pick(&self.procs, n)?;
        Some(match kind {
            0 | 1 => Event::OsProcIdle { proc },
            2 if !self.opening.contains(&proc) => Event::ProcExit { proc },
            3 if !self.opening.contains(&proc) => Event::SpawnOk { proc },
            4 if !self.opening.contains(&proc) => Event::SpawnError { proc },
            5 if !self.helping.contains(&proc) => Event::TeachOrResetDone { proc, ok: false },
            _ => Event::OsProcIdle {
                proc: ProcId {
                    pool: PoolId(9),
                    number: proc.number,
                },
            },
        })
    }

    /// Passes the event to the core and the model, compares their actions, and checks every invariant.
    fn on(&mut self, event: Event) {
        if let Event::ProcExit { proc, .. } = event {
            self.helping.retain(|other| *other != proc);
            self.stopping.retain(|other| *other != proc);
        }
        if let Event::TeachOrResetDone { proc, ok } = event
            && self.forgetting.remove(&proc)
            && ok
        {
            self.served.remove(&proc);
            self.ran_for.remove(&proc);
        }
        if let Event::TeachOrResetDone { proc, ok: true } = event
            && let Some(row) = self.isolates.get_mut(&proc)
            && let Some(ddoc) = row.lesson.take()
        {
            let (_, ddocs) = row.known.last_mut().expect("a lesson is for a tenant");
            ddocs.insert(Arc::clone(&ddoc.id), ddoc);
        }
        let mut actions = Vec::new();
        self.pools.handle(event.clone(), self.now, &mut actions);
        let expected = self.model.handle(event.clone(), self.now);
        assert_eq!(actions, expected, "core and model differ about {event:?}");
        if let Some(violation) = violations(&self.pools).next() {
            panic!("after {event:?}: {violation}");
        }
        assert_eq!(self.pools.proc_count() as usize, self.model.count());
        for action in actions {
            self.note(action);
        }
        while let Some((proc, tenant)) = self.evicted.pop() {
            let tenants = vec![tenant];
            self.on(Event::Evicted { proc, tenants });
        }
        let pools = &self.pools;
        self.leases
            .retain(|lease| pools.holds(lease.client, lease.proc, lease.token));
    }

    fn note(&mut self, action: PoolAction) {
        match action {
            PoolAction::Open { proc, .. } => self.opens(proc),
            PoolAction::Teach {
                proc,
                request,
                select,
            } => {
                self.helping.push(proc);
                if let Some(row) = self.isolates.get_mut(&proc) {
                    let asked = self.asked[&request].1.as_ref();
                    row.lesson = asked.and_then(|asked| asked.ddoc.clone());
                    let evicted = select.and_then(|select| row.select(select));
                    self.evicted.extend(evicted.map(|tenant| (proc, tenant)));
                }
            }
            PoolAction::Reset { proc } => self.helping.push(proc),
            PoolAction::Forget { proc } => {
                self.helping.push(proc);
                self.forgetting.insert(proc);
            }
            PoolAction::Stop { proc, .. } => {
                self.forgetting.remove(&proc);
                self.helping.retain(|other| *other != proc);
                self.stopping.push(proc);
            }
            PoolAction::Refuse { request, .. } => self.answered(request),
            PoolAction::Assign {
                request,
                proc,
                token,
                select,
                ..
            } => self.assigned(request, (proc, token), select),
            PoolAction::ProcRevoked { .. } | PoolAction::PoolGone { .. } | PoolAction::Warn(..) => {
                panic!("unexpected in a language pool: {action:?}")
            }
        }
    }

    fn opens(&mut self, proc: ProcId) {
        self.opening.push(proc);
        self.procs.push(proc);
        let settings = self.pools.settings(proc.pool);
        let max = settings.map_or(0, |settings| settings.isolates_max) as usize;
        if max > 0 {
            let known = Isolates {
                max,
                ..Isolates::default()
            };
            self.isolates.insert(proc, known);
        }
    }

    fn assigned(
        &mut self,
        request: RequestId,
        (proc, token): (ProcId, Token),
        select: Option<Select>,
    ) {
        self.answered(request);
        assert!(self.tokens.insert(token), "PM-3: {token:?} was used before");
        let (client, affinity) = self.asked[&request].clone();
        let (tenant, ddoc) = match affinity {
            Some(Affinity { tenant, ddoc }) => (tenant, ddoc),
            None => (Tenant::Client(client), None),
        };
        self.leases.push(Lease {
            client,
            proc,
            token,
        });
        if let Some(row) = self.isolates.get_mut(&proc) {
            let evicted = select.and_then(|select| row.select(select));
            self.evicted.extend(evicted.map(|tenant| (proc, tenant)));
            return row.serves(&tenant, ddoc.as_ref());
        }
        if ddoc.is_some() && matches!(tenant, Tenant::Database(_)) {
            let before = self.served.entry(proc).or_insert_with(|| tenant.clone());
            assert_eq!(*before, tenant, "PM-8: {proc} serves two databases");
        }
        let settings = self.pools.settings(proc.pool);
        let is_apart = settings.is_some_and(PoolSettings::keeps_apart);
        let is_new = proc.number > self.renewed[proc.pool.0 as usize];
        if is_new && is_apart {
            let before = self.ran_for.entry(proc).or_insert_with(|| tenant.clone());
            assert_eq!(*before, tenant, "PM-24: {proc} serves two tenants");
        }
    }

    fn answered(&mut self, request: RequestId) {
        assert!(
            self.unanswered.remove(&request),
            "PM-4: {request:?} is answered twice"
        );
    }

    /// Completes all pending work and advances to every deadline.
    pub(super) fn wind_up(&mut self) {
        loop {
            if let Some(proc) = self.opening.pop() {
                self.on(Event::SpawnOk { proc });
            } else if let Some(proc) = self.helping.pop() {
                self.on(Event::TeachOrResetDone { proc, ok: true });
            } else if let Some(proc) = self.stopping.pop() {
                self.on(Event::ProcExit { proc });
            } else if let Some(lease) = self.leases.first().copied() {
                self.on(lease.returned(ReturnStatus::Ok, Condition::Clean, true));
            } else if let Some(at) = self.pools.next_deadline() {
                self.now = at;
                self.on(Event::Tick);
                assert_ne!(
                    self.pools.next_deadline(),
                    Some(at),
                    "a tick clears its deadline"
                );
            } else {
                break;
            }
        }
        assert_eq!(
            self.unanswered,
            BTreeSet::new(),
            "PM-4: unanswered requests"
        );
        assert_eq!(self.model.open_requests(), 0);
    }
}

impl Lease {
    fn returned(self, status: ReturnStatus, condition: Condition, rightful: bool) -> Event {
        let spoilt = u64::from(!rightful);
        Event::RetProc {
            client: ClientId(self.client.0 + spoilt * (self.token.0 % 2)),
            proc: self.proc,
            token: Token(self.token.0 + spoilt * (1 - self.token.0 % 2)),
            status,
            condition,
        }
    }
}

pub(super) fn pick<T: Copy>(from: &[T], n: usize) -> Option<T> {
    from.get(n.checked_rem(from.len())?).copied()
}

pub(super) fn take<T>(from: &mut Vec<T>, n: usize) -> Option<T> {
    let at = n.checked_rem(from.len())?;
    Some(from.remove(at))
}
