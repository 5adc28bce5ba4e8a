//! Skips requests that have proved useless, and retries them now and then.
//!
//! SUMMARY   A [`FailureAverage`] averages the wasted fraction of each call, from 0 to 1, and decides whether the
//!           next call is worth making.
//! PROMISES  While calls are skipped, one is still made every [`TRY_AGAIN`], to notice changed conditions.
//! SOURCE    `couch_replicator_worker`: the moving averages over `_revs_diff` and `_bulk_get`.
//! LIMITS    As in CouchDB, the averages cover the whole replication, and calls that several workers make at the same
//!           time all count; none waits for the result of another.

use std::time::Duration;

use tokio::time::Instant;

/// How long calls are skipped before one is retried.
pub(crate) const TRY_AGAIN: Duration = Duration::from_secs(37);

/// An exponential moving average of the wasted fraction of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureAverage {
    average: f64,
    weight: f64,
    worth_up_to: f64,
    last_call: Option<Instant>,
}

impl FailureAverage {
    /// Makes one that has counted nothing. `weight` is that of the latest call; a call is worth making while the
    /// average is at most `worth_up_to`.
    pub const fn new(weight: f64, worth_up_to: f64) -> Self {
        Self {
            average: 0.0,
            weight,
            worth_up_to,
            last_call: None,
        }
    }

    /// Returns whether a call is worth making now.
    pub fn is_worth(&self, now: Instant) -> bool {
        let long_ago = |last| now.saturating_duration_since(last) > TRY_AGAIN;
        self.average <= self.worth_up_to || self.last_call.is_none_or(long_ago)
    }

    /// Counts a call that wasted `wasted` of its `all` revisions or documents. An empty call does not count.
    #[allow(clippy::cast_precision_loss, reason = "shares of small numbers")]
    pub fn count(&mut self, wasted: usize, all: usize, now: Instant) {
        if all > 0 {
            let share = wasted as f64 / all as f64;
            self.average += self.weight * (share - self.average);
            self.last_call = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Averages;

    fn settled(wasted: usize, all: usize) -> f64 {
        let mut average = Averages::default().bulk_get;
        let now = Instant::now();
        (0..100).for_each(|_| average.count(wasted, all, now));
        average.average
    }

    #[test]
    fn the_average_settles_at_the_share() {
        assert!(settled(999, 1000) > 0.9);
        assert!(settled(50, 1000) < 0.1);
        assert!((0.49..0.51).contains(&settled(500, 1000)));
        assert!(settled(0, 0) == 0.0, "nothing was asked");
    }

    #[test]
    fn useless_calls_are_skipped_and_retried_after_more_than_37_seconds() {
        let start = Instant::now();
        let mut average = Averages::default().bulk_get;
        (0..100).for_each(|_| average.count(1, 10, start));
        assert!(average.is_worth(start));
        (0..100).for_each(|_| average.count(9, 10, start));
        assert!(!average.is_worth(start));
        assert!(!average.is_worth(start + TRY_AGAIN));
        assert!(average.is_worth(start + Duration::from_secs(38)));
    }

    #[test]
    fn an_empty_target_is_soon_no_longer_asked_for_missing_revisions() {
        let now = Instant::now();
        let mut average = Averages::default().revs_diff;
        let mut calls = 0;
        for _ in 0..20 {
            if average.is_worth(now) {
                calls += 1;
                average.count(5, 5, now);
            }
        }
        assert_eq!(calls, 6);
    }

    #[test]
    fn a_target_that_has_everything_is_always_asked() {
        let now = Instant::now();
        let mut average = Averages::default().revs_diff;
        for _ in 0..20 {
            assert!(average.is_worth(now));
            average.count(0, 5, now);
        }
    }
}
