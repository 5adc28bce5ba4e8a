//! The pools for operators and services: their state, the process list (`settee ps`), the order to end a process
//! (`settee kill`), and events, which the PoolReporter logs and services follow.
//!
//! PROMISES  A loan sends the PoolReporter nothing. A watcher of a pool gets every change, and only changes, in the
//!           turn in which it happens; its channel ends with the pool. Killing a process is an order to its actor; the
//!           core handles its end like any other.

use std::sync::Arc;

use actix::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::watch;

use super::ProcManager;
use super::turn::Turn;
use crate::actors::pool_reporter::procs::{Listed, State, describe};
use crate::config::language_name;
use crate::messages::pool_reporter::{
    GetLimitedProcs, KnownHolder, KnownProc, MemoryRead, PoolEvent, PoolNews, ProcLife, WatchMemory,
};
use crate::messages::pools::PoolError;
use crate::messages::pools::{PoolState, WatchPool};
use crate::messages::process::ProcessRef;
use crate::messages::ps::{KillError, KillProc, ListProcs};
use crate::otp::tell::Tell;
use crate::query_server::status::KilledProc;
use crate::warn_repeating;
use policy::exchange::Exchanges;
use policy::invariants::Invariant;
use policy::pool::{
    ClientId, Event, PoolId, PoolKind, Pools, ProcId, ProcStatus as CoreProc, Reuse, Target,
    Warning,
};
use policy::time::Timestamp;

/// Maximum characters of a recorded failure.
const FAILURE_CHARACTERS: usize = 1000;

impl Handler<ListProcs> for ProcManager {
    type Result = Result<Vec<KnownProc>, PoolError>;

    fn handle(&mut self, msg: ListProcs, _: &mut Self::Context) -> Self::Result {
        let pools = match &msg.pool {
            None => self.pools.iter().map(|(id, _)| id).collect(),
            Some(name) => self.pools_named(name),
        };
        match msg.pool {
            Some(name) if pools.is_empty() => Err(PoolError::NotFound(name)),
            _ => Ok(self.known_procs(&pools)),
        }
    }
}

impl Handler<KillProc> for ProcManager {
    type Result = Result<KilledProc, KillError>;

    fn handle(&mut self, msg: KillProc, _: &mut Self::Context) -> Self::Result {
        let Some(known) = self.proc_named(&msg.name) else {
            return Err(KillError::NotFound(msg.name));
        };
        let Listed {
            id,
            state,
            row: proc,
            shared,
        } = describe(known);
        let Some(shared) = shared else {
            return Err(KillError::Starting(msg.name));
        };
        let by = msg.by();
        let how = match state {
            State::Ending if !msg.now => "ending",
            // The service cannot wait for a pending prompt.
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
    /// Describes a client, for display.
    pub(super) fn holder(&self, client: ClientId) -> KnownHolder {
        let known = self.clients.get(&client);
        KnownHolder {
            client,
            who: known.and_then(|known| known.who.clone()),
        }
    }

    /// Finds the pools with a name: at most one that stays, and any that are being removed.
    fn pools_named(&self, name: &str) -> Vec<PoolId> {
        let name = language_name(name);
        let named = self.pools.iter().filter(|(_, pool)| *pool.name == *name);
        named.map(|(id, _)| id).collect()
    }

    /// Returns the processes of some pools.
    fn known_procs(&self, pools: &[PoolId]) -> Vec<KnownProc> {
        let now = self.clock.now();
        let status = pools.iter().map(|pool| self.core.status(*pool, now));
        let core = status.flat_map(|status| status.procs);
        let mut core: FxHashMap<ProcId, CoreProc> = core.map(|proc| (proc.proc, proc)).collect();
        let pools: FxHashSet<PoolId> = pools.iter().copied().collect();
        let all = self.openers.keys().chain(self.procs.keys());
        let wanted = all.filter(|id| pools.contains(&id.pool));
        wanted
            .filter_map(|id| self.known_proc(*id, core.remove(id)))
            .collect()
    }

    /// Finds a process by its displayed name.
    fn proc_named(&self, name: &str) -> Option<KnownProc> {
        let (pool, number) = name.rsplit_once('/')?;
        let number = number.parse().ok()?;
        let pools = self.pools_named(pool).into_iter();
        let mut found = pools.filter_map(|pool| {
            let id = ProcId { pool, number };
            self.known_proc(id, self.core.proc(id, self.clock.now()))
        });
        found.next()
    }

    fn known_proc(&self, id: ProcId, core: Option<CoreProc>) -> Option<KnownProc> {
        let life = if let Some(process) = self.procs.get(&id) {
            let holder = core.as_ref().and_then(|core| core.holder);
            ProcLife::Started {
                shared: Arc::clone(&process.shared),
                holder: holder.map(|client| self.holder(client)),
                core,
            }
        } else {
            let since = self.openers.get(&id)?.since;
            ProcLife::Opening(self.clock.now().since(since))
        };
        let pool = self.pools.at(id.pool);
        Some(KnownProc {
            id,
            pool: Arc::clone(&pool.name),
            language: pool.language.clone(),
            life,
        })
    }

    /// Starts sampling the memory of processes, if a pool limits it.
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

/// Events for operators and services.
impl ProcManager {
    /// Reports a pool's event.
    fn tell(&self, id: PoolId, event: PoolEvent) {
        let pool = self.pools.at(id);
        self.reporter.tell(PoolNews {
            pool: id,
            name: Arc::clone(&pool.name),
            language: pool.language.clone(),
            event,
        });
    }

    /// Reports a started process.
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

    /// Records how a process failed, for requests refused because of it.
    pub(super) fn note_failure(&mut self, pool: PoolId, how: &str) {
        let pool = self.pools.at_mut(pool);
        let text = format!("{}: {how}", pool.command);
        let text: String = text.chars().take(FAILURE_CHARACTERS).collect();
        pool.failure = Some(Arc::from(text));
    }

    /// Returns how a start last failed in a target's pool, or in the first pool of its group.
    pub(super) fn failure_of(&self, target: Target) -> Arc<str> {
        let pool = self.pools.of_target(target);
        let failure = pool.and_then(|pool| self.pools.at(pool).failure.clone());
        failure.unwrap_or_else(|| Arc::from("see the log"))
    }

    /// Returns the limit that prevents more processes, in the operator's terms.
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

    /// Warns if requests wait because the maximum of processes over all pools is reached.
    pub(super) fn warn_if_full(&mut self, now: Timestamp) {
        if !self.core.is_full() {
            return;
        }
        warn_repeating!(self.log, self.full, now, "maximum number of processes of all pools reached";
            "limit" => self.settings.processes_max,
            "effect" => "idle processes make way for pools that have waiters, and requests wait longer",
            "remedy" => "raise [server] processes_max, or lower max of the pools that take most");
    }

    /// Removes a pool that is gone.
    pub(super) fn pool_gone(&mut self, pool: PoolId) {
        self.end_watches(pool);
        self.tell(pool, PoolEvent::Gone);
        if let Some(name) = self.pools.forget(pool) {
            self.forget_cell(pool, &name);
        }
    }

    /// Sends changes of a pool to its watchers.
    pub(super) fn tell_watchers(&mut self) {
        let core = &self.core;
        self.watchers.retain(|pool, watchers| {
            let now = state(core, *pool);
            watchers.send_if_modified(|state| std::mem::replace(state, now) != now);
            !watchers.is_closed()
        });
    }

    /// Closes the channels of a pool's watchers.
    pub(super) fn end_watches(&mut self, pool: PoolId) {
        self.watchers.remove(&pool);
    }
}

fn state(core: &Pools, pool: PoolId) -> PoolState {
    PoolState {
        pool: core.snapshot(pool),
        stress: core.is_stressed(pool),
    }
}
