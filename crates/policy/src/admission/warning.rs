//! The warning of a service that has reached its limit, once in a while.

use std::time::Duration;

use crate::time::Timestamp;

/// The least time between two of them.
pub(crate) const LIMIT_WARNING_INTERVAL: Duration = Duration::from_secs(1000);

/// What the operator is told of a service at its limit, and how often.
///
/// # Source
/// Postfix master_avail_listen: one in 1000 s for each service that is not local only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitWarning {
    last: Option<Timestamp>,
    suppressed: u64,
}

impl LimitWarning {
    /// What it means for clients.
    pub const EFFECT: &'static str = "new clients may have to wait to be accepted";

    /// What can be done.
    pub const REMEDY: &'static str = "raise max of the service's pool, or shorten the time for \
                                      which a client holds a process; see docs/services.md";

    /// Takes a moment in which the service reaches its limit. Returns, when it is time for a
    /// warning, how many such moments went by without one since the last.
    pub fn reached(&mut self, now: Timestamp) -> Option<u64> {
        let is_time = self
            .last
            .is_none_or(|last| now.since(last) >= LIMIT_WARNING_INTERVAL);
        if !is_time {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}
