//! A process that is lent, and how it comes back.

use std::sync::Arc;

use actix::{Message, Recipient};
use bytes::Bytes;

use crate::messages::process::ProcessRef;
use crate::otp::tell::Tell;
use crate::query_server::call::Loan;
use crate::query_server::language::LanguageName;
use crate::query_server::proc_shared::ProcFlag;
use policy::pool::{ClientId, Condition, ProcId, ReturnStatus, Token};

/// What all processes of a pool have in common for those who are lent one.
#[derive(Debug)]
pub struct Lender {
    /// The pool: of a group, the one of several that served.
    pub pool: Arc<str>,
    /// The language, in the spelling of the registry.
    pub language: LanguageName,
    /// The arguments that the client's first prompt, `reset`, is to carry: a JSON object.
    pub config: Arc<str>,
    /// The lines of the `reset` before a function is called for a client that does not read the
    /// protocol itself: without and with a report.
    pub(crate) resets: [Bytes; 2],
    /// How many processes of the pool one holder may have; zero is any number.
    pub(crate) held_max: u32,
    /// Whom to give processes back to.
    pub(crate) manager: Recipient<RetProc>,
}

/// A process lent to one client.
///
/// Dropping a lease gives the process back as one whose client died: reset before it is used
/// again, or stopped when it is in the middle of something. [`Lease::ret_proc`] is the polite way.
///
/// It is small, because it is moved several times on its way to the client, and because what
/// carries it should fit the sizes that an allocator hands out fastest.
#[derive(Debug)]
pub struct Lease {
    /// The process.
    pub proc: ProcId,
    /// The assignment.
    pub token: Token,
    /// Whom to prompt.
    pub process: Arc<ProcessRef>,
    /// The client it is lent to.
    pub client: ClientId,
    /// Where it comes from.
    pub lender: Arc<Lender>,
    /// Whether it has not been given back.
    pub(crate) is_out: bool,
    /// The call that it serves.
    pub(crate) loan: Option<Arc<Loan>>,
}

impl Lease {
    /// Gives the process back (`ret_proc`). Returns whether the client still held it.
    ///
    /// A process whose latest answer was an error line is reset first: a query server may end over
    /// an error after it has reported it, and only another answer shows that it has not.
    ///
    /// # Errors
    /// None: a manager that is gone took all its processes with it, which is `false`.
    pub async fn ret_proc(self, status: ReturnStatus) -> bool {
        let Some((manager, ret_proc)) = self.end(status).await else {
            return false;
        };
        manager.send(ret_proc).await.unwrap_or(false)
    }

    /// Gives the process back as [`Self::ret_proc`] does, and does not wait until that is done: whatever is asked
    /// of the manager afterwards comes after it.
    pub(crate) async fn give_back(self, status: ReturnStatus) {
        if let Some((manager, ret_proc)) = self.end(status).await {
            manager.tell(ret_proc);
        }
    }

    /// Ends the loan. Returns how to give the process back, and to whom; `None` if that was done.
    async fn end(mut self, status: ReturnStatus) -> Option<(Recipient<RetProc>, RetProc)> {
        if !self.is_out {
            return None;
        }
        let is_in_doubt = status == ReturnStatus::Ok && self.process.shared.is(ProcFlag::SaidNo);
        let status = if is_in_doubt && self.reset().await.is_err() {
            ReturnStatus::Fail
        } else {
            status
        };
        self.is_out = false;
        if let Some(loan) = self.loan.as_ref().filter(|_| status == ReturnStatus::Fail) {
            loan.call.process_ended();
        }
        self.end_loan();
        Some((self.lender.manager.clone(), self.return_as(status)))
    }

    /// Gives a process back that was not used.
    pub(crate) fn put_back(mut self) {
        self.is_out = false;
        let ret_proc = self.return_as(ReturnStatus::Ok);
        self.lender.manager.tell(ret_proc);
    }

    /// Goes without a word, as that of a client whose connection is cut: the manager takes the process back when it
    /// learns of the client's end.
    pub fn abandon(mut self) {
        self.is_out = false;
    }

    fn end_loan(&self) {
        if let Some(loan) = &self.loan {
            loan.end(&self.process.shared);
        }
    }

    fn return_as(&self, status: ReturnStatus) -> RetProc {
        RetProc {
            client: self.client,
            proc: self.proc,
            token: self.token,
            status,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_out {
            self.end_loan();
            self.lender.manager.tell(self.return_as(ReturnStatus::Lost));
        }
    }
}

/// Gives a process back. `false`: the client does not hold it under this token, nothing changed.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct RetProc {
    /// Who gives it back.
    pub client: ClientId,
    /// The process.
    pub proc: ProcId,
    /// The assignment.
    pub token: Token,
    /// What the client says of it.
    pub status: ReturnStatus,
}

impl RetProc {
    /// Judges the process as its state and the way it came back demand.
    pub(crate) fn condition(&self, process: &ProcessRef) -> Condition {
        if self.status == ReturnStatus::Lost {
            process.shared.condition_on_loss(self.token)
        } else {
            process.shared.condition_on_return()
        }
    }
}
