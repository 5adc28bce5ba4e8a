//! A snapshot of the pools, for display and for programs.
//!
//! SUMMARY   The manager copies numbers and shares strings; the caller converts them to a [`DaemonStatus`].
//! PROMISES  Work that is slow with many pools is not done on the manager's thread.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use serde_json::{Map, Value};

use super::{ManagerSettings, ProcManager, milliseconds};
use crate::config::PoolConfig;
use crate::messages::ps::{KnownHolder, ProcName};
use crate::metrics::ServiceState;
use crate::query_server::abilities::Abilities;
use crate::query_server::language::LanguageName;
use crate::query_server::status::{DaemonStatus, PoolStatus, ProcStatus, Totals};
use crate::query_server::tried_cell::TriedCell;
use policy::pool::{
    PoolId, PoolStatus as CoreStatus, PoolTotals, ProcPhase, RemoveMode, StopReason,
};

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
                .filter(|pool| pool.name == name)
                .find(|pool| pool.removing.is_none())
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
            removing: status.removing.map(|mode| {
                match mode {
                    RemoveMode::Graceful => "graceful",
                    RemoveMode::Immediate => "immediate",
                }
                .to_owned()
            }),
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
            .map(|(proc, (os_pid, holder))| {
                let name = ProcName {
                    pool: &self.name,
                    proc: proc.proc,
                };
                ProcStatus {
                    name: name.to_string(),
                    os_pid: *os_pid,
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
                    holder: holder.as_ref().map(KnownHolder::describe),
                    memory: proc.memory,
                }
            })
            .collect()
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
