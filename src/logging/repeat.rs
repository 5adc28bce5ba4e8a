//! Keeps a repeating warning from filling the log.
//!
//! SUMMARY   One per interval; the next one that passes says how many were left out.
//! SOURCE    Postfix's master warns about an exhausted service once in 1000 s.

use std::time::Duration;

use policy::time::Timestamp;

/// How long a warning keeps quiet after it was given.
pub(crate) const REPEAT_INTERVAL: Duration = Duration::from_secs(1000);

/// Decides whether a warning is given. One for each event and what it is about, a pool for example.
#[derive(Clone, Debug, Default)]
pub(crate) struct RepeatLimiter {
    /// When it was last given.
    last: Option<Timestamp>,
    /// How often it was left out since.
    suppressed: u64,
}

impl RepeatLimiter {
    /// Returns how many were left out since the last one when this one is to be given, and `None`
    /// when it is left out.
    pub(crate) fn admit(&mut self, now: Timestamp) -> Option<u64> {
        if self
            .last
            .is_some_and(|last| now.since(last) < REPEAT_INTERVAL)
        {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Logs a warning unless its limiter holds it back; the record has `suppressed` as its first key.
///
/// `warn_repeating!(log, limiter, now, "pool reached its process limit"; "pool" => name)`
#[macro_export]
macro_rules! warn_repeating {
    ($log:expr, $limiter:expr, $now:expr, $message:literal; $($pairs:tt)*) => {
        if let Some(suppressed) = $limiter.admit($now) {
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

    #[test]
    fn the_first_warning_is_given_at_any_time() {
        assert_eq!(RepeatLimiter::default().admit(at(0)), Some(0));
        assert_eq!(RepeatLimiter::default().admit(at(5)), Some(0));
    }

    #[test]
    fn one_warning_passes_in_a_thousand_seconds_and_counts_the_others() {
        let mut limiter = RepeatLimiter::default();
        let given: Vec<_> = (0..=2000).filter_map(|s| limiter.admit(at(s))).collect();
        assert_eq!(given, [0, 999, 999]);
    }

    #[test]
    fn a_clock_that_goes_back_gives_no_flood() {
        let mut limiter = RepeatLimiter::default();
        assert_eq!(limiter.admit(at(500)), Some(0));
        assert_eq!(limiter.admit(at(1)), None);
    }
}
