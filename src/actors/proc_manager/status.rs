//! The state of the pools, for `status` and everything that shows it.

use std::time::Duration;

use actix::prelude::*;

use super::ProcManager;
use crate::actors::pool_reporter::milliseconds;
use crate::config::PoolConfig;
use crate::messages::proc_manager::GetStatus;
use crate::query_server::status::{DaemonStatus, Holder, PoolStatus, ProcStatus, Totals};
use policy::pool::{
    ClientId, PoolId, PoolTotals, ProcPhase, ProcStatus as CoreProc, RemoveMode, StopReason,
};

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
        section.stop_grace.get_or_insert(grace.into());
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
            uses: proc.uses,
            age_ms: milliseconds(proc.age),
            idle_ms: proc.idle.map_or(0, milliseconds),
            holder: proc.holder.map(|client| self.holder(client)),
            memory: proc.memory,
        }
    }

    /// Returns who a client is, for people.
    pub(super) fn holder(&self, client: ClientId) -> Holder {
        let known = self.clients.get(&client);
        let who = known.and_then(|known| known.who.as_deref());
        Holder {
            client: client.0,
            ..who.cloned().unwrap_or_default()
        }
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
