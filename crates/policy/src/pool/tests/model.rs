//! The pool once more: slow, in plain vectors, and short enough to be seen to be right.
//!
//! SUMMARY   A second implementation of the whole decision core. Every choice is a scan; a request
//!           is inside the one place where it is; there is no index, no timer and no skipped flush.
//! CALLED    By the property tests, which require the same actions of both.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Seconds in thousandths of a core's nanoseconds, for a share of a thousandth.
const SECOND: i128 = 1_000_000_000;

/// All pools, naively.
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
    /// What is left in the buckets that are not full, in thousandths of nanoseconds.
    left: BTreeMap<DbKey, i128>,
    /// Who is held back.
    held_back: BTreeSet<DbKey>,
    out: Vec<PoolAction>,
}

struct ModelPool {
    limits: Limits,
    reuse: Reuse,
    can_forget: bool,
    isolates_max: u32,
    lends_taught: bool,
    /// Processes below this number were decided before `reuse` or `can_forget` changed.
    renewed: u64,
    procs: Vec<ModelProc>,
    opening: Vec<ModelOpening>,
    stopping: Vec<ProcId>,
    last_impatience: Timestamp,
    queue: Vec<Ask>,
    /// What tenants have to make up for, over whose work processes with isolates have ended; and whether they have
    /// processes of their own.
    offenders: BTreeMap<Tenant, (u32, bool)>,
}

/// A request, wherever it is.
#[derive(Clone)]
struct Ask {
    id: RequestId,
    client: ClientId,
    affinity: Option<Affinity>,
    arrived: Timestamp,
    deadline: Timestamp,
}

struct ModelOpening {
    id: ProcId,
    ask: Option<Ask>,
    /// What it is meant for.
    tag: Option<Tenant>,
    isolates_max: u32,
}

struct ModelProc {
    id: ProcId,
    state: State,
    tag: Option<Tenant>,
    ddocs: Vec<DdocKey>,
    /// The isolates of other tenants, with what they know and since when they are others', the oldest first.
    parked: Vec<(Tenant, Vec<DdocKey>, Timestamp)>,
    isolates_max: u32,
    is_apart: bool,
    last_use: Timestamp,
    /// Its last holder and tenant, unless it was reset since.
    left_by: Option<(ClientId, Tenant)>,
}

enum State {
    Idle,
    Assigned(ClientId, Token),
    Teaching(Option<Ask>, DdocKey),
    Resetting,
    Forgetting(Option<Ask>),
}

impl Ask {
    fn tenant(&self) -> Tenant {
        let client = Tenant::Client(self.client);
        let affinity = self.affinity.as_ref();
        affinity.map_or(client, |affinity| affinity.tenant.clone())
    }

    fn ddoc(&self) -> Option<&DdocKey> {
        self.affinity.as_ref()?.ddoc.as_ref()
    }

    /// The tag of the process that serves it; none: it stays as it is. `apart`: whether a process serves one
    /// tenant only.
    fn tag(&self, apart: bool) -> Option<Tenant> {
        let is_of_db = self.ddoc().is_some() && matches!(self.tenant(), Tenant::Database(_));
        (apart || is_of_db).then(|| self.tenant())
    }
}

impl ModelProc {
    fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// What it knows of a tenant; `None`: not even that.
    fn knows(&self, tenant: &Tenant) -> Option<&[DdocKey]> {
        let mut parked = self.parked.iter();
        let parked = parked.find(|(other, ..)| other == tenant);
        match &self.tag {
            Some(tag) if tag == tenant => Some(&self.ddocs),
            _ => parked.map(|(_, ddocs, _)| &ddocs[..]),
        }
    }

    fn has_room(&self) -> bool {
        let known = self.parked.len() + usize::from(self.tag.is_some());
        known < self.isolates_max.max(1) as usize && !self.is_apart
    }

    fn oldest_use(&self) -> Timestamp {
        self.parked
            .first()
            .map_or(self.last_use, |(.., left)| *left)
    }

    fn select(&mut self, tenant: Tenant, is_apart: bool, now: Timestamp) -> Option<Select> {
        if self.tag.as_ref() == Some(&tenant) {
            return None;
        }
        if let Some(before) = self.tag.replace(tenant.clone()) {
            let ddocs = std::mem::take(&mut self.ddocs);
            self.parked.push((before, ddocs, now));
        }
        let is_new = !self.parked.iter().any(|(other, ..)| *other == tenant);
        let own = |isolate: &mut (Tenant, Vec<DdocKey>, Timestamp)| isolate.0 == tenant;
        if let Some((_, ddocs, _)) = self.parked.extract_if(.., own).next() {
            self.ddocs = ddocs;
        }
        self.is_apart = is_apart;
        if is_apart {
            self.parked.clear();
        } else if self.parked.len() == self.isolates_max as usize {
            self.parked.remove(0);
        }
        self.left_by = None;
        Some(Select { tenant, is_new })
    }

    /// Whether nothing that it was taught would be lost if it forgot.
    fn is_untaught(&self) -> bool {
        self.tag.is_some() && self.ddocs.is_empty()
    }
}

impl ModelPool {
    fn count(&self) -> usize {
        self.procs.len() + self.opening.len()
    }

    fn apart(&self) -> bool {
        self.reuse == Reuse::Database || self.can_forget || self.isolates_max > 0
    }

    /// Whether the tenant of a request has processes of its own.
    fn sets_apart(&self, ask: &Ask) -> bool {
        self.offenders
            .get(&ask.tenant())
            .is_some_and(|(_, is_apart)| *is_apart)
    }

    fn limit(&self) -> usize {
        self.limits.hard_limit as usize
    }

    fn position(&self, id: ProcId) -> Option<usize> {
        self.procs.iter().position(|proc| proc.id == id)
    }

    /// The best idle process. Better is: the client's own tag, knowing the document. Where processes
    /// are shared, for a client without a document: no tag, else its own. Among equals, the newest. If there is none, the one that was not used for longest of those that can forget their tenant
    /// and lose no document by that.
    ///
    /// With isolates: one that knows tenant and document, one that knows the tenant, one with room for it.
    fn pick_own(&self, ask: &Ask) -> Option<usize> {
        if self.isolates_max > 0 {
            let score = |proc: &ModelProc| match proc.knows(&ask.tenant()) {
                Some(known) => Some(ask.ddoc().is_none_or(|ddoc| known.contains(ddoc)).into()),
                None => (proc.has_room() && !self.sets_apart(ask)).then_some(-1),
            };
            let idle = self.procs.iter().enumerate().filter(|(_, p)| p.is_idle());
            let fits = idle.filter_map(|(at, proc)| Some((score(proc)?, proc.id, at)));
            return fits.max().map(|(_, _, at)| at);
        }
        let tag = ask.tag(self.apart());
        let takes_any = !self.apart() && ask.ddoc().is_none();
        let knows = |proc: &ModelProc| ask.ddoc().is_none_or(|ddoc| proc.ddocs.contains(ddoc));
        let score = |proc: &ModelProc| {
            let is_its_own = proc.tag.as_ref().is_none_or(|tag| *tag == ask.tenant());
            if takes_any {
                is_its_own.then_some((proc.tag.is_none(), false))
            } else if proc.tag == tag {
                Some((true, knows(proc)))
            } else {
                proc.tag.is_none().then_some((false, false))
            }
        };
        let idle = || self.procs.iter().enumerate().filter(|(_, p)| p.is_idle());
        let fits = idle().filter_map(|(at, proc)| score(proc).map(|score| (score, proc.id, at)));
        let best = fits.max().map(|(_, _, at)| at);
        let untaught = idle().filter(|(_, proc)| self.can_forget && proc.is_untaught());
        let oldest = untaught.min_by_key(|(_, proc)| (proc.last_use, proc.id));
        best.or(oldest.map(|(at, _)| at))
    }

    /// As [`Self::pick_own`], else where taught processes are lent the one of the largest tag: the newest.
    fn pick(&self, ask: &Ask) -> Option<usize> {
        let lends = self.lends_taught && !self.apart() && ask.ddoc().is_none();
        let idle = self
            .procs
            .iter()
            .enumerate()
            .filter(|(_, p)| lends && p.is_idle());
        let last = idle.max_by_key(|(_, proc)| (proc.tag.clone(), proc.id));
        self.pick_own(ask).or(last.map(|(at, _)| at))
    }

    /// Takes a request out, wherever it is, and says what it waited for.
    fn pull(&mut self, id: RequestId) -> Option<(Ask, Phase)> {
        if let Some(at) = self.queue.iter().position(|ask| ask.id == id) {
            return Some((self.queue.remove(at), Phase::Queue));
        }
        for opening in &mut self.opening {
            if opening.ask.as_ref().is_some_and(|ask| ask.id == id) {
                return opening.ask.take().map(|ask| (ask, Phase::Open));
            }
        }
        for proc in &mut self.procs {
            let is_meant = |ask: &Option<Ask>| ask.as_ref().is_some_and(|ask| ask.id == id);
            match &mut proc.state {
                State::Teaching(ask, _) if is_meant(ask) => {
                    return ask.take().map(|ask| (ask, Phase::Teach));
                }
                State::Forgetting(ask) if is_meant(ask) => {
                    proc.tag = None;
                    return ask.take().map(|ask| (ask, Phase::Teach));
                }
                _ => {}
            }
        }
        None
    }

    fn asks(&self) -> Vec<Ask> {
        let opening = self.opening.iter().filter_map(|row| row.ask.clone());
        let teaching = self.procs.iter().filter_map(|proc| match &proc.state {
            State::Teaching(ask, _) | State::Forgetting(ask) => ask.clone(),
            _ => None,
        });
        self.queue
            .iter()
            .cloned()
            .chain(opening)
            .chain(teaching)
            .collect()
    }
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
                        ReturnStatus::Ok | ReturnStatus::Lost => self.come_back(proc, condition),
                    }
                }
            }
            Event::ClientDown {
                client, conditions, ..
            } => self.down(client, &conditions),
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
            Event::TerminateStaleProcs => self.stop_stale(),
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

    fn down(&mut self, client: ClientId, conditions: &[(ProcId, Condition)]) {
        self.leaving = Some(client);
        for proc in self.held_by(client) {
            let told = conditions.iter().find(|(other, _)| *other == proc);
            self.come_back(proc, told.map_or(Condition::NeedsReset, |told| told.1));
        }
        for pool in &mut self.pools {
            for ask in pool.asks().iter().filter(|ask| ask.client == client) {
                pool.pull(ask.id);
            }
        }
        let procs = self.pools.iter().flat_map(|pool| &pool.procs);
        let free = procs.filter(|proc| !matches!(proc.state, State::Assigned(..)));
        let mut free: Vec<ProcId> = free.map(|proc| proc.id).collect();
        free.sort_unstable();
        for proc in free {
            if !self.is_orphan(proc) {
                continue;
            }
            match self.row(proc).is_idle() {
                true => self.rest(proc),
                false => self.stop(proc, StopReason::TenantGone),
            }
        }
        self.leaving = None;
    }

    fn idle_for_long(&mut self, proc: ProcId) {
        let Some((at, index)) = self.find(proc) else {
            return;
        };
        let pool = &self.pools[at];
        let row = &pool.procs[index];
        let spare = pool.count() >= pool.limits.soft_limit as usize;
        let is_tied = row.tag.is_some() && !(pool.can_forget && row.is_untaught());
        if row.is_idle() && (spare || is_tied) {
            self.stop(proc, StopReason::Idle);
        }
    }

    fn ask(&mut self, at: usize, ask: Ask) {
        if at >= self.pools.len() || self.newest >= Some(ask.id) {
            return;
        }
        self.newest = Some(ask.id);
        if self.shutting_down {
            self.refuse(ask.id, Refusal::ShuttingDown);
        } else if ask.deadline <= self.now {
            let phase = Phase::Queue;
            self.refuse(ask.id, Refusal::Timeout { phase });
        } else {
            let (id, tenant) = (ask.id, ask.tenant());
            self.pools[at].queue.push(ask);
            self.flush(at);
            let all = self.pools.iter().flat_map(|pool| &pool.queue);
            let waiting = all.filter(|ask| ask.tenant() == tenant).count();
            let most = tenant
                .db()
                .and_then(|db| self.rules.bound(db, TenantBound::QueueMax));
            let waits = self.pools[at].queue.iter().any(|ask| ask.id == id);
            if waits && most.is_some_and(|most| waiting > most as usize) {
                self.pools[at].pull(id);
                self.refuse(id, Refusal::TenantBusy);
            }
        }
    }

    fn share(&self, db: &str) -> Option<i128> {
        self.rules.bound(db, TenantBound::CpuShare).map(i128::from)
    }

    /// Time passes for the buckets.
    fn fill(&mut self, time: Duration) {
        for (db, mut left) in std::mem::take(&mut self.left) {
            let share = self.share(&db).expect("only a share has a bucket");
            left += time.as_nanos() as i128 * share;
            if left < 60 * SECOND * share {
                self.left.insert(db, left);
            }
        }
    }

    /// Serves tenants that are out of debt, the one whose bucket will be full last first.
    fn free(&mut self) {
        let left = |db: &DbKey| self.left.get(db).copied().unwrap_or(0);
        let free = self.held_back.iter().filter(|db| left(db) >= 0).cloned();
        let missing = |db: &DbKey| match self.share(db) {
            Some(share) if self.left.contains_key(db) => 60 * SECOND - left(db) / share,
            _ => 0,
        };
        let mut free: Vec<(i128, DbKey)> = free.map(|db| (missing(&db), db)).collect();
        free.sort_unstable();
        for (_, db) in free.into_iter().rev() {
            self.held_back.remove(&db);
            self.settle(db);
        }
    }

    fn charge(&mut self, db: DbKey, cost: Duration) {
        let Some(share) = self.share(&db) else {
            return;
        };
        let full = 60 * SECOND * share;
        let left = self.left.entry(db.clone()).or_insert(full);
        *left -= cost.as_nanos() as i128 * 1000;
        *left = (*left).max(-180 * SECOND * share);
        if *left < 0 && self.held_back.insert(db.clone()) {
            self.settle(db);
        }
    }

    /// Serves who can be served now that this tenant is held back, or no longer is, where it waits longest first.
    fn settle(&mut self, db: DbKey) {
        let tenant = Tenant::Database(db);
        let of = |pool: &ModelPool| {
            let own = pool.queue.iter().filter(|ask| ask.tenant() == tenant);
            own.map(|ask| ask.id).min()
        };
        let pools = self.pools.iter().enumerate();
        let mut waits: Vec<_> = pools
            .filter_map(|(at, pool)| Some((of(pool)?, at)))
            .collect();
        waits.sort_unstable();
        for (_, at) in waits {
            self.flush(at);
        }
    }

    fn set_rules(&mut self, rules: TenantRules) {
        self.rules = rules;
        for (db, left) in std::mem::take(&mut self.left) {
            if let Some(share) = self.share(&db) {
                let left = left.clamp(-180 * SECOND * share, 60 * SECOND * share);
                self.left.insert(db, left);
            }
        }
        let left = &self.left;
        self.held_back
            .retain(|db| left.get(db).is_some_and(|left| *left < 0));
    }

    fn is_held_back(&self, ask: &Ask) -> bool {
        matches!(ask.tenant(), Tenant::Database(db) if self.held_back.contains(&db))
    }

    /// The place of the oldest waiter that is not held back.
    fn head(&self, at: usize) -> Option<usize> {
        let mut queue = self.pools[at].queue.iter();
        queue.position(|ask| !self.is_held_back(ask))
    }

    fn flush_all(&mut self) {
        for at in 0..self.pools.len() {
            self.flush(at);
        }
    }

    fn flush(&mut self, at: usize) {
        while let Some(first) = self.head(at) {
            let pool = &self.pools[at];
            let head = pool.queue[first].clone();
            if pool.pick(&head).is_some() {
                self.serve(at, first);
            } else if pool.count() < pool.limit() {
                let ask = self.pools[at].queue.remove(first);
                self.open(at, Some(ask));
            } else if self.waits_for_its_own(at, &head) {
                let fits = |ask: &Ask| !self.is_held_back(ask) && pool.pick_own(ask).is_some();
                match pool.queue.iter().position(fits) {
                    Some(later) => self.serve(at, later),
                    None => return,
                }
            } else {
                let batch = pool.limits.reap_batch() as usize;
                let mut victims: Vec<(Timestamp, ProcId)> = pool
                    .procs
                    .iter()
                    .filter(|proc| proc.is_idle() && proc.tag.is_some())
                    .map(|proc| (proc.last_use, proc.id))
                    .collect();
                victims.sort_unstable();
                victims.truncate(batch.saturating_sub(pool.stopping.len()));
                let impatient = self.has_its_own_in_use(at, &head);
                if impatient {
                    victims.truncate(1);
                }
                if let Some(proc) = self.forgetful(at).or_else(|| self.taken_over(at, &head)) {
                    if impatient {
                        self.pools[at].last_impatience = self.now;
                    }
                    let ask = self.pools[at].queue.remove(first);
                    match self.pools[at].isolates_max {
                        0 => self.forget(proc, Some(ask)),
                        _ => self.hand_over(proc, ask),
                    }
                    continue;
                }
                if victims.is_empty() {
                    return;
                }
                if impatient {
                    self.pools[at].last_impatience = self.now;
                }
                for (_, victim) in victims {
                    self.stop(victim, StopReason::Reaped);
                }
            }
        }
    }

    fn forgetful(&self, at: usize) -> Option<ProcId> {
        let pool = &self.pools[at];
        let can_forget = pool.can_forget || pool.isolates_max > 0;
        let procs = pool.procs.iter().filter(|_| can_forget);
        let full = procs.filter(|proc| proc.is_idle() && !proc.has_room());
        let oldest = full.min_by_key(|proc| (proc.oldest_use(), proc.id));
        oldest.map(|proc| proc.id)
    }

    fn taken_over(&self, at: usize, head: &Ask) -> Option<ProcId> {
        let pool = &self.pools[at];
        let idle = pool.procs.iter().filter(|proc| proc.is_idle());
        idle.map(|proc| proc.id)
            .min()
            .filter(|_| pool.sets_apart(head))
    }

    /// A use of a process is over; `ended`: the process was, too.
    fn judge(&mut self, proc: ProcId, ended: bool) {
        let Some((at, index)) = self.find(proc) else {
            return;
        };
        let pool = &mut self.pools[at];
        let row = &pool.procs[index];
        let (State::Assigned(..), Some((_, tenant))) = (&row.state, &row.left_by) else {
            return;
        };
        let (score, is_apart) = pool.offenders.get(tenant).copied().unwrap_or_default();
        if ended && row.isolates_max > 0 {
            let score = 30.min(score + 10);
            pool.offenders
                .insert(tenant.clone(), (score, is_apart || score == 30));
        } else if !ended && score > 1 {
            pool.offenders.insert(tenant.clone(), (score - 1, is_apart));
        } else if !ended {
            pool.offenders.remove(tenant);
        }
    }

    fn forget(&mut self, proc: ProcId, ask: Option<Ask>) {
        let apart = self.pools[proc.pool.0 as usize].apart();
        let row = self.row(proc);
        row.ddocs.clear();
        row.left_by = None;
        row.tag = ask.as_ref().and_then(|ask| ask.tag(apart));
        row.state = State::Forgetting(ask);
        self.out.push(PoolAction::Forget { proc });
    }

    /// Puts a request back in its place in the queue.
    fn wait_again(&mut self, at: usize, ask: Ask) {
        let queue = &mut self.pools[at].queue;
        queue.push(ask);
        queue.sort_by_key(|ask| ask.id);
    }

    /// Gives a process that is ready for it to a request, or teaches it first.
    fn hand_over(&mut self, proc: ProcId, ask: Ask) {
        match ask.ddoc() {
            None => self.assign(proc, &ask),
            Some(_) => self.teach(proc, ask),
        }
    }

    fn waits_for_its_own(&self, at: usize, head: &Ask) -> bool {
        let pool = &self.pools[at];
        let since = head.arrived.max(pool.last_impatience);
        self.has_its_own_in_use(at, head) && self.now < since + pool.limits.affinity_wait
    }

    fn has_its_own_in_use(&self, at: usize, head: &Ask) -> bool {
        let pool = &self.pools[at];
        let tag = head.tag(pool.apart());
        if tag.is_none() {
            return false;
        }
        let mut procs = pool.procs.iter();
        let used = procs.any(|proc| !proc.is_idle() && proc.knows(&head.tenant()).is_some());
        let opening = pool.opening.iter().any(|row| row.tag == tag);
        (used || opening) && !pool.limits.affinity_wait.is_zero()
    }

    fn serve(&mut self, at: usize, waiter: usize) {
        let ask = self.pools[at].queue.remove(waiter);
        let pool = &self.pools[at];
        let chosen = pool.pick(&ask).expect("the caller looked");
        let proc = &pool.procs[chosen];
        let id = proc.id;
        if pool.isolates_max > 0 {
            let known = proc.knows(&ask.tenant()).unwrap_or_default();
            return match ask.ddoc().is_none_or(|ddoc| known.contains(ddoc)) {
                true => self.assign(id, &ask),
                false => self.teach(id, ask),
            };
        }
        let knows = ask.ddoc().is_none_or(|ddoc| proc.ddocs.contains(ddoc));
        let tag = ask.tag(pool.apart());
        if pool.apart() && proc.tag.is_some() && proc.tag != tag {
            return self.forget(id, Some(ask));
        }
        let retags = proc.tag.is_none() && tag.is_some();
        let keeps_it = ask.ddoc().is_some() || !pool.can_forget;
        if retags && keeps_it && pool.count() < pool.limit() {
            self.open(at, None);
        }
        match knows && !(retags && ask.ddoc().is_some()) {
            true => self.assign(id, &ask),
            false => self.teach(id, ask),
        }
    }

    fn open(&mut self, at: usize, ask: Option<Ask>) {
        let id = ProcId {
            pool: PoolId(at as u32),
            number: self.numbers,
        };
        self.numbers += 1;
        let request = ask.as_ref().map(|ask| ask.id);
        let tag = ask.as_ref().and_then(|ask| ask.tag(self.pools[at].apart()));
        let isolates_max = self.pools[at].isolates_max;
        self.pools[at].opening.push(ModelOpening {
            id,
            ask,
            tag,
            isolates_max,
        });
        self.out.push(PoolAction::Open { proc: id, request });
    }

    fn teach(&mut self, proc: ProcId, ask: Ask) {
        let pool = &self.pools[proc.pool.0 as usize];
        let (now, tag, is_apart) = (self.now, ask.tag(pool.apart()), pool.sets_apart(&ask));
        let row = self.row(proc);
        let ddoc = ask.ddoc().cloned().expect("only a document is taught");
        let select = match row.isolates_max {
            0 => {
                row.tag = row.tag.take().or(tag);
                None
            }
            _ => row.select(ask.tenant(), is_apart, now),
        };
        let request = ask.id;
        row.state = State::Teaching(Some(ask), ddoc);
        self.out.push(PoolAction::Teach {
            proc,
            request,
            select,
        });
    }

    fn assign(&mut self, proc: ProcId, ask: &Ask) {
        let token = Token(self.tokens);
        self.tokens += 1;
        let pool = &self.pools[proc.pool.0 as usize];
        let (now, tag, is_apart) = (self.now, ask.tag(pool.apart()), pool.sets_apart(ask));
        let row = self.row(proc);
        let select = match row.isolates_max {
            0 => {
                row.tag = row.tag.take().or(tag);
                None
            }
            _ => row.select(ask.tenant(), is_apart, now),
        };
        row.state = State::Assigned(ask.client, token);
        let before = row.left_by.replace((ask.client, ask.tenant()));
        let reset = before.is_some() && before != row.left_by;
        let request = ask.id;
        self.out.push(PoolAction::Assign {
            request,
            proc,
            token,
            reset,
            select,
        });
    }

    fn opened(&mut self, proc: ProcId) -> Option<ModelOpening> {
        let opening = &mut self.pools.get_mut(proc.pool.0 as usize)?.opening;
        let at = opening.iter().position(|row| row.id == proc)?;
        Some(opening.remove(at))
    }

    fn spawned(&mut self, id: ProcId) {
        let Some(opening) = self.opened(id) else {
            return;
        };
        let born = ModelProc {
            id,
            state: State::Resetting,
            tag: None,
            ddocs: Vec::new(),
            parked: Vec::new(),
            isolates_max: opening.isolates_max,
            is_apart: false,
            last_use: self.now,
            left_by: None,
        };
        self.pools[id.pool.0 as usize].procs.push(born);
        match opening.ask {
            _ if self.shutting_down => self.stop(id, StopReason::Shutdown),
            None => self.rest(id),
            Some(ask) => self.hand_over(id, ask),
        }
    }

    fn not_spawned(&mut self, id: ProcId) {
        if let Some(ask) = self.opened(id).and_then(|opening| opening.ask) {
            self.refuse(ask.id, Refusal::SpawnFailed);
        }
    }

    fn helped(&mut self, proc: ProcId, ok: bool) {
        let Some((at, index)) = self.find(proc) else {
            return;
        };
        let row = &mut self.pools[at].procs[index];
        match (std::mem::replace(&mut row.state, State::Resetting), ok) {
            (State::Teaching(ask, ddoc), true) => {
                row.ddocs.retain(|known| known.id != ddoc.id);
                row.ddocs.push(ddoc);
                match ask {
                    Some(ask) => self.assign(proc, &ask),
                    None => self.rest(proc),
                }
            }
            (State::Teaching(ask, _), false) => {
                if let Some(ask) = ask {
                    self.refuse(ask.id, Refusal::TeachFailed);
                }
                self.stop(proc, StopReason::TeachFailed);
            }
            (State::Resetting, true) => {
                row.left_by = None;
                self.rest(proc);
            }
            (State::Resetting, false) => self.stop(proc, StopReason::ResetFailed),
            (State::Forgetting(None), true) => self.rest(proc),
            (State::Forgetting(Some(ask)), true) => self.hand_over(proc, ask),
            (State::Forgetting(ask), false) => {
                if let Some(ask) = ask {
                    self.wait_again(at, ask);
                }
                self.stop(proc, StopReason::ForgetFailed);
            }
            (other, _) => row.state = other,
        }
    }

    fn ended(&mut self, proc: ProcId) {
        if let Some(pool) = self.pools.get_mut(proc.pool.0 as usize) {
            pool.stopping.retain(|other| *other != proc);
        }
        let Some((at, index)) = self.find(proc) else {
            return;
        };
        self.judge(proc, true);
        match self.pools[at].procs.remove(index).state {
            State::Teaching(Some(ask), _) => self.refuse(ask.id, Refusal::TeachFailed),
            State::Forgetting(Some(ask)) => self.wait_again(at, ask),
            _ => {}
        }
    }

    fn come_back(&mut self, proc: ProcId, condition: Condition) {
        let can_forget = self.pools[proc.pool.0 as usize].can_forget;
        let is_spoilt = match condition {
            Condition::Broken => true,
            Condition::NeedsForgetting => !can_forget && self.row(proc).isolates_max == 0,
            Condition::Clean | Condition::NeedsReset => false,
        };
        if !is_spoilt {
            self.judge(proc, false);
            self.row(proc).state = State::Resetting;
        }
        match (condition, self.fate(proc)) {
            (Condition::Broken, _) => self.stop(proc, StopReason::Broken),
            (Condition::NeedsForgetting, _) if self.row(proc).isolates_max > 0 => {
                self.row(proc).ddocs.clear();
                self.rest(proc);
            }
            (Condition::NeedsForgetting, _) if !self.pools[proc.pool.0 as usize].can_forget => {
                self.stop(proc, StopReason::Broken);
            }
            (Condition::NeedsForgetting, None) => self.forget(proc, None),
            (Condition::NeedsReset, None) => {
                self.row(proc).state = State::Resetting;
                self.out.push(PoolAction::Reset { proc });
            }
            (_, _) => self.rest(proc),
        }
    }

    /// Idle, or gone.
    fn rest(&mut self, proc: ProcId) {
        let now = self.now;
        match self.fate(proc) {
            Some(StopReason::TenantGone) if self.pools[proc.pool.0 as usize].can_forget => {
                self.forget(proc, None);
            }
            Some(why) => self.stop(proc, why),
            None => {
                self.row(proc).state = State::Idle;
                self.row(proc).last_use = now;
            }
        }
    }

    fn fate(&self, proc: ProcId) -> Option<StopReason> {
        let pool = &self.pools[proc.pool.0 as usize];
        if proc.number < self.threshold.max(pool.renewed) {
            Some(StopReason::Stale)
        } else if self.is_orphan(proc) {
            Some(StopReason::TenantGone)
        } else {
            (pool.count() > pool.limit()).then_some(StopReason::OverLimit)
        }
    }

    fn is_orphan(&self, proc: ProcId) -> bool {
        let Some((at, index)) = self.find(proc) else {
            return false;
        };
        let leaving = self.leaving.map(Tenant::Client);
        let proc = &self.pools[at].procs[index];
        leaving.is_some() && proc.tag == leaving && proc.isolates_max == 0
    }

    fn stop(&mut self, proc: ProcId, why: StopReason) {
        self.judge(proc, true);
        let (at, index) = self.find(proc).expect("the caller found it");
        self.pools[at].procs.remove(index);
        self.pools[at].stopping.push(proc);
        self.out.push(PoolAction::Stop { proc, why });
    }

    fn stop_stale(&mut self) {
        for at in 0..self.pools.len() {
            self.stop_stale_of(at);
            self.flush(at);
        }
    }

    fn stop_stale_of(&mut self, at: usize) {
        let pool = &self.pools[at];
        let threshold = self.threshold.max(pool.renewed);
        let idle = pool.procs.iter().filter(|proc| proc.is_idle());
        let stale = idle.filter(|proc| proc.id.number < threshold);
        let mut stale: Vec<ProcId> = stale.map(|proc| proc.id).collect();
        stale.sort_unstable();
        for proc in stale {
            self.stop(proc, StopReason::Stale);
        }
    }

    fn configure(&mut self, at: usize, settings: &PoolSettings) {
        let Some(pool) = self.pools.get_mut(at) else {
            return;
        };
        pool.limits = settings.limits;
        let PoolSettings {
            reuse,
            can_forget,
            isolates_max,
            lends_taught,
            ..
        } = *settings;
        let new = (reuse, can_forget, isolates_max, lends_taught);
        if (
            pool.reuse,
            pool.can_forget,
            pool.isolates_max,
            pool.lends_taught,
        ) != new
        {
            (pool.reuse, pool.can_forget, pool.lends_taught) = (reuse, can_forget, lends_taught);
            pool.isolates_max = isolates_max;
            pool.renewed = self.numbers;
            for opening in &mut pool.opening {
                if let Some(ask) = &opening.ask {
                    opening.tag = ask.tag(settings.keeps_apart());
                }
            }
            self.stop_stale_of(at);
        }
        let pool = &self.pools[at];
        let idle = pool.procs.iter().filter(|proc| proc.is_idle());
        let mut idle: Vec<(bool, Timestamp, ProcId)> = idle
            .map(|proc| match proc.has_room() {
                false => (false, proc.oldest_use(), proc.id),
                true => (true, Timestamp::ZERO, proc.id),
            })
            .collect();
        idle.sort_unstable();
        let surplus = pool.count().saturating_sub(pool.limit());
        for (_, _, proc) in idle.into_iter().take(surplus) {
            self.stop(proc, StopReason::OverLimit);
        }
    }

    fn shut_down(&mut self) {
        self.shutting_down = true;
        let mut asks: Vec<(RequestId, usize)> = Vec::new();
        for (at, pool) in self.pools.iter().enumerate() {
            asks.extend(pool.asks().iter().map(|ask| (ask.id, at)));
        }
        asks.sort_unstable();
        for (id, at) in asks {
            self.pools[at].pull(id);
            self.refuse(id, Refusal::ShuttingDown);
        }
        let procs = self.pools.iter().flat_map(|pool| &pool.procs);
        let mut procs: Vec<ProcId> = procs.map(|proc| proc.id).collect();
        procs.sort_unstable();
        for proc in procs {
            self.stop(proc, StopReason::Shutdown);
        }
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

    /// How many processes there are and are being opened.
    pub(super) fn count(&self) -> usize {
        self.pools.iter().map(ModelPool::count).sum()
    }

    /// How many requests are without an answer.
    pub(super) fn open_requests(&self) -> usize {
        self.pools.iter().map(|pool| pool.asks().len()).sum()
    }
}
