//! Stress: at its limit, a service allows its processes less time.

use std::time::Duration;

use crate::time::Timestamp;

/// How long stress lasts after the last moment at the limit.
pub const STRESS_DURATION: Duration = Duration::from_secs(1000);

/// Whether processes are started with stress on.
///
/// # Source
/// Postfix's stress-adaptive behaviour: `stress_expire_time`, 1000 s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stress {
    until: Option<Timestamp>,
}

/// The effect of a moment at the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StressEntry {
    /// Stress begins: idle processes were started without it, and must be replaced.
    Began,
    /// Stress is extended.
    Extended,
}

impl Stress {
    /// Records a moment at the limit: a request arrived, and one more process would reach the limit.
    pub(crate) fn note(&mut self, now: Timestamp) -> StressEntry {
        let was_on = self.is_on(now);
        self.until = Some(now + STRESS_DURATION);
        if was_on {
            StressEntry::Extended
        } else {
            StressEntry::Began
        }
    }

    /// Returns whether a process started now has stress on.
    pub(crate) fn is_on(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Returns when it ends, or ended.
    pub const fn until(&self) -> Option<Timestamp> {
        self.until
    }

    /// Ends stress whose time is over. Returns whether it did.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }

    /// Ends it, as the service is now exempt.
    pub fn end(&mut self) {
        self.until = None;
    }
}

/// Returns whether a service can be under stress. `told` is the configured value; by default, a service for only this
/// machine's users cannot.
pub fn stress_applies(local_only: bool, told: Option<bool>) -> bool {
    told.unwrap_or(!local_only)
}
