//! The throttle of a pool: after several consecutive failed starts, starts pause for a while.

use std::time::Duration;

use crate::time::{Timestamp, Until};

/// The default of [`ThrottleSettings::delay`].
pub const THROTTLE_DELAY: Duration = Duration::from_secs(60);

/// The default of [`ThrottleSettings::delay_max`].
const THROTTLE_DELAY_MAX: Duration = Duration::from_secs(600);

/// Number of consecutive failures that start the throttle: a single one may be an accident.
pub const FAILURES_MIN: u32 = 3;

/// Number of consecutive failed starts that start the throttle even if signals from outside caused them. Such signals
/// do not implicate the command, but many suggest that the system keeps killing it, as when memory is short.
pub const KILLS_MIN: u32 = 10;

/// A process that ends by itself within this time of its start, without having worked for a client, counts as a
/// failed start.
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
    /// The first delay; doubles with each further failure.
    pub delay: Duration,
    /// The maximum, unless `delay` is longer.
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
/// A failure is a process that could not be created, that did not answer its first `reset`, or that ended soon after:
/// the command or its configuration is wrong, or the machine is full. After [`FAILURES_MIN`] consecutive failures, an
/// immediate retry would only load the machine.
///
/// # Source
/// Postfix master_throttle: there the first failure throttles, for a fixed delay (`service_throttle_time`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Throttle {
    /// The last delay; `None` after a success.
    last_delay: Option<Duration>,
    /// When the throttle ends, from [`Throttle::begin`] until it has expired.
    pub until: Until,
    /// Failed starts that no signal from outside caused, since the last success.
    failed_starts: u32,
    /// All failed starts since then.
    all_failed_starts: u32,
    /// Processes that ended early since the last one that worked.
    early_ends: u32,
}

impl Throttle {
    /// Records a failure. Returns whether the throttle has to begin. A failure while it is on does not count: the
    /// opening of that process was decided before.
    pub fn failed(&mut self, now: Timestamp, failure: Failure) -> bool {
        if self.until.is_on(now) {
            return false;
        }
        let count = |count: &mut u32| *count = count.saturating_add(1);
        match failure {
            Failure::Start => {
                count(&mut self.failed_starts);
                count(&mut self.all_failed_starts);
            }
            Failure::KilledStart => count(&mut self.all_failed_starts),
            Failure::EarlyEnd => count(&mut self.early_ends),
        }
        self.failed_starts.max(self.early_ends) >= FAILURES_MIN
            || self.all_failed_starts >= KILLS_MIN
    }

    /// Starts the throttle. Returns when it ends.
    pub fn begin(&mut self, now: Timestamp, settings: &ThrottleSettings) -> Timestamp {
        let delay = match self.last_delay {
            None => settings.delay,
            Some(last) => last
                .saturating_mul(2)
                .clamp(settings.delay, settings.delay_max.max(settings.delay)),
        };
        self.last_delay = Some(delay);
        *self.until.0.insert(now + delay)
    }

    /// Records a started process: the next failed start counts as the first. A throttle that is on stays on: existing
    /// processes do not prove that another can be created.
    pub fn succeeded(&mut self) {
        (self.failed_starts, self.all_failed_starts) = (0, 0);
        if self.early_ends == 0 {
            self.last_delay = None;
        }
    }

    /// Records that a process has worked: the next early end counts as the first.
    pub fn served(&mut self) {
        if self.early_ends > 0 {
            self.early_ends = 0;
            self.last_delay = None;
        }
    }

    /// Ends the throttle and forgets the failures, at a reload, which may have corrected the command, or on an
    /// operator's order. Returns whether it was on.
    pub fn lift(&mut self, now: Timestamp) -> bool {
        let was_on = self.until.is_on(now);
        *self = Self::default();
        was_on
    }
}
