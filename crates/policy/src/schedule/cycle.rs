//! A cycle: charges usage, stops jobs, starts the next jobs.
//!
//! SOURCE    couch_replicator_scheduler HEAD and 004: reschedule, stop_excess_jobs,
//!           start_pending_jobs, rotate_jobs; couch_replicator_share: charge and update.
//! DIFFERS   Jobs that could not be started, because they crashed or are paused, do not cause others to be stopped. A
//!           job that is stopping keeps its slot until it is gone; the job for this slot is chosen then, in the same
//!           order, so that the same jobs run in the end.

use super::table::Then;
use super::{Scheduler, StopReason};

impl Scheduler {
    /// Updates shares; trims; then stops one job for each one waiting beyond the free slots, within the remaining
    /// churn; then fills.
    pub(super) fn cycle_current(&mut self) {
        self.update_shares();
        // Jobs stopped by an earlier cycle that are not gone yet also count as churn.
        let stopping = self.jobs.census.stopping;
        let excess = self.trim();
        let churn = self.settings.max_churn.saturating_sub(excess + stopping);
        self.rotate(churn);
        self.fill();
    }

    /// Either trims, or fills, or rotates, as the state at the start requires.
    pub(super) fn cycle_first(&mut self) {
        let running = self.jobs.running().len();
        self.trim();
        if running < self.settings.max_jobs {
            self.fill();
        } else if running == self.settings.max_jobs {
            self.rotate(self.settings.max_churn);
        }
    }

    /// Stops continuous jobs for those that wait beyond the free slots: at most `churn`, and none for a job of lower
    /// priority than its own.
    fn rotate(&mut self, churn: usize) {
        let free = self
            .settings
            .max_jobs
            .saturating_sub(self.jobs.running().len());
        let order = self.jobs.stop_order(churn, |job| job.continuous);
        let waiting = self.jobs.waiting_levels(free + order.len());
        // Waiting jobs have falling priorities, those to stop rising ones.
        let pairs = order.into_iter().zip(waiting.into_iter().skip(free));
        for (slot, waiting) in pairs {
            if self.jobs.get(slot).level > waiting {
                return;
            }
            self.stop(slot, Then::Pend, StopReason::Rotated);
        }
    }

    /// Stops jobs beyond `max_jobs`: within a priority, continuous jobs first. Returns their number.
    fn trim(&mut self) -> usize {
        let running = self.jobs.running().len();
        let excess = running.saturating_sub(self.settings.max_jobs);
        for slot in self.jobs.stop_order(excess, |_| true) {
            self.stop(slot, Then::Pend, StopReason::Excess);
        }
        excess
    }

    /// Charges running jobs, decays usage, and raises the penalties of running jobs.
    fn update_shares(&mut self) {
        let running: Vec<_> = self.jobs.running().collect();
        for slot in &running {
            self.charge(*slot);
        }
        self.fair_share.update_usage(self.settings.usage_coeff);
        self.jobs.decay(self.settings.priority_coeff);
        for slot in &running {
            let key = &self.jobs.get(*slot).key;
            let by = self.fair_share.raise(key, &self.settings.shares);
            self.jobs.raise(*slot, by);
        }
    }
}
