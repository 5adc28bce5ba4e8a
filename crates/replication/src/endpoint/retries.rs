//! When a failed request is retried.
//!
//! SUMMARY   [`Backoff`] yields growing delays; [`Retries`] bounds the number and the period of retries.
//! SOURCE    couch_replicator_httpc: 250 ms, doubled each time; for at most half the health threshold, or a failing
//!           job would look healthy.

use std::time::Duration;

use tokio::time::Instant;

/// The delay before the first retry; it doubles.
pub(crate) const WAIT_MIN: Duration = Duration::from_millis(250);

/// Maximum delay before a retry.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Delays that grow up to a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    factor: u32,
    max: Duration,
}

impl Backoff {
    pub const fn new(first: Duration, factor: u32, max: Duration) -> Self {
        Self {
            next: first,
            factor,
            max,
        }
    }

    pub fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = wait.saturating_mul(self.factor).min(self.max);
        wait
    }
}

/// The remaining retries of a request.
#[derive(Debug)]
pub(crate) struct Retries {
    left: u32,
    backoff: Backoff,
    /// The age of the first failure at which retries end.
    limit: Duration,
    failing_since: Option<Instant>,
}

impl Retries {
    /// Allows `left` retries. A failure more than `limit` after the first one is not retried.
    pub const fn new(left: u32, limit: Duration) -> Self {
        Self {
            left,
            backoff: Backoff::new(WAIT_MIN, 2, WAIT_MAX),
            limit,
            failing_since: None,
        }
    }

    /// Returns the delay before the next retry; `None` if none is left.
    pub fn next(&mut self, now: Instant) -> Option<Duration> {
        let failing_since = *self.failing_since.get_or_insert(now);
        if self.left == 0 || now - failing_since > self.limit {
            return None;
        }
        self.left -= 1;
        Some(self.backoff.wait())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        let now = Instant::now();
        let mut retries = Retries::new(13, Duration::from_secs(3600));
        let waits: Vec<u128> = std::iter::from_fn(|| retries.next(now))
            .map(|wait| wait.as_millis())
            .collect();
        let known = [
            250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000,
        ];
        assert_eq!(waits[..10], known);
        assert_eq!(waits[10..], [256_000, 300_000, 300_000]);
    }

    #[test]
    fn nothing_is_retried_when_the_first_failure_is_too_old() {
        let now = Instant::now();
        let limit = Duration::from_secs(60);
        let mut retries = Retries::new(1_000, limit);
        assert!(retries.next(now).is_some());
        assert!(retries.next(now + limit).is_some());
        assert!(
            retries
                .next(now + limit + Duration::from_millis(1))
                .is_none()
        );
    }
}
