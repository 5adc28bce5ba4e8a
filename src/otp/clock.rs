//! The clocks of the service: [`Clock`] is tokio's, so that tests can pause time for everything; [`BootClock`]
//! advances while the machine sleeps, for leases; [`WallClock`] is the time of day.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix_rt::time::Instant;
use rustix::time::{ClockId, clock_gettime};

use policy::schedule::WallTime;
use policy::time::Timestamp;

/// The clock of the decision core.
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

// Time since the machine started, for leases: it advances while the machine sleeps.
//
// SOURCE    clock_gettime(2): CLOCK_BOOTTIME.
// LIMITS    Systems without that clock use CLOCK_MONOTONIC, which may stop while the machine sleeps.

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The time since the machine started. Clones share one clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct BootClock {
    /// How far tests have set it forward, in milliseconds.
    ahead: Arc<AtomicU64>,
}

impl BootClock {
    /// Returns the time.
    pub fn now(&self) -> Duration {
        let time = clock_gettime(CLOCK);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        let ahead = self.ahead.load(Ordering::SeqCst);
        Duration::new(seconds, nanos) + Duration::from_millis(ahead)
    }
}

// The time of day, for displayed histories.
//
// SUMMARY   Starts at the system's time of day and advances with tokio's clock, so that tests can pause time for
//           everything.
// PROMISES  Never goes backwards. Follows the system's time of day when that is set forward, and after the machine
//           slept; when it is set back, continues from where it was.

/// The system's clock is followed once it is ahead by more than this.
const APART_MAX: Duration = Duration::from_secs(1);

/// The time of day.
#[derive(Debug)]
pub(crate) struct WallClock {
    since: Instant,
    /// The time of day at `since`, plus the jumps of the system's clock.
    began: Cell<WallTime>,
}

impl WallClock {
    /// Starts a clock.
    pub fn new() -> Self {
        Self {
            since: Instant::now(),
            began: Cell::new(system_time()),
        }
    }

    /// Returns the time of day.
    pub fn now(&self) -> WallTime {
        let elapsed = self.since.elapsed();
        let ahead = system_time().since(self.began.get() + elapsed);
        if ahead > APART_MAX {
            self.began.set(self.began.get() + ahead);
        }
        self.began.get() + elapsed
    }
}

/// Returns the system's time of day.
pub(crate) fn system_time() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    WallTime::ZERO + since.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl BootClock {
        /// Sets it forward.
        pub(crate) fn set_forward(&self, by: Duration) {
            let by = u64::try_from(by.as_millis()).unwrap();
            self.ahead.fetch_add(by, Ordering::SeqCst);
        }
    }

    #[actix_rt::test]
    async fn the_time_of_day_advances_with_paused_time() {
        tokio::time::pause();
        let clock = WallClock::new();
        let before = clock.now();
        assert!(before > WallTime::from_micros(1_700_000_000_000_000));
        tokio::time::advance(Duration::from_secs(3600)).await;
        let passed = clock.now().since(before);
        assert!(passed >= Duration::from_secs(3600) && passed < Duration::from_secs(3605));
    }

    #[actix_rt::test]
    async fn a_clock_that_was_set_forward_is_followed() {
        let clock = WallClock::new();
        clock.began.set(WallTime::ZERO);
        let now = clock.now();
        assert!(system_time().since(now) <= APART_MAX);
        // A clock that is ahead is not set back.
        clock.began.set(now + Duration::from_secs(3600));
        assert!(clock.now().since(now) >= Duration::from_secs(3600));
    }
}
