//! Pools whose state somebody else follows: services.
//!
//! PROMISES  Every change is told in the turn in which it happens, and only a change. The end of a
//!           pool is the end of its channel.

use actix::prelude::*;
use tokio::sync::watch;

use super::ProcManager;
use crate::config::language_name;
use crate::messages::pool_watch::{PoolState, WatchPool};
use policy::pool::{PoolId, Pools};

impl ProcManager {
    /// Tells whoever watches a pool what has changed about it.
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

fn state(core: &Pools, pool: PoolId) -> PoolState {
    PoolState {
        pool: core.snapshot(pool),
        stress: core.is_stressed(pool),
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
