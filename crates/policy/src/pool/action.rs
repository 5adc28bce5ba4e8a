//! The actions of the pool's decision core: open, teach, lend, refuse, stop, warn.
//!
//! SUMMARY   [`PoolAction`], the output of [`super::Pools`], carried out by the ProcManager actor.
//! SOURCE    couch_proc_manager 001: the effects of its handlers, as data.

use strum::{IntoStaticStr, VariantArray};

use super::{ClientId, PoolId, ProcId, RequestId, Tenant, Token};
use crate::admission::SpawnRefused;
use crate::time::Timestamp;

/// An action, to be carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolAction {
    /// Start an opener. It is already counted; report `SpawnOk` or `SpawnError` exactly once.
    Open {
        /// The identity of the future process.
        proc: ProcId,
        /// The request it is opened for; `None` to replenish the untagged processes.
        request: Option<RequestId>,
    },
    /// Teach the process the design document of this request; report `TeachOrResetDone`.
    Teach {
        proc: ProcId,
        /// The request; the actor has its document.
        request: RequestId,
        /// The isolate that the process first selects and resets.
        select: Option<Select>,
    },
    /// Reset the process on the service's behalf and require `true`; report `TeachOrResetDone`.
    Reset { proc: ProcId },
    /// Make the process drop everything taught, and everything that functions left behind; report `TeachOrResetDone`.
    Forget { proc: ProcId },
    /// Answer the request with this process.
    Assign {
        request: RequestId,
        proc: ProcId,
        token: Token,
        /// Whether another client may have left something in it: the process is sent a `reset` before this client's
        /// first line, unless that line is a `reset`.
        reset: bool,
        /// The isolate that the process selects and resets before the first line of this client.
        select: Option<Select>,
    },
    /// Notify a client that its process is revoked; `Stop` follows.
    ProcRevoked {
        client: ClientId,
        proc: ProcId,
        /// The loan, which has ended.
        token: Token,
        why: StopReason,
    },
    /// A removed pool is gone, with its last process.
    PoolGone {
        /// The pool. Its identity may be reused.
        pool: PoolId,
    },
    /// Notify the operator of something about this pool.
    Warn(PoolId, Warning),
    /// Answer the request with an error.
    Refuse { request: RequestId, why: Refusal },
    /// End the process; report `ProcExit` once it is gone and reaped.
    Stop {
        /// The process. It remains only in the count of stopping ones.
        proc: ProcId,
        /// Why, for the log, and to decide how politely to end it.
        why: StopReason,
    },
}

/// An isolate to select in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    /// Its tenant.
    pub tenant: Tenant,
    /// Whether a new isolate is made; the tenant's existing one, if any, ends.
    pub is_new: bool,
}

/// Why a request gets no process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The deadline passed.
    Timeout {
        /// The request's phase.
        phase: Phase,
    },
    /// The opener failed; the actor has the details.
    SpawnFailed,
    /// The process could not be taught the design document; the actor has the details.
    TeachFailed,
    /// The queue is full (`queue_max`). Worth a retry.
    PoolBusy,
    /// The tenant has reached its maximum of waiting calls. Worth a retry.
    TenantBusy,
    /// The pool was removed, or is being removed.
    PoolRemoved,
    /// There is no pool in the group, or for the language.
    NoPool,
    /// Starts have failed and are paused until `until`, and no existing process can serve the request. Worth a retry
    /// then.
    Throttled {
        /// The time of the next start.
        until: Timestamp,
    },
    /// The service is shutting down.
    ShuttingDown,
}

/// A notice about a pool, for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Starts have failed repeatedly, or processes have ended early: starts are paused.
    Throttled {
        /// The end of the pause.
        until: Timestamp,
    },
    /// The throttle has expired or was lifted: processes may be started again.
    Unthrottled,
    /// Processes repeatedly end soon after their start, in a pool that is never throttled.
    EndsEarly,
    /// A request arrived that no idle process could serve, when the pool was at most one process below its limit: from
    /// now on processes are started with stress on, and idle ones are replaced.
    Stressed,
    /// The limit was not reached for a while: processes are started without stress again.
    Unstressed,
    /// The core's decision to open a process broke the admission rules, and was not carried out: our own fault,
    /// counted as a violated invariant.
    SpawnRefused(SpawnRefused),
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A free process, or a slot to open one.
    Queue,
    /// Its process to start.
    Open,
    /// Its process to forget another tenant, or to learn the design document.
    Teach,
}

/// Why a process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// It was idle for too long.
    Idle,
    /// It was started before the last reload, or before a change of settings that replaces processes.
    Stale,
    /// Its slot was needed for another tenant, or its place for another pool.
    Reaped,
    /// The pool's limit, or the ceiling over all pools, was lowered.
    OverLimit,
    /// Its client reported it as failed.
    Failed,
    /// It was returned in an untrusted state.
    Broken,
    /// It did not learn a design document.
    TeachFailed,
    /// It did not answer a reset.
    ResetFailed,
    /// It could not forget everything.
    ForgetFailed,
    /// It reached its maximum of uses (`max_uses`).
    Uses,
    /// It reached its maximum age (`max_age`).
    Age,
    /// It exceeds its soft memory limit (`memory_soft`).
    Memory,
    /// It exceeds its hard memory limit (`memory_hard`).
    MemoryHard,
    /// The burst for which it was opened has ended (`cull_after`).
    Culled,
    /// Its client crashed (`on_client_crash = replace`).
    ClientCrashed,
    /// It belonged to a client that ended ([`super::Tenant::Client`]).
    TenantGone,
    /// Its pool came under stress: a process with stress on replaces it.
    Stress,
    /// Its pool is being removed, or an operator ended it while it was idle.
    Removed,
    /// The service is shutting down.
    Shutdown,
}

impl StopReason {
    /// Whether the process is healthy and may get time to end by itself.
    pub const fn is_polite(self) -> bool {
        !matches!(
            self,
            Self::Failed
                | Self::Broken
                | Self::TeachFailed
                | Self::ResetFailed
                | Self::ForgetFailed
                | Self::MemoryHard
                | Self::ClientCrashed
        )
    }
}
