//! What is counted of the daemons that share one database, as this one of them sees it.

use std::time::{Duration, Instant};

use strum::{IntoStaticStr, VariantArray};

use super::cells::{Counter, CountersBy, Gauge};

/// What became of a renewal of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Renewal {
    /// It goes on.
    Renewed,
    /// The lease was over.
    Over,
    /// The database did not answer.
    Failed,
}

/// The numbers of a fleet; they stay 0 where one daemon has the store to itself.
#[derive(Debug)]
pub(crate) struct FleetMetrics {
    /// What times are counted from.
    began: Instant,
    /// Daemons whose lease is not over.
    pub(crate) daemons: Gauge,
    /// Documents that this daemon owns.
    pub(crate) owned: Gauge,
    /// Renewals of this daemon's lease.
    pub(crate) renewals: CountersBy<Renewal>,
    /// Documents that this daemon got.
    pub(crate) takeovers: Counter,
    unowned: Gauge,
    /// When there was a document without an owner first, and always since; 0 while there is none. In
    /// milliseconds.
    unowned_since: Gauge,
    /// When the lease ends, in milliseconds.
    lease_end: Gauge,
}

impl Default for FleetMetrics {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            daemons: Gauge::default(),
            owned: Gauge::default(),
            renewals: CountersBy::default(),
            takeovers: Counter::default(),
            unowned: Gauge::default(),
            unowned_since: Gauge::default(),
            lease_end: Gauge::default(),
        }
    }
}

impl FleetMetrics {
    /// Never 0, which means that there is no such time.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Notes how long the lease lasts from now on; zero where it is over.
    pub(crate) fn set_lease_left(&self, left: Duration) {
        let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        self.lease_end.set(self.now().saturating_add(left));
    }

    /// Returns how long the lease lasts.
    pub(super) fn lease_left(&self) -> Duration {
        Duration::from_millis(self.lease_end.get().saturating_sub(self.now()))
    }

    /// Notes how many documents ask for a replication and have no owner.
    pub(crate) fn set_unowned(&self, count: usize) {
        self.unowned.set(count as u64);
        match (count, self.unowned_since.get()) {
            (0, _) => self.unowned_since.set(0),
            (_, 0) => self.unowned_since.set(self.now()),
            _ => {}
        }
    }

    /// Returns how many documents have no owner, and for how long there have been some.
    pub(super) fn unowned(&self) -> (u64, Duration) {
        let since = match self.unowned_since.get() {
            0 => Duration::ZERO,
            since => Duration::from_millis(self.now().saturating_sub(since)),
        };
        (self.unowned.get(), since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_without_owners_begins_with_the_first_such_document_and_ends_with_the_last() {
        let metrics = FleetMetrics::default();
        assert_eq!(metrics.unowned(), (0, Duration::ZERO));
        metrics.set_unowned(2);
        let since = metrics.unowned_since.get();
        metrics.set_unowned(1);
        assert_eq!(
            (metrics.unowned().0, metrics.unowned_since.get()),
            (1, since)
        );
        metrics.set_unowned(0);
        assert_eq!(metrics.unowned(), (0, Duration::ZERO));
    }

    #[test]
    fn what_is_left_of_a_lease_is_what_was_noted_less_the_time_since_then() {
        let metrics = FleetMetrics::default();
        assert_eq!(metrics.lease_left(), Duration::ZERO);
        metrics.set_lease_left(Duration::from_secs(3600));
        let left = metrics.lease_left();
        assert!(left > Duration::from_secs(1800) && left <= Duration::from_secs(3600));
        metrics.set_lease_left(Duration::ZERO);
        assert_eq!(metrics.lease_left(), Duration::ZERO);
    }
}
