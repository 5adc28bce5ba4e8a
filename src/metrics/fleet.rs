//! Metrics of the daemons that share one database, as seen by this one.

use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

use super::cells::{Counter, CountersBy, Created, Gauge};
use super::definition::metrics;

/// The result of a lease renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Renewal {
    /// It continues.
    Renewed,
    /// The lease had expired.
    Over,
    /// The database did not answer.
    Failed,
}

metrics! {
    /// The metrics of a fleet; 0 if the daemon does not share its store.
    #[derive(Debug, Default)]
    pub(crate) struct FleetMetrics {
        /// Daemons of a [fleet](fleet.md#what-every-daemon-answers) with a valid lease
        Gauge("settee.fleet_daemons", "settee_fleet_daemons")
            => pub daemons: Gauge;
        /// Documents that this daemon owns
        Gauge("settee.fleet_documents_owned", "settee_fleet_documents_owned")
            => pub owned: Gauge;
        /// Time left of this daemon's lease
        Gauge("settee.fleet_lease_left", "settee_fleet_lease_left_seconds");
        /// Renewals of this daemon's lease: renewed, over (too late), failed (the database did not answer)
        Counter("settee.fleet_renewals", "settee_fleet_renewals_total").labels("result")
            => pub renewals: CountersBy<Renewal>;
        /// Documents that this daemon claimed, including new ones
        Counter("settee.fleet_takeovers", "settee_fleet_takeovers_total")
            => pub takeovers: Counter;
        /// Replication documents that no daemon with a valid lease owns, as of this daemon's last read
        Gauge("settee.fleet_documents_unowned", "settee_fleet_documents_unowned")
            => unowned: Gauge;
        /// How long there have been unowned documents; 0: none
        Gauge("settee.fleet_unowned", "settee_fleet_unowned_seconds");
    }
    beside {
        lease_end: Moment;
        unowned_since: Moment;
    }
}

impl FleetMetrics {
    /// Sets the remaining time of the lease; zero if it has expired.
    pub fn set_lease_left(&self, left: Duration) {
        self.lease_end.set_in(left);
    }

    /// Returns the remaining time of the lease.
    pub fn lease_left_ms(&self) -> u64 {
        self.lease_end.at.get().saturating_sub(self.lease_end.now())
    }

    /// Returns how long there have been documents without an owner.
    pub fn unowned_ms(&self) -> u64 {
        match self.unowned_since.at.get() {
            0 => 0,
            at => self.unowned_since.now().saturating_sub(at),
        }
    }

    /// Sets the number of documents that request a replication and have no owner.
    pub fn set_unowned(&self, count: usize) {
        self.unowned.set(count as u64);
        let since = &self.unowned_since;
        match (count, since.at.get()) {
            (0, _) => since.at.set(0),
            (_, 0) => since.set_in(Duration::ZERO),
            _ => {}
        }
    }
}

/// A time in milliseconds; 0: unset.
#[derive(Debug, Default)]
struct Moment {
    /// The reference time.
    began: Created,
    at: Gauge,
}

impl Moment {
    /// Never 0.
    fn now(&self) -> u64 {
        u64::try_from(self.began.0.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Sets it to now plus `time`.
    fn set_in(&self, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.at.set(self.now().saturating_add(time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unowned_time_begins_with_the_first_unowned_document_and_ends_with_the_last() {
        let metrics = FleetMetrics::default();
        let unowned = || (metrics.unowned.get(), metrics.unowned_since.at.get());
        assert_eq!(unowned(), (0, 0));
        metrics.set_unowned(2);
        let (_, since) = unowned();
        metrics.set_unowned(1);
        assert_eq!(unowned(), (1, since));
        metrics.set_unowned(0);
        assert_eq!(unowned(), (0, 0));
        assert_eq!(metrics.unowned_ms(), 0);
    }

    #[test]
    fn the_time_left_of_a_lease_counts_down_from_the_value_set() {
        let metrics = FleetMetrics::default();
        assert_eq!(metrics.lease_left_ms(), 0);
        metrics.set_lease_left(Duration::from_secs(3600));
        let left = metrics.lease_left_ms();
        assert!(left > 1_800_000 && left <= 3_600_000);
        metrics.set_lease_left(Duration::ZERO);
        assert_eq!(metrics.lease_left_ms(), 0);
    }
}
