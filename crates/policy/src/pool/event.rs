//! The events of the pool's decision core: requests and returns of clients, starts and ends of processes.
//!
//! SUMMARY   [`Event`], the input of [`super::Pools`]; the ProcManager actor makes it from messages.
//! SOURCE    couch_proc_manager 001: the calls, casts and infos of its gen_server, as data.

use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

use super::{
    Affinity, ClientId, DbKey, Lane, PoolId, PoolSettings, ProcId, RequestId, Target, Tenant,
    TenantRules, Token,
};
use crate::time::Timestamp;

/// How a pool is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum RemoveMode {
    /// Idle processes stop now, the others when they are returned.
    Graceful,
    /// All stop now; their holders are notified.
    Immediate,
}

/// How a client returns a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReturnStatus {
    /// The client found no fault with the process.
    Ok,
    /// The client found the process broken: it is stopped.
    Fail,
    /// The client dropped it without returning it: `on_client_crash` decides, as for a crashed client.
    Lost,
}

/// The state of a returned process, reported by its OsProcess actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Every prompt is answered and nothing is pending: it can serve the next client at once.
    Clean,
    /// Nothing is pending, but the client's state must be reset first, and the reset must be verified (after a client
    /// that died, or one that used it directly).
    NeedsReset,
    /// Nothing is pending, but design documents were taught without our knowledge: it must forget everything. If it
    /// cannot ([`PoolSettings::can_forget`](super::PoolSettings::can_forget)), only a new process is safe.
    NeedsForgetting,
    /// A prompt is unanswered, or a list is open: only a new process is safe.
    Broken,
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client requests a process (`get_proc`).
    GetProc {
        /// New, larger than all earlier ones.
        request: RequestId,
        /// The client; the process is reclaimed when it ends.
        client: ClientId,
        /// The pools that may serve it.
        target: Target,
        /// Ignored unless the pool reserves capacity.
        lane: Lane,
        /// The requirements; `None`: the client itself is the tenant, without a design document.
        affinity: Option<Affinity>,
        /// When the client must have its answer.
        deadline: Timestamp,
    },
    /// A client returns a process (`ret_proc`). Ignored unless `client` holds `proc` with `token`.
    RetProc {
        /// The client that returns it.
        client: ClientId,
        proc: ProcId,
        /// The ended loan.
        token: Token,
        /// The client's report.
        status: ReturnStatus,
        /// The process's report.
        condition: Condition,
    },
    /// A monitored client ended (`DOWN`): its requests are dropped and its processes are taken back.
    ClientDown {
        client: ClientId,
        /// Whether it ended normally: then its processes are returned. Otherwise it crashed, and `on_client_crash`
        /// decides.
        normal: bool,
        /// The condition of each process that it holds; a missing one counts as [`Condition::NeedsReset`].
        conditions: Vec<(ProcId, Condition)>,
    },
    /// The caller of a request no longer waits: the request is dropped. Ignored unless it is open.
    Withdraw { request: RequestId },
    /// An opener ended with `spawn_ok`: the process has answered its first `reset`.
    SpawnOk {
        /// The opened process.
        proc: ProcId,
    },
    /// An opener failed: it reported `spawn_error`, panicked, or was killed (PM-7).
    SpawnError {
        /// The process to open.
        proc: ProcId,
    },
    /// An opener ended because a signal or an order from outside ended its process: this says nothing about the
    /// command.
    SpawnKilled {
        /// The process to open.
        proc: ProcId,
    },
    /// A process has ended some of its isolates. Precedes the event that ends the current use.
    Evicted {
        proc: ProcId,
        /// Their tenants.
        tenants: Vec<Tenant>,
    },
    /// Teaching, resetting or forgetting ended. A failure removes the process.
    TeachOrResetDone {
        proc: ProcId,
        /// Whether it now knows the design document, is reset, or has forgotten everything.
        ok: bool,
    },
    /// A process server ended (`EXIT`), expected or not. Its child is already reaped.
    ProcExit { proc: ProcId },
    /// Like [`Event::ProcExit`], for a process that ended before any work.
    ProcFailed {
        proc: ProcId,
        /// The time since its start.
        age: Duration,
    },
    /// A process has been unused for `os_process_idle_limit` (`os_proc_idle`).
    OsProcIdle { proc: ProcId },
    /// An operator ends a process: it is stopped if it is idle. One in use is handled at its return or its end.
    StopIdle { proc: ProcId },
    /// `set_threshold_ts` (reload): every idle process is stopped now, every other one when it is returned.
    SetThresholdTs,
    /// Sets the limit of processes in all pools together, including stopping ones.
    SetCeiling {
        /// The limit; `None`: none.
        max: Option<u32>,
    },
    /// A use of a process has cost processor time, of which its tenant has a share. Precedes the event that ends the
    /// use, if the pool knows the cost by then.
    Charge {
        /// The tenant.
        db: DbKey,
        /// Processor time.
        cost: Duration,
    },
    /// Sets the limits of each tenant over all pools.
    SetTenants {
        /// All rules.
        rules: Box<TenantRules>,
    },
    /// A pool that was just added opens its first processes, and serves waiters of its group that are queued
    /// elsewhere.
    StartPool { pool: PoolId },
    /// The settings of one pool have changed: the changes of [`super::Pools::plan`] are made. Ignored if the new
    /// settings are of another kind or language.
    Reconfigure {
        pool: PoolId,
        /// All its settings.
        settings: Box<PoolSettings>,
    },
    /// A pool is removed: nothing more is opened or lent, and its waiters move to pools of their group or are refused.
    /// [`PoolAction::PoolGone`] follows when it is gone. A second order can only speed it up.
    RemovePool { pool: PoolId, mode: RemoveMode },
    /// Lifts a pool's throttle: on an operator's order, or after a reload.
    Unthrottle { pool: PoolId },
    /// A process's memory, as the operating system reports it.
    Memory {
        proc: ProcId,
        /// In bytes.
        bytes: u64,
    },
    /// [`super::Pools::next_deadline`] was reached.
    Tick,
    /// The service is shutting down: everything is refused, every process is stopped.
    Shutdown,
}
