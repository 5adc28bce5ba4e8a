//! The throttle of a pool: after a process that could not be started, none is for a while.

use std::time::Duration;

use crate::time::Timestamp;

/// How long none is created after the first failure.
pub const THROTTLE_DELAY: Duration = Duration::from_secs(60);

/// How long at most, however often it fails.
pub(crate) const THROTTLE_DELAY_MAX: Duration = Duration::from_secs(600);

/// How long no process is created after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleSettings {
    /// After the first; it doubles with each that follows.
    pub delay: Duration,
    /// At most. A `delay` that is longer counts.
    pub delay_max: Duration,
}

impl Default for ThrottleSettings {
    fn default() -> Self {
        Self {
            delay: THROTTLE_DELAY,
            delay_max: THROTTLE_DELAY_MAX,
        }
    }
}

/// Whether, and until when, no process is created.
///
/// A failure is a process that could not be created, or that did not answer its first `reset`: the
/// command is wrong, its configuration, or the machine has no room. Trying again at once would only
/// load the machine.
///
/// # Source
/// Postfix master_throttle: a fixed delay there (`service_throttle_time`), which does not grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Throttle {
    /// How long the last throttling was; `None` after a success.
    last_delay: Option<Duration>,
    /// While it is on.
    until: Option<Timestamp>,
}

impl Throttle {
    /// Takes a failure. Returns until when none is created, if this failure began it: one that
    /// comes while it is on (several were being created at a time) is of the same trouble.
    pub fn failed(&mut self, now: Timestamp, settings: &ThrottleSettings) -> Option<Timestamp> {
        if self.is_on(now) {
            return None;
        }
        let delay = match self.last_delay {
            None => settings.delay,
            Some(last) => last
                .saturating_mul(2)
                .clamp(settings.delay, settings.delay_max.max(settings.delay)),
        };
        self.last_delay = Some(delay);
        let until = now + delay;
        self.until = Some(until);
        Some(until)
    }

    /// Takes a success: a process has started. The next failure is a first one again.
    /// What is on stays on: processes that are there say nothing about creating another.
    pub(crate) fn succeeded(&mut self) {
        self.last_delay = None;
    }

    /// Ends it, and forgets the failures: at a reload, which may have corrected the command, or
    /// because an operator says so. Returns whether it was on.
    pub(crate) fn lift(&mut self, now: Timestamp) -> bool {
        let was_on = self.is_on(now);
        *self = Self::default();
        was_on
    }

    /// Returns whether its time has come to an end; true once for each time that it was on.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }

    /// Returns whether no process is created now.
    pub(crate) fn is_on(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Returns when the next try is, from a failure on until [`Throttle::expire`] has told the end.
    pub const fn until(&self) -> Option<Timestamp> {
        self.until
    }
}
