//! What the PoolProber is asked: what a language can do, and which layers of a pool's cell hold.
//!
//! PROMISES  A request that needs an ability nobody knows of waits for its probe; the pool goes on meanwhile.

use std::sync::Arc;

use actix::prelude::*;

use super::ProcManager;
use crate::messages::pool_prober::{PoolCell, ProbeAbility, TryAllCells, TryCells};
use crate::messages::proc_manager::GetProcError;
use crate::otp::deferred::{Deferred, deferred};
use crate::otp::tell::Tell;
use crate::query_server::abilities::{Ability, Finding};
use crate::query_server::tried_cell::TriedCell;
use policy::pool::PoolId;

/// A probe may take this part of the time that its request has, so that something is left.
const PROBE_SHARE: u32 = 2;

impl ProcManager {
    /// Returns whether the processes of a pool can do something; `None` when a probe has to tell.
    pub(super) fn can(&self, pool: PoolId, ability: Ability) -> Option<Result<(), GetProcError>> {
        let pool = self.pools.at(pool);
        match pool.abilities.known(ability) {
            Some(Finding::Absent(how)) => Some(Err(GetProcError::Unable {
                language: pool.language.to_string(),
                ability,
                how,
            })),
            Some(Finding::Present | Finding::Open) => Some(Ok(())),
            // Nothing is started any more: the core refuses.
            None if self.shutting_down => Some(Ok(())),
            None => None,
        }
    }

    /// Has an ability probed; `again` is the answer, and handles the request again.
    pub(super) fn probe<T: 'static>(
        &self,
        pool: PoolId,
        ability: Ability,
        ctx: &mut Context<Self>,
        again: impl AsyncFnOnce(Addr<Self>) -> T + 'static,
    ) -> Deferred<T> {
        let (answer, replier) = deferred();
        let pool = self.pools.at(pool);
        let probed = self.prober.send(ProbeAbility {
            abilities: Arc::clone(&pool.abilities),
            ability,
            language: pool.language.clone(),
            time: self.settings.os_process_timeout / PROBE_SHARE,
        });
        let manager = ctx.address();
        // Ends with the probe. A caller that is gone gives a lease back by dropping it.
        actix_rt::spawn(async move {
            // One that was cut off leaves the question open, and the manager shuts down.
            let _ = probed.await;
            drop(replier.send(again(manager).await));
        });
        answer
    }

    /// Has the cells of all pools tried, those that were tried before as well.
    pub(super) fn try_all_cells(&mut self) {
        self.pools.iter_mut().for_each(|pool| pool.cell = None);
        if let Some(pools) = self.cells_of(&self.pools.ids()) {
            self.prober.tell(TryAllCells(pools));
        }
    }

    /// Has the cells of some pools tried that are new or have changed.
    pub(super) fn try_cells(&mut self, pools: &[PoolId]) {
        if let Some(pools) = self.cells_of(pools) {
            self.prober.tell(TryCells(pools));
        }
    }

    /// Tells of a pool that is gone.
    pub(super) fn forget_cell(&self, pool: PoolId, name: &Arc<str>) {
        let (name, cell) = (Arc::clone(name), None);
        let gone = PoolCell { pool, name, cell };
        self.prober.tell(TryCells(vec![gone]));
    }

    /// Notes which cells pools have. `None`: nobody wants to know what holds of them.
    fn cells_of(&mut self, pools: &[PoolId]) -> Option<Vec<PoolCell>> {
        if !self.settings.cells.are_tried() || self.shutting_down {
            return None;
        }
        let cells = pools.iter().map(|id| {
            let cell = self.cell_of(*id);
            let pool = self.pools.at_mut(*id);
            pool.cell.clone_from(&cell);
            PoolCell {
                pool: *id,
                name: Arc::clone(&pool.name),
                cell,
            }
        });
        Some(cells.collect())
    }

    /// Returns the cell of a pool, which is another pool's if theirs is the same.
    fn cell_of(&self, id: PoolId) -> Option<Arc<TriedCell>> {
        let pool = self.pools.at(id);
        let language = self.settings.languages.get(&pool.language)?;
        let trial = language.cell_trial(&self.settings.cells.of_pool(&pool.section))?;
        let mut known = self.pools.iter().filter_map(|(_, pool)| pool.cell.as_ref());
        let known = known.find(|cell| cell.trial == trial).cloned();
        Some(known.unwrap_or_else(|| TriedCell::new(trial)))
    }
}
