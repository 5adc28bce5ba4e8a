//! The events of the pool's decision core: clients ask and return, processes come and go.
//!
//! SUMMARY   [`Event`], the input of [`super::Pools`]; the ProcManager actor makes it of messages.
//! SOURCE    couch_proc_manager 001: the calls, casts and infos of its gen_server, as data.

use std::time::Duration;

use super::id::{
    Affinity, ClientId, DbKey, Lane, PoolId, ProcId, RequestId, Target, Tenant, Token,
};
use super::settings::PoolSettings;
use super::tenants::TenantRules;
use crate::time::Timestamp;

/// How a pool goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemoveMode {
    /// Idle processes stop now, the others when they come back.
    Graceful,
    /// All stop now; their holders are notified.
    Immediate,
}

/// How a client gives a process back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnStatus {
    /// The process did its work.
    Ok,
    /// The client found the process broken: it is stopped.
    Fail,
    /// The client dropped it without returning it: as with one that crashed, `on_client_crash` decides.
    Lost,
}

/// In what state the process itself is when it comes back, as its OsProcess actor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Every prompt was answered and nothing is half done: it can serve the next client at once.
    Clean,
    /// Nothing is half done, but what the client left in it must be reset first, and the reset
    /// must be seen to work (after a client that died, or one that spoke to it without us).
    NeedsReset,
    /// Nothing is half done, but design documents were taught behind our back: it must forget everything. Only
    /// a new process is safe where it cannot ([`PoolSettings::can_forget`](super::PoolSettings::can_forget)).
    NeedsForgetting,
    /// A prompt is unanswered, or a list is open: only a new process is safe.
    Broken,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client asks for a process (`get_proc`).
    GetProc {
        /// Fresh, larger than every earlier one.
        request: RequestId,
        /// Who asks; the process is taken back when it ends.
        client: ClientId,
        /// The pools that may serve it.
        target: Target,
        /// Ignored unless the pool reserves capacity.
        lane: Lane,
        /// What for; `None` is the client itself, without a design document.
        affinity: Option<Affinity>,
        /// When the client must have its answer.
        deadline: Timestamp,
    },
    /// A client gives a process back (`ret_proc`). Ignored unless `client` holds `proc` with `token`.
    RetProc {
        /// Who returns it.
        client: ClientId,
        proc: ProcId,
        /// The assignment that is over.
        token: Token,
        /// What the client says.
        status: ReturnStatus,
        /// What the process says.
        condition: Condition,
    },
    /// A monitored client ended (`DOWN`): its requests are dropped and its processes come back.
    ClientDown {
        client: ClientId,
        /// Whether it ended in good order: then its processes are returned. Otherwise it crashed,
        /// and `on_client_crash` decides.
        normal: bool,
        /// The condition of each process it holds, by process; a missing one counts as
        /// [`Condition::NeedsReset`].
        conditions: Vec<(ProcId, Condition)>,
    },
    /// An opener ended with `spawn_ok`: the process has answered its first `reset`.
    SpawnOk {
        /// The process that it opened.
        proc: ProcId,
    },
    /// An opener ended in any other way: `spawn_error`, a panic, killed (PM-7).
    SpawnError {
        /// The process that it should have opened.
        proc: ProcId,
    },
    /// An opener ended because a signal or an order from outside ended the process that it opened: that says nothing
    /// about the command.
    SpawnKilled {
        /// The process that it should have opened.
        proc: ProcId,
    },
    /// A process has ended isolates. Comes before the event that ends the use in which it did.
    Evicted {
        proc: ProcId,
        /// Whose they were.
        tenants: Vec<Tenant>,
    },
    /// Teaching, resetting or forgetting ended. A failure removes the process.
    TeachOrResetDone {
        proc: ProcId,
        /// Whether it now knows the design document, is reset, or has forgotten everything.
        ok: bool,
    },
    /// A process server ended (`EXIT`), asked or unasked. Its child is reaped by then.
    ProcExit { proc: ProcId },
    /// As [`Event::ProcExit`], for a process that ended by itself before it had worked for anybody.
    ProcFailed {
        proc: ProcId,
        /// The time since it was started.
        age: Duration,
    },
    /// A process has been unused for `os_process_idle_limit` (`os_proc_idle`).
    OsProcIdle { proc: ProcId },
    /// `set_threshold_ts` (reload): every idle process goes now, every other one when it comes back.
    SetThresholdTs,
    /// `terminate_stale_procs`: idle processes older than the threshold go.
    TerminateStaleProcs,
    /// How many processes there may be in all pools together, stopping ones included.
    SetCeiling {
        /// Most; `None` is no ceiling.
        max: Option<u32>,
    },
    /// A use of a process has cost processor time, of which its tenant may use a share. Comes before the event that
    /// ends the use, where that is known to the pool.
    Charge {
        /// The tenant.
        db: DbKey,
        /// On processors.
        cost: Duration,
    },
    /// How much each tenant may have at a time, over all pools.
    SetTenants {
        /// All rules.
        rules: Box<TenantRules>,
    },
    /// A pool that was just added opens its first processes, and serves those of its group who
    /// wait elsewhere.
    StartPool { pool: PoolId },
    /// Settings of one pool changed: what [`super::Pools::plan`] says of them is carried out.
    /// Nothing happens where it is an error.
    Reconfigure {
        pool: PoolId,
        /// All its settings.
        settings: Box<PoolSettings>,
    },
    /// A pool is removed: nothing more is opened or lent, and its waiters are refused.
    /// [`PoolAction::PoolGone`] says when it is gone. A second one can only make it faster.
    RemovePool { pool: PoolId, mode: RemoveMode },
    /// A pool's processes may be opened again, before the time of its throttle is up: an operator
    /// says so, or the configuration was loaded again.
    Unthrottle { pool: PoolId },
    /// How much memory a process takes, as the operating system says.
    Memory {
        proc: ProcId,
        /// In bytes.
        bytes: u64,
    },
    /// Time passed: [`super::Pools::next_deadline`] was reached.
    Tick,
    /// The service ends: everything is refused, every process is stopped.
    Shutdown,
}
