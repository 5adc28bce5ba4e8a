//! Messages to the ProcManager: the calls and casts of couch_proc_manager, same nouns.

mod error;
mod lease;
mod want;

use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};

use crate::auth::rights::CallerLimits;
use crate::messages::opener::StartError;
use crate::messages::process::{Fault, PromptError};
use crate::otp::pid::Pid;
use crate::query_server::abilities::Ability;
use crate::query_server::call::Call;
use crate::query_server::language::LanguageName;
use crate::query_server::status::Holder;
use policy::pool::ProcId;

pub use error::{CallError, ErrorClass, GetProcError};
pub(crate) use lease::Lender;
pub use lease::{Lease, RetProc};
pub use want::{TakeFrom, TenantName, Want, What};

/// Asks for a process. The error is boxed: nearly every answer is a lease, and moves as little as that
/// is large.
#[derive(Debug, Message)]
#[rtype(result = "Result<Lease, Box<GetProcError>>")]
pub struct GetProc {
    /// Who asks. When it ends, its requests are dropped and its processes taken back.
    pub client: Pid,
    /// What for.
    pub want: Want,
    /// How long to wait; `None` is the configured `os_process_timeout`.
    pub timeout: Option<Duration>,
    /// Which pools it may be, where that is not any.
    pub limits: Option<CallerLimits>,
    /// Who that is, for people, where it is known.
    pub who: Option<Arc<Holder>>,
    /// The call that the process is to serve, if it is one of ours.
    pub(crate) call: Option<Arc<Call>>,
}

impl GetProc {
    /// Asks for a client of the pool, which no rights bind.
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
    /// The call that it was done for.
    pub call: Option<Arc<Call>>,
    /// How long it took.
    pub took: Duration,
}

/// Why a process could not be opened, taught or reset, or ended.
#[derive(Clone, Debug)]
pub(crate) struct ProcFailure {
    /// What happened.
    pub reason: String,
    /// Whose doing it is.
    pub fault: Fault,
    /// How the process failed, if that is what happened.
    pub error: Option<PromptError>,
}

impl ProcFailure {
    /// Something else went wrong with the query server.
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
            reason,
            fault,
            error: None,
        }
    }
}

/// Asks whether the query servers of a language can do something, before it is asked of one.
///
/// Probes them if that is unknown. What stays open counts as able.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), GetProcError>")]
pub struct Require {
    /// The language.
    pub language: LanguageName,
    /// What they must be able to do.
    pub ability: Ability,
    /// Which pools may be used for it, where that is not any.
    pub limits: Option<CallerLimits>,
}

/// Asks for the language of a pool or a group.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<LanguageName, GetProcError>")]
pub struct GetLanguage(pub TakeFrom);

/// Counts processes, those being opened included (`get_proc_count`).
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "u32")]
pub struct GetProcCount;

/// Counts processes started before the last reload (`get_stale_proc_count`).
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "u32")]
pub struct GetStaleProcCount;

/// Asks for the arguments of `reset` as they are now: a JSON object.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Arc<str>")]
pub struct GetResetConfig;

/// Replaces all processes: idle ones go now, the others when they come back (`reload`). Returns how many there are.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "u32")]
pub struct SetThresholdTs;

/// Stops idle processes that were started before the last reload (`terminate_stale_procs`).
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct TerminateStaleProcs;

/// Where the ProcManager takes what callers ask.
#[derive(Clone)]
pub struct ManagerAddress {
    /// Requests for a process.
    pub get_proc: Recipient<GetProc>,
    /// Requests that query servers can do something.
    pub require: Recipient<Require>,
    /// Questions for the language of a pool or a group.
    pub language: Recipient<GetLanguage>,
    /// Questions for the arguments of `reset`.
    pub reset_config: Recipient<GetResetConfig>,
}
