//! What the pool's decision core is told and what it answers: identities, events, actions.
//!
//! SUMMARY   The vocabulary between [`super::Pools`] and the ProcManager actor.
//! SOURCE    couch_proc_manager 001: the calls, casts and infos of its gen_server, as data.
//! DIFFERS   Identities are issued here or by the actor as ever-growing numbers, so that a late
//!           event about something that is gone is recognised and ignored.

use std::fmt;
use std::sync::Arc;

use super::settings::{GroupId, LanguageId, Limits, PoolSettings};
use crate::policy::admission::SpawnRefused;
use crate::policy::time::Timestamp;

/// A pool: one language and one command under one name. Its index in [`super::Pools`].
///
/// The identity of a pool that is gone ([`Action::PoolGone`]) is given to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

/// A process, from the moment its opening is decided until it is gone; never reused.
///
/// Larger numbers were created later ("among equals the newest-created process is chosen").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcId {
    /// The pool it belongs to.
    pub pool: PoolId,
    /// Its number, unique in the service.
    pub number: u64,
}

/// A request for a process. Issued by the actor in order of arrival: smaller is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A monitored client: one connection or one in-process caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// One assignment of a process to a client. Fresh for every assignment (PM-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for ProcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pool.0, self.number)
    }
}

/// The tag that ties a process to a database (`db_tag`), already reduced to what counts.
pub type DbKey = Arc<str>;

/// A design document in one revision. A process knows at most one revision of an id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DdocKey {
    /// `_id`, for example `_design/shop`.
    pub id: Arc<str>,
    /// `_rev`, for example `3-a81f`.
    pub rev: Arc<str>,
}

/// What a design-document client wants beyond the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// The database's tag; `None` with `db_tag = none`.
    pub db: Option<DbKey>,
    /// The design document that the process must know.
    pub ddoc: DdocKey,
}

/// Which pools may serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// This one.
    Pool(PoolId),
    /// Any of a group.
    Group(GroupId),
    /// Any of a language, its own pool among them.
    Any(LanguageId),
}

/// What kind of work a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Somebody waits for the one answer: validate, update, show, filter.
    #[default]
    Interactive,
    /// Many documents, nobody in a hurry: map, reduce.
    Bulk,
}

/// How a pool goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemoveMode {
    /// Idle processes stop now, the others when they come back.
    Graceful,
    /// All stop now; who holds one is told.
    Immediate,
}

/// How a client gives a process back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnStatus {
    /// The process did its work.
    Ok,
    /// The client found the process broken: it is stopped.
    Fail,
}

/// In what state the process itself is when it comes back, as its OsProcess actor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Every prompt was answered and nothing is half done: it can serve the next client at once.
    Clean,
    /// Nothing is half done, but what the client left in it must be reset first, and the reset
    /// must be seen to work (after a client that died, or one that spoke to it without us).
    NeedsReset,
    /// A prompt is unanswered, a list is open, or documents were taught behind our back: only a
    /// new process is safe.
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
        /// What kind of work it is for; of no account in a pool without reserved capacity.
        lane: Lane,
        /// Whose turn it counts as where databases are served in turn; `None`: the database of the
        /// affinity, if it has one.
        share: Option<DbKey>,
        /// The database and design document, or `None` for an untagged client.
        affinity: Option<Affinity>,
        /// When the client must have its answer.
        deadline: Timestamp,
    },
    /// The caller of this request went away without its client ending (a dropped future).
    CancelRequest {
        /// The request; unknown ones are ignored.
        request: RequestId,
    },
    /// A client gives a process back (`ret_proc`). Ignored unless `client` holds `proc` with `token`.
    RetProc {
        /// Who returns it.
        client: ClientId,
        /// Which process.
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
        /// Which client.
        client: ClientId,
        /// Whether it ended in good order: then its processes are returned. Otherwise it crashed,
        /// and `on_client_crash` decides.
        normal: bool,
        /// The condition of each process it holds, by process; a missing one counts as
        /// [`Condition::NeedsReset`].
        conditions: Vec<(ProcId, Condition)>,
    },
    /// An opener ended with `spawn_ok`.
    SpawnOk {
        /// The process that it opened.
        proc: ProcId,
    },
    /// An opener ended in any other way: `spawn_error`, a panic, killed (PM-7).
    SpawnError {
        /// The process that it should have opened.
        proc: ProcId,
    },
    /// Teaching or resetting ended. A failure removes the process.
    HelperDone {
        /// The process.
        proc: ProcId,
        /// Whether it now knows the design document, or is reset.
        ok: bool,
    },
    /// A process server ended (`EXIT`), asked or unasked. Its child is reaped by then.
    ProcExit {
        /// The process.
        proc: ProcId,
        /// Whether its child ended by itself, and not because we told it to: before it served its
        /// first request, that counts as a failing start.
        by_itself: bool,
    },
    /// A process has been unused for `os_process_idle_limit` (`os_proc_idle`).
    OsProcIdle {
        /// The process.
        proc: ProcId,
    },
    /// `set_threshold_ts` (reload): every idle process goes now, every other one when it comes back.
    SetThresholdTs,
    /// `terminate_stale_procs`: idle processes older than the threshold go.
    TerminateStaleProcs,
    /// `reload_config`: limits of one pool changed.
    Configure {
        /// The pool.
        pool: PoolId,
        /// Its new limits.
        limits: Limits,
    },
    /// A pool that was just added opens its first processes, and serves those of its group who
    /// wait elsewhere.
    StartPool {
        /// The pool.
        pool: PoolId,
    },
    /// Settings of one pool changed: what [`super::Pools::plan`] says of them is carried out.
    /// Nothing happens where it is an error.
    Reconfigure {
        /// The pool.
        pool: PoolId,
        /// All its settings.
        settings: Box<PoolSettings>,
    },
    /// A pool goes: nothing more is opened or handed out, and whoever waits is refused.
    /// [`Action::PoolGone`] says when it is gone. A second one can only make it faster.
    RemovePool {
        /// The pool.
        pool: PoolId,
        /// How.
        mode: RemoveMode,
    },
    /// A pool's processes may be opened again, before the time of its throttle is up: an operator
    /// says so, or the configuration was loaded again.
    Unthrottle {
        /// The pool.
        pool: PoolId,
    },
    /// How much memory a process takes, as the operating system says.
    Memory {
        /// The process.
        proc: ProcId,
        /// In bytes.
        bytes: u64,
    },
    /// Time passed: [`super::Pools::next_deadline`] was reached.
    Tick,
    /// The service ends: everything is refused, every process is stopped.
    Shutdown,
}

/// Something to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start an opener. It is counted already; report `SpawnOk` or `SpawnError`, exactly once.
    Open {
        /// The identity of the process to be.
        proc: ProcId,
        /// The request it is opened for; `None` to replenish the untagged processes.
        request: Option<RequestId>,
    },
    /// Teach the process the design document of this request; report `HelperDone`.
    Teach {
        /// The process.
        proc: ProcId,
        /// The request, whose document the actor kept.
        request: RequestId,
    },
    /// Send the process a reset of its own and require `true`; report `HelperDone`.
    Reset {
        /// The process.
        proc: ProcId,
    },
    /// Answer the request with this process.
    Assign {
        /// The request that is answered.
        request: RequestId,
        /// The process.
        proc: ProcId,
        /// The assignment.
        token: Token,
    },
    /// Tell a client that the process which it holds is taken from it; `Stop` follows.
    HolderDown {
        /// The client.
        client: ClientId,
        /// The process.
        proc: ProcId,
        /// The assignment, which is over.
        token: Token,
        /// Why.
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
    Refuse {
        /// The request that is answered.
        request: RequestId,
        /// Why.
        why: Refusal,
    },
    /// End the process; report `ProcExit` once it is gone and reaped.
    Stop {
        /// The process. It is in no table any more but the count of stopping ones.
        proc: ProcId,
        /// Why, for the log and for how politely it is ended.
        why: StopReason,
    },
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
    /// A process could not be started, or ended before it served its first request: no more are
    /// started for a while.
    Throttled {
        /// The pool.
        pool: PoolId,
        /// Until when.
        until: Timestamp,
    },
    /// That while is over, or was ended: processes are started again.
    Unthrottled {
        /// The pool.
        pool: PoolId,
    },
    /// A request came when one process more would reach the limit: processes are started with
    /// stress on from now on, and idle ones are replaced.
    Stressed {
        /// The pool.
        pool: PoolId,
    },
    /// Our own decision to open a process was against the rules of admission, and was not carried
    /// out: a mistake of ours, to be counted as a violated invariant.
    SpawnRefused {
        /// The pool.
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
    /// For its process to learn the design document.
    Teach,
}

/// Why a process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
                | Self::MemoryHard
                | Self::ClientCrashed
        )
    }
}
