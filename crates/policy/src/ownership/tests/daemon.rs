//! A simulated daemon: the real core, a clock, and runs that make checkpoints, end, and take time to stop.

use std::collections::{BTreeMap, BTreeSet};

use super::database::Ms;
use super::*;
use crate::schedule::Server;

/// The largest drift of a local clock from the database's, in thousandths.
const DRIFT_MAX: u64 = 10;

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalClock {
    ahead: Ms,
    /// Its rate, in thousandths of the world's.
    rate: u64,
}

impl LocalClock {
    pub(super) fn any(random: &mut TestRandom) -> Self {
        Self {
            ahead: random.below(1_000_000) as Ms,
            rate: 1000 - DRIFT_MAX + random.below(2 * DRIFT_MAX as usize + 1) as u64,
        }
    }

    pub(super) fn jump(&mut self, by: Ms) {
        self.ahead += by;
    }

    pub(super) fn now(&self, now: Ms) -> Duration {
        Duration::from_micros(self.ahead * 1000 + now * self.rate)
    }

    /// Returns the world's time at which this clock shows `wake`.
    pub(super) fn when(&self, wake: Duration) -> Ms {
        let micros = wake.as_micros() as u64;
        micros.saturating_sub(self.ahead * 1000).div_ceil(self.rate)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunState {
    Working,
    Stopping,
    /// The run's outcome is being written.
    Finished,
}

/// A run of a document's job.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) number: u64,
    pub(super) claim: Claim,
    pub(super) epoch: Epoch,
    pub(super) state: RunState,
    /// The revision of the last checkpoint that the run knows.
    pub(super) rev: u64,
    pub(super) progress: u64,
    /// The number of the checkpoint in progress.
    pub(super) checkpoint: Option<u64>,
}

/// Which messages of a daemon are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) requests: bool,
    pub(super) answers: bool,
}

impl Cut {
    pub(super) fn is_any(self) -> bool {
        self.requests || self.answers
    }
}

pub(super) struct Daemon {
    pub(super) core: Ownership,
    pub(super) clock: LocalClock,
    /// The number of the daemon's process; `None` while it is dead.
    pub(super) life: Option<u64>,
    pub(super) is_paused: bool,
    /// Events that happened while it was paused.
    pub(super) inbox: Vec<world::WorldEvent>,
    pub(super) cut: Cut,
    pub(super) runs: BTreeMap<DocId, Run>,
    /// The database generation that executed the latest accepted renewal, and its request.
    pub(super) renewed: (u64, Request),
    /// Its next wake-up.
    pub(super) wake_at: Option<Ms>,
    pub(super) is_stopping: bool,
    pub(super) is_drained: bool,
    /// Unreachable servers, each with the time at which jobs noticed.
    pub(super) unreachable: BTreeMap<Server, Option<Ms>>,
    /// Servers reported as unreachable.
    pub(super) reported: BTreeSet<Server>,
}

impl Daemon {
    pub(super) fn new(random: &mut TestRandom) -> Self {
        Self {
            core: Ownership::new("dead"),
            clock: LocalClock::any(random),
            life: None,
            is_paused: false,
            inbox: Vec::new(),
            cut: Cut::default(),
            runs: BTreeMap::new(),
            renewed: (0, Request(0)),
            wake_at: None,
            is_stopping: false,
            is_drained: false,
            unreachable: BTreeMap::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Whether no fault affects it, and it neither stops nor drains.
    pub(super) fn is_well(&self) -> bool {
        self.acts() && !self.cut.is_any() && !self.is_stopping && !self.is_drained
    }

    pub(super) fn acts(&self) -> bool {
        self.life.is_some() && !self.is_paused
    }

    /// Whether it owns a document and runs its job.
    pub(super) fn serves(&self, doc: &str) -> bool {
        self.acts() && self.core.owns(doc) && self.runs.contains_key(doc)
    }

    pub(super) fn reaches(&self, server: &Server) -> bool {
        !self.unreachable.contains_key(server)
    }

    /// Whether its core allows it to begin a checkpoint.
    pub(super) fn believes(&self, doc: &str, now: Ms) -> bool {
        self.acts() && self.may_checkpoint(doc, now).is_some()
    }

    /// Returns how long a document's checkpoint may take, in the world's time; `None` if it may not begin.
    pub(super) fn may_checkpoint(&self, doc: &str, now: Ms) -> Option<Ms> {
        let local = self.clock.now(now);
        let left = self.core.may_checkpoint(local)?;
        let end = self.clock.when(local + left).max(now + 1);
        Some(end - now).filter(|_| self.core.owns(doc))
    }

    /// Whether a renewal in this database generation has listed its claim of a document.
    pub(super) fn is_confirmed(&self, doc: &str, generation: u64) -> bool {
        let held = self.core.docs.rows.get(doc);
        self.renewed.0 == generation && held.is_some_and(|held| held.known < self.renewed.1)
    }
}
