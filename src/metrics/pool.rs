//! What is counted of one pool: lending, waiting, opening, stopping.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

use super::cells::{Counter, CountersBy, Histogram};
use super::names::Absorb;
use crate::messages::process::Fault;
use policy::pool::{Phase, StopReason};

/// How a process came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReturnKind {
    /// Its client gave it back.
    Ok,
    /// Its client gave it back as broken.
    Fail,
    /// Its client died, or let go of it.
    Lost,
}

/// Why a process could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum OpenFailure {
    /// It did not start in time.
    Timeout,
    /// It was not wanted any more.
    Stopped,
    /// Its command is wrong, or it ended at once.
    QueryServer,
    /// The machine lacks something.
    Host,
    /// Its language is not configured any more.
    Client,
    /// A mistake of ours.
    Settee,
}

impl From<Fault> for OpenFailure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Client | Fault::Function => Self::Client,
            Fault::QueryServer => Self::QueryServer,
            Fault::Host => Self::Host,
            Fault::Settee => Self::Settee,
        }
    }
}

/// Why a pool refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Refused {
    /// As many wait as may.
    Busy,
    /// No process is started for a while.
    Throttled,
    /// The pool was removed.
    Removed,
}

/// What may take too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Slow {
    Queue,
    Open,
    Teach,
    Prompt,
}

/// The reasons for which a process is told to stop, by name; in the order of [`StopReason`].
pub(super) const STOP_REASONS: [(StopReason, &str); 19] = [
    (StopReason::Idle, "idle"),
    (StopReason::Stale, "stale"),
    (StopReason::Reaped, "reaped"),
    (StopReason::OverLimit, "over_limit"),
    (StopReason::Failed, "failed"),
    (StopReason::Broken, "broken"),
    (StopReason::TeachFailed, "teach_failed"),
    (StopReason::ResetFailed, "reset_failed"),
    (StopReason::ForgetFailed, "forget_failed"),
    (StopReason::Uses, "uses"),
    (StopReason::Age, "age"),
    (StopReason::Memory, "memory"),
    (StopReason::MemoryHard, "memory_hard"),
    (StopReason::Culled, "culled"),
    (StopReason::ClientCrashed, "client_crashed"),
    (StopReason::TenantGone, "tenant_gone"),
    (StopReason::Stress, "stress"),
    (StopReason::Removed, "removed"),
    (StopReason::Shutdown, "shutdown"),
];

/// The numbers of one pool. They have a place from the first that is counted: a pool that nobody uses takes
/// none.
#[derive(Debug, Default)]
pub struct PoolMetrics(OnceLock<Box<Counts>>);

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) wait: Histogram,
    pub(super) open: Histogram,
    pub(super) open_failures: CountersBy<OpenFailure>,
    pub(super) returns: CountersBy<ReturnKind>,
    pub(super) timeouts: CountersBy<Slow>,
    pub(super) refusals: CountersBy<Refused>,
    pub(super) forgets: Counter,
    stops: [Counter; STOP_REASONS.len()],
    pub(super) refused_calls: RefusedCalls,
}

/// How many system calls are counted by name; more are counted as [`OTHER`].
const CALLS_MAX: usize = 64;

/// What the system calls that are too many are counted as.
const OTHER: &str = "other";

/// System calls that cells refused, by name. They are seldom, so counting one may take a lock.
#[derive(Debug, Default)]
pub(super) struct RefusedCalls(Mutex<BTreeMap<Box<str>, u64>>);

impl RefusedCalls {
    fn add(&self, call: &str, count: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = known.len() < CALLS_MAX || known.contains_key(call);
        let name = if has_room { call } else { OTHER };
        *known.entry(name.into()).or_default() += count;
    }

    /// Returns the counts with their names; one for [`OTHER`] is always there.
    pub(super) fn by_name(&self) -> BTreeMap<Box<str>, u64> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = known.clone();
        counts.entry(OTHER.into()).or_default();
        counts
    }
}

impl Counts {
    pub(super) fn stops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = STOP_REASONS.iter().map(|(_, name)| *name);
        names.zip(self.stops.iter().map(Counter::get))
    }
}

impl Absorb for PoolMetrics {
    fn absorb(&self, gone: &Self) {
        let Some(gone) = gone.0.get() else { return };
        let to = self.count();
        to.wait.absorb(&gone.wait);
        to.open.absorb(&gone.open);
        to.open_failures.absorb(&gone.open_failures);
        to.returns.absorb(&gone.returns);
        to.timeouts.absorb(&gone.timeouts);
        to.refusals.absorb(&gone.refusals);
        to.forgets.absorb(&gone.forgets);
        let stops = to.stops.iter().zip(&gone.stops);
        stops.for_each(|(stops, gone)| stops.absorb(gone));
        for (call, count) in gone.refused_calls.by_name() {
            to.refused_calls.add(&call, count);
        }
    }
}

impl PoolMetrics {
    /// Where to count.
    fn count(&self) -> &Counts {
        self.0.get_or_init(Box::default)
    }

    /// What was counted.
    pub(super) fn counted(&self) -> &Counts {
        static NOTHING: LazyLock<Counts> = LazyLock::new(Counts::default);
        self.0.get().map_or_else(|| &*NOTHING, Box::as_ref)
    }

    /// Returns how many processes were lent, and how long their clients waited for them in all.
    pub(crate) fn lent(&self) -> (u64, Duration) {
        let wait = self.counted().wait.get();
        (wait.count(), wait.sum())
    }

    /// Counts a process that was lent, after its client had waited for this time in all.
    pub fn acquired(&self, waited: Duration) {
        self.count().wait.observe(waited);
    }

    /// Counts a process that came back.
    pub fn returned(&self, kind: ReturnKind) {
        self.count().returns.one(kind);
    }

    /// Counts a process that was started, which took this time.
    pub fn opened(&self, took: Duration) {
        self.count().open.observe(took);
    }

    /// Counts a process that could not be started.
    pub(crate) fn open_failed(&self, why: OpenFailure) {
        self.count().open_failures.one(why);
    }

    /// Counts a request that got no process in time.
    pub(crate) fn request_timed_out(&self, phase: Phase) {
        let slow = match phase {
            Phase::Queue => Slow::Queue,
            Phase::Open => Slow::Open,
            Phase::Teach => Slow::Teach,
        };
        self.count().timeouts.one(slow);
    }

    /// Counts a request that was refused by the pool.
    pub fn refused(&self, why: Refused) {
        self.count().refusals.one(why);
    }

    /// Counts a prompt that got no answer in time.
    pub(crate) fn prompt_timed_out(&self) {
        self.count().timeouts.one(Slow::Prompt);
    }

    /// Counts a system call that the cell of a process refused: the first one of its name in a process.
    pub(crate) fn call_refused(&self, call: &str) {
        self.count().refused_calls.add(call, 1);
    }

    /// Counts a process that was told to forget its tenant.
    pub(crate) fn forgets(&self) {
        self.count().forgets.one();
    }

    /// Counts a process that was told to stop.
    pub fn stopped(&self, why: StopReason) {
        self.count().stops[why as usize].one();
    }
}
