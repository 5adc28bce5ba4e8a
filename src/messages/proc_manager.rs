//! Messages to the ProcManager: the calls and casts of couch_proc_manager, same nouns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};

use crate::actors::lifeline::Pulse;
use crate::config::PoolConfig;
use crate::messages::process::{Fault, Obituary, ProcessRef, PromptError};
use crate::policy::pool::{ClientId, Condition, Lane, Limits, Phase, ProcId, ReturnStatus, Token};
use crate::query_server::abilities::Ability;
use crate::query_server::ddoc::Ddoc;
use crate::query_server::language::LanguageName;

/// What a client wants a process for.
#[derive(Clone, Debug)]
pub struct Want {
    /// What the process is to speak or know.
    pub what: What,
    /// The pools that may serve it.
    pub from: TakeFrom,
    /// What kind of work it is for.
    pub lane: Lane,
}

/// What a process is to speak or know.
#[derive(Clone, Debug)]
pub enum What {
    /// Whatever the pool speaks, or the group.
    Any,
    /// Any process of a language (`get_proc(Lang)`).
    Language(LanguageName),
    /// A process that knows a design document (`get_proc(DDoc, DbKey, DDocKey)`).
    Ddoc {
        /// The database, as the client names it; what of it counts is a setting (`db_tag`).
        db: Arc<str>,
        /// The design document; its language is its own.
        ddoc: Arc<Ddoc>,
    },
}

/// The pools that may serve a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TakeFrom {
    /// The language's own.
    #[default]
    Own,
    /// The one of this name.
    Pool(Arc<str>),
    /// Any of this group.
    Group(Arc<str>),
    /// Any of the language, its own among them.
    Any,
}

impl Want {
    /// Wants any process of a language, from its own pool.
    pub fn language(language: LanguageName) -> Self {
        Self {
            what: What::Language(language),
            from: TakeFrom::Own,
            lane: Lane::Bulk,
        }
    }

    /// Wants a process that knows a design document, from its language's own pool.
    pub fn ddoc(db: Arc<str>, ddoc: Arc<Ddoc>) -> Self {
        Self {
            what: What::Ddoc { db, ddoc },
            from: TakeFrom::Own,
            lane: Lane::Interactive,
        }
    }

    /// Wants whatever a pool or a group has.
    pub fn any_from(from: TakeFrom) -> Self {
        Self {
            what: What::Any,
            from,
            lane: Lane::Bulk,
        }
    }

    /// Wants it from these pools.
    #[must_use]
    pub fn from(mut self, from: TakeFrom) -> Self {
        self.from = from;
        self
    }

    /// Wants it for this kind of work.
    #[must_use]
    pub fn in_lane(mut self, lane: Lane) -> Self {
        self.lane = lane;
        self
    }

    /// Returns the language that it takes; `None`: that of its pool.
    pub fn spoken(&self) -> Option<&LanguageName> {
        match &self.what {
            What::Any => None,
            What::Language(language) => Some(language),
            What::Ddoc { ddoc, .. } => Some(&ddoc.language),
        }
    }

    /// Returns what the language's query servers must be able to do for it.
    pub(crate) fn needs(&self) -> Option<Ability> {
        matches!(self.what, What::Ddoc { .. }).then_some(Ability::Ddoc)
    }

    /// Returns the design document's id, empty without one.
    pub(crate) fn ddoc_id(&self) -> String {
        match &self.what {
            What::Any | What::Language(_) => String::new(),
            What::Ddoc { ddoc, .. } => ddoc.key.id.to_string(),
        }
    }
}

/// Asks for a process.
#[derive(Debug)]
pub struct GetProc {
    /// Who asks. When it ends, its requests are dropped and its processes taken back.
    pub client: Pulse,
    /// What for.
    pub want: Want,
    /// How long to wait; `None` is the configured `os_process_timeout`.
    pub timeout: Option<Duration>,
}

impl Message for GetProc {
    type Result = Result<Lease, GetProcError>;
}

/// A process lent to one client.
///
/// Dropping a lease gives the process back as one whose client died: reset before it is used
/// again, or stopped when it is in the middle of something. [`Lease::ret_proc`] is the polite way.
#[derive(Debug)]
pub struct Lease {
    /// The process.
    pub proc: ProcId,
    /// The assignment.
    pub token: Token,
    /// The pool that it comes from: of a group, one of several.
    pub pool: Arc<str>,
    /// The language, in the spelling of the registry.
    pub language: LanguageName,
    /// The arguments that the client's first prompt, `reset`, is to carry: a JSON object.
    pub config: Arc<str>,
    /// Whom to prompt.
    pub process: Arc<ProcessRef>,
    /// The client it is lent to.
    pub client: ClientId,
    /// Whom to give it back to; `None` once it is given back.
    pub(crate) manager: Option<Arc<Recipient<RetProc>>>,
}

impl Lease {
    /// Gives the process back (`ret_proc`). Returns whether the client still held it.
    ///
    /// # Errors
    /// None: a manager that is gone took all its processes with it, which is `false`.
    pub async fn ret_proc(mut self, status: ReturnStatus) -> bool {
        let Some(manager) = self.manager.take() else {
            return false;
        };
        manager
            .send(self.return_as(status, false))
            .await
            .unwrap_or(false)
    }

    fn return_as(&self, status: ReturnStatus, lost: bool) -> RetProc {
        RetProc {
            client: self.client,
            proc: self.proc,
            token: self.token,
            status,
            lost,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(manager) = self.manager.take() {
            // Ignores the mailbox's bound: a return must not be lost, and there are never more of
            // them than processes.
            manager.do_send(self.return_as(ReturnStatus::Ok, true));
        }
    }
}

/// Gives a process back. `false`: the client does not hold it under this token, nothing changed.
#[derive(Debug)]
pub struct RetProc {
    /// Who gives it back.
    pub client: ClientId,
    /// The process.
    pub proc: ProcId,
    /// The assignment.
    pub token: Token,
    /// What the client says of it.
    pub status: ReturnStatus,
    /// Whether the client let go of it rather than gave it back.
    pub lost: bool,
}

impl Message for RetProc {
    type Result = bool;
}

/// Why there is no process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetProcError {
    /// No such language is configured. The client's fault.
    #[error("no query server is configured for the language '{0}'")]
    UnknownQueryLanguage(String),
    /// The time was up. Worth a retry.
    #[error("{}", timeout_text(*phase, *waited))]
    Timeout {
        /// What it waited for.
        phase: Phase,
        /// How long.
        waited: Duration,
    },
    /// A process could not be started.
    #[error("cannot start the query server for '{language}': {reason}")]
    SpawnFailed {
        /// The language.
        language: String,
        /// What the operating system or the language said, and what to do.
        reason: String,
        /// The host's for lack of resources, the query server's for a command that is wrong.
        fault: Fault,
    },
    /// A process could not be taught the design document.
    #[error("the query server for '{language}' did not accept {ddoc}: {reason}")]
    TeachFailed {
        /// The language.
        language: String,
        /// The design document's id.
        ddoc: String,
        /// What it said, or how it ended.
        reason: String,
        /// How its process failed over it; none when it answered something else than `true`.
        error: Option<Box<PromptError>>,
    },
    /// The language's query servers cannot do it. Nothing was asked of one.
    #[error("the query server for '{language}' {ability}: {how}")]
    Unable {
        /// The language.
        language: String,
        /// What it would take.
        ability: Ability,
        /// How it is known.
        how: Arc<str>,
    },
    /// There is no such pool, or none that may serve the request. The client's fault.
    #[error("{0}")]
    NoSuchPool(String),
    /// As many wait for the pool as may (`queue_max`). Worth a retry.
    #[error(
        "the pool '{pool}' is busy: as many requests wait as may (queue_max); try again, raise \
         queue_max or max, or hold processes for a shorter time"
    )]
    PoolBusy {
        /// The pool.
        pool: Arc<str>,
    },
    /// The pool was removed, or is being removed, while the request waited.
    #[error("the pool '{pool}' was removed")]
    PoolRemoved {
        /// The pool.
        pool: Arc<str>,
    },
    /// Starts have failed, and none is tried for a while. Worth a retry then.
    #[error(
        "the pool '{pool}' starts no process for another {} s, because the last start failed: \
         {reason}",
        retry_in.as_millis().div_ceil(1000)
    )]
    Throttled {
        /// The pool.
        pool: Arc<str>,
        /// What went wrong: the command, how it ended, its last words.
        reason: Arc<str>,
        /// The time to the next try.
        retry_in: Duration,
    },
    /// The service is shutting down, or its manager is being restarted.
    #[error("the service is shutting down")]
    ShuttingDown,
}

fn timeout_text(phase: Phase, waited: Duration) -> String {
    let waited = waited.as_millis();
    match phase {
        Phase::Queue => format!(
            "no process was free within {waited} ms; raise os_process_limit, or hold processes \
             for a shorter time"
        ),
        Phase::Open => format!("the query server did not start within {waited} ms"),
        Phase::Teach => {
            format!("the query server did not learn the design document within {waited} ms")
        }
    }
}

impl GetProcError {
    /// Returns the name on the wire, CouchDB's where CouchDB has one.
    pub fn name(&self) -> &'static str {
        match self {
            Self::UnknownQueryLanguage(_) => "unknown_query_language",
            Self::Timeout { .. } => "timeout",
            Self::TeachFailed {
                error: Some(error), ..
            } if matches!(**error, PromptError::Timeout { .. }) => "timeout",
            Self::SpawnFailed { .. } | Self::TeachFailed { .. } => "os_process_error",
            Self::Unable { .. } => "not_implemented",
            Self::NoSuchPool(_) => "not_found",
            Self::PoolBusy { .. } => "pool_busy",
            Self::PoolRemoved { .. } => "pool_removed",
            Self::Throttled { .. } => "throttled",
            Self::ShuttingDown => "shutting_down",
        }
    }

    /// Returns what was going on.
    pub const fn phase(&self) -> &'static str {
        match self {
            Self::UnknownQueryLanguage(_)
            | Self::NoSuchPool(_)
            | Self::PoolBusy { .. }
            | Self::PoolRemoved { .. }
            | Self::ShuttingDown => "queue",
            Self::Timeout { phase, .. } => match phase {
                Phase::Queue => "queue",
                Phase::Open => "open",
                Phase::Teach => "teach",
            },
            Self::SpawnFailed { .. } | Self::Throttled { .. } => "open",
            Self::TeachFailed { .. }
            | Self::Unable {
                ability: Ability::Ddoc,
                ..
            } => "teach",
            Self::Unable { .. } => "prompt",
        }
    }

    /// Returns whose fault it is.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::UnknownQueryLanguage(_) | Self::NoSuchPool(_) => Fault::Client,
            Self::Timeout {
                phase: Phase::Queue,
                ..
            }
            | Self::PoolBusy { .. }
            | Self::PoolRemoved { .. }
            | Self::ShuttingDown => Fault::Settee,
            Self::Timeout { .. }
            | Self::TeachFailed { .. }
            | Self::Throttled { .. }
            | Self::Unable { .. } => Fault::QueryServer,
            Self::SpawnFailed { fault, .. } => *fault,
        }
    }

    /// Returns whether asking again later may help: also where a process died over a lesson, which
    /// says nothing about the next one.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Timeout { .. }
            | Self::PoolBusy { .. }
            | Self::Throttled { .. }
            | Self::ShuttingDown => true,
            Self::SpawnFailed { fault, .. } => matches!(fault, Fault::Host),
            Self::TeachFailed { error, .. } => error.as_ref().is_some_and(|e| e.retryable()),
            Self::UnknownQueryLanguage(_)
            | Self::NoSuchPool(_)
            | Self::PoolRemoved { .. }
            | Self::Unable { .. } => false,
        }
    }

    /// Returns after which time a retry may help, where that is known.
    pub const fn retry_in(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_in, .. } => Some(*retry_in),
            _ => None,
        }
    }

    /// Returns how the process ended over it, if that is what happened.
    pub fn obituary(&self) -> Option<&Obituary> {
        match self {
            Self::TeachFailed {
                error: Some(error), ..
            } => error.obituary(),
            _ => None,
        }
    }
}

/// A process has been unused for `os_process_idle_limit` (`os_proc_idle`).
#[derive(Clone, Copy, Debug)]
pub struct OsProcIdle {
    /// The process.
    pub proc: ProcId,
}

impl Message for OsProcIdle {
    type Result = ();
}

/// Teaching or resetting a process ended. Sent by the helper that did it.
#[derive(Debug)]
pub(crate) struct HelperDone {
    pub proc: ProcId,
    pub result: Result<(), HelpError>,
}

/// Why a lesson or a reset failed.
#[derive(Debug)]
pub(crate) struct HelpError {
    /// What happened.
    pub reason: String,
    /// How the process failed; none when it answered something else than `true`.
    pub error: Option<PromptError>,
}

impl From<PromptError> for HelpError {
    fn from(error: PromptError) -> Self {
        Self {
            reason: error.to_string(),
            error: Some(error),
        }
    }
}

impl Message for HelperDone {
    type Result = ();
}

/// Asks whether the query servers of a language can do something, before it is asked of one.
///
/// Probes them if nobody knows yet. What stays open counts as able.
#[derive(Clone, Debug)]
pub struct Require {
    /// The language.
    pub language: LanguageName,
    /// What they must be able to do.
    pub ability: Ability,
}

impl Message for Require {
    type Result = Result<(), GetProcError>;
}

/// A probe of an ability ended, one way or another. Sent by its last breath.
pub(crate) struct ProbeDone;

impl Message for ProbeDone {
    type Result = ();
}

/// Counts processes, those being opened included (`get_proc_count`).
#[derive(Clone, Copy, Debug)]
pub struct GetProcCount;

impl Message for GetProcCount {
    type Result = u32;
}

/// Counts processes started before the last reload (`get_stale_proc_count`).
#[derive(Clone, Copy, Debug)]
pub struct GetStaleProcCount;

impl Message for GetStaleProcCount {
    type Result = u32;
}

/// Asks for the arguments of `reset` as they are now: a JSON object.
#[derive(Clone, Copy, Debug)]
pub struct GetResetConfig;

impl Message for GetResetConfig {
    type Result = Arc<str>;
}

/// Replaces all processes: idle ones go now, the others when they come back (`reload`).
#[derive(Clone, Copy, Debug)]
pub struct SetThresholdTs;

impl Message for SetThresholdTs {
    type Result = ();
}

/// Stops idle processes that were started before the last reload (`terminate_stale_procs`).
#[derive(Clone, Copy, Debug)]
pub struct TerminateStaleProcs;

impl Message for TerminateStaleProcs {
    type Result = ();
}

/// The settings that the manager works by (`reload_config`). They hold from now on.
#[derive(Clone)]
pub struct ReloadConfig(pub Arc<ManagerSettings>);

impl Message for ReloadConfig {
    type Result = ();
}

/// What the ProcManager takes from the configuration.
#[derive(Clone)]
pub struct ManagerSettings {
    /// The limits of every language's pool, where its section says nothing else.
    pub limits: Limits,
    /// Name -> the section of a pool, in lower case: a language's own, or a named one.
    pub pools: BTreeMap<String, PoolConfig>,
    /// `os_process_timeout`: for a request, a reset, a lesson and a prompt.
    pub os_process_timeout: Duration,
    /// `os_process_idle_limit`.
    pub idle_limit: Duration,
    /// How long a process that was told to stop may take before it is killed.
    pub stop_grace: Duration,
    /// The longest line that a process may print, in bytes.
    pub line_bytes_max: usize,
    /// How a database's name becomes a tag.
    pub db_tag: crate::policy::pool::db_tag::DbTag,
    /// The arguments of `reset`: a JSON object.
    pub reset_config: Arc<str>,
    /// The languages and how their processes are started.
    pub languages: crate::query_server::language::Registry,
}

/// Asks for the state of the pools.
#[derive(Clone, Debug, Default)]
pub struct GetStatus {
    /// Only this pool; `None` is all of them.
    pub pool: Option<String>,
}

impl Message for GetStatus {
    type Result = crate::query_server::status::ServiceStatus;
}

impl RetProc {
    /// Judges the process as its state and the way it came back demand.
    pub(crate) fn condition(&self, process: &ProcessRef) -> Condition {
        if self.lost {
            process.shared.condition_on_loss()
        } else {
            process.shared.condition_on_return()
        }
    }
}
