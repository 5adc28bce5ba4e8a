//! Limits repeated log records.
//!
//! SUMMARY   [`RepeatLimiter`] passes one warning per interval; the next one reports how many were suppressed.
//!           [`BurstLimiter`], for records of every call under load, passes the first ones, and then one summary per
//!           period.
//! SOURCE    Postfix's master warns about an exhausted service once in 1000 s.

use std::time::Duration;

use policy::time::Timestamp;
use tokio::time::Instant;

/// How long a warning is suppressed after it was logged.
pub(crate) const REPEAT_INTERVAL: Duration = Duration::from_secs(1000);

/// Decides whether a warning is logged. One for each event and subject, such as a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct RepeatLimiter {
    /// When it was last logged.
    last: Option<Instant>,
    /// How many were suppressed since.
    suppressed: u64,
}

impl RepeatLimiter {
    /// Returns the number of warnings suppressed since the last one; `None` if this one is suppressed.
    pub(crate) fn admit(&mut self) -> Option<u64> {
        let is_recent = |last: Instant| last.elapsed() < REPEAT_INTERVAL;
        if self.last.is_some_and(is_recent) {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Maximum records of a burst that are logged individually; others are counted.
pub(crate) const BURST_RECORDS_MAX: u32 = 10;

/// The period of a summary.
pub(crate) const SUMMARY_PERIOD: Duration = Duration::from_secs(60);

/// Decides whether a record is logged or counted. One for each event and subject. A burst ends with a period in which
/// nothing was counted.
#[derive(Debug, Default)]
pub(crate) struct BurstLimiter {
    /// When the period began.
    since: Option<Timestamp>,
    /// The number of records logged in this burst.
    written: u32,
    /// The number of records counted in this period.
    counted: u64,
}

/// Counted records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    /// The time covered, until now.
    pub(crate) period: Duration,
}

impl BurstLimiter {
    /// Returns whether a record is logged; otherwise counts it.
    pub(crate) fn admit(&mut self, now: Timestamp) -> bool {
        if !self.is_counting() && self.age(now) >= SUMMARY_PERIOD {
            *self = Self {
                since: Some(now),
                ..Self::default()
            };
        }
        let is_written = self.written < BURST_RECORDS_MAX;
        if is_written {
            self.written += 1
        } else {
            self.counted += 1
        }
        is_written
    }

    /// Whether a summary is pending.
    pub(crate) const fn is_counting(&self) -> bool {
        self.counted > 0
    }

    /// Returns the summary of a finished period, and begins the next one.
    pub(crate) fn summary(&mut self, now: Timestamp) -> Option<Summary> {
        (self.age(now) >= SUMMARY_PERIOD)
            .then(|| self.rest(now))
            .flatten()
    }

    /// Returns the count so far, and begins another period.
    pub(crate) fn rest(&mut self, now: Timestamp) -> Option<Summary> {
        let period = self.age(now);
        let count = std::mem::take(&mut self.counted);
        (count > 0).then(|| {
            self.since = Some(now);
            Summary { count, period }
        })
    }

    fn age(&self, now: Timestamp) -> Duration {
        self.since.map_or(Duration::MAX, |since| now.since(since))
    }
}

/// Logs a warning unless its limiter suppresses it; the record has `suppressed` as its first key.
///
/// `warn_repeating!(log, limiter, "pool reached its process limit"; "pool" => name)`
#[macro_export]
macro_rules! warn_repeating {
    ($log:expr, $limiter:expr, $message:literal; $($pairs:tt)*) => {
        if let Some(suppressed) = $limiter.admit() {
            slog::warn!($log, $message; "suppressed" => suppressed, $($pairs)*);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn one_warning_passes_in_a_thousand_seconds_and_counts_the_others() {
        let mut limiter = RepeatLimiter::default();
        let mut given = Vec::new();
        for _ in 0..=2000 {
            given.extend(limiter.admit());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(given, [0, 999, 999]);
    }

    #[test]
    fn a_burst_logs_its_first_records_and_then_one_summary_per_period() {
        let mut limiter = BurstLimiter::default();
        let (mut written, mut summaries) = (Vec::new(), Vec::new());
        // Four a second for three minutes, then one an hour later.
        for quarter in 0..720 {
            let now = Timestamp::ZERO + Duration::from_millis(quarter * 250);
            if limiter.admit(now) {
                written.push(now);
            }
            summaries.extend(limiter.summary(now));
        }
        assert_eq!(written.len(), BURST_RECORDS_MAX as usize);
        // The first one is logged before the period ends, later ones cover a whole period.
        let counts: Vec<_> = summaries.iter().map(|summary| summary.count).collect();
        assert_eq!(counts, [231, 240]);
        assert!(summaries.iter().all(|one| one.period == SUMMARY_PERIOD));
        assert!(limiter.is_counting());
        let rest = limiter.rest(at(180)).expect("some were counted");
        assert_eq!((rest.count, rest.period), (239, SUMMARY_PERIOD));
        assert_eq!(limiter.rest(at(181)), None);
        assert!(!limiter.admit(at(200)), "the burst may go on");
        assert_eq!(limiter.summary(at(200)), None);
        assert!(limiter.summary(at(240)).is_some_and(|one| one.count == 1));
        assert!(limiter.admit(at(3600)), "it is over");
    }

    #[test]
    fn rare_records_are_all_written() {
        let mut limiter = BurstLimiter::default();
        for minute in 0..100 {
            let now = at(minute * 60);
            assert!((0..5).all(|_| limiter.admit(now)), "minute {minute}");
        }
        assert!(!limiter.is_counting());
    }
}
