//! Messages about single processes: their current work, and the order to end one.
//!
//! PROMISES  A process is named `POOL/NUMBER`. Numbers are unique in the service and never reused, so an order for a
//!           process that has ended reaches no other.

use std::fmt;
use std::sync::Arc;

use actix::Message;

use crate::messages::pool_reporter::KnownProc;
use crate::messages::pools::PoolError;
use crate::query_server::status::{Holder, KilledProc};
use policy::pool::ProcId;

/// Maximum processes in a list.
pub(crate) const PROCS_LISTED_MAX: usize = 1000;

/// The displayed name of a process.
pub(crate) struct ProcName<'a> {
    pub(crate) pool: &'a str,
    pub(crate) proc: ProcId,
}

impl fmt::Display for ProcName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.proc.number)
    }
}

/// Requests the list of processes.
#[derive(Clone, Debug, Default, Message)]
#[rtype(result = "Result<Vec<KnownProc>, PoolError>")]
pub(crate) struct ListProcs {
    /// Only those of this pool; `None`: all.
    pub(crate) pool: Option<String>,
}

/// Ends one process: at once if it is working or `now` is set, otherwise like any stopped process. Without `now`, one
/// that is ending already is left alone.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<KilledProc, KillError>")]
pub(crate) struct KillProc {
    /// Its name.
    pub(crate) name: String,
    /// Whether it is killed at once, even if it could end by itself.
    pub(crate) now: bool,
    /// The user who ordered it.
    pub(crate) who: Option<Arc<Holder>>,
}

impl KillProc {
    /// Returns who ordered it: the user's name, else their uid, else their address, else `an operator`.
    pub(crate) fn by(&self) -> Arc<str> {
        let who = self.who.as_deref().cloned().unwrap_or_default();
        let uid = who.uid.map(|uid| format!("uid {uid}"));
        let by = who.user.or(uid).or(who.peer);
        by.unwrap_or_else(|| "an operator".to_owned()).into()
    }
}

/// Why a process was not ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KillError {
    /// There is no process with this name. The caller's fault.
    #[error("there is no process named '{0}': it has ended, or never existed")]
    NotFound(String),
    /// It is being started. Worth a retry.
    #[error(
        "the process '{0}' is being started: it can be killed once it has answered its first reset; if it has \
         not done so within start_timeout, it is killed anyway"
    )]
    Starting(String),
}
