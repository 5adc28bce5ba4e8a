//! An opener's exit reason, its only message to the ProcManager.

use actix::Message;

use crate::messages::process::{Fault, ProcessRef};
use policy::pool::ProcId;

/// An opener ended (`{'EXIT', Opener, Reason}`, where the reason is `spawn_ok` or `spawn_error`).
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Exit {
    /// The process that it was to open.
    pub proc: ProcId,
    /// The process, which runs; or why it could not be started: then nothing is left of it.
    pub reason: Result<ProcessRef, StartError>,
}

/// Why a process could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct StartError {
    /// What happened and what to do.
    pub reason: String,
    /// The host's for lack of resources, the query server's for a command that is wrong.
    pub fault: Fault,
    /// Whether a signal or an order from outside ended it: that says nothing about the command.
    pub from_outside: bool,
}

impl StartError {
    /// Makes the error of a start that nobody from outside has ended.
    pub fn new(reason: String, fault: Fault) -> Self {
        let from_outside = false;
        Self {
            reason,
            fault,
            from_outside,
        }
    }
}
