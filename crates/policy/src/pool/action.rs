//! The orders of the pool's decision core: open, teach, lend, refuse, stop, warn.
//!
//! SUMMARY   [`PoolAction`], the output of [`super::Pools`]; the ProcManager actor carries it out.
//! SOURCE    couch_proc_manager 001: what its handlers do to the world, as data.

use strum::{IntoStaticStr, VariantArray};

use super::id::{ClientId, PoolId, ProcId, RequestId, Tenant, Token};
use crate::admission::SpawnRefused;
use crate::time::Timestamp;

/// Something to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolAction {
    /// Start an opener. It is counted already; report `SpawnOk` or `SpawnError`, exactly once.
    Open {
        /// The identity of the process to be.
        proc: ProcId,
        /// The request it is opened for; `None` to replenish the untagged processes.
        request: Option<RequestId>,
    },
    /// Teach the process the design document of this request; report `TeachOrResetDone`.
    Teach {
        proc: ProcId,
        /// The request, whose document the actor kept.
        request: RequestId,
        /// The isolate that the process selects first, and resets.
        select: Option<Select>,
    },
    /// Send the process a reset of its own and require `true`; report `TeachOrResetDone`.
    Reset { proc: ProcId },
    /// Have the process forget all that it was taught, and all that functions left in it; report
    /// `TeachOrResetDone`.
    Forget { proc: ProcId },
    /// Answer the request with this process.
    Assign {
        request: RequestId,
        proc: ProcId,
        token: Token,
        /// Whether somebody else has left something in it: the process is sent a `reset` before the first line
        /// of this client, unless that line is one.
        reset: bool,
        /// The isolate that the process selects and resets before the first line of this client.
        select: Option<Select>,
    },
    /// Tell a client that the process which it holds is taken from it; `Stop` follows.
    ProcRevoked {
        client: ClientId,
        proc: ProcId,
        /// The assignment, which is over.
        token: Token,
        why: StopReason,
    },
    /// A pool that was being removed is gone, with its last process.
    PoolGone {
        /// The pool. Its identity may be given to another.
        pool: PoolId,
    },
    /// Tell the operator.
    Warn(Warning),
    /// Answer the request with an error.
    Refuse { request: RequestId, why: Refusal },
    /// End the process; report `ProcExit` once it is gone and reaped.
    Stop {
        /// The process. It is no longer in any table but the count of stopping ones.
        proc: ProcId,
        /// Why, for the log and for how politely it is ended.
        why: StopReason,
    },
}

/// An isolate that a process is to select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    /// Whose it is.
    pub tenant: Tenant,
    /// Whether it is made for the tenant: one that the process may still have of it ends.
    pub is_new: bool,
}

/// Why a request gets no process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The deadline passed.
    Timeout {
        /// What the request was waiting for.
        phase: Phase,
    },
    /// The opener failed; the actor knows the details.
    SpawnFailed,
    /// The process could not be taught the design document; the actor knows the details.
    TeachFailed,
    /// As many wait as may (`queue_max`). Worth a retry.
    PoolBusy,
    /// As many calls of the tenant wait as may. Worth a retry.
    TenantBusy,
    /// The pool was removed, or is being removed.
    PoolRemoved,
    /// There is no pool in the group, or for the language.
    NoPool,
    /// Starts have failed, none is tried before `until`, and no process that is there can serve
    /// the request. Worth a retry then.
    Throttled {
        /// The time of the next try.
        until: Timestamp,
    },
    /// The service is shutting down.
    ShuttingDown,
}

/// Something that the operator should know of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A process could not be started: no more are started for a while.
    Throttled {
        pool: PoolId,
        /// Until when.
        until: Timestamp,
    },
    /// That while is over, or was ended: processes are started again.
    Unthrottled { pool: PoolId },
    /// Processes end by themselves soon after their starts, again and again, in a pool that is never throttled.
    EndsEarly { pool: PoolId },
    /// A request came when one process more would reach the limit: processes are started with
    /// stress on from now on, and idle ones are replaced.
    Stressed { pool: PoolId },
    /// Nothing has been at the limit for a while: processes are started without stress again.
    Unstressed { pool: PoolId },
    /// Our own decision to open a process was against the rules of admission, and was not carried
    /// out: a mistake of ours, to be counted as a violated invariant.
    SpawnRefused {
        pool: PoolId,
        /// Which rule.
        why: SpawnRefused,
    },
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// For a process to be free, or for a slot to open one.
    Queue,
    /// For its process to start.
    Open,
    /// For its process to forget another tenant, or to learn the design document.
    Teach,
}

/// Why a process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// It was idle for too long.
    Idle,
    /// It was started before the last reload.
    Stale,
    /// Its slot was wanted for another database.
    Reaped,
    /// The limit was lowered.
    OverLimit,
    /// Its client said so.
    Failed,
    /// It came back in a state that cannot be trusted.
    Broken,
    /// It did not learn a design document.
    TeachFailed,
    /// It did not answer a reset.
    ResetFailed,
    /// It could not be reset for another tenant.
    ForgetFailed,
    /// It was used often enough (`max_uses`).
    Uses,
    /// It is old enough (`max_age`).
    Age,
    /// It takes more memory than it should (`memory_soft`).
    Memory,
    /// It takes more memory than it may (`memory_hard`).
    MemoryHard,
    /// The burst that it was opened for is over (`cull_after`).
    Culled,
    /// Its client crashed (`on_client_crash = replace`).
    ClientCrashed,
    /// It belonged to a client that ended ([`super::Tenant::Client`]).
    TenantGone,
    /// Its pool came under stress: one with stress on takes its place.
    Stress,
    /// Its pool is being removed.
    Removed,
    /// The service is shutting down.
    Shutdown,
}

impl StopReason {
    /// Whether the process is in good order and may be given time to end by itself.
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
