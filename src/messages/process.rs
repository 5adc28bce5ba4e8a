//! Messages to a process: an [`OsProcess`](crate::actors::os_process::OsProcess), a
//! [`NativeProcess`](crate::actors::native_process::NativeProcess), or an actor of your own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler, Message, Recipient};
use bytes::{Buf, Bytes};
use tokio::sync::{mpsc, oneshot};

use crate::otp::{Pid, Tell};
use crate::query_server::call::Loan;
pub use crate::query_server::proc_shared::ProcShared;
pub use crate::query_server::prompt_error::{ExitReport, Fault, PromptError};
use policy::pool::Token;

/// Sends one command to the process, or several at once, because a message costs as much as a quick command.
/// [`ProcessRef::prompt`] and its siblings make it.
///
/// Prompts may be pipelined: they are answered in the order sent.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Prompt {
    /// The loan under which the sender holds the process.
    pub token: Token,
    /// One command without a line feed, or several, each followed by one. A command is one JSON array in UTF-8.
    pub lines: Bytes,
    /// The timeout of each command, from when it becomes the oldest unanswered one; `None`: that of the process.
    pub timeout: Option<Duration>,
    /// Whether the answer is everything that the process printed, including log and error lines, unchanged.
    pub verbatim: bool,
    /// The loan's record for the call that the command serves; `None` without a call.
    pub loan: Option<Arc<Loan>>,
    /// The receiver of the answers; its variant also tells whether there is one command.
    pub answer_to: AnswerTo,
}

/// The receiver of the answers to a prompt. If it is dropped before all are sent, the process is gone, and
/// [`ProcShared::gone`] is the answer to the rest.
#[derive(Debug)]
pub enum AnswerTo {
    /// The sender of one command.
    One(Option<oneshot::Sender<Result<Bytes, PromptError>>>),
    /// The sender of several, one answer for each command, in order, as they arrive.
    Several(AnswerSender),
    /// The sender of one command with a `reset` before it, after it, or both.
    Framed(Framed),
}

/// Waits for the answer to a command, and is notified once a `reset` after it is also answered.
///
/// That `reset` is the fence: a query server works on one command after the other, so an extra line arrives where the
/// fence's `true` is expected, and is detected.
#[derive(Debug)]
pub struct Framed {
    /// `None` once notified.
    sender: Option<oneshot::Sender<ResetAndAnswer>>,
    /// The line of the `reset` before the command, until it is answered.
    reset: Option<Bytes>,
    /// The line of the fence, if there is one.
    fence: Option<Bytes>,
    /// The answer to the command, kept until the fence is answered.
    answer: Option<Result<Bytes, PromptError>>,
}

/// The lines of a `reset`, of a command, and of the `reset` after it.
pub(crate) type Frame<'a> = (Option<&'a Bytes>, Option<&'a Bytes>, Option<&'a Bytes>);

/// The answer to the command; an error if the `reset` before it failed.
pub(crate) type ResetAndAnswer = Result<Result<Bytes, PromptError>, PromptError>;

impl Framed {
    fn send(&mut self, answer: Result<Bytes, PromptError>) {
        let both = match (self.reset.is_some(), self.answer.take()) {
            (true, kept) => match (answer.and_then(reset_done), kept) {
                // Only a `reset` was sent.
                (Ok(()), Some(kept)) if self.fence.is_none() => Ok(kept),
                (Ok(()), kept) => {
                    (self.reset, self.answer) = (None, kept);
                    return;
                }
                (Err(error), _) => Err(error),
            },
            (false, None) if self.fence.is_some() => return self.answer = Some(answer),
            (false, None) => Ok(answer),
            (false, Some(kept)) => Ok(match (kept, answer.and_then(reset_done)) {
                // A query server may end because of an error that it has reported.
                (Err(kept), Err(error)) if kept.is_final() || !error.is_shifted() => Err(kept),
                (kept, Ok(())) => kept,
                (_, Err(error)) => Err(error),
            }),
        };
        drop(self.sender.take().map(|sender| sender.send(both)));
    }
}

/// The fault of a process that answers a `reset` with anything but `true`.
pub(crate) const RESET_FAILED: &str = "an answer to reset other than true";

/// Returns whether an answer is `true`.
pub(crate) fn is_true(answer: &[u8]) -> bool {
    answer.trim_ascii() == b"true"
}

/// Requires that an answer to `reset` is `true`.
///
/// # Errors
/// Another answer counts as a broken protocol.
pub(crate) fn reset_done(answer: Bytes) -> Result<(), PromptError> {
    if is_true(&answer) {
        return Ok(());
    }
    Err(PromptError::protocol(RESET_FAILED, &answer))
}

impl AnswerTo {
    /// Returns the line of the fence, if there is one.
    pub(crate) fn fence(&self) -> Option<&Bytes> {
        match self {
            Self::Framed(framed) => framed.fence.as_ref(),
            Self::One(_) | Self::Several(_) => None,
        }
    }

    /// Returns whether it begins with a `reset` that must be answered with `true`.
    pub(crate) const fn awaits_reset(&self) -> bool {
        matches!(self, Self::Framed(framed) if framed.reset.is_some())
    }

    /// Answers the oldest command. If the sender has given up, the answer is discarded.
    pub fn send(&mut self, answer: Result<Bytes, PromptError>) {
        match self {
            Self::One(sender) => drop(sender.take().map(|sender| sender.send(answer))),
            Self::Several(sender) => drop(sender.send(answer)),
            Self::Framed(framed) => framed.send(answer),
        }
    }
}

/// Receives the answers to several prompts. Holds at most the unanswered prompts, which are bounded.
pub(crate) type AnswerSender = mpsc::UnboundedSender<Result<Bytes, PromptError>>;

impl Prompt {
    /// Splits the commands.
    pub fn commands(&self) -> impl Iterator<Item = Bytes> + use<> {
        self.pieces()
            .into_iter()
            .flatten()
            .flat_map(|lines| commands(&lines))
    }

    /// Returns its lines as sent: the `reset` before them, the commands, and the fence.
    pub(crate) fn pieces(&self) -> [Option<Bytes>; 3] {
        let lines = Some(self.lines.clone());
        match &self.answer_to {
            AnswerTo::Framed(framed) => {
                // There may be only a `reset` and a fence.
                let lines = lines.filter(|lines| !lines.is_empty());
                [framed.reset.clone(), lines, framed.fence.clone()]
            }
            // An empty line is sent too: a couchjs ends when it reads one.
            AnswerTo::One(_) | AnswerTo::Several(_) => [None, lines, None],
        }
    }

    /// Answers all commands with an error.
    pub(crate) fn refuse(mut self, error: &PromptError) {
        let count = match &mut self.answer_to {
            AnswerTo::One(_) => 1,
            AnswerTo::Several(_) => self.commands().count(),
            AnswerTo::Framed(framed) => {
                // The command was not run: the error counts as that of a `reset` before it.
                framed.reset.get_or_insert_default();
                1
            }
        };
        (0..count).for_each(|_| self.answer_to.send(Err(error.clone())));
    }
}

/// Splits commands, without copying them. The last line feed is optional.
pub(crate) fn commands(lines: &Bytes) -> impl Iterator<Item = Bytes> + use<> {
    let mut rest = lines.clone();
    std::iter::from_fn(move || {
        let end = memchr::memchr(b'\n', &rest);
        let line = rest.split_to(end.unwrap_or(rest.len()));
        rest.advance(end.map_or(0, |_| 1));
        (end.is_some() || !line.is_empty()).then_some(line)
    })
}

/// Changes the timeout of prompts without their own (`set_timeout`).
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct SetTimeout {
    /// The loan under which the sender holds the process.
    pub token: Token,
    /// The new timeout.
    pub timeout: Duration,
}

/// Ends the process. Its pid guard reports when it is gone and its child reaped.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct StopProc {
    /// Whether the process gets time to exit: its input is closed, then it gets TERM, then it is killed. An impolite
    /// stop kills at once.
    pub polite: bool,
    /// The sender of the order, if not the service itself: shown to callers waiting for an answer.
    pub by: Option<Arc<str>>,
}

/// A running process: receivers of prompts and stops, and its pid.
#[derive(Clone, Debug)]
pub struct ProcessRef {
    /// Takes prompts.
    pub prompts: Recipient<Prompt>,
    /// Takes changes of the timeout.
    pub set_timeout: Recipient<SetTimeout>,
    /// Takes the order to end.
    pub stop: Recipient<StopProc>,
    /// Ends when the process is gone and its child reaped.
    pub pid: Pid,
    /// Its shared state.
    pub shared: Arc<ProcShared>,
}

impl ProcessRef {
    /// Refers to the actor of a process.
    pub fn new<P>(address: &Addr<P>, pid: Pid, shared: Arc<ProcShared>) -> Self
    where
        P: Handler<Prompt> + Handler<SetTimeout> + Handler<StopProc> + Actor<Context = Context<P>>,
    {
        Self {
            prompts: address.clone().recipient(),
            set_timeout: address.clone().recipient(),
            stop: address.clone().recipient(),
            pid,
            shared,
        }
    }

    /// Sends a command at once. `None` as timeout: that of the process.
    pub fn prompt(&self, token: Token, line: Bytes, timeout: Option<Duration>) -> Answer {
        self.ask(token, line, timeout, (false, None))
    }

    /// Like [`Self::prompt`], for a call.
    pub(crate) fn prompt_for(
        &self,
        loan: Option<Arc<Loan>>,
        token: Token,
        line: Bytes,
        timeout: Option<Duration>,
    ) -> Answer {
        self.ask(token, line, timeout, (false, loan))
    }

    /// Sends a command at once. Its answer is all output up to and including the answer, unchanged: log lines, error
    /// lines and the answer, each with its line feed; never [`PromptError::Function`].
    pub fn prompt_verbatim(&self, token: Token, line: Bytes, timeout: Option<Duration>) -> Answer {
        self.ask(token, line, timeout, (true, None))
    }

    /// Sends a command with a `reset` before it and one after it, at once and together: they wake the query server
    /// once. Each `reset` has the process's own timeout. Any of the three may be missing, but not all.
    pub(crate) async fn prompt_framed(
        &self,
        loan: Option<Arc<Loan>>,
        token: Token,
        (reset, line, fence): Frame<'_>,
        timeout: Option<Duration>,
    ) -> ResetAndAnswer {
        let (sender, receiver) = oneshot::channel();
        self.prompts.tell(Prompt {
            token,
            lines: line.cloned().unwrap_or_default(),
            timeout,
            verbatim: false,
            loan,
            answer_to: AnswerTo::Framed(Framed {
                sender: Some(sender),
                reset: reset.cloned(),
                fence: fence.cloned(),
                answer: line.is_none().then(|| Ok(Bytes::new())),
            }),
        });
        receiver.await.unwrap_or_else(|_| Err(self.shared.gone()))
    }

    fn ask(
        &self,
        token: Token,
        lines: Bytes,
        timeout: Option<Duration>,
        (verbatim, loan): (bool, Option<Arc<Loan>>),
    ) -> Answer {
        let (sender, receiver) = oneshot::channel();
        // A lost prompt drops the sender, which signals the process's end.
        self.prompts.tell(Prompt {
            token,
            lines,
            timeout,
            verbatim,
            loan,
            answer_to: AnswerTo::One(Some(sender)),
        });
        Answer {
            receiver,
            shared: Arc::clone(&self.shared),
        }
    }
}

/// The pending answer to one command.
#[derive(Debug)]
pub struct Answer {
    receiver: oneshot::Receiver<Result<Bytes, PromptError>>,
    shared: Arc<ProcShared>,
}

impl Future for Answer {
    type Output = Result<Bytes, PromptError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.receiver).poll(cx);
        answer.map(|answer| answer.unwrap_or_else(|_| Err(self.shared.gone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_cut_at_line_feeds() {
        let cut = |text: &'static str| -> Vec<Bytes> {
            commands(&Bytes::from_static(text.as_bytes())).collect()
        };
        assert_eq!(cut("[1]\n[2]\n"), ["[1]", "[2]"]);
        assert_eq!(cut("\n[2]\n"), ["", "[2]"]);
        assert_eq!(cut("[1]\n[2]"), ["[1]", "[2]"]);
        assert_eq!(cut(""), [""; 0]);
        let line = Bytes::from(vec![b'x'; 10]);
        let whole = commands(&line).next().unwrap();
        assert_eq!(whole.as_ptr(), line.as_ptr(), "it was copied");
    }
}
