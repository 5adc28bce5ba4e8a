//! An opener's exit reason, its only message to the ProcManager.

use actix::Message;

use crate::messages::process::{Fault, ProcessRef};
use policy::pool::ProcId;

/// An opener ended (`{'EXIT', Opener, Reason}`, where the reason is `spawn_ok` or `spawn_error`).
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Exit {
    /// The process to open.
    pub proc: ProcId,
    /// The running process; or why the start failed, after everything it started has ended.
    pub reason: Result<ProcessRef, StartError>,
}

/// Why a process could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct StartError {
    /// The cause and the remedy.
    pub reason: String,
    /// The host for lack of resources, the query server for a wrong command.
    pub fault: Fault,
    /// Whether an external signal or order ended it: then the command is not at fault.
    pub from_outside: bool,
}

impl StartError {
    /// Makes the error of a start that was not ended from outside.
    pub fn new(reason: String, fault: Fault) -> Self {
        Self {
            reason,
            fault,
            from_outside: false,
        }
    }
}
