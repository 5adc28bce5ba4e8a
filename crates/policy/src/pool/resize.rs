//! New limits and settings of a pool: their immediate effects.
//!
//! SUMMARY   Stops surplus idle processes, and reorders the waiters. What only a return
//!           or the background can do follows by itself.
//! CALLED    By [`super::Pools::handle`]. Surplus waiters are refused after it.
//! SOURCE    couch_proc_manager 001: reload_config; pooler: reconfiguration.

use super::action::StopReason;
use super::settings::PoolSettings;
use super::turn::Turn;

impl Turn<'_> {
    /// Puts new settings in force, and stops what is above the new limits and idle.
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

    /// Replaces the processes, whose past says nothing under another rule: idle ones now, the others when
    /// they come back.
    fn renew(&mut self) {
        self.pool.life.renewed_up_to = self.ledger.last_number;
        self.pool.life.shrunk = true;
        self.pool.retag_openings(self.ledger);
        self.stop_stale();
    }

    /// Puts the waiters in order anew.
    fn queue_anew(&mut self) {
        let waiters = std::mem::take(&mut self.pool.waiters);
        for id in waiters.iter() {
            if let Some(row) = self.ledger.requests.get(&id) {
                self.pool.enqueue(id, row, self.ledger);
            }
        }
    }
}
