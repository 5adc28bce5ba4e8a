//! Timestamps passed to the decision core, its only notion of time.

use std::ops::Add;
use std::time::Duration;

/// An instant on the service's monotonic clock.
///
/// # Units
/// Nanoseconds since an arbitrary start; 64 bits last for 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// Returns the instant `nanoseconds` after the start of the clock.
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the nanoseconds since the start of the clock.
    pub const fn as_nanoseconds(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`, zero if that is in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates, so that an infinite timeout needs no special case.
    fn add(self, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanoseconds))
    }
}

/// Something that is on until a time; off without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Until(pub Option<Timestamp>);

impl Until {
    pub fn is_on(self, now: Timestamp) -> bool {
        self.0.is_some_and(|until| now < until)
    }

    /// Turns it on, or extends it, until `time` from now. Returns whether it was off.
    pub fn extend(&mut self, now: Timestamp, time: Duration) -> bool {
        let was_on = self.is_on(now);
        self.0 = Some(now + time);
        !was_on
    }

    /// Turns it off if its time is over. Returns whether it did: true once for each time that it was on.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        self.0.take_if(|until| *until <= now).is_some()
    }
}
