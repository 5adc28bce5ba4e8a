//! A process that a connection holds, and the calls queued for it.
//!
//! SUMMARY   Prompts go to the process at once; one task takes the answers in order, and writes those available
//!           together.
//! PROMISES  Prompts to one process are answered in order. A return with `ok` follows them, one with `fail` is
//!           immediate.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::RecipientRequest;
use bytes::Bytes;
use futures_util::FutureExt;

use super::session::Session;
use super::ticket::Ticket;
use crate::functions::served::members;
use crate::messages::client::ProcToken;
use crate::messages::client_error::ErrorReply;
use crate::messages::proc_manager::{Lease, Lender};
use crate::messages::process::{Answer, ProcShared, PromptError, SetTimeout};
use crate::query_server::call::Loan;
use crate::query_server::told::Told;
use policy::pool::ReturnStatus;

/// A tunnel's answer to a line that is not a command, for native languages; query servers answer such lines themselves.
pub(super) const NO_COMMAND: &[u8] =
    b"[\"error\",\"bad_request\",\"a command must be one JSON array on one line\"]\n";

/// A call to the process, or one that waits for earlier calls.
enum QueuedCall {
    /// With the loan that collects the process's reports before its answer, if the client wants them.
    Prompt(Ticket, Answer, Option<Arc<Loan>>),
    Timeout(Ticket, RecipientRequest<SetTimeout>),
    Return(Ticket),
}

pub(super) struct Holding {
    /// The client's name for the process.
    pub name: ProcToken,
    /// `None` once it is returned.
    lease: RefCell<Option<Lease>>,
    /// Oldest first.
    queue: RefCell<VecDeque<QueuedCall>>,
    /// State of the process that outlives it.
    pub shared: Arc<ProcShared>,
    pub lender: Arc<Lender>,
    /// Whether it is returned after the queued calls.
    going_back: Cell<bool>,
    /// Whether a task is taking answers.
    pumping: Cell<bool>,
    /// Collects the process's reports, for prompts with a report.
    loan: OnceCell<Arc<Loan>>,
}

impl Holding {
    pub fn new(lease: Lease) -> Rc<Self> {
        let name = ProcToken {
            proc: lease.proc,
            token: lease.token,
        };
        Rc::new(Self {
            name,
            shared: Arc::clone(&lease.process.shared),
            lender: Arc::clone(&lease.lender),
            going_back: Cell::new(false),
            lease: RefCell::new(Some(lease)),
            queue: RefCell::new(VecDeque::new()),
            pumping: Cell::new(false),
            loan: OnceCell::new(),
        })
    }

    pub fn take(&self) -> Option<Lease> {
        self.lease.take()
    }

    /// Returns whether the client holds it and is not returning it.
    pub fn is_held(&self) -> bool {
        self.is_alive() && !self.going_back.get()
    }

    /// Returns whether the process runs and is held.
    pub fn is_alive(&self) -> bool {
        let lease = self.lease.borrow();
        lease
            .as_ref()
            .is_some_and(|lease| lease.process.pid.is_alive())
    }

    /// Sends a command, or a line of a tunnel, whose answer includes all output before it. With `report`, the reply to
    /// a command includes earlier reports.
    pub fn prompt(
        self: &Rc<Self>,
        ticket: Ticket,
        line: Bytes,
        timeout: Option<Duration>,
        report: bool,
    ) {
        let loan = report.then(|| {
            let who = || ticket.session().query_servers.caller().who();
            let loan = self.loan.get_or_init(|| Loan::of_prompts(who()));
            Arc::clone(loan)
        });
        self.call(ticket, |ticket, Lease { process, token, .. }| {
            let answer = if ticket.is_tunnel() {
                process.prompt_verbatim(*token, line, timeout)
            } else {
                process.prompt_for(loan.clone(), *token, line, timeout)
            };
            QueuedCall::Prompt(ticket, answer, loan)
        });
    }

    /// Changes the timeout of later prompts.
    pub fn set_timeout(self: &Rc<Self>, ticket: Ticket, timeout: Duration) {
        self.call(ticket, |ticket, Lease { process, token, .. }| {
            let token = *token;
            let answer = process.set_timeout.send(SetTimeout { token, timeout });
            QueuedCall::Timeout(ticket, answer)
        });
    }

    /// Makes a call with the lease, and queues it; an error if the process was returned.
    fn call(self: &Rc<Self>, ticket: Ticket, call: impl FnOnce(Ticket, &Lease) -> QueuedCall) {
        let session = Rc::clone(ticket.session());
        let called = match &*self.lease.borrow() {
            Some(lease) => Ok(call(ticket, lease)),
            None => Err(ticket),
        };
        match called {
            Ok(entry) => self.queue(session, entry),
            Err(ticket) => ticket.error(&ErrorReply::not_holder().about(self.name)),
        }
    }

    /// Returns the process, which the client can no longer use.
    pub fn give_back(self: &Rc<Self>, ticket: Ticket, status: ReturnStatus) {
        self.going_back.set(true);
        if status == ReturnStatus::Ok {
            return self.queue(ticket.session().clone(), QueuedCall::Return(ticket));
        }
        let lease = self.lease.take();
        actix_rt::spawn(async move {
            if let Some(lease) = lease {
                lease.ret_proc(status).await;
            }
            ticket.ok(&true);
        });
    }

    fn queue(self: &Rc<Self>, session: Rc<Session>, entry: QueuedCall) {
        self.queue.borrow_mut().push_back(entry);
        if !self.pumping.replace(true) {
            // Ends when everything is answered: at the latest with the last prompt's deadline, or with the process.
            actix_rt::spawn(Rc::clone(self).pump(session));
        }
    }

    async fn pump(self: Rc<Self>, session: Rc<Session>) {
        loop {
            let entry = self.queue.borrow_mut().pop_front();
            match entry {
                Some(QueuedCall::Prompt(ticket, answer, loan)) => {
                    let answer = soon(&session, answer).await;
                    self.answer(ticket, answer, loan.map(|loan| loan.take()));
                }
                Some(QueuedCall::Timeout(ticket, answer)) => {
                    // The client holds the process; a dead one accepts any timeout.
                    let _ = soon(&session, answer).await;
                    ticket.ok_later(&b"true"[..]);
                }
                Some(QueuedCall::Return(ticket)) => {
                    session.flush();
                    let lease = self.lease.take();
                    if let Some(lease) = lease {
                        // Also true if the process has died meanwhile: the client held it.
                        lease.ret_proc(ReturnStatus::Ok).await;
                    }
                    ticket.ok_later(&b"true"[..]);
                }
                None => break,
            }
        }
        self.pumping.set(false);
        session.flush();
    }

    fn answer(&self, ticket: Ticket, answer: Result<Bytes, PromptError>, told: Option<Told>) {
        let told = told
            .filter(|told| !told.is_empty())
            .map(|told| members(&told))
            .unwrap_or_default();
        match answer {
            Ok(answer) => ticket.ok_with(&answer, &told),
            Err(error) if !ticket.is_tunnel() => {
                ticket.error_with(&ErrorReply::from(error).about(self.name), &told);
            }
            Err(PromptError::BadPrompt) => ticket.ok_later(NO_COMMAND),
            // The process is gone: the tunnel ends for the same reason.
            Err(error) => ticket.session().end_tunnel(error),
        }
    }
}

/// Waits for an answer; if it is not ready, writes earlier answers first.
async fn soon<T>(session: &Rc<Session>, answer: impl Future<Output = T>) -> T {
    let mut answer = pin!(answer);
    match answer.as_mut().now_or_never() {
        Some(answer) => answer,
        None => {
            session.flush();
            answer.await
        }
    }
}
