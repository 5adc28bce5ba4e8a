//! Messages about single processes: their current work, and the order to end one.
//!
//! PROMISES  A process is named `POOL/NUMBER`. Numbers are unique in the service and never reused, so an order for a
//!           process that has ended reaches no other.

use std::sync::Arc;
use std::time::Duration;

use actix::Message;

use crate::messages::pools::PoolError;
use crate::messages::process::ProcShared;
use crate::query_server::language::LanguageName;
use crate::query_server::status::{Holder, KilledProc};
use policy::pool::{ClientId, ProcId, ProcStatus};

/// Maximum processes in a list.
pub(crate) const PROCS_LISTED_MAX: usize = 1000;

/// Returns the displayed name of a process.
pub(crate) fn proc_name(pool: &str, proc: ProcId) -> String {
    format!("{pool}/{}", proc.number)
}

/// The ProcManager's state of a process.
pub(crate) struct KnownProc {
    pub id: ProcId,
    pub pool: Arc<str>,
    pub language: LanguageName,
    pub life: ProcLife,
}

/// The stage of a process's life.
pub(crate) enum ProcLife {
    /// Being opened for this long.
    Opening(Duration),
    /// Running, or about to end.
    Started {
        shared: Arc<ProcShared>,
        /// The core's state; `None` once it was asked to end.
        core: Option<ProcStatus>,
        holder: Option<KnownHolder>,
    },
}

/// The ProcManager's data on a process's holder.
pub(crate) struct KnownHolder {
    pub client: ClientId,
    pub who: Option<Arc<Holder>>,
}

impl KnownHolder {
    pub fn describe(&self) -> Holder {
        Holder {
            client: self.client.0,
            ..self.who.as_deref().cloned().unwrap_or_default()
        }
    }
}

/// Requests the list of processes.
#[derive(Clone, Debug, Default, Message)]
#[rtype(result = "Result<Vec<KnownProc>, PoolError>")]
pub(crate) struct ListProcs {
    /// Only those of this pool; `None`: all.
    pub pool: Option<String>,
}

/// Ends one process: at once if it is working or `now` is set, otherwise like any stopped process. Without `now`, one
/// that is ending already is left alone.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<KilledProc, KillError>")]
pub(crate) struct KillProc {
    /// Its name.
    pub name: String,
    /// Whether it is killed at once, even if it could end by itself.
    pub now: bool,
    /// The user who ordered it.
    pub who: Option<Arc<Holder>>,
}

impl KillProc {
    /// Returns who ordered it: the user's name, else their uid, else their address, else `an operator`.
    pub fn by(&self) -> Arc<str> {
        let who = self.who.as_deref().cloned().unwrap_or_default();
        let uid = who.uid.map(|uid| format!("uid {uid}"));
        who.user
            .or(uid)
            .or(who.peer)
            .unwrap_or_else(|| "an operator".to_owned())
            .into()
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
