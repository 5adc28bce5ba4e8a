//! Messages to the ProcManager: the calls and casts of couch_proc_manager, same nouns.

mod error;
mod lease;
mod want;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::Message;

use crate::auth::rights::CallerLimits;
use crate::config::{FrontTerms, PoolConfig};
use crate::messages::process::PromptError;
use crate::otp::lifeline::Pulse;
use crate::query_server::abilities::Ability;
use crate::query_server::language::LanguageName;
use crate::query_server::status::Holder;
use policy::pool::{Limits, ProcId};

pub use error::GetProcError;
pub use lease::{Lease, Lender, RetProc};
pub use want::{TakeFrom, Want, What};

/// Asks for a process.
#[derive(Debug)]
pub struct GetProc {
    /// Who asks. When it ends, its requests are dropped and its processes taken back.
    pub client: Pulse,
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
    /// `processes_max`: most processes of all pools together; `None` is any number.
    pub processes_max: Option<u32>,
    /// Name -> the section of a pool, in lower case: a language's own, or a named one.
    /// Shared with the pool while that follows it.
    pub pools: BTreeMap<String, Arc<PoolConfig>>,
    /// Name -> what services ask of a pool that is in no section, in lower case.
    pub fronts: BTreeMap<String, FrontTerms>,
    /// `os_process_timeout`: for a request, a reset, a lesson and a prompt.
    pub os_process_timeout: Duration,
    /// `os_process_idle_limit`.
    pub idle_limit: Duration,
    /// How long a process that was told to stop may take before it is killed.
    pub stop_grace: Duration,
    /// The longest line that a process may print, in bytes.
    pub line_bytes_max: usize,
    /// Lines of a process that are logged in a second.
    pub log_lines_max: usize,
    /// Bytes of lines of a pool's processes that are logged in a minute.
    pub log_bytes_max: usize,
    /// How a database's name becomes a tag.
    pub db_tag: policy::pool::db_tag::DbTag,
    /// The arguments of `reset`: a JSON object.
    pub reset_config: Arc<str>,
    /// The languages and how their processes are started.
    pub languages: crate::actors::language::Registry,
    /// Those of them whose command comes from the configuration.
    pub external: BTreeSet<LanguageName>,
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
