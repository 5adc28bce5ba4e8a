//! What an opener tells the ProcManager: its exit reason, and nothing else.

use actix::Message;

use crate::messages::process::{Fault, ProcessRef};
use policy::pool::ProcId;

/// An opener ended (`{'EXIT', Opener, Reason}`).
#[derive(Debug)]
pub struct Exit {
    /// The process that it was to open.
    pub proc: ProcId,
    /// How it went.
    pub reason: OpenerExit,
}

impl Message for Exit {
    type Result = ();
}

/// The exit reasons of an opener.
#[derive(Debug)]
pub enum OpenerExit {
    /// The process runs.
    SpawnOk(ProcessRef),
    /// The process could not be started. Nothing is left of it.
    SpawnError(StartError),
}

/// Why a process could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct StartError {
    /// What happened and what to do.
    pub reason: String,
    /// The host's for lack of resources, the query server's for a command that is wrong.
    pub fault: Fault,
}
