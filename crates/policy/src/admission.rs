//! Admission: whether a service accepts another connection, and whether a process may be created.
//!
//! SUMMARY   A service is a listening socket with a pool behind it. From a [`Snapshot`] of the pool, [`verdict`]
//!           decides whether the socket accepts, and [`may_spawn`] whether one more process may be created.
//!           [`Throttle`] keeps the state between decisions.
//! PROMISES  Pure: the same snapshots at the same times give the same decisions. A decision depends only on the
//!           snapshot, so it can be made after every change; it costs a few comparisons.
//! CALLED    By the pool's core, which keeps a throttle for each pool; by a service's actor, which applies
//!           the verdict; by code that creates processes, which asserts that it may.
//! SOURCE    Postfix master: master_avail (which process watches the socket, when a child may be created),
//!           master_spawn (throttling), its stress-adaptive behaviour.
//! DIFFERS   In Postfix an available child accepts connections. Here the service accepts for the child, so a throttled
//!           service still accepts one connection for each available process, and accepted connections without a
//!           process are counted.

mod throttle;

use std::time::Duration;

pub use throttle::{EARLY_END, FAILURES_MIN, KILLS_MIN, THROTTLE_DELAY, ThrottleSettings};
pub(crate) use throttle::{Failure, Throttle};

/// How long stress lasts after the last moment at the limit: a service allows its processes less time.
///
/// # Source
/// Postfix's stress-adaptive behaviour: `stress_expire_time`, 1000 s.
pub(crate) const STRESS_DURATION: Duration = Duration::from_secs(1000);

/// The state of a service's pool. All counts are processes, except [`claims`].
///
/// [`claims`]: Self::claims
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Free processes.
    pub avail: u32,
    /// Processes being created; included in `total`.
    pub opening: u32,
    /// All existing processes: free, lent, being created, stopping.
    pub total: u32,
    /// The limit of `total`.
    pub max: u32,
    /// The number of processes, existing or new, that connections may still get; `None`: all. The others are reserved
    /// for interactive requests.
    pub unreserved: Option<u32>,
    /// Accepted connections and waiting requests without a process.
    pub claims: u32,
    /// Whether the throttle prevents creations.
    pub throttled: bool,
}

impl Snapshot {
    /// Returns how many more processes could be created.
    pub fn room(&self) -> u32 {
        if self.throttled {
            0
        } else {
            self.max.saturating_sub(self.total)
        }
    }

    /// Returns whether one more process would reach the limit.
    pub(crate) fn is_near_limit(&self) -> bool {
        self.total.saturating_add(1) >= self.max
    }
}

/// Whether a service accepts another connection, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A process is available for it, or may be created.
    Listen,
    /// The limit is reached, or what is left is reserved: connections wait in the system's queue.
    AtLimit,
    /// No process is available, and the throttle prevents creations.
    Throttled,
}

/// Decides whether a service accepts another connection. It does if a process that is not reserved is available, or
/// can be created, beyond those for earlier claims. A process being created serves one of these.
pub fn verdict(now: &Snapshot) -> Verdict {
    let places = now.avail.saturating_add(now.room());
    let places = now.unreserved.map_or(places, |most| places.min(most));
    if places > now.claims.saturating_sub(now.opening) {
        Verdict::Listen
    } else if now.throttled {
        Verdict::Throttled
    } else {
        Verdict::AtLimit
    }
}

/// Returns whether a service accepts another connection.
pub fn listening(now: &Snapshot) -> bool {
    verdict(now) == Verdict::Listen
}

/// Why a process must not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum SpawnRefused {
    #[strum(to_string = "an available process could serve the request")]
    Available,
    #[strum(to_string = "the maximum number of processes is reached")]
    AtLimit,
    #[strum(to_string = "the service is throttled")]
    Throttled,
}

/// Checks that a process may be created: below the limit, not while throttled, and not for a request that an
/// available process can serve (`is_served`). The decision was made before, by the same rules; its executor asserts
/// them here.
///
/// # Errors
/// The broken rule. It is a bug.
pub(crate) fn may_spawn(now: &Snapshot, is_served: bool) -> Result<(), SpawnRefused> {
    if now.throttled {
        Err(SpawnRefused::Throttled)
    } else if now.total >= now.max {
        Err(SpawnRefused::AtLimit)
    } else if is_served {
        Err(SpawnRefused::Available)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
