//! New limits and settings of a pool: their immediate effects.
//!
//! SUMMARY   Stops surplus idle processes, and reorders the waiters. Effects that need a return or background work
//!           follow later.
//! CALLED    By [`super::Pools::handle`]. Surplus waiters are refused afterwards.
//! SOURCE    couch_proc_manager 001: reload_config; pooler: reconfiguration.

use super::action::StopReason;
use super::settings::PoolSettings;
use super::turn::Turn;

impl Turn<'_> {
    /// Applies new settings, and stops idle processes above the new limits.
    pub(super) fn reconfigure(&mut self, new: PoolSettings) {
        let old = std::mem::replace(&mut self.pool.settings, new);
        self.pool.rebuild_ages();
        if new.replaces_those_of(&old) {
            self.renew();
        }
        if old.fairness != new.fairness {
            self.open_accounts();
        }
        if old.fairness != new.fairness
            || old.interactive_reserved != new.interactive_reserved
            || new.replaces_those_of(&old)
        {
            self.queue_anew();
        }
        if new.throttle.is_none() {
            self.unthrottle();
        }
        if !new.stress {
            self.pool.life.stress.end();
            self.pool.life.refresh.clear();
        }
        while self.pool.is_over_limit()
            && let Some(number) = self.pool.idle.first_to_stop()
        {
            self.stop(number, StopReason::OverLimit);
        }
        self.pool.count_max = self.pool.count().max(new.limits.hard_limit);
    }

    /// Replaces the processes, whose past is meaningless under another rule: idle ones now, others on return.
    fn renew(&mut self) {
        self.pool.life.renewed_up_to = self.ledger.last_number;
        self.pool.life.shrunk = true;
        self.pool.retag_openings(self.ledger);
        self.stop_stale();
    }

    /// Reorders the waiters.
    fn queue_anew(&mut self) {
        let waiters = std::mem::take(&mut self.pool.waiters);
        for id in waiters.iter() {
            if let Some(row) = self.ledger.requests.get(&id) {
                self.pool.enqueue(id, row, self.ledger);
            }
        }
    }
}
