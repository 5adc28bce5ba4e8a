//! The pools for operators and services: their state, the process list (`settee ps`), the order to end a process
//! (`settee kill`), and their last failures and limits.
//!
//! PROMISES  A watcher of a pool gets every change, and only changes, in the turn in which it happens; its channel ends
//!           with the pool. Killing a process is an order to its actor; the core handles its end like any other.

use std::sync::Arc;

use actix::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::watch;

use super::ProcManager;
use super::procs::{Listed, State, describe};
use crate::config::language_name;
use crate::messages::pools::{PoolError, PoolState, WatchPool};
use crate::messages::ps::{KillError, KillProc, KnownHolder, KnownProc, ListProcs, ProcLife};
use crate::query_server::status::KilledProc;
use policy::pool::{ClientId, PoolId, PoolKind, Pools, ProcId, ProcStatus as CoreProc, Target};

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
        self.pools
            .iter()
            .filter(|(_, pool)| *pool.name == *name)
            .map(|(id, _)| id)
            .collect()
    }

    /// Returns the processes of some pools.
    fn known_procs(&self, pools: &[PoolId]) -> Vec<KnownProc> {
        let now = self.clock.now();
        let status = pools.iter().map(|pool| self.core.status(*pool, now));
        let core = status.flat_map(|status| status.procs);
        let mut core: FxHashMap<ProcId, CoreProc> = core.map(|proc| (proc.proc, proc)).collect();
        let pools: FxHashSet<PoolId> = pools.iter().copied().collect();
        self.openers
            .keys()
            .chain(self.procs.keys())
            .filter(|id| pools.contains(&id.pool))
            .filter_map(|id| self.known_proc(*id, core.remove(id)))
            .collect()
    }

    /// Finds a process by its displayed name.
    fn proc_named(&self, name: &str) -> Option<KnownProc> {
        let (pool, number) = name.rsplit_once('/')?;
        let number = number.parse().ok()?;
        let mut found = self.pools_named(pool).into_iter().filter_map(|pool| {
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
