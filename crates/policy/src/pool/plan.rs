//! The effects of new settings, a new pool or a removal on processes and waiters, as a list.
//!
//! SUMMARY   A copy of the pools handles the event, and its actions are counted. So the plan is exactly what the
//!           event will do.
//! PROMISES  Changes nothing.
//! CALLED    By the ProcManager, which answers operators with the plan and logs it.
//! SOURCE    pooler's reconfiguration of pools: settings as data, changes as a list.
//! LIMITS    Costs a copy of all tables.

use super::{Event, PoolAction, PoolId, PoolSettings, Pools, RemoveMode, StopReason};

/// An effect of new settings on a running pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// This many idle processes are stopped: they exceed `max`, or the change replaces the processes.
    StopIdle(u32),
    /// This many processes in use are stopped on return, for the same reasons.
    StopReturned(u32),
    /// This many waiters, the newest ones, are refused: they exceed `queue_max`, and no other pool of their group has
    /// room.
    ShrinkQueue(u32),
    /// This many processes are opened: for waiters, for `init_size` and `min_free`.
    Start(u32),
}

impl Pools {
    /// Returns the effects of [`Event::Reconfigure`] on a pool; none for a missing pool.
    pub fn plan(&self, pool: PoolId, new: &PoolSettings) -> Vec<Change> {
        let Some(row) = self.pool(pool) else {
            return Vec::new();
        };
        let settings = Box::new(*new);
        let actions = self.trial(Event::Reconfigure { pool, settings });
        let stop_idle = count(
            &actions,
            |action| matches!(action, PoolAction::Stop { proc, why: StopReason::OverLimit | StopReason::Stale } if proc.pool == pool),
        );
        let left = row.count() - stop_idle;
        let stop_returned = if new.replaces_those_of(&row.settings) {
            left
        } else {
            left.saturating_sub(new.limits.hard_limit)
        };
        let if_any = |count: u32, change: fn(u32) -> Change| (count > 0).then(|| change(count));
        let changes = [
            if_any(stop_idle, Change::StopIdle),
            if_any(stop_returned, Change::StopReturned),
            if_any(refused(&actions), Change::ShrinkQueue),
            if_any(opened(&actions, pool), Change::Start),
        ];
        changes.into_iter().flatten().collect()
    }

    /// Returns how many processes a pool with these settings would open if added now: for its sizes, and for waiters
    /// of its group.
    pub fn plan_add(&self, settings: &PoolSettings) -> u32 {
        let mut copy = self.clone();
        let pool = copy.add_pool(*settings);
        opened(&copy.trial(Event::StartPool { pool }), pool)
    }

    /// Returns how many requests would be refused if a pool were removed now; pools of its group take over the
    /// others.
    pub fn plan_removal(&self, pool: PoolId, mode: RemoveMode) -> u32 {
        refused(&self.trial(Event::RemovePool { pool, mode }))
    }

    /// Returns the actions of an event without carrying them out.
    fn trial(&self, event: Event) -> Vec<PoolAction> {
        let mut actions = Vec::new();
        self.clone().handle(event, self.ledger.now, &mut actions);
        actions
    }
}

fn count(actions: &[PoolAction], is_meant: impl Fn(&PoolAction) -> bool) -> u32 {
    actions.iter().filter(|action| is_meant(action)).count() as u32
}

fn refused(actions: &[PoolAction]) -> u32 {
    count(actions, |action| {
        matches!(action, PoolAction::Refuse { .. })
    })
}

fn opened(actions: &[PoolAction], pool: PoolId) -> u32 {
    count(
        actions,
        |action| matches!(action, PoolAction::Open { proc, .. } if proc.pool == pool),
    )
}
