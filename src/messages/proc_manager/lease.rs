//! A process that is lent, and how it comes back.

use std::sync::Arc;

use actix::{Message, Recipient};

use crate::messages::process::ProcessRef;
use crate::policy::pool::{ClientId, Condition, ProcId, ReturnStatus, Token};
use crate::query_server::language::LanguageName;

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
