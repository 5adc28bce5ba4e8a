//! Pools that somebody else has to know the state of at any time: services.
//!
//! PROMISES  Every change is told in the turn in which it happens, and only a change. The end of a
//!           pool is the end of its channel.

use actix::prelude::*;
use tokio::sync::watch;

use super::ProcManager;
use crate::config::language_name;
use crate::messages::pool_watch::{PoolState, WatchPool};
use policy::pool::{PoolId, Pools};

/// A pool that is watched.
pub(super) struct Watched {
    pool: PoolId,
    state: watch::Sender<PoolState>,
}

impl ProcManager {
    /// Tells whoever watches a pool what has changed about it.
    pub(super) fn tell_watchers(&mut self) {
        if self.watchers.is_empty() {
            return;
        }
        let core = &self.core;
        self.watchers.retain(|watched| {
            let now = state(core, watched.pool);
            watched.state.send_if_modified(|state| {
                let changed = *state != now;
                *state = now;
                changed
            });
            !watched.state.is_closed()
        });
    }

    /// Ends the channels of a pool that is gone.
    pub(super) fn end_watches(&mut self, pool: PoolId) {
        self.watchers.retain(|watched| watched.pool != pool);
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
        let known = self.watchers.iter().find(|watched| watched.pool == pool);
        if let Some(watched) = known {
            return Some(watched.state.subscribe());
        }
        let (sender, receiver) = watch::channel(state(&self.core, pool));
        self.watchers.push(Watched {
            pool,
            state: sender,
        });
        Some(receiver)
    }
}
