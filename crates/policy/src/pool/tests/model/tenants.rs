//! Tenants' CPU shares, and the charges for their work.

use super::*;

impl Model {
    pub(super) fn share(&self, db: &str) -> Option<i128> {
        self.rules.bound(db, TenantBound::CpuShare).map(i128::from)
    }

    /// Fills the buckets for this time.
    pub(super) fn fill(&mut self, time: Duration) {
        for (db, mut left) in std::mem::take(&mut self.left) {
            let share = self.share(&db).expect("each bucket has a share");
            left += time.as_nanos() as i128 * share;
            if left < 60 * SECOND * share {
                self.left.insert(db, left);
            }
        }
    }

    /// Serves tenants that are out of debt: first the one whose bucket will be full last.
    pub(super) fn free(&mut self) {
        let left = |db: &DbKey| self.left.get(db).copied().unwrap_or(0);
        let free = self.held_back.iter().filter(|db| left(db) >= 0).cloned();
        let missing = |db: &DbKey| match self.share(db) {
            Some(share) if self.left.contains_key(db) => 60 * SECOND - left(db) / share,
            _ => 0,
        };
        let mut free: Vec<(i128, DbKey)> = free.map(|db| (missing(&db), db)).collect();
        free.sort_unstable();
        for (_, db) in free.into_iter().rev() {
            self.held_back.remove(&db);
            self.settle(db);
        }
    }

    pub(super) fn charge(&mut self, db: DbKey, cost: Duration) {
        let Some(share) = self.share(&db) else {
            return;
        };
        let full = 60 * SECOND * share;
        let left = self.left.entry(db.clone()).or_insert(full);
        *left -= cost.as_nanos() as i128 * 1000;
        *left = (*left).max(-180 * SECOND * share);
        if *left < 0 && self.held_back.insert(db.clone()) {
            self.settle(db);
        }
    }

    /// Serves waiters after a tenant was held back or released: first in the pool where it has waited longest.
    pub(super) fn settle(&mut self, db: DbKey) {
        let tenant = Tenant::Database(db);
        let oldest = |pool: &ModelPool| {
            let own = pool.queue.iter().filter(|ask| ask.tenant() == tenant);
            own.map(|ask| ask.id).min()
        };
        let pools = self.pools.iter().enumerate();
        let mut waits: Vec<_> = pools
            .filter_map(|(at, pool)| Some((oldest(pool)?, at)))
            .collect();
        waits.sort_unstable();
        for (_, at) in waits {
            self.flush(at);
        }
    }

    pub(super) fn set_rules(&mut self, rules: TenantRules) {
        self.rules = rules;
        for (db, left) in std::mem::take(&mut self.left) {
            if let Some(share) = self.share(&db) {
                let left = left.clamp(-180 * SECOND * share, 60 * SECOND * share);
                self.left.insert(db, left);
            }
        }
        let left = &self.left;
        self.held_back
            .retain(|db| left.get(db).is_some_and(|left| *left < 0));
    }

    pub(super) fn is_held_back(&self, ask: &Ask) -> bool {
        matches!(ask.tenant(), Tenant::Database(db) if self.held_back.contains(&db))
    }

    /// Records the end of a loan; `ended`: its process ended, too.
    pub(super) fn note_end(&mut self, proc: ProcId, ended: bool) {
        let Some((at, index)) = self.find(proc) else {
            return;
        };
        let pool = &mut self.pools[at];
        let row = &pool.procs[index];
        let (State::Assigned(..), Some((_, tenant))) = (&row.state, &row.left_by) else {
            return;
        };
        let (score, is_apart) = pool.offenders.get(tenant).copied().unwrap_or_default();
        if ended && row.isolates_max > 0 {
            let score = 30.min(score + 10);
            pool.offenders
                .insert(tenant.clone(), (score, is_apart || score == 30));
        } else if !ended && score > 1 {
            pool.offenders.insert(tenant.clone(), (score - 1, is_apart));
        } else if !ended {
            pool.offenders.remove(tenant);
        }
    }
}
