//! Messages to the ProcManager: the calls and casts of couch_proc_manager, with the same names.

mod error;
mod lease;
mod want;

use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};

use crate::auth::rights::CallerLimits;
use crate::messages::opener::StartError;
use crate::messages::pools::PoolError;
use crate::messages::process::{Fault, PromptError};
use crate::otp::Pid;
use crate::query_server::abilities::Ability;
use crate::query_server::call::Call;
use crate::query_server::language::LanguageName;
use crate::query_server::status::Holder;
use policy::pool::ProcId;

pub use error::{CallError, ErrorClass, GetProcError};
pub(crate) use lease::Lender;
pub use lease::{Lease, RetProc};
pub use want::{TakeFrom, TenantName, Want, What};

/// Requests a process. The error is boxed, because it is large and nearly every answer is a lease.
#[derive(Debug, Message)]
#[rtype(result = "Result<Lease, Box<GetProcError>>")]
pub struct GetProc {
    /// The requesting client. When it ends, its requests are dropped and its processes taken back.
    pub client: Pid,
    /// The kind of process.
    pub want: Want,
    /// How long to wait; `None` is the configured `os_process_timeout`.
    pub timeout: Option<Duration>,
    /// Restricts the pools, if the caller may not use all.
    pub limits: Option<CallerLimits>,
    /// The client's description for display, if known.
    pub who: Option<Arc<Holder>>,
    /// The function call that the process will serve, if any.
    pub(crate) call: Option<Arc<Call>>,
}

impl GetProc {
    /// Returns an unrestricted request.
    pub fn of_client(client: Pid, want: Want, timeout: Option<Duration>) -> Self {
        Self {
            client,
            want,
            timeout,
            limits: None,
            who: None,
            call: None,
        }
    }
}

/// A process has been unused for `os_process_idle_limit` (`os_proc_idle`).
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct OsProcIdle {
    /// The process.
    pub proc: ProcId,
}

/// Teaching or resetting a process ended.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct TeachOrResetDone {
    pub proc: ProcId,
    pub result: Result<(), ProcFailure>,
    /// The call that required it.
    pub call: Option<Arc<Call>>,
    /// Its duration.
    pub took: Duration,
}

/// Why a process could not be opened, taught or reset, or why it ended.
#[derive(Clone, Debug)]
pub(crate) struct ProcFailure {
    /// What happened.
    pub reason: String,
    /// Who is at fault.
    pub fault: Fault,
    /// How the process failed, if it did.
    pub error: Option<PromptError>,
}

impl ProcFailure {
    /// Returns a failure of the query server other than a [`PromptError`].
    pub fn of_server(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            fault: Fault::QueryServer,
            error: None,
        }
    }
}

impl From<PromptError> for ProcFailure {
    fn from(error: PromptError) -> Self {
        Self {
            error: Some(error.clone()),
            ..Self::of_server(error.to_string())
        }
    }
}

impl From<StartError> for ProcFailure {
    fn from(StartError { reason, fault, .. }: StartError) -> Self {
        Self {
            fault,
            ..Self::of_server(reason)
        }
    }
}

/// Checks whether a language's query servers have an ability, before prompting one.
///
/// Probes them if that is unknown. An unknown result counts as able.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), GetProcError>")]
pub struct Require {
    /// The language.
    pub language: LanguageName,
    /// The required ability.
    pub ability: Ability,
    /// Restricts the pools, if the caller may not use all.
    pub limits: Option<CallerLimits>,
}

/// Asks for the language of a pool or a group.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<LanguageName, GetProcError>")]
pub struct GetLanguage(pub TakeFrom);

/// Counts processes, including those being opened (`get_proc_count`).
#[derive(Debug, Message)]
#[rtype(result = "u32")]
pub struct GetProcCount;

/// Counts processes started before the last reload (`get_stale_proc_count`).
#[derive(Debug, Message)]
#[rtype(result = "u32")]
pub struct GetStaleProcCount;

/// Asks for the current arguments of `reset`: a JSON object.
#[derive(Debug, Message)]
#[rtype(result = "Arc<str>")]
pub struct GetResetConfig;

/// Replaces all processes: idle ones now, others on return (`reload`). Returns their number.
#[derive(Debug, Message)]
#[rtype(result = "u32")]
pub struct SetThresholdTs;

/// Stops idle processes of one pool that were started before the last reload (`terminate_stale_procs`).
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), PoolError>")]
pub struct TerminateStaleProcs {
    /// The pool's name.
    pub name: String,
}

/// The recipients of requests to the ProcManager.
#[derive(Clone)]
pub struct ManagerAddress {
    /// Requests for a process.
    pub get_proc: Recipient<GetProc>,
    /// Checks for an ability.
    pub require: Recipient<Require>,
    /// Queries for the language of a pool or a group.
    pub language: Recipient<GetLanguage>,
    /// Queries for the arguments of `reset`.
    pub reset_config: Recipient<GetResetConfig>,
}
