//! The throttle of a pool: after several failed starts in a row, none is tried for a while.

use std::time::Duration;

use crate::time::Timestamp;

/// The first delay, after the first failure.
pub const THROTTLE_DELAY: Duration = Duration::from_secs(60);

/// The longest delay, however often it fails.
pub(crate) const THROTTLE_DELAY_MAX: Duration = Duration::from_secs(600);

/// How many failures in a row throttle: one may be an accident.
pub const FAILURES_MIN: u32 = 3;

/// How many failing starts in a row throttle where signals from outside ended them. Those say nothing about the command,
/// until something on the machine goes on killing it: the system, for want of memory.
pub const KILLS_MIN: u32 = 10;

/// A process that ends by itself within this time of its start, before it has worked for anybody, has failed as one that
/// did not start.
pub const EARLY_END: Duration = Duration::from_secs(5);

/// How a process failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It could not be created, or did not answer its first `reset`.
    Start,
    /// A signal from outside ended it before it answered its first `reset`.
    KilledStart,
    /// It ended by itself within [`EARLY_END`].
    EarlyEnd,
}

/// How long no process is created after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleSettings {
    /// At first; it doubles with each failure that follows.
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
/// A failure is a process that could not be created, that did not answer its first `reset`, or that ended soon
/// after: the command is wrong, its configuration, or the machine has no room. When [`FAILURES_MIN`] of them came in a
/// row, trying again at once would only load the machine.
///
/// # Source
/// Postfix master_throttle: there the first failure throttles, for a fixed delay (`service_throttle_time`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Throttle {
    /// How long the last throttling was; `None` after a success.
    last_delay: Option<Duration>,
    /// While it is on.
    until: Option<Timestamp>,
    /// Starts that failed by themselves since the last one that did not.
    failed_starts: u32,
    /// Starts that failed in any way since then.
    all_failed_starts: u32,
    /// Processes that ended early since one did its work.
    early_ends: u32,
}

impl Throttle {
    /// Takes a failure. Returns whether there is evidence by now that processes are unavailable. A failure that
    /// comes while it is on (several were being created at a time) is of the same trouble.
    pub(crate) fn failed(&mut self, now: Timestamp, failure: Failure) -> bool {
        if self.is_on(now) {
            return false;
        }
        let one = |condition: bool| u32::from(condition);
        let add = |count: &mut u32, one: u32| *count = count.saturating_add(one);
        add(&mut self.failed_starts, one(failure == Failure::Start));
        add(
            &mut self.all_failed_starts,
            one(failure != Failure::EarlyEnd),
        );
        add(&mut self.early_ends, one(failure == Failure::EarlyEnd));
        self.failed_starts.max(self.early_ends) >= FAILURES_MIN
            || self.all_failed_starts >= KILLS_MIN
    }

    /// Begins it. Returns until when none is created.
    pub(crate) fn begin(&mut self, now: Timestamp, settings: &ThrottleSettings) -> Timestamp {
        let delay = match self.last_delay {
            None => settings.delay,
            Some(last) => last
                .saturating_mul(2)
                .clamp(settings.delay, settings.delay_max.max(settings.delay)),
        };
        self.last_delay = Some(delay);
        let until = now + delay;
        self.until = Some(until);
        until
    }

    /// Takes a success: a process has started. The next failing start is a first one again.
    /// What is on stays on: processes that are there say nothing about creating another.
    pub(crate) fn succeeded(&mut self) {
        (self.failed_starts, self.all_failed_starts) = (0, 0);
        if self.early_ends == 0 {
            self.last_delay = None;
        }
    }

    /// Takes that a process has done its work: the next early end is a first one again.
    pub(crate) fn served(&mut self) {
        if self.early_ends > 0 {
            self.early_ends = 0;
            self.last_delay = None;
        }
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
