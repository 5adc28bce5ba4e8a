//! Admission: whether a service takes another connection, and whether a process may be created.
//!
//! SUMMARY   A service is a listening socket with a pool behind it. From a [`Snapshot`] of the pool
//!           [`verdict`] says whether the socket is listened on, and [`may_spawn`] whether one more
//!           process may be created. [`Throttle`], [`Stress`] and [`LimitWarning`] remember what
//!           has to be remembered between two moments.
//! PROMISES  Pure: the same snapshots at the same times give the same decisions. The decision is a
//!           function of the snapshot alone, so it can be taken after every change, and one that
//!           changes nothing costs a few comparisons ([`Admission::changed`]).
//! CALLED    By the pool's core, which embeds a throttle and a stress in each pool; by the actor of
//!           a service, which obeys; by those who create processes, who assert.
//! SOURCE    Postfix master: master_avail (who watches the socket, when a child may be created),
//!           master_spawn (throttling), its stress-adaptive behaviour.
//! DIFFERS   There an available child accepts by itself. Here the service accepts for it, so a
//!           throttled service still accepts as many as its available processes can serve, and what
//!           is accepted and has no process yet is counted.

mod stress;
mod throttle;
mod warning;

pub(crate) use stress::is_pressed;
pub use stress::{STRESS_DURATION, Stress, StressEntry, stress_applies};
#[cfg(test)]
pub(crate) use throttle::THROTTLE_DELAY_MAX;
pub(crate) use throttle::Throttle;
pub use throttle::{THROTTLE_DELAY, ThrottleSettings};
pub use warning::LimitWarning;

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

/// Decides whether a service takes another connection: with a process to spare, or room to create
/// one, after everybody who was let in before has got theirs. A process that is being created
/// serves one who is in already; it makes a place for a new one when it is available.
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

/// What a process would be created for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// For a request; so many of the available processes could serve it.
    Request {
        /// How many.
        suitable: u32,
    },
    /// To have more of them in advance, or in place of one that ended: a pool's own settings ask
    /// for it (`init_size`, `min_free`).
    Reserve,
}

/// A process must not be created. Whoever wanted it has made a mistake.
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

/// Says whether a process may be created: for somebody whom nothing available can serve, below the
/// limit, and not while throttled. The decision to create one has been taken before, by the same
/// rules; who carries it out asserts them here.
///
/// # Errors
/// The rule that is broken. A mistake of ours, and to be treated as one.
pub(crate) fn may_spawn(now: &Snapshot, need: Need) -> Result<(), SpawnRefused> {
    if now.throttled {
        return Err(SpawnRefused::Throttled);
    }
    if now.max.is_some_and(|max| now.total >= max) {
        return Err(SpawnRefused::AtLimit);
    }
    match need {
        Need::Request { suitable } if suitable > 0 => Err(SpawnRefused::Available),
        _ => Ok(()),
    }
}

/// What a service's socket is told: the last verdict, so that only a difference touches the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    last: Option<Verdict>,
}

impl Admission {
    /// Takes a change of the pool. Returns the verdict if it is another one than before.
    pub fn changed(&mut self, now: &Snapshot) -> Option<Verdict> {
        let verdict = verdict(now);
        (self.last.replace(verdict) != Some(verdict)).then_some(verdict)
    }

    /// Returns whether the socket is listened on; not before the first verdict.
    pub fn is_open(&self) -> bool {
        self.last == Some(Verdict::Listen)
    }
}

#[cfg(test)]
mod tests;
