//! Relay: an attached client's conversation over its pipes, with changing processes.
//!
//! SUMMARY   Reads the client's lines, has each answered by a process of the pool, and writes all the process's
//!           output up to its answer. Between two lines the process may be returned; another one with the same
//!           lessons then answers the next line.
//! PROMISES  Lines are answered in order, each once: by the process, or by one error line of the protocol. A process
//!           is returned only when it has answered all lines sent to it and another one can be brought to the same
//!           state ([`Taught::is_portable`]). When the service ends, unanswered lines return to the client with its
//!           lessons ([`Resume`]). When the relay is dropped, its process is returned like that of a dead client.
//! CALLED    By the client whose connection passed the pipes, as a task that ends with its actor.
//! SOURCE    couch_os_process, from the other end of its pipes.
//! LIMITS    Reads ahead at most [`LINES_UNANSWERED_MAX`] lines, or [`LINE_BYTES_MAX`] bytes of lines.

mod loan;
mod next;
mod pipes;
mod resume;

use std::collections::VecDeque;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use actix_rt::time::{Instant, Sleep};
use bytes::Bytes;
use tokio::sync::mpsc;

use self::loan::{Asked, LentProcess, WatchedPool, ask};
use self::next::Event;
use self::pipes::{InputPipe, OutputPipe};
pub(super) use self::resume::Resume;
use super::holding::NO_COMMAND;
use super::lent::last_line;
use super::session::Session;
use super::tunnel_end::{TunnelEnd, give_back};
use crate::messages::client_error::ErrorReply;
use crate::messages::proc_manager::{CallError, GetProcError, Lease, Want};
use crate::messages::process::{Answer, PromptError};
use crate::otp::{Clock, Down};
use crate::query_server::line::is_log;
use crate::query_server::prompt::Command;
use crate::query_server::taught::{Taught, timeout_of};
use policy::attach::turn_is_over;
use policy::pool::{Phase, ReturnStatus};
use policy::time::Timestamp;

/// Number of unanswered lines at which reading pauses.
const LINES_UNANSWERED_MAX: usize = 256;

/// Total size of unanswered lines, in bytes, at which reading pauses. A single line may have any size.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Total size of unread answers, in bytes, at which reading pauses.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// How long the client may take to read its last answers when the service ends the relay.
const LAST_WORDS_WAIT: Duration = Duration::from_secs(2);

/// The exit statuses of a process killed by a signal: 128 plus the signal's number, as in a shell. A fatal answer of the
/// built-in JavaScript ends it with 255.
const SIGNALLED: RangeInclusive<i32> = 129..=192;

/// A client's terms.
#[derive(Clone, Debug)]
pub(super) struct RelayTerms {
    /// The processes that may serve it.
    pub want: Want,
    /// How long an idle process is kept.
    pub idle_max: Duration,
    /// How long the client waits for an answer, unless its `reset` says otherwise.
    pub patience: Duration,
}

/// Messages from an actor to its relay.
pub(super) enum Signal {
    /// One of its processes has ended.
    ProcessDown,
    /// The service is shutting down.
    Stop,
}

/// An unanswered line of the client.
struct Unanswered {
    line: Bytes,
    command: Option<Command>,
    came: Instant,
    /// `None` until it is sent to a process.
    answer: Option<Answer>,
}

/// The process at the other end.
enum Loan {
    None,
    Asked(Asked),
    Held(LentProcess),
}

/// The conversation of one client.
pub(super) struct Relay {
    session: Rc<Session>,
    signals: mpsc::UnboundedReceiver<Signal>,
    stopping: bool,
    down: Recipient<Down>,
    terms: RelayTerms,
    input: InputPipe,
    /// Whether reading has ended.
    ended: bool,
    /// Whether it ended because a line was too long.
    too_long: bool,
    output: OutputPipe,
    taught: Taught,
    unanswered: VecDeque<Unanswered>,
    unanswered_bytes: usize,
    /// The number of unanswered lines that were sent to a process.
    sent: usize,
    loan: Loan,
    /// When the request for a process times out.
    asked_until: Instant,
    pool: Option<WatchedPool>,
    /// Whether a process was ever lent: before that, a mistake in the configuration ends the client.
    served: bool,
    quiet_since: Timestamp,
    timer: Pin<Box<Sleep>>,
    clock: Clock,
}

impl Relay {
    /// Takes over a client's pipes, possibly from another service.
    ///
    /// # Errors
    /// They are not pipes, the event loop cannot watch them, or the client's lessons are too large.
    pub fn new(
        session: Rc<Session>,
        (input, output): (OwnedFd, OwnedFd),
        resume: Option<Resume>,
        mut terms: RelayTerms,
        signals: mpsc::UnboundedReceiver<Signal>,
        down: Recipient<Down>,
    ) -> io::Result<Self> {
        let line_bytes_max = session.line_bytes_max();
        let clock = Clock::new();
        let mut taught = Taught::new(line_bytes_max);
        let mut input = InputPipe::new(input, line_bytes_max, Arc::clone(&session.terms.metrics))?;
        if let Some(resume) = resume {
            let unread = resume.restore(&mut taught);
            input.begin_with(unread.ok_or_else(|| {
                io::Error::other("the client's earlier lessons cannot be repeated")
            })?);
            terms.patience = taught.patience().unwrap_or(terms.patience);
        }
        Ok(Self {
            input,
            output: OutputPipe::new(output, Arc::clone(&session.terms.metrics))?,
            taught,
            session,
            signals,
            stopping: false,
            down,
            terms,
            ended: false,
            too_long: false,
            unanswered: VecDeque::new(),
            unanswered_bytes: 0,
            sent: 0,
            loan: Loan::None,
            asked_until: Instant::now(),
            pool: None,
            served: false,
            quiet_since: clock.now(),
            timer: Box::pin(actix_rt::time::sleep(Duration::ZERO)),
            clock,
        })
    }

    /// Serves the client until its input ends, it stops reading, its process ends by itself, or the service stops.
    pub async fn run(mut self) -> TunnelEnd {
        // Prepares a process while the client is still starting.
        self.ask();
        loop {
            let event = std::future::poll_fn(|cx| self.poll_event(cx)).await;
            let end = match event {
                Event::Line(line) => self.take_line(line),
                Event::Answer(answer) => self.answered(answer),
                Event::Lent(lease) => self.lent(lease),
                Event::GiveBack => {
                    self.give_back();
                    None
                }
                Event::ProcessDown => self.process_down(),
                Event::Done if self.too_long => Some(self.too_long()),
                Event::Done | Event::ReaderGone => return self.finish().await,
                Event::Stop => return self.stop().await,
            };
            if let Some(end) = end {
                // If this times out, the client still learns how it ended.
                self.flush().await;
                return end;
            }
        }
    }

    /// Returns the time until which the oldest line can wait for a process: an error must reach the client before the
    /// client gives up.
    fn patient_until(&self) -> Instant {
        let since = self
            .unanswered
            .front()
            .map_or_else(Instant::now, |head| head.came);
        since + self.terms.patience / 10 * 9
    }

    fn ask(&mut self) {
        self.asked_until = self.patient_until();
        let time = self.asked_until.saturating_duration_since(Instant::now());
        let (taught, pool) = (self.taught.clone(), self.pool.clone());
        self.loan = Loan::Asked(ask(&self.session, &self.terms.want, time, taught, pool));
    }

    fn take_line(&mut self, line: Bytes) -> Option<TunnelEnd> {
        let command = Command::of(&line);
        if command == Some(Command::Reset)
            && let Some(patience) = timeout_of(&line)
        {
            self.terms.patience = patience;
        }
        self.unanswered_bytes += line.len();
        self.unanswered.push_back(Unanswered {
            line,
            command,
            came: Instant::now(),
            answer: None,
        });
        match self.loan {
            Loan::None => self.ask(),
            // The process was requested before this line set the client's timeout.
            Loan::Asked(_) if self.asked_until > self.patient_until() => self.ask(),
            Loan::Asked(_) => {}
            // The line waits until other clients have had their turn.
            Loan::Held(_) if self.sent > 0 && self.turn_is_over() => {}
            Loan::Held(_) => self.send(),
        }
        None
    }

    /// Returns whether others wait for the process and this client's turn is over.
    fn turn_is_over(&self) -> bool {
        let Loan::Held(held) = &self.loan else {
            return false;
        };
        let others_wait = || self.pool.as_ref().is_some_and(WatchedPool::others_wait);
        turn_is_over(held.since, self.clock.now(), others_wait)
    }

    /// Returns the process between two lines.
    fn give_back(&mut self) {
        if let Loan::Held(held) = std::mem::replace(&mut self.loan, Loan::None) {
            // Ends with the deadline of a reset.
            actix_rt::spawn(give_back(held.lease));
        }
        if !self.unanswered.is_empty() {
            self.ask();
        }
    }

    /// Sends the process all pending lines.
    fn send(&mut self) {
        let Loan::Held(held) = &self.loan else { return };
        for unanswered in self.unanswered.iter_mut().skip(self.sent) {
            let Lease { process, token, .. } = &held.lease;
            let line = unanswered.line.clone();
            let answer = process.prompt_verbatim(*token, line, Some(Duration::MAX));
            unanswered.answer = Some(answer);
        }
        self.sent = self.unanswered.len();
    }

    fn lent(&mut self, lease: Result<Lease, CallError>) -> Option<TunnelEnd> {
        self.loan = Loan::None;
        match lease {
            Ok(lease) => {
                self.served = true;
                self.quiet_since = self.clock.now();
                self.loan =
                    Loan::Held(LentProcess::new(lease, self.quiet_since, self.down.clone()));
                self.send();
                None
            }
            // While the service is not stopping, this means that the manager is restarting.
            Err(CallError::GetProc(GetProcError::ShuttingDown))
                if self.session.services.is_stopping() =>
            {
                // No process has received a line.
                self.stopping = true;
                None
            }
            Err(CallError::GetProc(GetProcError::Timeout { .. }))
                if self.patient_until() > Instant::now() =>
            {
                // The process was requested before the line arrived.
                if !self.unanswered.is_empty() {
                    self.ask();
                }
                None
            }
            Err(CallError::GetProc(error)) if !self.served && !error.retryable() => {
                Some(TunnelEnd::refused(error))
            }
            Err(error) => {
                self.refuse_head(&self.explain(error));
                None
            }
        }
    }

    /// Describes why there is no process, and which limit was reached.
    fn explain(&self, error: CallError) -> ErrorReply {
        let (
            CallError::GetProc(
                timeout @ GetProcError::Timeout {
                    phase: Phase::Queue,
                    waited,
                    raise,
                    retry_in: None,
                },
            ),
            Some(pool),
        ) = (&error, &self.pool)
        else {
            return error.into();
        };
        let reason = format!(
            "no process of the pool '{}' was free within {} ms: all {} that it may have are in \
             use; raise {raise}",
            pool.name,
            waited.as_millis(),
            pool.limit()
        );
        let class = timeout.class();
        ErrorReply::answer(class.name, &reason, class.fault)
    }

    /// Answers the oldest line with an error, and continues with the next one.
    fn refuse_head(&mut self, error: &ErrorReply) {
        let Some(head) = self.unanswered.pop_front() else {
            return;
        };
        self.unanswered_bytes -= head.line.len();
        self.output.push(&last_line(error));
        if let Some(next) = self.unanswered.front_mut() {
            // A line's time begins when it becomes the oldest, as for a query server.
            next.came = Instant::now();
            self.ask();
        }
    }

    /// Releases the process; the next one gets its unanswered lines.
    fn part_with_process(&mut self) {
        self.sent = 0;
        self.unanswered
            .iter_mut()
            .for_each(|line| line.answer = None);
        if let Loan::Held(held) = std::mem::replace(&mut self.loan, Loan::None) {
            // Ends with the manager's answer.
            actix_rt::spawn(held.lease.ret_proc(ReturnStatus::Fail));
        }
    }

    fn answered(&mut self, answer: Result<Bytes, PromptError>) -> Option<TunnelEnd> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(PromptError::BadPrompt) => Bytes::from_static(NO_COMMAND),
            Err(_) if self.process_is_gone() => return self.process_down(),
            Err(error) => Bytes::from(last_line(&error.into())),
        };
        self.output.push(&answer);
        // Log lines may precede the answer.
        let text = answer.strip_suffix(b"\n").unwrap_or(&answer);
        let start = memchr::memrchr(b'\n', text).map_or(0, |at| at + 1);
        let last = &text[start..];
        if is_log(last) {
            // The process ends before its answer.
            self.unanswered.front_mut()?.answer = None;
            return self.process_down();
        }
        let head = self.unanswered.pop_front()?;
        self.sent -= 1;
        self.unanswered_bytes -= head.line.len();
        self.taught.answered(head.command, &head.line, last);
        self.quiet_since = self.clock.now();
        let Some(next) = self.unanswered.front_mut() else {
            return self.process_down();
        };
        // A process that has ended may have answered the next line as well.
        next.came = Instant::now();
        if self.sent == 0 && self.taught.is_portable() && self.turn_is_over() {
            self.give_back();
        } else if self.sent == 0 {
            self.send();
        }
        None
    }

    fn process_is_gone(&self) -> bool {
        matches!(&self.loan, Loan::Held(held) if held.is_gone())
    }

    /// Handles the end of the process. If it ended by itself, so does the client; if the service or the system ended
    /// it, another one continues from the client's state.
    fn process_down(&mut self) -> Option<TunnelEnd> {
        let Loan::Held(held) = &self.loan else {
            return None;
        };
        if !self.process_is_gone() {
            // An earlier, returned process.
            return None;
        }
        let gone = held.lease.process.shared.gone();
        let was_killed = gone
            .exit_report()
            .and_then(|o| o.status)
            .is_some_and(|status| SIGNALLED.contains(&status));
        let unasked = self.unanswered.is_empty() && was_killed;
        if !self.taught.is_portable() || (gone.is_own_end() && !unasked) {
            return Some(TunnelEnd::over(&gone));
        }
        self.part_with_process();
        // Work in progress is lost; its state is unknown.
        self.refuse_head(&gone.into());
        None
    }

    /// Returns the process after the last answer, and reports whether it was alive.
    async fn finish(mut self) -> TunnelEnd {
        match std::mem::replace(&mut self.loan, Loan::None) {
            Loan::Held(held) => give_back(held.lease).await,
            _ => TunnelEnd::alive(),
        }
    }

    /// Ends with the service, and returns the state for its successor, unless it is in the middle of an answer.
    async fn stop(mut self) -> TunnelEnd {
        let is_flushed = self.flush().await;
        let resume = is_flushed.then(|| self.resume()).flatten();
        TunnelEnd::ended("was ended: the service is shutting down")
            .with_resume(resume, self.terms.patience)
    }

    /// Reports that the last line read is too long.
    fn too_long(&mut self) -> TunnelEnd {
        let error = ErrorReply::line_too_long(self.session.line_bytes_max());
        self.output.push(&last_line(&error));
        TunnelEnd::ended("was ended because of a line that is too long")
    }

    /// Writes the pending answers; returns whether the client has read them in time.
    async fn flush(&mut self) -> bool {
        let flushed = std::future::poll_fn(|cx| self.output.poll_flush(cx));
        let flushed = actix_rt::time::timeout(LAST_WORDS_WAIT, flushed).await;
        matches!(flushed, Ok(Ok(())))
    }
}
