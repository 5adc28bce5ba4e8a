//! Chooses the pool for a request that several pools may serve.
//!
//! SUMMARY   The pools of a group or a language, and the choice among them.
//! PROMISES  Uniform over the pools with a free process for the request, however many each has; deterministic for a
//!           given seed.
//! CALLED    By [`super::Pools`].
//! SOURCE    pidq (take_pid from a random pool), pooler (groups). The fallbacks are ours.

use rustc_hash::FxHashMap;

use super::{Ledger, Pool, PoolId, PoolSettings, RequestRow, Target};
use crate::time::Timestamp;

/// Random draws before all pools are searched. While most pools have a free process, the first draw fits.
const DRAWS: usize = 2;

/// Target -> its pools, except those being removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupMembers(FxHashMap<Target, Vec<PoolId>>);

impl GroupMembers {
    /// Adds a pool to its group and its language.
    pub fn join(&mut self, pool: PoolId, settings: &PoolSettings) {
        for target in targets(settings) {
            self.0.entry(target).or_default().push(pool);
        }
    }

    /// Removes a pool from its group and its language.
    pub fn leave(&mut self, pool: PoolId, settings: &PoolSettings) {
        for target in targets(settings) {
            if let Some(pools) = self.0.get_mut(&target) {
                pools.retain(|other| *other != pool);
                if pools.is_empty() {
                    self.0.remove(&target);
                }
            }
        }
    }

    /// The pools of a target; none if the target is a single pool.
    pub fn of(&self, target: Target) -> &[PoolId] {
        self.0.get(&target).map_or(&[], Vec::as_slice)
    }
}

/// Every target that includes a pool, except the pool itself.
pub(super) fn targets(settings: &PoolSettings) -> impl Iterator<Item = Target> + use<> {
    let group = settings.group.map(Target::Group);
    group.into_iter().chain([Target::Any(settings.language)])
}

/// Chooses among the pools of a group: a random one with a free process for the request, else a random one that may
/// open one, else a random one where a process can forget another tenant, else the one with the shortest queue that
/// is not full, else the one whose throttle ends first, if before the deadline. `None`: no pool may open a process
/// before the deadline, and no existing process can serve the request.
pub(super) fn choose_pool(
    members: &[PoolId],
    pools: &[Pool],
    ledger: &mut Ledger,
    request: &RequestRow,
) -> Option<PoolId> {
    let row = |id: PoolId| &pools[id.0 as usize];
    let now = ledger.now;
    let count = members.len() as u64;
    for _ in 0..DRAWS.min(members.len()) {
        // Every suitable pool is equally likely.
        let drawn = members[ledger.random.below(count) as usize];
        if row(drawn).can_lend(request, now) {
            return Some(drawn);
        }
    }
    let can_lend = |pool: &Pool| pool.can_lend(request, now);
    let has_place = ledger.ceiling.has_room() && ledger.ceiling.needy.is_empty();
    let can_open = |pool: &Pool| has_place && pool.can_open_for(request, now);
    let can_forget = |pool: &Pool| pool.can_forget_for(request);
    let drawn = draw(members, pools, ledger, can_lend)
        .or_else(|| draw(members, pools, ledger, can_open))
        .or_else(|| draw(members, pools, ledger, can_forget));
    if drawn.is_some() {
        return drawn;
    }
    let hopeful = members
        .iter()
        .copied()
        .filter(|id| !row(*id).is_blocked(now) || row(*id).could_serve(request));
    let shortest = hopeful.min_by_key(|id| {
        let pool = row(*id);
        // A pool that only lacks a place gets one sooner than a pool at its limit.
        let lacks_place = pool.can_open_for(request, now);
        (pool.queue_is_full(), !lacks_place, pool.waiters.len)
    });
    shortest.or_else(|| {
        let trying = members
            .iter()
            .copied()
            .filter(|id| row(*id).tries_for(request));
        trying.min_by_key(|id| row(*id).life.throttle.until.0)
    })
}

/// When the first throttle of these pools ends; `None` if none is throttled.
pub(super) fn next_try(members: &[PoolId], pools: &[Pool]) -> Option<Timestamp> {
    let until = |id: &PoolId| pools[id.0 as usize].life.throttle.until.0;
    members.iter().filter_map(until).min()
}

/// Draws a random suitable pool.
fn draw(
    members: &[PoolId],
    pools: &[Pool],
    ledger: &mut Ledger,
    fits: impl Fn(&Pool) -> bool,
) -> Option<PoolId> {
    let mut drawn = None;
    let mut seen = 0;
    for &id in members {
        if fits(&pools[id.0 as usize]) {
            seen += 1;
            if ledger.random.below(seen) == 0 {
                drawn = Some(id);
            }
        }
    }
    drawn
}
