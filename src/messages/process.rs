//! Messages to a process: an [`OsProcess`](crate::actors::os_process::OsProcess), a
//! [`NativeProcess`](crate::actors::native_process::NativeProcess), or an actor of your own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler, Message, Recipient};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::otp::pid::Pid;
use crate::otp::tell::Tell;
use crate::query_server::call::Loan;
pub use crate::query_server::proc_shared::ProcShared;
pub use crate::query_server::prompt_error::{ExitReport, Fault, PromptError};
use child::line_buffer::LineBuffer;
use policy::pool::Token;

/// Sends one command to the process, or several at once, because a message costs as much as a quick
/// command. [`ProcessRef::prompt`] and its siblings make it.
///
/// Prompts may be pipelined: they are answered in the order in which they were sent.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Prompt {
    /// The assignment under which the sender holds the process.
    pub token: Token,
    /// One command without a line feed, or several with a line feed after each. A command is one JSON
    /// array in UTF-8.
    pub lines: Bytes,
    /// How long the process may work on each, counted from when it is the oldest one unanswered;
    /// `None` is the timeout set for the process.
    pub timeout: Option<Duration>,
    /// Whether to answer with everything the process printed, log lines and error lines
    /// included, exactly as it came.
    pub verbatim: bool,
    /// The call that it is for.
    pub loan: Option<Arc<Loan>>,
    /// Who is answered, and so whether it is one command.
    pub answer_to: AnswerTo,
}

/// Who gets the answers to a prompt. If it is dropped before all are sent, the process is gone, and
/// [`ProcShared::gone`] is the answer to the rest.
#[derive(Debug)]
pub enum AnswerTo {
    /// The sender of one command.
    One(Option<oneshot::Sender<Result<Bytes, PromptError>>>),
    /// The sender of several, one answer a command and in their order, as they come.
    Several(AnswerSender),
    /// The sender of one command with a `reset` before it, behind it, or both.
    Framed(Framed),
}

/// Who waits for the answer to a command, and is notified when a `reset` behind it is answered too.
///
/// That `reset` is the fence: a query server works on one command after the other, so that a line too many comes
/// before the fence's `true`, in its place.
#[derive(Debug)]
pub struct Framed {
    /// `None` when it was notified.
    sender: Option<oneshot::Sender<ResetAndAnswer>>,
    /// The line of the `reset` before the command, until it is answered.
    reset: Option<Bytes>,
    /// The line of the fence, if there is one.
    fence: Option<Bytes>,
    /// The answer to the command, which is kept until the fence is answered.
    answer: Option<Result<Bytes, PromptError>>,
}

/// The lines of a `reset`, of a command, and of the `reset` behind it.
pub(crate) type Frame<'a> = (Option<&'a Bytes>, Option<&'a Bytes>, Option<&'a Bytes>);

/// The answer to the command; an error if the `reset` before it failed.
pub(crate) type ResetAndAnswer = Result<Result<Bytes, PromptError>, PromptError>;

impl Framed {
    fn send(&mut self, answer: Result<Bytes, PromptError>) {
        let both = match (self.reset.is_some(), self.answer.take()) {
            (true, kept) => match (answer.and_then(reset_done), kept) {
                // Nothing comes after it.
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
                // A query server may end over an error that it has told.
                (Err(kept), Err(error)) if kept.is_final() || !error.is_shifted() => Err(kept),
                (kept, Ok(())) => kept,
                (_, Err(error)) => Err(error),
            }),
        };
        drop(self.sender.take().map(|sender| sender.send(both)));
    }
}

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
    let what = "an answer to reset other than true";
    Err(PromptError::protocol(what, &answer))
}

impl AnswerTo {
    /// Returns the line of the fence, if there is one.
    pub(crate) fn fence(&self) -> Option<&Bytes> {
        match self {
            Self::Framed(framed) => framed.fence.as_ref(),
            Self::One(_) | Self::Several(_) => None,
        }
    }

    /// Returns whether it begins with a `reset` that has to be answered with `true`.
    pub(crate) const fn awaits_reset(&self) -> bool {
        matches!(self, Self::Framed(framed) if framed.reset.is_some())
    }

    /// Answers the oldest command. A sender that gave up gets nothing; the answer was still its own.
    pub fn send(&mut self, answer: Result<Bytes, PromptError>) {
        match self {
            Self::One(sender) => drop(sender.take().map(|sender| sender.send(answer))),
            Self::Several(sender) => drop(sender.send(answer)),
            Self::Framed(framed) => framed.send(answer),
        }
    }
}

/// Takes the answers to several prompts. Holds no more than the prompts that are unanswered, which
/// are bounded.
pub(crate) type AnswerSender = mpsc::UnboundedSender<Result<Bytes, PromptError>>;

impl Prompt {
    /// Takes the commands apart.
    pub fn commands(&self) -> impl Iterator<Item = Bytes> + use<> {
        self.pieces()
            .into_iter()
            .flatten()
            .flat_map(|lines| commands(&lines))
    }

    /// Returns its lines as they are sent: the `reset` before them, themselves, and the fence.
    pub(crate) fn pieces(&self) -> [Option<Bytes>; 3] {
        let lines = Some(self.lines.clone());
        match &self.answer_to {
            AnswerTo::Framed(framed) => {
                // It may be a `reset` and a fence alone.
                let lines = lines.filter(|lines| !lines.is_empty());
                [framed.reset.clone(), lines, framed.fence.clone()]
            }
            // An empty line is one too: a couchjs ends at it.
            AnswerTo::One(_) | AnswerTo::Several(_) => [None, lines, None],
        }
    }

    /// Answers all commands with an error.
    pub(crate) fn refuse(mut self, error: &PromptError) {
        let count = match &mut self.answer_to {
            AnswerTo::One(_) => 1,
            AnswerTo::Several(_) => self.commands().count(),
            AnswerTo::Framed(framed) => {
                // Whatever ended the process, it was not the command.
                framed.reset.get_or_insert_default();
                1
            }
        };
        (0..count).for_each(|_| self.answer_to.send(Err(error.clone())));
    }
}

/// Takes commands apart. The last line feed may be missing.
pub(crate) fn commands(lines: &Bytes) -> impl Iterator<Item = Bytes> + use<> {
    let mut buffer = LineBuffer::new(usize::MAX);
    buffer.add(lines.clone());
    std::iter::from_fn(move || match buffer.next_line() {
        Ok(Some(line)) => Some(line),
        _ => Some(buffer.take_rest()).filter(|rest| !rest.is_empty()),
    })
}

/// Changes the timeout that prompts without one of their own get (`set_timeout`).
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct SetTimeout {
    /// The assignment under which the sender holds the process.
    pub token: Token,
    /// The new timeout.
    pub timeout: Duration,
}

/// Ends the process. Its pid guard tells when it is gone and its child reaped.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct StopProc {
    /// Whether the process is given time to end by itself: its input is closed, then it is told
    /// (TERM), then it is killed. An impolite stop kills at once.
    pub polite: bool,
    /// Who ordered it, if it was not the service itself: those who wait for an answer learn it.
    pub by: Option<Arc<str>>,
}

/// A running process: whom to prompt, whom to stop, whom to watch.
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
    /// What can be seen from outside.
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

    /// Sends a command, at once. `None` as timeout is the process's own.
    pub fn prompt(&self, token: Token, line: Bytes, timeout: Option<Duration>) -> Answer {
        self.ask(token, line, timeout, (false, None))
    }

    /// As [`Self::prompt`], for a call.
    pub(crate) fn prompt_for(
        &self,
        loan: Option<Arc<Loan>>,
        token: Token,
        line: Bytes,
        timeout: Option<Duration>,
    ) -> Answer {
        self.ask(token, line, timeout, (false, loan))
    }

    /// Sends a command, at once. Its answer is everything that the process prints up to it: log lines,
    /// error lines, unchanged, each with its line feed; never [`PromptError::Function`].
    pub fn prompt_verbatim(&self, token: Token, line: Bytes, timeout: Option<Duration>) -> Answer {
        self.ask(token, line, timeout, (true, None))
    }

    /// Sends a command with a `reset` before it and one behind it, at once and together: they wake the query server
    /// once. Each `reset` has the process's own time. Any of the three may be missing, but not all.
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
        // One that is lost drops the sender, which is how the process's end shows.
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

/// The answer to one command, which is on its way.
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
    }
}
