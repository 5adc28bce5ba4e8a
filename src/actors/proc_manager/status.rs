//! The pools for operators and services: their state, the list of processes (`settee ps`), the order to end one
//! (`settee kill`), and events, which the PoolReporter logs and services follow.
//!
//! PROMISES  A loan notifies nobody. A watcher of a pool gets every change in the turn in which it happens, and only a
//!           change; the end of a pool is the end of its channel. To kill a process is an order to its actor; the core
//!           hears of its end as of any other.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::watch;

use super::ProcManager;
use super::turn::Turn;
use crate::actors::pool_reporter::milliseconds;
use crate::actors::pool_reporter::procs::{Listed, State, describe};
use crate::config::{PoolConfig, language_name};
use crate::messages::pool_reporter::{
    DescribeProcs, GetLimitedProcs, KnownProc, MemoryRead, PoolEvent, PoolNews, ProcLife,
    WatchMemory,
};
use crate::messages::pools::PoolError;
use crate::messages::pools::{PoolState, WatchPool};
use crate::messages::proc_manager::GetStatus;
use crate::messages::process::ProcessRef;
use crate::messages::ps::{KillError, KillProc, ListProcs, ProcName};
use crate::otp::tell::Tell;
use crate::query_server::status::{
    DaemonStatus, Holder, KilledProc, PoolStatus, ProcPage, ProcStatus, Totals,
};
use crate::warn_repeating;
use policy::exchange::Exchanges;
use policy::invariants::Invariant;
use policy::pool::{
    ClientId, Event, PoolId, PoolKind, PoolTotals, Pools, ProcId, ProcPhase,
    ProcStatus as CoreProc, RemoveMode, Reuse, StopReason, Target, Warning,
};
use policy::time::Timestamp;

/// How much of what went wrong is kept and told, in characters.
const FAILURE_CHARACTERS: usize = 1000;

impl Handler<GetStatus> for ProcManager {
    type Result = MessageResult<GetStatus>;

    fn handle(&mut self, msg: GetStatus, _: &mut Self::Context) -> Self::Result {
        let wanted = |name: &str| msg.pool.as_deref().is_none_or(|pool| pool == name);
        let pools = self.pools.iter().filter(|(_, pool)| wanted(&pool.name));
        let pools: Vec<_> = pools.map(|(id, _)| self.pool_status(id)).collect();
        // A pool that is being removed serves no service.
        let find = |name: &str| {
            let mut found = pools.iter().filter(|pool| pool.name == name);
            found.find(|pool| pool.removing.is_none())
        };
        let services = self.metrics.service_states();
        let services = services.iter().filter(|service| wanted(&service.pool()));
        MessageResult(DaemonStatus {
            services: services.map(|service| service.status(find)).collect(),
            pools,
            proc_count: self.core.proc_count(),
            stale_proc_count: self.core.stale_proc_count(),
        })
    }
}

impl Handler<ListProcs> for ProcManager {
    type Result = ResponseFuture<Result<ProcPage, PoolError>>;

    fn handle(&mut self, msg: ListProcs, _: &mut Self::Context) -> Self::Result {
        let pools = match &msg.pool {
            None => self.pools.iter().map(|(id, _)| id).collect(),
            Some(name) => self.pools_named(name),
        };
        if let Some(name) = msg.pool.filter(|_| pools.is_empty()) {
            return Box::pin(async { Err(PoolError::NotFound(name)) });
        }
        let page = self.reporter.send(DescribeProcs(self.known_procs(&pools)));
        Box::pin(async move { page.await.map_err(|_| PoolError::ShuttingDown) })
    }
}

impl Handler<KillProc> for ProcManager {
    type Result = Result<KilledProc, KillError>;

    fn handle(&mut self, msg: KillProc, _: &mut Self::Context) -> Self::Result {
        let name = language_name(&msg.name);
        let pool = name.rsplit_once('/').map_or("", |(pool, _)| pool);
        let known = self.known_procs(&self.pools_named(pool));
        let mut listed = known.into_iter().map(describe);
        let found = listed.find(|listed| listed.row.name == name);
        let Some(Listed {
            id,
            state,
            row: proc,
            shared,
        }) = found
        else {
            return Err(KillError::NotFound(msg.name));
        };
        let Some(shared) = shared else {
            return Err(KillError::Starting(msg.name));
        };
        let by = msg.by();
        let how = match state {
            State::Ending if !msg.now => "ending",
            // What is asked of it cannot be waited for.
            _ if msg.now || shared.in_flight() > 0 => "killed",
            _ => "told",
        };
        if how != "ending" {
            self.stop(id, how == "told", Some(by));
        }
        let how = how.to_owned();
        Ok(KilledProc { how, proc })
    }
}

impl Handler<GetLimitedProcs> for ProcManager {
    type Result = Option<Vec<(u32, ProcId)>>;

    fn handle(&mut self, _: GetLimitedProcs, _: &mut Self::Context) -> Self::Result {
        let mut pools = self.pools.iter();
        let is_limited = pools.any(|(id, _)| self.limits_memory(id));
        let procs = self.procs.iter();
        let limited = procs.filter(|(id, _)| self.limits_memory(id.pool));
        let pids = limited.filter_map(|(id, process)| Some((process.shared.os_pid?, *id)));
        is_limited.then(|| pids.collect())
    }
}

impl Handler<MemoryRead> for ProcManager {
    type Result = ();

    fn handle(&mut self, MemoryRead(read): MemoryRead, ctx: &mut Self::Context) {
        for (proc, bytes) in read {
            self.event(Event::Memory { proc, bytes }, ctx);
        }
    }
}

impl Handler<WatchPool> for ProcManager {
    type Result = Option<watch::Receiver<PoolState>>;

    fn handle(&mut self, msg: WatchPool, _: &mut Self::Context) -> Self::Result {
        let pool = self.pools.find(&language_name(&msg.pool))?;
        let watchers = self.watchers.entry(pool);
        let watchers = watchers.or_insert_with(|| watch::Sender::new(state(&self.core, pool)));
        Some(watchers.subscribe())
    }
}

/// The state of pools and processes.
impl ProcManager {
    fn pool_status(&self, id: PoolId) -> PoolStatus {
        let pool = self.pools.at(id);
        let status = self.core.status(id, self.clock.now());
        let settings = self.section_in_force(id).settings().into_iter();
        PoolStatus {
            name: pool.name.to_string(),
            language: pool.language.to_string(),
            group: pool.section.group.clone(),
            command: pool.command.to_string(),
            hard_limit: status.settings.limits.hard_limit,
            soft_limit: status.settings.limits.soft_limit,
            used: status.used,
            free: status.free,
            free_tagged: status.free_tagged,
            opening: status.opening,
            stopping: status.stopping,
            waiting: status.waiting,
            longest_wait_ms: milliseconds(status.longest_wait),
            removing: status.removing.map(|mode| {
                match mode {
                    RemoveMode::Graceful => "graceful",
                    RemoveMode::Immediate => "immediate",
                }
                .to_owned()
            }),
            throttled_ms: status.throttled.map(milliseconds),
            failure: pool.failure.as_deref().map(str::to_owned),
            stressed_ms: status.stressed.map(milliseconds),
            settings: settings
                .map(|setting| (setting.key.clone(), setting.json()))
                .collect(),
            totals: totals(&self.core.totals(id)),
            abilities: pool.abilities.by_name(),
            sandbox: pool.cell.as_ref().map(|cell| cell.status()),
            procs: status
                .procs
                .iter()
                .map(|proc| self.proc_status(proc))
                .collect(),
        }
    }

    /// Returns the section of a pool with every setting as it holds, also where it is not set; a pool
    /// without a group has none.
    fn section_in_force(&self, id: PoolId) -> PoolConfig {
        let pool = self.pools.at(id);
        let terms = self.settings.service_terms.get(&*pool.name);
        let section = PoolConfig::clone(&pool.section);
        let mut section = match terms {
            Some(terms) => terms.applied_to(section),
            None => section,
        };
        let limits = self.settings.limits;
        section.language = Some(pool.language.to_string());
        section.max.get_or_insert(limits.hard_limit);
        // It is waited for twice.
        let grace = self.settings.stop_grace / 2;
        section.stop_grace.get_or_insert(grace);
        let Some(held) = self.core.settings(id) else {
            return section;
        };
        section = self.settings.cells.in_force(section);
        section.cell.reuse = Some(held.reuse);
        section.on_client_crash = Some(held.on_client_crash);
        section.throttle_delay = Some(held.throttle.map_or(Duration::ZERO, |terms| terms.delay));
        section
    }

    fn proc_status(&self, proc: &CoreProc) -> ProcStatus {
        let process = self.procs.get(&proc.proc);
        ProcStatus {
            name: self.proc_name(proc.proc),
            os_pid: process.and_then(|process| process.shared.os_pid),
            state: match proc.phase {
                ProcPhase::Idle => "idle",
                ProcPhase::Assigned => "assigned",
                ProcPhase::Teaching => "teaching",
            }
            .into(),
            db: proc.db.as_deref().map(str::to_owned),
            ddocs: proc.ddocs as usize,
            isolates: proc.isolates,
            uses: proc.uses,
            age_ms: milliseconds(proc.age),
            idle_ms: proc.idle.map_or(0, milliseconds),
            holder: proc.holder.map(|client| self.holder(client)),
            memory: proc.memory,
        }
    }

    /// Returns who a client is, for people.
    fn holder(&self, client: ClientId) -> Holder {
        let known = self.clients.get(&client);
        let who = known.and_then(|known| known.who.as_deref());
        Holder {
            client: client.0,
            ..who.cloned().unwrap_or_default()
        }
    }

    /// Finds the pools of a name: one that stays, and others that are being removed.
    fn pools_named(&self, name: &str) -> Vec<PoolId> {
        let name = language_name(name);
        let named = self.pools.iter().filter(|(_, pool)| *pool.name == *name);
        named.map(|(id, _)| id).collect()
    }

    /// Returns what is known of the processes of some pools.
    fn known_procs(&self, pools: &[PoolId]) -> Vec<KnownProc> {
        let now = self.clock.now();
        let status = pools.iter().map(|pool| self.core.status(*pool, now));
        let core = status.flat_map(|status| status.procs);
        let mut core: FxHashMap<ProcId, CoreProc> = core.map(|proc| (proc.proc, proc)).collect();
        let pools: FxHashSet<PoolId> = pools.iter().copied().collect();
        let openings = self.openers.iter();
        let openings =
            openings.map(|(id, opening)| (*id, ProcLife::Opening(now.since(opening.since))));
        let started = self.procs.iter().map(|(id, process)| {
            let core = core.remove(id);
            let holder = core.as_ref().and_then(|core| core.holder);
            let holder = holder.map(|client| self.holder(client));
            let shared = Arc::clone(&process.shared);
            let life = ProcLife::Started {
                shared,
                core,
                holder,
            };
            (*id, life)
        });
        let all = openings.chain(started);
        let wanted = all.filter(|(id, _)| pools.contains(&id.pool));
        let known = wanted.map(|(id, life)| {
            let pool = self.pools.at(id.pool);
            KnownProc {
                id,
                pool: Arc::clone(&pool.name),
                language: pool.language.clone(),
                life,
            }
        });
        known.collect()
    }

    /// Returns the name of a process, for people.
    fn proc_name(&self, proc: ProcId) -> String {
        let pool = &*self.pools.at(proc.pool).name;
        ProcName { pool, proc }.to_string()
    }

    /// Has the memory of processes read from now on, if a pool limits it.
    pub(super) fn watch_memory(&self, ctx: &Context<Self>) {
        if self.pools.iter().any(|(id, _)| self.limits_memory(id)) {
            self.reporter.tell(WatchMemory {
                limited: ctx.address().recipient(),
                read: ctx.address().recipient(),
            });
        }
    }

    fn limits_memory(&self, pool: PoolId) -> bool {
        self.core.settings(pool).is_some_and(|settings| {
            settings.recycle.memory_soft.is_some() || settings.recycle.memory_hard.is_some()
        })
    }
}

/// What happens, for people and for services.
impl ProcManager {
    /// Tells what has happened in a pool.
    fn tell(&self, id: PoolId, event: PoolEvent) {
        let pool = self.pools.at(id);
        self.reporter.tell(PoolNews {
            pool: id,
            name: Arc::clone(&pool.name),
            language: pool.language.clone(),
            event,
        });
    }

    /// Tells of a process that has started.
    pub(super) fn tell_start(&self, proc: ProcId, process: &ProcessRef) {
        let started = PoolEvent::Started {
            generation: proc.number,
            os_pid: process.shared.os_pid,
        };
        self.tell(proc.pool, started);
    }

    /// Warns, after a start, if most calls start a process and evict an idle one of another database.
    pub(super) fn watch_exchanges(&mut self, id: PoolId) {
        let now = self.clock.now();
        let all = Exchanges::of(&self.core.totals(id));
        let Some(exchanges) = self.pools.at_mut(id).exchanges.look(all, now) else {
            return;
        };
        let status = self.core.status(id, now);
        let hard_limit = status.settings.limits.hard_limit;
        let is_at_limit = status.used + status.free + status.opening >= hard_limit;
        let (raise, limit) = match self.settings.processes_max {
            Some(max) if !is_at_limit => ("[server] processes_max".into(), max),
            _ => (self.limit_of(Target::Pool(id)), hard_limit),
        };
        let forgets = self
            .settings
            .terms_of(&self.pools.at(id).language)
            .can_forget;
        let share = match (status.settings.reuse, forgets) {
            (Reuse::Any | Reuse::Isolates, _) => "",
            (Reuse::Database, true) => {
                ", or set reuse = \"any\": its processes can forget a database"
            }
            (Reuse::Database, false) => {
                ", or use reuse = \"any\" with a language whose processes can forget a database"
            }
        };
        let event = PoolEvent::MostCallsStart {
            exchanges,
            limit,
            raise,
            share,
        };
        self.tell(id, event);
    }

    /// Keeps how a process failed, for those who are refused over it later.
    pub(super) fn note_failure(&mut self, pool: PoolId, how: &str) {
        let pool = self.pools.at_mut(pool);
        let text = format!("{}: {how}", pool.command);
        let text: String = text.chars().take(FAILURE_CHARACTERS).collect();
        pool.failure = Some(Arc::from(text));
    }

    /// Returns how starts failed in the pools that a request could have been served by.
    pub(super) fn failure_of(&self, target: Target) -> Arc<str> {
        let pool = self.pools.of_target(target);
        let failure = pool.and_then(|pool| self.pools.at(pool).failure.clone());
        failure.unwrap_or_else(|| Arc::from("its log tells how"))
    }

    /// Returns which limit is in the way of more processes, as an operator finds it.
    pub(super) fn limit_of(&self, target: Target) -> Arc<str> {
        let label = self.pools.label(target);
        if let Target::Group(_) = target {
            return format!("max of a pool of the group '{label}'").into();
        }
        let pool = self.pools.of_target(target).map(|id| self.pools.at(id));
        match pool {
            Some(pool) if pool.kind == PoolKind::Language && pool.section.max.is_none() => {
                Arc::from("os_process_limit")
            }
            _ => format!("max of the pool '{label}'").into(),
        }
    }

    pub(super) fn warn(&self, warning: Warning, turn: &mut Turn) {
        let failure = |pool| self.pools.at(pool).failure.clone();
        let (pool, event) = match warning {
            Warning::Throttled { pool, until } => {
                let (failure, rest) = (failure(pool), until.since(turn.now));
                (pool, PoolEvent::Throttled { failure, rest })
            }
            Warning::EndsEarly { pool } => {
                let failure = failure(pool);
                (pool, PoolEvent::EndsEarly { failure })
            }
            Warning::Unthrottled { pool } => (pool, PoolEvent::Unthrottled),
            Warning::Unstressed { pool } => (pool, PoolEvent::Unstressed),
            Warning::Stressed { pool } => {
                let settings = self.core.settings(pool);
                let limit = settings.map_or(0, |settings| settings.limits.hard_limit);
                let raise = self.limit_of(Target::Pool(pool));
                (pool, PoolEvent::Stressed { limit, raise })
            }
            Warning::SpawnRefused { pool, why } => {
                self.metrics.invariant_violated(Invariant::Pm1);
                (pool, PoolEvent::SpawnRefused(why))
            }
        };
        self.tell(pool, event);
    }

    /// Warns if requests wait because all pools together have as many processes as may be.
    pub(super) fn warn_if_full(&mut self, now: Timestamp) {
        if !self.core.is_full() {
            return;
        }
        warn_repeating!(self.log, self.full, now, "all pools together have as many processes as may be";
            "limit" => self.settings.processes_max,
            "effect" => "idle processes make way for pools that have waiters, and requests wait longer",
            "remedy" => "raise [server] processes_max, or lower max of the pools that take most");
    }

    /// Forgets a pool that is gone.
    pub(super) fn pool_gone(&mut self, pool: PoolId) {
        self.end_watches(pool);
        self.tell(pool, PoolEvent::Gone);
        if let Some(name) = self.pools.forget(pool) {
            self.forget_cell(pool, &name);
        }
    }

    /// Sends changes of a pool to those who watch it.
    pub(super) fn tell_watchers(&mut self) {
        let core = &self.core;
        self.watchers.retain(|pool, watchers| {
            let now = state(core, *pool);
            watchers.send_if_modified(|state| std::mem::replace(state, now) != now);
            !watchers.is_closed()
        });
    }

    /// Ends the channels of a pool that is gone.
    pub(super) fn end_watches(&mut self, pool: PoolId) {
        self.watchers.remove(&pool);
    }
}

fn totals(totals: &PoolTotals) -> Totals {
    let recycled = [
        ("uses", StopReason::Uses),
        ("age", StopReason::Age),
        ("memory", StopReason::Memory),
        ("memory_hard", StopReason::MemoryHard),
        ("culled", StopReason::Culled),
        ("idle", StopReason::Idle),
        ("stress", StopReason::Stress),
    ];
    Totals {
        taken: totals.taken,
        returned: totals.returned,
        failed: totals.failed,
        lost: totals.taken_back,
        started: totals.started,
        forgot: totals.forgot,
        isolates_made: totals.isolates_made,
        isolates_evicted: totals.isolates_evicted,
        replaced: totals.stopped(StopReason::Reaped),
        start_failures: totals.start_failures,
        died: totals.died,
        timed_out: totals.timed_out,
        busy: totals.busy,
        recycled: recycled
            .into_iter()
            .map(|(name, why)| (name.to_owned(), totals.stopped(why)))
            .collect(),
    }
}

fn state(core: &Pools, pool: PoolId) -> PoolState {
    PoolState {
        pool: core.snapshot(pool),
        stress: core.is_stressed(pool),
    }
}
