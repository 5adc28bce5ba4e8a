//! Time since the machine started, for leases: it goes on while the machine sleeps.
//!
//! SOURCE    clock_gettime(2): CLOCK_BOOTTIME.
//! LIMITS    Where the system has no such clock, CLOCK_MONOTONIC, which stands still in sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Tells the time since the machine started. Clones tell the same.
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

    /// Sets it forward.
    #[cfg(test)]
    pub fn set_forward(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.ahead.fetch_add(by, Ordering::SeqCst);
    }
}
