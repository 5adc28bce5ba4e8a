//! Messages to a process: an [`OsProcess`](crate::actors::os_process::OsProcess), a
//! [`NativeProcess`](crate::actors::native_process::NativeProcess), or an actor of your own.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{self, Poll};
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler, Message, Recipient};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::otp::lifeline::Pulse;
use crate::query_server::line::{ErrorLine, LineBuffer};
use crate::query_server::prompt::Work;
use policy::pool::{Condition, Token};
use policy::time::Timestamp;

/// Sends one command to the process, or several at once: what a message costs counts where a command
/// takes a few microseconds. [`ProcessRef::prompt`] and its siblings make it.
///
/// Prompts may be pipelined: they are answered in the order in which they were sent.
#[derive(Debug)]
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
    /// Who is answered, and so whether it is one command.
    pub answer_to: AnswerTo,
}

impl Message for Prompt {
    type Result = ();
}

/// Who gets the answers to a prompt. When it is dropped early the process is gone: the rest have the
/// answer that [`ProcShared::gone`] tells.
#[derive(Debug)]
pub enum AnswerTo {
    /// The sender of one command.
    One(Option<oneshot::Sender<Result<Bytes, PromptError>>>),
    /// The sender of several, one answer a command and in their order, as they come.
    Several(AnswerSender),
}

impl AnswerTo {
    /// Answers the oldest command. A sender that gave up gets nothing; the answer was still its own.
    pub fn send(&mut self, answer: Result<Bytes, PromptError>) {
        match self {
            Self::One(sender) => drop(sender.take().map(|sender| sender.send(answer))),
            Self::Several(sender) => drop(sender.send(answer)),
        }
    }
}

/// Takes the answers to several prompts. Holds no more than the prompts that are unanswered, which
/// are bounded.
pub type AnswerSender = mpsc::UnboundedSender<Result<Bytes, PromptError>>;

impl Prompt {
    /// Takes the commands apart.
    pub fn commands(&self) -> impl Iterator<Item = Bytes> + use<> {
        commands(&self.lines)
    }

    /// Answers all commands with an error.
    pub(crate) fn refuse(mut self, error: &PromptError) {
        let count = match self.answer_to {
            AnswerTo::One(_) => 1,
            AnswerTo::Several(_) => self.commands().count(),
        };
        (0..count).for_each(|_| self.answer_to.send(Err(error.clone())));
    }
}

/// Takes commands apart. A missing last line feed is taken for there.
pub(crate) fn commands(lines: &Bytes) -> impl Iterator<Item = Bytes> + use<> {
    let mut buffer = LineBuffer::new(usize::MAX);
    buffer.add(lines.clone());
    std::iter::from_fn(move || match buffer.next_line() {
        Ok(Some(line)) => Some(line),
        _ => Some(buffer.take_rest()).filter(|rest| !rest.is_empty()),
    })
}

/// Changes the timeout that prompts without one of their own get (`set_timeout`).
#[derive(Debug)]
pub struct SetTimeout {
    /// The assignment under which the sender holds the process.
    pub token: Token,
    /// The new timeout.
    pub timeout: Duration,
}

impl Message for SetTimeout {
    type Result = bool;
}

/// Ends the process. Its lifeline tells when it is gone and its child reaped.
#[derive(Clone, Copy, Debug)]
pub struct StopProc {
    /// Whether the process is given time to end by itself: its input is closed, then it is told
    /// (TERM), then it is killed. An impolite stop kills at once.
    pub polite: bool,
}

impl Message for StopProc {
    type Result = ();
}

/// What everyone who deals with a process may know of it without asking its actor.
#[derive(Debug)]
pub struct ProcShared {
    /// The operating system's number of it, `None` for one inside this program.
    pub os_pid: Option<u32>,
    assignment: AtomicU64,
    in_flight: AtomicU32,
    list_open: AtomicBool,
    said_no: AtomicBool,
    taught_by_client: AtomicBool,
    touched: AtomicBool,
    closed_output: AtomicBool,
    started: AtomicBool,
    last_activity: AtomicU64,
    doom: OnceLock<PromptError>,
}

/// No token is ever zero.
const UNASSIGNED: u64 = 0;

/// The token under which the manager itself teaches and resets a process.
pub const MANAGER_TOKEN: Token = Token(u64::MAX);

impl ProcShared {
    /// Describes a fresh process.
    pub fn new(os_pid: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            os_pid,
            assignment: AtomicU64::new(UNASSIGNED),
            in_flight: AtomicU32::new(0),
            list_open: AtomicBool::new(false),
            said_no: AtomicBool::new(false),
            taught_by_client: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            closed_output: AtomicBool::new(false),
            started: AtomicBool::new(false),
            last_activity: AtomicU64::new(0),
            doom: OnceLock::new(),
        })
    }

    /// Lends the process under `token`: prompts with any other token are refused from now on.
    pub fn assign(&self, token: Token) {
        self.assignment.store(token.0, Ordering::Release);
        self.touched.store(false, Ordering::Relaxed);
    }

    /// Takes the process back: prompts are refused until it is lent again.
    pub fn unassign(&self, now: Timestamp) {
        self.note_activity(now);
        self.assignment.store(UNASSIGNED, Ordering::Release);
    }

    /// Returns whether `token` is the assignment in force.
    pub fn is_assigned_to(&self, token: Token) -> bool {
        token.0 != UNASSIGNED && self.assignment.load(Ordering::Acquire) == token.0
    }

    /// Returns whether it is lent, or taught or reset by the manager.
    pub fn is_assigned(&self) -> bool {
        self.assignment.load(Ordering::Acquire) != UNASSIGNED
    }

    /// Counts prompts that are sent. Called by the process's actor only.
    pub fn prompts_sent(&self, count: u32) {
        self.in_flight.fetch_add(count, Ordering::Relaxed);
        self.touched.store(true, Ordering::Relaxed);
    }

    /// Counts a prompt that is answered. Called by the process's actor only.
    pub fn prompt_answered(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Says that the process has answered its first `reset`. Called by its opener only.
    pub fn set_started(&self) {
        self.started.store(true, Ordering::Relaxed);
    }

    /// Returns whether it has: only prompts after that are counted in the metrics.
    pub fn has_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Says whether the process is in the middle of a list. Called by the process's actor only.
    pub fn set_list_open(&self, open: bool) {
        self.list_open.store(open, Ordering::Relaxed);
    }

    /// Says whether the latest answer was an error line. Called by the process's actor only.
    pub fn set_said_no(&self, said_no: bool) {
        self.said_no.store(said_no, Ordering::Relaxed);
    }

    /// Returns whether the latest answer was an error line: a query server may end over that after
    /// it has printed it.
    pub fn said_no(&self) -> bool {
        self.said_no.load(Ordering::Relaxed)
    }

    /// Says that the process will not answer any more, though it has not ended yet. Called by the
    /// process's actor only.
    pub fn set_closed_output(&self) {
        self.closed_output.store(true, Ordering::Relaxed);
    }

    /// Says that a client taught the process a design document by itself: what the process knows
    /// is not what the tables say, for good. Called by the process's actor only.
    pub fn set_taught_by_client(&self) {
        self.taught_by_client.store(true, Ordering::Relaxed);
    }

    /// Restarts the time that the process has been idle.
    pub fn note_activity(&self, now: Timestamp) {
        self.last_activity
            .store(now.as_nanoseconds(), Ordering::Relaxed);
    }

    /// Returns for how long nobody has prompted or returned the process.
    pub fn idle_time(&self, now: Timestamp) -> Duration {
        now.since(Timestamp::from_nanoseconds(
            self.last_activity.load(Ordering::Relaxed),
        ))
    }

    /// Returns how many prompts are sent and not answered.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Says that the process has ended or is being ended, and why; the first word counts. Called by
    /// the process's actor only.
    pub fn set_doom(&self, why: PromptError) {
        let _ = self.doom.set(why);
    }

    /// Returns why the process has ended or is being ended, if it is: what a prompt gets from then
    /// on, also when its actor is gone already.
    pub fn doom(&self) -> Option<&PromptError> {
        self.doom.get()
    }

    /// Returns what a prompt gets when nobody is there any more to take it.
    pub fn gone(&self) -> PromptError {
        let unknown = || PromptError::Exited(Obituary::default());
        self.doom().cloned().unwrap_or_else(unknown)
    }

    /// Judges the state in which the process comes back from a client that returned it.
    pub fn condition_on_return(&self) -> Condition {
        let halfway = self.in_flight() > 0 || self.list_open.load(Ordering::Relaxed);
        let taught = self.taught_by_client.load(Ordering::Relaxed);
        let closed = self.closed_output.load(Ordering::Relaxed);
        if halfway || taught || closed || self.doom().is_some() {
            Condition::Broken
        } else {
            Condition::Clean
        }
    }

    /// Judges the state in which the process comes back from a client that died, or that let go of
    /// it without a word: what that client left in it is reset before anybody else gets it.
    pub fn condition_on_loss(&self) -> Condition {
        match self.condition_on_return() {
            Condition::Clean if self.touched.load(Ordering::Relaxed) => Condition::NeedsReset,
            condition => condition,
        }
    }
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
    pub pulse: Pulse,
    /// What can be seen from outside.
    pub shared: Arc<ProcShared>,
}

impl ProcessRef {
    /// Refers to the actor of a process.
    pub fn new<P>(address: &Addr<P>, pulse: Pulse, shared: Arc<ProcShared>) -> Self
    where
        P: Handler<Prompt> + Handler<SetTimeout> + Handler<StopProc> + Actor<Context = Context<P>>,
    {
        Self {
            prompts: address.clone().recipient(),
            set_timeout: address.clone().recipient(),
            stop: address.clone().recipient(),
            pulse,
            shared,
        }
    }

    /// Sends a command, at once. `None` as timeout is the process's own.
    pub fn prompt(&self, token: Token, line: Bytes, timeout: Option<Duration>) -> Answer {
        self.ask(token, line, timeout, false)
    }

    /// Sends a command, at once. Its answer is everything that the process prints up to it: log lines,
    /// error lines, unchanged, each with its line feed; never [`PromptError::Function`].
    pub fn prompt_verbatim(&self, token: Token, line: Bytes, timeout: Option<Duration>) -> Answer {
        self.ask(token, line, timeout, true)
    }

    fn ask(&self, token: Token, lines: Bytes, timeout: Option<Duration>, verbatim: bool) -> Answer {
        let (sender, receiver) = oneshot::channel();
        // One that is lost drops the sender, which is how the process's end is told.
        self.prompts.do_send(Prompt {
            token,
            lines,
            timeout,
            verbatim,
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

/// Whose doing an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The caller's, or that of the function that it sent.
    Client,
    /// The function's: it takes longer than it may, or does not end.
    Function,
    /// The query server's.
    QueryServer,
    /// The machine's: memory, processes, files, permissions.
    Host,
    /// Our own.
    Settee,
}

impl Fault {
    /// Returns the name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Function => "function",
            Self::QueryServer => "query_server",
            Self::Host => "host",
            Self::Settee => "settee",
        }
    }
}

/// What is said of a process that we ended: the end of a sentence.
pub(crate) const TOLD_TO_STOP: &str = "was told to stop";

/// How a child ended and what it said last, for errors that have to explain it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obituary {
    /// The exit in words: `exited with status 1`, `killed by SIGKILL`.
    pub exit: Option<String>,
    /// The exit status as a shell shows it: 0 to 255, or 128 and the signal.
    pub status: Option<i32>,
    /// The last lines that the child wrote to its standard error, oldest first.
    pub stderr: Vec<String>,
}

impl fmt::Display for Obituary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(exit) = &self.exit {
            write!(f, "the query server {exit}")?;
        } else {
            f.write_str("the query server ended")?;
        }
        if !self.stderr.is_empty() {
            write!(f, "; its last words: {}", self.stderr.join(" | "))?;
        }
        Ok(())
    }
}

/// Why a prompt has no answer.
///
/// # Source
/// couch_os_process, prompt/2. The reference shows one event (a process that is gone) in four
/// ways, depending on who looks when; here they are one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// The query server said no, by an error line. It lives and can be used on.
    #[error("{name}: {reason}")]
    Function {
        /// The error's name, for example `not_found` or `compilation_error`.
        name: String,
        /// Why: a string's text, or JSON text.
        reason: String,
        /// The reason as JSON text.
        raw_reason: String,
        /// Whether the query server ends over it.
        fatal: bool,
    },
    /// No answer came in time. The process was killed. Where functions are run for the prompt, the
    /// function is to blame; otherwise the query server is, and another one may do better.
    #[error("{}", timeout_text(*timeout, *work))]
    Timeout {
        /// The time it had.
        timeout: Duration,
        /// What it was to do.
        work: Work,
    },
    /// The prompt was sent behind another one, over which the process ended. Worth a retry.
    #[error("the prompt was not run, because an earlier one ended the process: {because}")]
    NotRun {
        /// What became of the earlier one.
        because: Box<PromptError>,
    },
    /// The process ended before it answered. Worth a retry with another one.
    #[error("{0}")]
    Exited(Obituary),
    /// The process did not keep to the protocol and was killed. Worth a retry with another one,
    /// though a query server that does it once tends to do it again.
    #[error("the query server broke the protocol with {what} and was killed")]
    Protocol {
        /// What it printed, in words.
        what: &'static str,
        /// The beginning of the line.
        excerpt: String,
    },
    /// The prompt is none: not an array, or more than one line. The caller's fault.
    #[error("a prompt must be one JSON array on one line")]
    BadPrompt,
    /// More prompts are unanswered, or more bytes unsent, than a process may have. Wait for answers.
    #[error("too many prompts are waiting for this process, at most {limit}")]
    TooMany {
        /// The bound.
        limit: usize,
    },
    /// The caller does not hold the process, or no longer.
    #[error("the process is not held under this token")]
    NotHolder,
}

fn timeout_text(timeout: Duration, work: Work) -> String {
    let limit = timeout.as_millis();
    if work.runs_functions() {
        format!(
            "the function did not answer within {limit} ms and its process was killed: it is slow, \
             or never ends ({}; the limit is timeout_ms or [couchdb] os_process_timeout)",
            work.phase()
        )
    } else {
        format!("the query server did not answer within {limit} ms and was killed")
    }
}

/// How much of an unexpected answer an error quotes, in characters.
const QUOTED_CHARACTERS: usize = 200;

pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(QUOTED_CHARACTERS).collect()
}

/// How much of a bad line an error quotes, in bytes.
const EXCERPT_BYTES: usize = 200;

impl PromptError {
    /// Makes the error of an error line.
    pub(crate) fn function(line: ErrorLine, fatal: bool) -> Self {
        let ErrorLine {
            name,
            reason,
            raw_reason,
        } = line;
        Self::Function {
            name,
            reason,
            raw_reason,
            fatal,
        }
    }

    /// Makes the error of a line that broke the protocol.
    pub(crate) fn protocol(what: &'static str, line: &[u8]) -> Self {
        let quoted = &line[..line.len().min(EXCERPT_BYTES)];
        Self::Protocol {
            what,
            excerpt: String::from_utf8_lossy(quoted).into_owned(),
        }
    }

    /// Returns how the process ended, if that is what happened.
    pub const fn obituary(&self) -> Option<&Obituary> {
        match self {
            Self::Exited(obituary) => Some(obituary),
            _ => None,
        }
    }

    /// Returns whether a process that ended over it did so of its own accord: it ended, or broke
    /// the protocol, without having been told to stop.
    pub fn is_own_end(&self) -> bool {
        match self {
            Self::Exited(obituary) => obituary.exit.as_deref() != Some(TOLD_TO_STOP),
            Self::Protocol { .. } | Self::Function { fatal: true, .. } => true,
            Self::NotRun { because } => because.is_own_end(),
            _ => false,
        }
    }

    /// Returns whose fault it is.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Timeout { work, .. } if work.runs_functions() => Fault::Function,
            Self::NotRun { because } => because.fault(),
            Self::Function { .. } | Self::BadPrompt | Self::TooMany { .. } | Self::NotHolder => {
                Fault::Client
            }
            Self::Timeout { .. } | Self::Exited(_) | Self::Protocol { .. } => Fault::QueryServer,
        }
    }

    /// Returns whether the same call may succeed with another process.
    pub const fn retryable(&self) -> bool {
        match self {
            Self::Timeout { work, .. } => !work.runs_functions(),
            Self::Exited(_)
            | Self::Protocol { .. }
            | Self::TooMany { .. }
            | Self::NotRun { .. } => true,
            Self::Function { .. } | Self::BadPrompt | Self::NotHolder => false,
        }
    }

    /// Returns whether the process cannot be used any more.
    pub const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. }
                | Self::Exited(_)
                | Self::Protocol { .. }
                | Self::NotRun { .. }
                | Self::Function { fatal: true, .. }
        )
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
