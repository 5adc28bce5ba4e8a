//! Single processes: what is known of each (`settee ps`), and the order to end one (`settee kill`).
//!
//! SUMMARY   The PoolReporter describes them for people. To kill one is an order to its actor; the core hears of its
//!           end as of any other.

use std::sync::Arc;

use actix::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::ProcManager;
use crate::actors::pool_reporter::procs::{Listed, State, describe};
use crate::config::language_name;
use crate::messages::pool_reporter::{
    DescribeProcs, GetLimitedProcs, KnownProc, MemoryRead, ProcLife, WatchMemory,
};
use crate::messages::pools::PoolError;
use crate::messages::ps::{KillError, KillProc, ListProcs, ProcName};
use crate::otp::tell::Tell;
use crate::query_server::status::{KilledProc, ProcPage};
use policy::pool::{ClientId, Event, PoolId, ProcId, ProcStatus, Token};

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

impl ProcManager {
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
        let mut core: FxHashMap<ProcId, ProcStatus> = core.map(|proc| (proc.proc, proc)).collect();
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
    pub(super) fn proc_name(&self, proc: ProcId) -> String {
        let pool = &*self.pools.at(proc.pool).name;
        ProcName { pool, proc }.to_string()
    }

    /// Returns who holds a process that has ended by order of somebody, under which assignment, and what they are told.
    pub(super) fn holder_to_tell(&self, proc: ProcId) -> Option<(ClientId, Token, String)> {
        let shared = &self.procs.get(&proc)?.shared;
        let report = shared.exit_error()?.exit_report();
        let report = report.filter(|report| report.by_order)?;
        let status = self.core.status(proc.pool, self.clock.now());
        let held = status.procs.iter().find(|held| held.proc == proc)?;
        let reason = format!("the process {}", report.told());
        Some((held.holder?, shared.token()?, reason))
    }
}

impl ProcManager {
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
