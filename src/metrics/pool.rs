//! The metrics of one pool: lending, waiting, opening, stopping.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, OnceLock};
use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

use super::cells::{Counted, Counter, CountersBy, Each, Histogram};
use super::definition::metrics;
use super::names::Absorb;
use crate::lock;
use crate::messages::process::Fault;
use policy::pool::{Phase, ReturnStatus, StopReason};

/// An event of an isolate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum IsolateEvent {
    /// It was created.
    Made,
    /// It ended to make room for others.
    Evicted,
}

/// Why a process could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum OpenFailure {
    /// It did not start in time.
    Timeout,
    /// It was no longer needed.
    Stopped,
    /// Its command is wrong, or it ended or broke the protocol before its first answer.
    QueryServer,
    /// The machine lacks a resource.
    Host,
    /// Its language is no longer configured.
    Client,
    /// A bug in the service.
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
    /// The queue is full.
    Busy,
    /// Its database has its maximum of calls.
    Tenant,
    /// Starts are throttled.
    Throttled,
    /// The pool was removed.
    Removed,
}

/// The phases that can time out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Slow {
    Queue,
    Open,
    Teach,
    Prompt,
}

/// The metrics of one pool, allocated at the first count: an unused pool takes no memory for them.
#[derive(Debug, Default)]
pub struct PoolMetrics(OnceLock<Box<Counts>>);

metrics! {
    /// The counts of one pool.
    #[derive(Debug, Default)]
    pub struct Counts {
        /// Time from a request to its loan, including starting and teaching
        Histogram("settee.pool_wait_time", "settee_pool_wait_seconds").labels("pool")
            => pub wait: Histogram;
        /// Time of a process start
        Histogram("settee.pool_open_time", "settee_pool_open_seconds").labels("pool")
            => pub open: Histogram;
        /// Processes that could not be started: timeout, stopped (no longer wanted), query_server (wrong command, or it
        /// ended or broke the protocol at once), host (no resources), client (language no longer configured), settee (a
        /// bug)
        Counter("settee.pool_open_failures", "settee_pool_open_failures_total").labels("pool", "reason")
            => pub(crate) open_failures: CountersBy<OpenFailure>;
        /// Timeouts of requests in the queue, or while a process is opened or taught, and of prompts
        Counter("settee.pool_timeouts", "settee_pool_timeouts_total").labels("pool", "phase")
            => timeouts: CountersBy<Slow>;
        /// Requests refused at once: busy (full queue), tenant (its database has its maximum of calls), throttled (no
        /// process is started for a while), removed (the pool)
        Counter("settee.pool_refusals", "settee_pool_refusals_total").labels("pool", "reason")
            => pub refusals: CountersBy<Refused>;
        /// Processes returned: ok, fail (found broken by its client), lost (its client died or dropped it)
        Counter("settee.pool_returns", "settee_pool_returns_total").labels("pool", "status")
            => pub returns: CountersBy<ReturnStatus>;
        /// System calls that cells refused, the first of each name per process; names beyond the first 64 count as
        /// other
        Counter("settee.sandbox_refusals", "settee_sandbox_refusals_total").labels("pool", "kind")
            => pub(crate) refused_calls: RefusedCalls;
        /// Processes asked to forget their tenant
        Counter("settee.pool_forgets", "settee_pool_forgets_total").labels("pool")
            => pub forgets: Counter;
        /// Isolates of tenants: made, evicted (for others); calls less those made are hits
        Counter("settee.pool_isolates", "settee_pool_isolates_total").labels("pool", "event")
            => pub(crate) isolates: CountersBy<IsolateEvent>;
        /// Processes that the pool stopped: idle, stale, reaped (for another database), over_limit, failed (by its
        /// client's report), broken (during work), teach_failed, reset_failed, forget_failed, uses, age, memory,
        /// memory_hard, culled, client_crashed, tenant_gone (its client ended), stress, removed, shutdown
        Counter("settee.pool_stops", "settee_pool_stops_total").labels("pool", "reason")
            => pub stops: CountersBy<StopReason>;
    }
}

/// Maximum system calls counted by name; others are counted as [`OTHER`].
const CALLS_MAX: usize = 64;

/// The name under which system calls beyond [`CALLS_MAX`] are counted.
const OTHER: &str = "other";

/// System calls that cells refused, by name. They are rare, so counting one may take a lock.
#[derive(Debug, Default)]
pub(crate) struct RefusedCalls(Mutex<BTreeMap<Box<str>, u64>>);

impl RefusedCalls {
    /// Adds to the count of a system call that cells refused; a process counts only the first of each name.
    pub fn add(&self, call: &str, count: u64) {
        let mut known = lock(&self.0);
        let name = if known.len() < CALLS_MAX || known.contains_key(call) {
            call
        } else {
            OTHER
        };
        *known.entry(name.into()).or_default() += count;
    }

    /// Returns the counts by name, always with one for [`OTHER`].
    fn by_name(&self) -> BTreeMap<Box<str>, u64> {
        let mut counts = lock(&self.0).clone();
        counts.entry(OTHER.into()).or_default();
        counts
    }
}

impl Counted for RefusedCalls {
    fn samples(&self, each: Each<'_>) {
        for (call, count) in self.by_name() {
            each(&[&call], count.into());
        }
    }

    fn absorb(&self, gone: &Self) {
        for (call, count) in gone.by_name() {
            self.add(&call, count);
        }
    }
}

impl Absorb for PoolMetrics {
    fn absorb(&self, gone: &Self) {
        if let Some(gone) = gone.0.get() {
            self.count().absorb_fields(gone);
        }
    }
}

impl PoolMetrics {
    /// Returns the counts to add to, allocated if there are none.
    pub fn count(&self) -> &Counts {
        self.0.get_or_init(Box::default)
    }

    /// Returns the counts so far.
    pub(super) fn counted(&self) -> &Counts {
        static NOTHING: LazyLock<Counts> = LazyLock::new(Counts::default);
        self.0.get().map_or_else(|| &*NOTHING, Box::as_ref)
    }

    /// Returns the number of processes lent, and the total time that clients waited for them.
    pub(crate) fn lent(&self) -> (u64, Duration) {
        let wait = self.counted().wait.get();
        (wait.count(), wait.sum())
    }

    /// Counts a request that timed out.
    pub(crate) fn request_timed_out(&self, phase: Phase) {
        self.count().timeouts.one(match phase {
            Phase::Queue => Slow::Queue,
            Phase::Open => Slow::Open,
            Phase::Teach => Slow::Teach,
        });
    }

    /// Counts a prompt that timed out.
    pub(crate) fn prompt_timed_out(&self) {
        self.count().timeouts.one(Slow::Prompt);
    }
}
