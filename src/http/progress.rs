//! How fast a client has to be.
//!
//! PROMISES  Of what a client sends, or takes, at least a kibibyte a second comes through, measured over
//!           `[server] request_timeout`; a client that is slower is given up.

use std::time::Duration;

use tokio::time::Instant;

/// The least that has to come through, in bytes a second.
const BYTES_PER_SECOND_MIN: u64 = 1024;

/// What came through since a point in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    since: Instant,
    bytes: u64,
    period: Duration,
}

impl Progress {
    /// Begins to measure.
    pub(super) fn new(period: Duration) -> Self {
        Self {
            since: Instant::now(),
            bytes: 0,
            period,
        }
    }

    /// Notes that so many bytes came through.
    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes >= BYTES_PER_SECOND_MIN.saturating_mul(self.period.as_secs().max(1)) {
            *self = Self::new(self.period);
        }
    }

    /// Returns when the client is given up unless more comes through.
    pub(super) fn deadline(&self) -> Instant {
        self.since + self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(60);

    #[actix_rt::test]
    async fn a_client_that_trickles_gains_no_time_and_one_that_goes_on_does() {
        tokio::time::pause();
        let begun = Instant::now();
        let mut progress = Progress::new(PERIOD);
        tokio::time::advance(Duration::from_secs(50)).await;
        progress.add(59 << 10);
        assert_eq!(progress.deadline(), begun + PERIOD);
        progress.add(1 << 10);
        assert_eq!(progress.deadline(), Instant::now() + PERIOD);
    }
}
