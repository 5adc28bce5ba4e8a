//! What is counted of one pool: lending, waiting, opening, stopping.

use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use super::cells::{Counter, Histogram, Times};
use crate::messages::process::Fault;
use policy::pool::{Phase, StopReason};

/// How a process came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnKind {
    /// Its client gave it back.
    Ok,
    /// Its client gave it back as broken.
    Fail,
    /// Its client died, or let go of it.
    Lost,
}

impl ReturnKind {
    pub(super) const ALL: [Self; 3] = [Self::Ok, Self::Fail, Self::Lost];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Fail => "fail",
            Self::Lost => "lost",
        }
    }
}

/// Why a process could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFailure {
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

impl OpenFailure {
    pub(super) const ALL: [Self; 6] = [
        Self::Timeout,
        Self::Stopped,
        Self::QueryServer,
        Self::Host,
        Self::Client,
        Self::Settee,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Stopped => "stopped",
            Self::QueryServer => "query_server",
            Self::Host => "host",
            Self::Client => "client",
            Self::Settee => "settee",
        }
    }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many wait as may.
    Busy,
    /// No process is started for a while.
    Throttled,
    /// The pool was removed.
    Removed,
}

impl Refused {
    pub(super) const ALL: [Self; 3] = [Self::Busy, Self::Throttled, Self::Removed];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Throttled => "throttled",
            Self::Removed => "removed",
        }
    }
}

/// What may take too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slow {
    Queue,
    Open,
    Teach,
    Prompt,
}

/// The phases in which a time can be up, by name.
pub(super) const TIMEOUT_PHASES: [&str; 4] = ["queue", "open", "teach", "prompt"];

/// The reasons for which a process is told to stop, by name; in the order of [`StopReason`].
pub(super) const STOP_REASONS: [(StopReason, &str); 17] = [
    (StopReason::Idle, "idle"),
    (StopReason::Stale, "stale"),
    (StopReason::Reaped, "reaped"),
    (StopReason::OverLimit, "over_limit"),
    (StopReason::Failed, "failed"),
    (StopReason::Broken, "broken"),
    (StopReason::TeachFailed, "teach_failed"),
    (StopReason::ResetFailed, "reset_failed"),
    (StopReason::Uses, "uses"),
    (StopReason::Age, "age"),
    (StopReason::Memory, "memory"),
    (StopReason::MemoryHard, "memory_hard"),
    (StopReason::Culled, "culled"),
    (StopReason::ClientCrashed, "client_crashed"),
    (StopReason::Stress, "stress"),
    (StopReason::Removed, "removed"),
    (StopReason::Shutdown, "shutdown"),
];

/// The numbers of one pool. One that nobody uses costs its name: its numbers have a place from the
/// first that is counted.
#[derive(Debug)]
pub struct PoolMetrics {
    name: Box<str>,
    counts: OnceLock<Box<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    wait: Histogram,
    open: Histogram,
    open_failures: [Counter; OpenFailure::ALL.len()],
    returns: [Counter; ReturnKind::ALL.len()],
    timeouts: [Counter; TIMEOUT_PHASES.len()],
    refusals: [Counter; Refused::ALL.len()],
    stops: [Counter; STOP_REASONS.len()],
}

/// What is read of a pool of which nothing was counted.
static NOTHING: LazyLock<Counts> = LazyLock::new(Counts::default);

impl PoolMetrics {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            counts: OnceLock::new(),
        }
    }

    /// Where to count.
    fn count(&self) -> &Counts {
        self.counts.get_or_init(Box::default)
    }

    /// What was counted.
    fn counted(&self) -> &Counts {
        self.counts.get().map_or_else(|| &*NOTHING, Box::as_ref)
    }

    /// Returns the pool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts a process that was lent, after its client had waited for this time in all.
    pub fn acquired(&self, waited: Duration) {
        self.count().wait.observe(waited);
    }

    /// Counts a process that came back.
    pub fn returned(&self, kind: ReturnKind) {
        self.count().returns[kind as usize].one();
    }

    /// Counts a process that was started, which took this time.
    pub fn opened(&self, took: Duration) {
        self.count().open.observe(took);
    }

    /// Counts a process that could not be started.
    pub fn open_failed(&self, why: OpenFailure) {
        self.count().open_failures[why as usize].one();
    }

    /// Counts a request that got no process in time.
    pub fn request_timed_out(&self, phase: Phase) {
        let slow = match phase {
            Phase::Queue => Slow::Queue,
            Phase::Open => Slow::Open,
            Phase::Teach => Slow::Teach,
        };
        self.count().timeouts[slow as usize].one();
    }

    /// Counts a request that was refused by the pool.
    pub fn refused(&self, why: Refused) {
        self.count().refusals[why as usize].one();
    }

    /// Counts a prompt that got no answer in time.
    pub fn prompt_timed_out(&self) {
        self.count().timeouts[Slow::Prompt as usize].one();
    }

    /// Counts a process that was told to stop.
    pub fn stopped(&self, why: StopReason) {
        self.count().stops[why as usize].one();
    }

    pub(super) fn wait(&self) -> Times {
        self.counted().wait.get()
    }

    pub(super) fn open(&self) -> Times {
        self.counted().open.get()
    }

    pub(super) fn open_failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = OpenFailure::ALL.iter().map(|why| why.name());
        names.zip(self.counted().open_failures.iter().map(Counter::get))
    }

    pub(super) fn returns(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = ReturnKind::ALL.iter().map(|kind| kind.name());
        names.zip(self.counted().returns.iter().map(Counter::get))
    }

    pub(super) fn timeouts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counted().timeouts.iter().map(Counter::get);
        TIMEOUT_PHASES.into_iter().zip(counts)
    }

    pub(super) fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = Refused::ALL.iter().map(|why| why.name());
        names.zip(self.counted().refusals.iter().map(Counter::get))
    }

    pub(super) fn stops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = STOP_REASONS.iter().map(|(_, name)| *name);
        names.zip(self.counted().stops.iter().map(Counter::get))
    }
}
