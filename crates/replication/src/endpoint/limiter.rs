//! Sends fewer requests to servers that rate-limit them.
//!
//! SUMMARY   A [`Limiter`] keeps an interval for each database and method, which delays every request. A 429
//!           lengthens it by a fifth, other answers shorten it. A server's `Retry-After` also delays requests,
//!           without changing the interval.
//! PROMISES  The caller passes in the time. Without a 429 or a `Retry-After` there is no entry and no delay.
//! SOURCE    couch_replicator_rate_limiter: additive decrease and multiplicative increase of intervals.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use rustc_hash::FxHashMap;

/// The interval that the first 429 increases, and the minimum, in milliseconds.
const BASE: u64 = 20;
/// The factor of a 429, in tenths.
const INCREASE: u64 = 12;
/// Maximum interval, in milliseconds. A request that would have to wait that long fails.
pub(super) const INTERVAL_MAX: u64 = 25_000;
/// Maximum `Retry-After` that is honoured, in milliseconds.
const PAUSE_MAX: u64 = 25_000;
/// Answers within this time after one that counted are ignored, in milliseconds: they belong to the same burst.
const IGNORED_WITHIN: u64 = 80;
/// If an answer other than 429 arrives later than this after the last one that counted, in milliseconds, it also
/// shortens the interval by [`DECAY`] times the time passed.
const DECAY_AFTER: u64 = 1_000;
/// See [`DECAY_AFTER`].
const DECAY: u64 = 2;
/// How often stale entries are dropped, in milliseconds.
const CLEAN_EVERY: u64 = 50_000;
/// An entry is stale if it has not changed for longer than this, in milliseconds.
const STALE_AFTER: u64 = 25_000;

/// A database and a method.
pub(super) type Key = (Arc<str>, Method);

/// Intervals of requests. All times are milliseconds since the limiter's start.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    intervals: FxHashMap<Key, Interval>,
    /// The number of [`CLEAN_EVERY`] periods at the latest cleaning.
    cleanings: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    milliseconds: u64,
    updated: u64,
    /// The server accepts no request before this time.
    not_before: u64,
}

impl Limiter {
    /// Returns how long a request must wait; `None` if it fails, because the interval has reached its limit.
    pub fn wait(&mut self, key: &Key, now: u64) -> Option<Duration> {
        self.clean(now);
        let interval = self.intervals.get(key).copied().unwrap_or_default();
        let wait = (interval.milliseconds).max(interval.not_before.saturating_sub(now));
        (interval.milliseconds < INTERVAL_MAX).then(|| Duration::from_millis(wait))
    }

    /// Records a `Retry-After`. The interval is unaffected: a server that always answers 429 reaches
    /// [`INTERVAL_MAX`].
    pub fn pause(&mut self, key: &Key, now: u64, pause: Duration) {
        let milliseconds = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        let interval = self.intervals.entry(key.clone()).or_default();
        interval.not_before = now + milliseconds.min(PAUSE_MAX);
        if interval.milliseconds == 0 {
            interval.updated = now;
        }
    }

    /// Records a 429.
    pub fn failure(&mut self, key: &Key, now: u64) {
        self.clean(now);
        let interval = self.intervals.entry(key.clone()).or_default();
        let is_new = interval.milliseconds == 0;
        if !is_new && now.saturating_sub(interval.updated) < IGNORED_WITHIN {
            return;
        }
        // Rounded to the nearest; halves never occur.
        let longer = (interval.milliseconds.max(BASE) * INCREASE + 5) / 10;
        *interval = Interval {
            milliseconds: longer.min(INTERVAL_MAX),
            updated: now,
            ..*interval
        };
    }

    /// Records an answer other than 429.
    pub fn success(&mut self, key: &Key, now: u64) {
        self.clean(now);
        let Some(interval) = self.intervals.get_mut(key) else {
            return;
        };
        let elapsed = now.saturating_sub(interval.updated);
        if elapsed < IGNORED_WITHIN || now < interval.not_before {
            return;
        }
        let mut milliseconds = interval.milliseconds;
        if elapsed > DECAY_AFTER {
            milliseconds = milliseconds.saturating_sub(DECAY * elapsed);
        }
        let less = match milliseconds {
            10_001.. => 1_000,
            1_001.. => 100,
            101.. => 40,
            _ => 20,
        };
        milliseconds = milliseconds.saturating_sub(less);
        if milliseconds == 0 {
            self.intervals.remove(key);
            return;
        }
        *interval = Interval {
            milliseconds: milliseconds.max(BASE),
            updated: now,
            ..*interval
        };
    }

    /// Drops entries that a timer would have dropped by now.
    fn clean(&mut self, now: u64) {
        let cleanings = now / CLEAN_EVERY;
        if cleanings > self.cleanings {
            self.cleanings = cleanings;
            let at = cleanings * CLEAN_EVERY;
            self.intervals.retain(|_, interval| {
                at.saturating_sub(interval.updated) <= STALE_AFTER || now < interval.not_before
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Limited {
        limiter: Limiter,
        key: Key,
    }

    impl Limited {
        fn new() -> Self {
            Self {
                limiter: Limiter::default(),
                key: ("http://h/db/".into(), Method::GET),
            }
        }

        /// In milliseconds; 0 for none.
        fn interval(&self) -> u64 {
            let interval = self.limiter.intervals.values().next();
            interval.map_or(0, |interval| interval.milliseconds)
        }

        fn failure(&mut self, now: u64) -> u64 {
            self.limiter.failure(&self.key, now);
            self.interval()
        }

        fn success(&mut self, now: u64) -> u64 {
            self.limiter.success(&self.key, now);
            self.interval()
        }

        fn wait(&mut self, now: u64) -> Option<Duration> {
            self.limiter.wait(&self.key, now)
        }
    }

    #[test]
    fn a_new_key_has_no_interval() {
        let mut key = Limited::new();
        assert_eq!(key.wait(0), Some(Duration::ZERO));
        assert_eq!((key.success(0), key.success(100)), (0, 0));
        assert!(key.limiter.intervals.is_empty());
    }

    #[test]
    fn the_first_429s_make_the_known_intervals() {
        let mut key = Limited::new();
        let intervals: Vec<u64> = (1..=12).map(|nth| key.failure(nth * 100)).collect();
        let known = [24, 29, 35, 42, 50, 60, 72, 86, 103, 124, 149, 179];
        assert_eq!(intervals, known);
        assert_eq!(key.wait(1_300), Some(Duration::from_millis(179)));
    }

    #[test]
    fn retry_after_delays_requests_up_to_a_limit() {
        let mut key = Limited::new();
        key.failure(100);
        let pause = |key: &mut Limited, now, seconds| {
            (key.limiter).pause(&key.key, now, Duration::from_secs(seconds));
        };
        pause(&mut key, 100, 3);
        assert_eq!(key.wait(100), Some(Duration::from_secs(3)));
        // An answer to a request that was in flight.
        key.success(2_000);
        assert_eq!(key.wait(2_100), Some(Duration::from_secs(1)));
        key.failure(2_200);
        assert_eq!(key.wait(3_000), Some(Duration::from_millis(100)));
        assert_eq!(key.wait(3_100), Some(Duration::from_millis(29)));
        pause(&mut key, 4_000, u64::MAX);
        assert_eq!(key.wait(4_000), Some(Duration::from_millis(PAUSE_MAX)));
        key.success(4_000 + PAUSE_MAX);
        assert!(key.limiter.intervals.is_empty());
    }

    #[test]
    fn a_server_that_always_says_when_to_retry_reaches_the_limit_all_the_same() {
        let (mut key, mut now, mut failures) = (Limited::new(), 0, 0);
        while let Some(wait) = key.wait(now) {
            now += u64::try_from(wait.as_millis()).unwrap() + 80;
            key.failure(now);
            let pause = Duration::from_millis(PAUSE_MAX);
            (key.limiter).pause(&key.key, now, pause);
            failures += 1;
        }
        assert_eq!(failures, 40);
    }

    #[test]
    fn answers_that_come_together_count_once() {
        let mut key = Limited::new();
        assert_eq!(
            (key.failure(0), key.failure(0), key.failure(79)),
            (24, 24, 24)
        );
        assert_eq!((key.success(79), key.failure(80)), (24, 29));
    }

    #[test]
    fn successes_shorten_the_interval_until_it_is_gone() {
        let mut key = Limited::new();
        let series = (key.failure(0), key.success(100), key.success(200));
        assert_eq!(series, (24, 20, 0));
        assert_eq!(key.wait(200), Some(Duration::ZERO));
    }

    #[test]
    fn the_longer_the_interval_the_more_a_success_takes_off() {
        for (before, after) in [
            (20_000, 19_000),
            (10_001, 9_001),
            (10_000, 9_900),
            (1_001, 901),
            (1_000, 960),
            (101, 61),
            (100, 80),
            (35, 20),
        ] {
            let mut key = Limited::new();
            key.failure(0);
            for interval in key.limiter.intervals.values_mut() {
                interval.milliseconds = before;
            }
            assert_eq!(key.success(100), after, "{before}");
        }
    }

    #[test]
    fn time_shortens_the_interval_too() {
        let mut key = Limited::new();
        let intervals: Vec<u64> = (1..=30).map(|nth| key.failure(nth * 100)).collect();
        let last = *intervals.last().unwrap();
        assert!(last > 4_000, "{last}");
        assert_eq!(key.success(3_000 + 1_000), last - 100);
        assert_eq!(key.success(4_000 + 1_001), last - 100 - 2 * 1_001 - 100);
        assert_eq!(key.success(20_000), 0);
    }

    #[test]
    fn forty_spaced_429s_reach_the_limit() {
        let mut key = Limited::new();
        let mut slept = 0;
        let mut now = 0;
        let mut failures = 0;
        while key.wait(now).is_some() {
            let interval = key.failure(now);
            failures += 1;
            slept += interval;
            now += 100;
        }
        assert_eq!(failures, 40);
        assert!((145_000..=175_000).contains(&slept), "{slept}");
    }

    #[test]
    fn an_entry_at_the_limit_stays_until_it_is_cleaned_up() {
        let mut key = Limited::new();
        for nth in 0..60 {
            key.failure(nth * 100);
        }
        assert_eq!(key.wait(30_000), None);
        assert_eq!(key.wait(49_999), None);
        assert_eq!(key.wait(50_000), Some(Duration::ZERO));
        for nth in 0..60 {
            key.failure(80_000 + nth * 100);
        }
        assert_eq!(key.wait(149_999), None, "it was young at 100 s");
        assert_eq!(key.wait(150_000), Some(Duration::ZERO));
    }

    #[test]
    fn databases_and_methods_have_intervals_of_their_own() {
        let mut key = Limited::new();
        key.failure(0);
        assert_eq!(
            key.limiter.wait(&(key.key.0.clone(), Method::POST), 0),
            Some(Duration::ZERO)
        );
        assert_eq!(
            key.limiter
                .wait(&("http://h/other/".into(), Method::GET), 0),
            Some(Duration::ZERO)
        );
    }
}
