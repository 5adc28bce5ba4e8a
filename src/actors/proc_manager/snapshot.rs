//! The state of the pools: a snapshot for display and for programs, a pool's current state for services, and the last
//! failures and limits of pools in the operator's terms.
//!
//! SUMMARY   For a snapshot the manager copies numbers and shares strings; the caller converts them to a
//!           [`DaemonStatus`].
//! PROMISES  Work that is slow with many pools is not done on the manager's thread. A watcher of a pool gets every
//!           change, and only changes, in the turn in which it happens; its channel ends with the pool.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::{ManagerSettings, ProcManager, milliseconds};
use crate::config::{PoolConfig, language_name};
use crate::messages::pools::{PoolState, WatchPool};
use crate::messages::ps::{KnownHolder, proc_name};
use crate::metrics::ServiceState;
use crate::query_server::abilities::Abilities;
use crate::query_server::language::LanguageName;
use crate::query_server::status::{DaemonStatus, PoolStatus, ProcStatus, Totals};
use crate::query_server::tried_cell::TriedCell;
use policy::pool::{
    PoolId, PoolKind, PoolStatus as CoreStatus, PoolTotals, Pools, StopReason, Target,
};

/// Maximum characters of a recorded failure.
const FAILURE_CHARACTERS: usize = 1000;

/// Requests a snapshot of the pools, which the caller converts.
#[derive(Clone, Debug, Default, Message)]
#[rtype(result = "PoolsSnapshot")]
pub struct GetStatus {
    /// Only this pool; `None`: all.
    pub pool: Option<String>,
}

/// See the module's documentation.
pub struct PoolsSnapshot {
    settings: Arc<ManagerSettings>,
    services: Vec<Arc<ServiceState>>,
    pools: Vec<KnownPool>,
    proc_count: u32,
    stale_proc_count: u32,
}

/// The manager's state of a pool.
struct KnownPool {
    name: Arc<str>,
    language: LanguageName,
    section: Arc<PoolConfig>,
    command: Arc<str>,
    failure: Option<Arc<str>>,
    abilities: Arc<Abilities>,
    cell: Option<Arc<TriedCell>>,
    core: CoreStatus,
    totals: PoolTotals,
    /// PID and holder of each process of the core.
    procs: Vec<(Option<u32>, Option<KnownHolder>)>,
}

impl Handler<GetStatus> for ProcManager {
    type Result = MessageResult<GetStatus>;

    fn handle(&mut self, msg: GetStatus, _: &mut Self::Context) -> Self::Result {
        let is_wanted = |name: &str| msg.pool.as_ref().is_none_or(|pool| pool == name);
        let mut services = self.metrics.service_states();
        services.retain(|service| is_wanted(&service.pool()));
        let pools = self.pools.iter().filter(|(_, pool)| is_wanted(&pool.name));
        MessageResult(PoolsSnapshot {
            settings: Arc::clone(&self.settings),
            services,
            pools: pools.map(|(id, _)| self.known_pool(id)).collect(),
            proc_count: self.core.proc_count(),
            stale_proc_count: self.core.stale_proc_count(),
        })
    }
}

impl ProcManager {
    fn known_pool(&self, id: PoolId) -> KnownPool {
        let pool = self.pools.at(id);
        let core = self.core.status(id, self.clock.now());
        let procs = core.procs.iter().map(|proc| {
            let process = self.procs.get(&proc.proc);
            let os_pid = process.and_then(|process| process.shared.os_pid);
            (os_pid, proc.holder.map(|client| self.holder(client)))
        });
        KnownPool {
            name: Arc::clone(&pool.name),
            language: pool.language.clone(),
            section: Arc::clone(&pool.section),
            command: Arc::clone(&pool.command),
            failure: pool.failure.clone(),
            abilities: Arc::clone(&pool.abilities),
            cell: pool.cell.clone(),
            procs: procs.collect(),
            totals: self.core.totals(id),
            core,
        }
    }
}

impl PoolsSnapshot {
    /// Returns the whole status.
    pub fn status(&self) -> DaemonStatus {
        self.status_of(|pool| PoolStatus {
            settings: pool.settings(&self.settings),
            abilities: pool.abilities.by_name(),
            procs: pool.procs(),
            ..pool.summary()
        })
    }

    /// Returns the status without settings, abilities and processes.
    pub fn summary(&self) -> DaemonStatus {
        self.status_of(KnownPool::summary)
    }

    fn status_of(&self, describe: impl Fn(&KnownPool) -> PoolStatus) -> DaemonStatus {
        let pools: Vec<PoolStatus> = self.pools.iter().map(describe).collect();
        // A pool being removed serves no service.
        let find = |name: &str| {
            pools
                .iter()
                .find(|pool| pool.name == name && pool.removing.is_none())
        };
        let services = self.services.iter();
        DaemonStatus {
            services: services.map(|service| service.status(find)).collect(),
            pools,
            proc_count: self.proc_count,
            stale_proc_count: self.stale_proc_count,
        }
    }
}

impl KnownPool {
    fn summary(&self) -> PoolStatus {
        let status = &self.core;
        PoolStatus {
            name: self.name.to_string(),
            language: self.language.to_string(),
            group: self.section.group.clone(),
            command: self.command.to_string(),
            hard_limit: status.settings.limits.hard_limit,
            soft_limit: status.settings.limits.soft_limit,
            used: status.used,
            free: status.free,
            free_tagged: status.free_tagged,
            opening: status.opening,
            stopping: status.stopping,
            waiting: status.waiting,
            longest_wait_ms: milliseconds(status.longest_wait),
            removing: status.removing.map(|mode| <&str>::from(mode).to_owned()),
            throttled_ms: status.throttled.map(milliseconds),
            failure: self.failure.as_deref().map(str::to_owned),
            stressed_ms: status.stressed.map(milliseconds),
            totals: totals(&self.totals),
            sandbox: self.cell.as_ref().map(|cell| cell.status()),
            ..PoolStatus::default()
        }
    }

    /// Returns every effective setting, including defaults; a pool without a group has no `group`.
    fn settings(&self, manager: &ManagerSettings) -> Map<String, Value> {
        let section = PoolConfig::clone(&self.section);
        let mut section = match manager.service_terms.get(&*self.name) {
            Some(terms) => terms.applied_to(section),
            None => section,
        };
        section.language = Some(self.language.to_string());
        section.max.get_or_insert(manager.limits.hard_limit);
        // The manager has twice the configured time: TERM after half of it, KILL at its end.
        section.stop_grace.get_or_insert(manager.stop_grace / 2);
        let held = &self.core.settings;
        section = manager.cells.in_force(section);
        section.cell.reuse = Some(held.reuse);
        section.on_client_crash = Some(held.on_client_crash);
        section.throttle_delay = Some(held.throttle.map_or(Duration::ZERO, |terms| terms.delay));
        section
            .settings()
            .into_iter()
            .map(|setting| (setting.key.clone(), setting.json()))
            .collect()
    }

    fn procs(&self) -> Vec<ProcStatus> {
        self.core
            .procs
            .iter()
            .zip(&self.procs)
            .map(|(proc, (os_pid, holder))| ProcStatus {
                name: proc_name(&self.name, proc.proc),
                os_pid: *os_pid,
                state: <&str>::from(proc.phase).to_owned(),
                db: proc.db.as_deref().map(str::to_owned),
                ddocs: proc.ddocs as usize,
                isolates: proc.isolates,
                uses: proc.uses,
                age_ms: milliseconds(proc.age),
                idle_ms: proc.idle.map_or(0, milliseconds),
                holder: holder.as_ref().map(KnownHolder::describe),
                memory: proc.memory,
            })
            .collect()
    }
}

fn totals(totals: &PoolTotals) -> Totals {
    use StopReason::{Age, Culled, Idle, Memory, MemoryHard, Stress, Uses};
    let recycled = [Uses, Age, Memory, MemoryHard, Culled, Idle, Stress];
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
            .map(|why| (<&str>::from(why).to_owned(), totals.stopped(why)))
            .into(),
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

/// Failures and limits of pools, in the operator's terms, and their watchers.
impl ProcManager {
    /// Records how a process failed, for requests refused because of it.
    pub(super) fn note_failure(&mut self, pool: PoolId, how: &str) {
        let pool = self.pools.at_mut(pool);
        let text = format!("{}: {how}", pool.command);
        let text: String = text.chars().take(FAILURE_CHARACTERS).collect();
        pool.failure = Some(Arc::from(text));
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

    /// Sends changes of a pool to its watchers.
    pub(super) fn tell_watchers(&mut self) {
        let core = &self.core;
        self.watchers.retain(|pool, watchers| {
            let now = state(core, *pool);
            watchers.send_if_modified(|state| std::mem::replace(state, now) != now);
            !watchers.is_closed()
        });
    }
}

fn state(core: &Pools, pool: PoolId) -> PoolState {
    PoolState {
        pool: core.snapshot(pool),
        stress: core.is_stressed(pool),
    }
}
