//! New limits and settings of a pool: their immediate effects.
//!
//! SUMMARY   Stops surplus idle processes, and reorders the waiters. Effects that need a return or background work
//!           follow later.
//! CALLED    By [`super::Pools::handle`]. Surplus waiters are refused afterwards.
//! SOURCE    couch_proc_manager 001: reload_config; pooler: reconfiguration.

use super::{PoolSettings, StopReason, Turn};

impl Turn<'_> {
    /// Applies new settings, and stops idle processes above the new limits.
    pub fn reconfigure(&mut self, new: PoolSettings) {
        let old = std::mem::replace(&mut self.pool.settings, new);
        self.pool.rebuild_ages();
        let replaces = new.replaces_those_of(&old);
        if replaces {
            // The past of the processes is meaningless under another rule: idle ones stop now, others on return.
            self.pool.life.renewed_up_to = self.ledger.last_number;
            self.pool.life.shrunk = true;
            self.pool.retag_openings(self.ledger);
            self.stop_stale();
        }
        if old.fairness != new.fairness {
            self.open_accounts();
        }
        if old.fairness != new.fairness
            || old.interactive_reserved != new.interactive_reserved
            || replaces
        {
            // The order of the waiters may differ.
            for id in std::mem::take(&mut self.pool.waiters).iter() {
                if let Some(row) = self.ledger.requests.get(&id) {
                    self.pool.enqueue(id, row, self.ledger);
                }
            }
        }
        if new.throttle.is_none() {
            self.unthrottle();
        }
        if !new.stress {
            self.pool.life.stress = Default::default();
            self.pool.life.refresh.clear();
        }
        // Tagged processes stop first.
        while self.pool.is_over_limit()
            && let idle = &self.pool.idle
            && let Some(number) = idle.oldest_used().or_else(|| idle.oldest_untagged())
        {
            self.stop(number, StopReason::OverLimit);
        }
        self.pool.count_max = self.pool.count().max(new.limits.hard_limit);
    }
}
