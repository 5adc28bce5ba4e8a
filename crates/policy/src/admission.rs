//! Admission: whether a service takes another connection, and whether a process may be created.
//!
//! SUMMARY   A service is a listening socket with a pool behind it. From a [`Snapshot`] of the pool
//!           [`verdict`] says whether the socket accepts, and [`may_spawn`] whether one more
//!           process may be created. [`Throttle`] and [`Stress`] keep the state between
//!           decisions.
//! PROMISES  Pure: the same snapshots at the same times give the same decisions. A decision
//!           depends on the snapshot alone, so it can be made after every change; an unchanged one
//!           costs a few comparisons ([`LastVerdict::changed`]).
//! CALLED    By the pool's core, which embeds a throttle and a stress in each pool; by the actor of
//!           a service, which obeys; by code that creates processes, which asserts.
//! SOURCE    Postfix master: master_avail (who watches the socket, when a child may be created),
//!           master_spawn (throttling), its stress-adaptive behaviour.
//! DIFFERS   There an available child accepts by itself. Here the service accepts for it, so a
//!           throttled service still accepts as many as its available processes can serve, and
//!           accepted connections without a process are counted.

mod stress;
mod throttle;

pub use stress::{STRESS_DURATION, Stress, StressEntry, stress_applies};
#[cfg(test)]
pub(crate) use throttle::THROTTLE_DELAY_MAX;
pub use throttle::{EARLY_END, FAILURES_MIN, KILLS_MIN, THROTTLE_DELAY, ThrottleSettings};
pub(crate) use throttle::{Failure, Throttle};

/// What a service's pool is like at one moment. All counts are processes, except [`claims`].
///
/// [`claims`]: Self::claims
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Free processes.
    pub avail: u32,
    /// Processes that are being created; they are part of `total`.
    pub opening: u32,
    /// All that are there: free, lent, being created, stopping.
    pub total: u32,
    /// The limit of `total`; `None` is no limit.
    pub max: Option<u32>,
    /// How many more of them, or of new ones, connections may have; `None` is all. The others are
    /// reserved for interactive requests.
    pub unreserved: Option<u32>,
    /// Connections that were accepted, and requests that wait, without a process.
    pub claims: u32,
    /// Whether no process is created for now.
    pub throttled: bool,
}

impl Snapshot {
    /// Returns how many more processes could be created.
    pub fn room(&self) -> u32 {
        match (self.throttled, self.max) {
            (true, _) => 0,
            (false, Some(max)) => max.saturating_sub(self.total),
            (false, None) => u32::MAX - self.total,
        }
    }

    /// Returns whether one more process would reach the limit.
    pub(crate) fn is_near_limit(&self) -> bool {
        self.max
            .is_some_and(|max| self.total.saturating_add(1) >= max)
    }

    /// Returns how many claims the processes that are being created leave unserved.
    const fn unserved(&self) -> u32 {
        self.claims.saturating_sub(self.opening)
    }
}

/// Whether a service takes another connection, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A process is available for it, or may be created.
    Listen,
    /// As many processes as there may be, and none to spare: connections wait in the system's queue.
    AtLimit,
    /// No process is available, and none is created for now.
    Throttled,
}

/// Decides whether a service takes another connection. It does if a process is available, or can be
/// created, beyond those for the connections that were accepted before. A process that is being
/// created counts for one of those.
pub fn verdict(now: &Snapshot) -> Verdict {
    let places = now.avail.saturating_add(now.room());
    let places = now.unreserved.map_or(places, |most| places.min(most));
    if places > now.unserved() {
        Verdict::Listen
    } else if now.throttled {
        Verdict::Throttled
    } else {
        Verdict::AtLimit
    }
}

/// Returns whether a service takes another connection.
pub fn listening(now: &Snapshot) -> bool {
    verdict(now) == Verdict::Listen
}

/// Why a process must not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnRefused {
    /// An available process can serve the request.
    Available,
    /// There are as many as there may be.
    AtLimit,
    /// None is created for now.
    Throttled,
}

impl std::fmt::Display for SpawnRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Available => "an available process could serve the request",
            Self::AtLimit => "there are as many processes as there may be",
            Self::Throttled => "the service is throttled",
        })
    }
}

/// Says whether a process may be created: below the limit, not while throttled, and not for a request
/// that an available process can serve (`is_served`). The decision to create one was taken before, by
/// the same rules; who carries it out asserts them here.
///
/// # Errors
/// The rule that is broken. A mistake of ours, and to be treated as one.
pub(crate) fn may_spawn(now: &Snapshot, is_served: bool) -> Result<(), SpawnRefused> {
    if now.throttled {
        Err(SpawnRefused::Throttled)
    } else if now.max.is_some_and(|max| now.total >= max) {
        Err(SpawnRefused::AtLimit)
    } else if is_served {
        Err(SpawnRefused::Available)
    } else {
        Ok(())
    }
}

/// The last verdict, so that only a difference touches the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastVerdict {
    last: Option<Verdict>,
}

impl LastVerdict {
    /// Takes a change of the pool. Returns the verdict if it is another one than before.
    pub fn changed(&mut self, now: &Snapshot) -> Option<Verdict> {
        let verdict = verdict(now);
        (self.last.replace(verdict) != Some(verdict)).then_some(verdict)
    }

    /// Returns whether the service takes connections; not before the first verdict.
    pub fn is_listening(&self) -> bool {
        self.last == Some(Verdict::Listen)
    }
}

#[cfg(test)]
mod tests;
