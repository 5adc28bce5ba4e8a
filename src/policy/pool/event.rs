//! What the pool's decision core is told and what it answers: identities, events, actions.
//!
//! SUMMARY   The vocabulary between [`super::Pools`] and the ProcManager actor.
//! SOURCE    couch_proc_manager 001: the calls, casts and infos of its gen_server, as data.
//! DIFFERS   Identities are issued here or by the actor as ever-growing numbers, so that a late
//!           event about something that is gone is recognised and ignored.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::time::Timestamp;

/// A pool: one language and one command under one name. Its index in [`super::Pools`].
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
        /// The pool that serves the language.
        pool: PoolId,
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
    /// The service is shutting down.
    ShuttingDown,
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
    /// The service is shutting down.
    Shutdown,
}

impl StopReason {
    /// Whether the process is in good order and may be given time to end by itself.
    pub const fn is_polite(self) -> bool {
        !matches!(
            self,
            Self::Failed | Self::Broken | Self::TeachFailed | Self::ResetFailed
        )
    }
}

/// The limits of one pool, per language as in CouchDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `os_process_limit`: processes and openings together never exceed it. 0 opens nothing.
    pub hard_limit: u32,
    /// `os_process_soft_limit`: an untagged process is closed when idle for too long while the
    /// pool counts at least this many.
    pub soft_limit: u32,
    /// How long the oldest waiter waits for a process of its own database that is in use, before
    /// an idle process of another database is reaped for it; also the least time between two such
    /// exchanges. Zero reaps at once and in batches, as the reference does.
    pub affinity_wait: Duration,
}

impl Limits {
    /// How many idle tagged processes are reaped at most at a time: a tenth of the limit and one.
    pub fn reap_batch(&self) -> u32 {
        (f64::from(self.hard_limit) * 0.1 + 1.0).round() as u32
    }
}
