//! The one clock of the service: tokio's, so that paused time in tests is time for everything.

use actix_rt::time::Instant;

use policy::time::Timestamp;

/// Tells the time to the decision core.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts a clock at [`Timestamp::ZERO`].
    #[allow(
        clippy::new_without_default,
        reason = "a start in time is not a default"
    )]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        let elapsed = self.start.elapsed().as_nanos();
        Timestamp::from_nanoseconds(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}
