//! Messages to the ProcManager: the calls and casts of couch_proc_manager, same nouns.

mod error;
mod lease;
mod want;

use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};

use crate::auth::rights::CallerLimits;
use crate::messages::process::PromptError;
use crate::otp::pid::Pid;
use crate::query_server::abilities::Ability;
use crate::query_server::language::LanguageName;
use crate::query_server::status::Holder;
use policy::pool::ProcId;

pub use error::{CallError, GetProcError};
pub(crate) use lease::Lender;
pub use lease::{Lease, RetProc};
pub use want::{TakeFrom, Want, What};

/// Asks for a process.
#[derive(Debug)]
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
}

/// The error is boxed: nearly every answer is a lease, and moves as little as that is large.
impl Message for GetProc {
    type Result = Result<Lease, Box<GetProcError>>;
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
pub(crate) struct TeachOrResetDone {
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

impl Message for TeachOrResetDone {
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
    /// Which pools may be used for it, where that is not any.
    pub limits: Option<CallerLimits>,
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
pub(crate) struct GetStaleProcCount;

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

/// Where the ProcManager takes what callers ask.
#[derive(Clone)]
pub struct ManagerAddress {
    /// Requests for a process.
    pub get_proc: Recipient<GetProc>,
    /// Requests that query servers can do something.
    pub require: Recipient<Require>,
    /// Questions for the arguments of `reset`.
    pub reset_config: Recipient<GetResetConfig>,
}

/// Asks for the state of the pools.
#[derive(Clone, Debug, Default)]
pub struct GetStatus {
    /// Only this pool; `None` is all of them.
    pub pool: Option<String>,
}

impl Message for GetStatus {
    type Result = crate::query_server::status::DaemonStatus;
}
