//! Metrics of the daemons that share one database, as seen by this one.

use std::time::{Duration, Instant};

use strum::{IntoStaticStr, VariantArray};

use super::cells::{Counted, Counter, CountersBy, Gauge};
use super::definition::metrics;
use super::names::Absorb;
use super::snapshot::Value;

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
        gauge("settee.fleet_daemons", "settee_fleet_daemons")
            => pub(crate) daemons: Gauge;
        /// Documents that this daemon owns
        gauge("settee.fleet_documents_owned", "settee_fleet_documents_owned")
            => pub(crate) owned: Gauge;
        /// Time left of this daemon's lease
        gauge("settee.fleet_lease_left", "settee_fleet_lease_left_seconds").unit("s")
            => lease_end: TimeLeft;
        /// Renewals of this daemon's lease: renewed, over (too late), failed (the database did not answer)
        counter("settee.fleet_renewals", "settee_fleet_renewals_total").labels(&["result"])
            => pub(crate) renewals: CountersBy<Renewal>;
        /// Documents that this daemon claimed, including new ones
        counter("settee.fleet_takeovers", "settee_fleet_takeovers_total")
            => pub(crate) takeovers: Counter;
        /// Replication documents that no daemon with a valid lease owns, as of this daemon's last read
        gauge("settee.fleet_documents_unowned", "settee_fleet_documents_unowned")
            => unowned: Gauge;
        /// How long there have been unowned documents; 0: none
        gauge("settee.fleet_unowned", "settee_fleet_unowned_seconds").unit("s")
            => unowned_since: TimeSince;
    }
}

impl FleetMetrics {
    /// Sets the remaining time of the lease; zero if it has expired.
    pub(crate) fn set_lease_left(&self, left: Duration) {
        self.lease_end.0.set_in(left);
    }

    /// Sets the number of documents that request a replication and have no owner.
    pub(crate) fn set_unowned(&self, count: usize) {
        self.unowned.set(count as u64);
        let since = &self.unowned_since.0;
        match (count, since.at.get()) {
            (0, _) => since.at.set(0),
            (_, 0) => since.set_in(Duration::ZERO),
            _ => {}
        }
    }
}

/// Seconds until a time; 0 after it.
#[derive(Debug, Default)]
struct TimeLeft(Moment);

impl TimeLeft {
    fn get(&self) -> Duration {
        Duration::from_millis(self.0.at.get().saturating_sub(self.0.now()))
    }
}

impl Counted for TimeLeft {
    fn samples(&self, each: &mut dyn FnMut(&[&str], Value)) {
        each(&[], self.get().as_secs_f64().into());
    }
}

impl Absorb for TimeLeft {
    fn absorb(&self, _: &Self) {}
}

/// Seconds since a time; 0 without one.
#[derive(Debug, Default)]
struct TimeSince(Moment);

impl TimeSince {
    fn get(&self) -> Duration {
        match self.0.at.get() {
            0 => Duration::ZERO,
            at => Duration::from_millis(self.0.now().saturating_sub(at)),
        }
    }
}

impl Counted for TimeSince {
    fn samples(&self, each: &mut dyn FnMut(&[&str], Value)) {
        each(&[], self.get().as_secs_f64().into());
    }
}

impl Absorb for TimeSince {
    fn absorb(&self, _: &Self) {}
}

/// A time in milliseconds; 0: unset.
#[derive(Debug)]
struct Moment {
    /// The reference time.
    began: Instant,
    at: Gauge,
}

impl Default for Moment {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            at: Gauge::default(),
        }
    }
}

impl Moment {
    /// Never 0.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
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
        let unowned = || (metrics.unowned.get(), metrics.unowned_since.0.at.get());
        assert_eq!(unowned(), (0, 0));
        metrics.set_unowned(2);
        let (_, since) = unowned();
        metrics.set_unowned(1);
        assert_eq!(unowned(), (1, since));
        metrics.set_unowned(0);
        assert_eq!(unowned(), (0, 0));
        assert_eq!(metrics.unowned_since.get(), Duration::ZERO);
    }

    #[test]
    fn the_time_left_of_a_lease_counts_down_from_the_value_set() {
        let metrics = FleetMetrics::default();
        assert_eq!(metrics.lease_end.get(), Duration::ZERO);
        metrics.set_lease_left(Duration::from_secs(3600));
        let left = metrics.lease_end.get();
        assert!(left > Duration::from_secs(1800) && left <= Duration::from_secs(3600));
        metrics.set_lease_left(Duration::ZERO);
        assert_eq!(metrics.lease_end.get(), Duration::ZERO);
    }
}
