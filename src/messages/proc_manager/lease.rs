//! A lent process, and its return.

use std::sync::Arc;

use actix::{Message, Recipient};
use bytes::Bytes;

use crate::messages::process::ProcessRef;
use crate::otp::Tell;
use crate::query_server::call::Loan;
use crate::query_server::language::LanguageName;
use crate::query_server::proc_shared::ProcFlag;
use policy::pool::{ClientId, ProcId, ReturnStatus, Token};

/// The common part of all leases of a pool.
#[derive(Debug)]
pub struct Lender {
    /// The pool; for a group, the one that served.
    pub pool: Arc<str>,
    /// The language, in the spelling of the registry.
    pub language: LanguageName,
    /// The argument for the client's first prompt, `reset`: a JSON object.
    pub config: Arc<str>,
    /// The `reset` lines sent before function calls that Settee makes for clients: without and with a report.
    pub(crate) resets: [Bytes; 2],
    /// Maximum processes of the pool per holder; zero: no limit.
    pub(crate) held_max: u32,
    /// Takes returned processes.
    pub(crate) manager: Recipient<RetProc>,
}

/// A process lent to one client.
///
/// Dropping a lease returns the process as if its client had died: it is reset before its next use, or stopped if it
/// is busy. Prefer [`Lease::ret_proc`].
///
/// Keep it small: it is moved several times on its way to the client, in messages that should fit an allocator's
/// fastest sizes.
#[derive(Debug)]
pub struct Lease {
    /// The process.
    pub proc: ProcId,
    /// The number of the loan.
    pub token: Token,
    /// Its actor, which takes prompts.
    pub process: Arc<ProcessRef>,
    /// The borrower.
    pub client: ClientId,
    /// The part shared with the pool's other leases.
    pub lender: Arc<Lender>,
    /// Whether the process has not been returned yet.
    pub(crate) is_out: bool,
    /// The call that it serves.
    pub(crate) loan: Option<Arc<Loan>>,
}

impl Lease {
    /// Returns the process (`ret_proc`); `false` if the client no longer held it, or the manager has ended, with all
    /// its processes.
    ///
    /// A process whose latest answer was an error line is reset first: a query server may end after an error, and
    /// only another answer proves that it still runs.
    pub async fn ret_proc(self, status: ReturnStatus) -> bool {
        let Some((manager, ret_proc)) = self.end(status).await else {
            return false;
        };
        manager.send(ret_proc).await.unwrap_or(false)
    }

    /// Like [`Self::ret_proc`], without waiting for the manager, which handles the return before later messages.
    pub(crate) async fn give_back(self, status: ReturnStatus) {
        if let Some((manager, ret_proc)) = self.end(status).await {
            manager.tell(ret_proc);
        }
    }

    /// Ends the loan. Returns the message that returns the process, with its recipient; `None` if already returned.
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

    /// Returns an unused process.
    pub(crate) fn put_back(mut self) {
        self.is_out = false;
        let ret_proc = self.return_as(ReturnStatus::Ok);
        self.lender.manager.tell(ret_proc);
    }

    /// Drops the lease without a message, like a client with a cut connection: the manager reclaims the process when
    /// it is notified of the client's end.
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

/// Returns a process. `false`: the client does not hold it with this token, and nothing changed.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct RetProc {
    /// The client that holds it.
    pub client: ClientId,
    /// The process.
    pub proc: ProcId,
    /// The number of the loan.
    pub token: Token,
    /// How it is returned.
    pub status: ReturnStatus,
}
