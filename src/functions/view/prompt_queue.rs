//! Many commands in flight to one process, and their answers.
//!
//! SUMMARY   [`PromptQueue::send`] collects commands, [`PromptQueue::receive`] sends them together and returns
//!           answers, several at a time, in order.
//! PROMISES  If the process ends early, the first unanswered command gets the error with the cause.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::sync::mpsc;

use super::processes::{Process, ProcessError, ServiceProcess};
use crate::messages::proc_manager::Lease;
use crate::messages::process::PromptError;
use crate::query_server::told::Told;

/// A process's answer. Errors are boxed, since they are rare and far larger.
pub(super) type Answer = Result<Bytes, Box<ProcessError>>;

/// An answer, and the reports before it.
pub(super) struct Answered {
    pub answer: Answer,
    pub told: Option<Box<Told>>,
}

/// Commands in flight to one process.
pub(super) enum PromptQueue<'a> {
    /// A pool's process in this program.
    Pool(PoolPrompts<'a>),
    /// A service's process.
    Service {
        process: &'a ServiceProcess,
        timeout: Option<Duration>,
        answers: FuturesOrdered<LocalBoxFuture<'a, Answered>>,
    },
}

impl<'a> PromptQueue<'a> {
    pub fn with(process: &'a Process, timeout: Option<Duration>) -> Self {
        match process {
            Process::Pool(lease) => Self::Pool(PoolPrompts::new(lease, timeout)),
            Process::Service(process) => Self::Service {
                process,
                timeout,
                answers: FuturesOrdered::new(),
            },
        }
    }

    /// Sends a command, at the latest with the next [`Self::receive`].
    pub fn send(&mut self, line: Bytes) {
        match self {
            Self::Pool(pool) => {
                pool.unsent.extend_from_slice(&line);
                pool.unsent.extend_from_slice(b"\n");
                pool.unsent_count += 1;
            }
            Self::Service {
                process,
                timeout,
                answers,
            } => {
                let answered = process.prompt(line, *timeout).map(|(answer, told)| {
                    let answer = answer.map_err(Box::new);
                    Answered { answer, told }
                });
                answers.push_back(answered.boxed_local());
            }
        }
    }

    /// Waits for answers and takes all that have arrived; none if every command is answered.
    pub async fn receive(&mut self, into: &mut Vec<Answered>) {
        match self {
            Self::Pool(pool) => pool.receive(into).await,
            Self::Service { answers, .. } => {
                into.extend(answers.next().await);
                while let Some(Some(answer)) = answers.next().now_or_never() {
                    into.push(answer);
                }
            }
        }
    }
}

/// Commands in flight to a pool's process in this program.
pub(super) struct PoolPrompts<'a> {
    lease: &'a Lease,
    timeout: Option<Duration>,
    unsent: BytesMut,
    unsent_count: usize,
    unanswered: usize,
    /// Weak, so that the channel closes when the process drops the last command.
    sender: mpsc::WeakUnboundedSender<Result<Bytes, PromptError>>,
    receiver: mpsc::UnboundedReceiver<Result<Bytes, PromptError>>,
    received: Vec<Result<Bytes, PromptError>>,
}

impl<'a> PoolPrompts<'a> {
    fn new(lease: &'a Lease, timeout: Option<Duration>) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self {
            lease,
            timeout,
            unsent: BytesMut::new(),
            unsent_count: 0,
            unanswered: 0,
            sender: sender.downgrade(),
            receiver,
            received: Vec::new(),
        }
    }

    fn flush(&mut self) {
        if self.unsent_count == 0 {
            return;
        }
        let sender = match self.sender.upgrade() {
            Some(sender) => sender,
            // The process has ended; `receive` returns the cause.
            None if self.unanswered > 0 => return,
            None => {
                let (sender, receiver) = mpsc::unbounded_channel();
                self.sender = sender.downgrade();
                self.receiver = receiver;
                sender
            }
        };
        self.unanswered += std::mem::take(&mut self.unsent_count);
        let lines = self.unsent.split().freeze();
        self.lease.prompts(lines, self.timeout, sender);
    }

    async fn receive(&mut self, into: &mut Vec<Answered>) {
        self.flush();
        if self.unanswered == 0 {
            return;
        }
        let limit = self.unanswered;
        if self.receiver.recv_many(&mut self.received, limit).await == 0 {
            let gone = self.lease.process.shared.gone();
            return into.push(Answered {
                answer: Err(Box::new(gone.into())),
                told: None,
            });
        }
        self.unanswered -= self.received.len();
        into.extend(self.received.drain(..).map(|answer| {
            let answer: Answer = answer.map_err(|error| Box::new(error.into()));
            let told = told_before(&answer, self.lease);
            Answered { answer, told }
        }));
    }
}

/// Takes the reports before an answer. If there is no answer to return, the call itself gets them.
fn told_before(answer: &Answer, lease: &Lease) -> Option<Box<Told>> {
    let loan = lease.loan.as_ref().filter(|loan| loan.call.reports)?;
    let told = loan.take();
    if answer.is_err() {
        loan.call.take(told, true);
        return None;
    }
    (!told.is_empty()).then(|| Box::new(told))
}
