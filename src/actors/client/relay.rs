//! Relay: the conversation of an attached client, over pipes of its own, with processes that change.
//!
//! SUMMARY   Reads the client's lines, has a process of the pool answer each, and writes everything
//!           that the process prints up to its answer. Between two lines the process may go back; the
//!           next line is then answered by another one that was taught the same.
//! PROMISES  Lines are answered in order, each once: by the process, or by one error line of the
//!           protocol. A process goes back only when nothing is unanswered and another one can be
//!           brought to the same state ([`Taught::is_portable`]). When the relay is dropped, its
//!           process comes back as that of a client that died.
//! CALLED    By the client whose connection brought the pipes, as a task of its actor.
//! SOURCE    couch_os_process, seen from the other end of its pipes.
//! LIMITS    At most [`LINES_UNANSWERED_MAX`] lines, or [`LINE_BYTES_MAX`] of them, are read ahead.

mod ends;
mod loan;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use actix::Recipient;
use actix::dev::RecipientRequest;
use actix_rt::time::{Instant, Sleep};
use bytes::Bytes;

use self::ends::{Input, Lines, Output};
use self::loan::{Asked, Held, WatchedPool, ask};
use super::farewell::TunnelEnd;
use super::holding::NO_COMMAND;
use super::lent::last_line;
use super::session::Session;
use crate::actors::caller::{CallError, RESET_TRIES};
use crate::actors::clock::Clock;
use crate::actors::lifeline::Down;
use crate::messages::client_error::ErrorReply;
use crate::messages::proc_manager::{GetProcError, Lease, Want};
use crate::messages::process::{Prompt, PromptError};
use crate::policy::attach::{QuietLoan, give_back_at};
use crate::policy::pool::Phase;
use crate::policy::time::Timestamp;
use crate::query_server::taught::{Lesson, Taught, lesson_of, timeout_of};

/// Lines without an answer beyond which no more are read.
const LINES_UNANSWERED_MAX: usize = 256;

/// The same as a size, in bytes. One line of any size is always taken.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Answers that the client has not taken beyond which nothing more is read, in bytes.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// How long the client may take to read its last answers when it is not the one who ends.
const LAST_WORDS_WAIT: Duration = Duration::from_secs(2);

/// The exit status of a process that a signal ended is this and the signal, as a shell shows it.
const SIGNALLED: i32 = 128;

/// What a relay is told of its client.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// Which processes serve it.
    pub(super) want: Want,
    /// How long a process is kept that has no line to answer.
    pub(super) idle_max: Duration,
    /// How long the client waits for an answer, until its `reset` tells.
    pub(super) patience: Duration,
}

/// What happens to a relay from outside.
#[derive(Default)]
pub(super) struct Signals {
    relay: RefCell<Option<Waker>>,
    process_down: Cell<bool>,
    stop: Cell<bool>,
}

impl Signals {
    /// The process ended.
    pub(super) fn process_down(&self) {
        self.process_down.set(true);
        self.wake();
    }

    /// The service ends.
    pub(super) fn stop(&self) {
        self.stop.set(true);
        self.wake();
    }

    fn wake(&self) {
        if let Some(relay) = self.relay.take() {
            relay.wake();
        }
    }

    fn wake_later(&self, waker: &Waker) {
        let mut relay = self.relay.borrow_mut();
        if !relay.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *relay = Some(waker.clone());
        }
    }
}

/// A line of the client's without an answer.
struct Unanswered {
    line: Bytes,
    lesson: Lesson,
    came: Instant,
    /// None until a process has it.
    answer: Option<Pin<Box<RecipientRequest<Prompt>>>>,
}

/// The process at the other end.
enum Loan {
    None,
    Asked(Asked),
    Held(Held),
}

/// What a relay has to see to next.
enum Event {
    Line(Bytes),
    LineTooLong,
    Answer(Result<Bytes, PromptError>),
    Lent(Result<Lease, GetProcError>),
    /// The process learnt something, or did not.
    Lesson(Result<(), PromptError>),
    GiveBack,
    ProcessDown,
    ReaderGone,
    Stop,
    /// The input has ended, and everything is answered.
    Done,
}

/// The conversation of one client.
pub(super) struct Relay {
    session: Rc<Session>,
    signals: Rc<Signals>,
    down: Recipient<Down>,
    terms: Terms,
    input: Lines,
    ended: bool,
    output: Output,
    taught: Taught,
    unanswered: VecDeque<Unanswered>,
    unanswered_bytes: usize,
    /// How many of them a process has.
    sent: usize,
    loan: Loan,
    /// Until when the request for a process lasts.
    asked_until: Instant,
    pool: Option<WatchedPool>,
    /// Whether a process was ever lent: until then a mistake of the configuration ends the client.
    served: bool,
    /// How many more processes are tried for a line, one that did not learn after the other.
    tries_left: u32,
    quiet_since: Timestamp,
    timer: Pin<Box<Sleep>>,
    clock: Clock,
}

impl Relay {
    /// Takes the pipes of a client.
    ///
    /// # Errors
    /// They are none, or the event loop has no room for them.
    pub(super) fn new(
        session: Rc<Session>,
        (input, output): (OwnedFd, OwnedFd),
        terms: Terms,
        signals: Rc<Signals>,
        down: Recipient<Down>,
    ) -> io::Result<Self> {
        let line_bytes_max = session.line_bytes_max();
        let clock = Clock::new();
        Ok(Self {
            input: Lines::new(input, line_bytes_max, Arc::clone(session.metrics()))?,
            output: Output::new(output, Arc::clone(session.metrics()))?,
            taught: Taught::new(line_bytes_max),
            session,
            signals,
            down,
            terms,
            ended: false,
            unanswered: VecDeque::new(),
            unanswered_bytes: 0,
            sent: 0,
            loan: Loan::None,
            asked_until: Instant::now(),
            pool: None,
            served: false,
            tries_left: RESET_TRIES,
            quiet_since: clock.now(),
            timer: Box::pin(actix_rt::time::sleep(Duration::ZERO)),
            clock,
        })
    }

    /// Serves the client until its input ends, it reads no more, or its process ends by itself.
    pub(super) async fn run(mut self) -> TunnelEnd {
        // A process is made ready while the client is still busy with its own start.
        self.ask();
        loop {
            let event = std::future::poll_fn(|cx| self.poll_event(cx)).await;
            let end = match event {
                Event::Line(line) => self.take_line(line),
                Event::LineTooLong => {
                    let limit = self.session.line_bytes_max();
                    self.output
                        .push(&last_line(&ErrorReply::line_too_long(limit)));
                    Some(TunnelEnd::ended("was ended over a line that is too long"))
                }
                Event::Answer(answer) => self.answered(answer),
                Event::Lent(lease) => self.lent(lease),
                Event::Lesson(learnt) => learnt.err().and_then(|error| self.not_learnt(error)),
                Event::GiveBack => {
                    if let Loan::Held(held) = std::mem::replace(&mut self.loan, Loan::None) {
                        // Ends with the deadline of a reset.
                        actix_rt::spawn(held.give_back());
                    }
                    None
                }
                Event::ProcessDown => self.process_down(),
                Event::ReaderGone => return self.finish().await,
                Event::Done => return self.finish().await,
                Event::Stop => Some(TunnelEnd::ended("was ended: the service is shutting down")),
            };
            if let Some(end) = end {
                return self.end_with(end).await;
            }
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        self.signals.wake_later(cx.waker());
        if let Poll::Ready(event) = self.poll_loan(cx) {
            return Poll::Ready(event);
        }
        match self.output.poll_flush(cx) {
            Poll::Ready(Err(_)) => return Poll::Ready(Event::ReaderGone),
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        // After the last answers of a process: they were given before its end.
        if self.signals.process_down.take() {
            return Poll::Ready(Event::ProcessDown);
        }
        if self.signals.stop.get() && self.unanswered.is_empty() {
            return Poll::Ready(Event::Stop);
        }
        if self.has_room()
            && let Poll::Ready(input) = self.input.poll(cx)
        {
            match input {
                Input::Line(line) => return Poll::Ready(Event::Line(line)),
                Input::TooLong => return Poll::Ready(Event::LineTooLong),
                Input::End => self.ended = true,
            }
        }
        self.poll_quiet(cx)
    }

    fn has_room(&self) -> bool {
        !self.ended
            && !self.signals.stop.get()
            && self.unanswered.len() < LINES_UNANSWERED_MAX
            && self.unanswered_bytes < LINE_BYTES_MAX
            && self.output.unsent_bytes() < UNSENT_BYTES_MAX
    }

    fn poll_loan(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        match &mut self.loan {
            Loan::None => Poll::Pending,
            Loan::Asked(asked) => asked.as_mut().poll(cx).map(|(lease, pool)| {
                self.pool = pool;
                Event::Lent(lease)
            }),
            Loan::Held(held) if !held.is_taught() => held.poll_lesson(cx).map(Event::Lesson),
            Loan::Held(held) => {
                let head = self.unanswered.front_mut();
                let Some(answer) = head.and_then(|head| head.answer.as_mut()) else {
                    return Poll::Pending;
                };
                let shared = &held.lease.process.shared;
                let answer = answer.as_mut().poll(cx);
                answer.map(|answer| Event::Answer(answer.unwrap_or_else(|_| Err(shared.gone()))))
            }
        }
    }

    /// Sees to what is due while no line waits for an answer.
    fn poll_quiet(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if !self.unanswered.is_empty() {
            return Poll::Pending;
        }
        let held = match &mut self.loan {
            _ if self.ended && self.output.unsent_bytes() > 0 => return Poll::Pending,
            Loan::Asked(_) => return Poll::Pending,
            Loan::Held(held) if !held.is_taught() => return Poll::Pending,
            _ if self.ended => return Poll::Ready(Event::Done),
            Loan::Held(held) if self.taught.is_portable() => held,
            Loan::None | Loan::Held(_) => return Poll::Pending,
        };
        let loan = QuietLoan {
            lent: held.since,
            quiet_since: self.quiet_since,
            idle_max: self.terms.idle_max,
        };
        loop {
            let others_wait = self.pool.as_ref().is_some_and(WatchedPool::others_wait);
            let (due, now) = (give_back_at(&loan, others_wait), self.clock.now());
            if due <= now {
                return Poll::Ready(Event::GiveBack);
            }
            let due = Instant::now() + due.since(now);
            // An earlier time is left alone: it is looked again then, so that lines set no timers.
            if self.timer.is_elapsed() || self.timer.deadline() > due {
                self.timer.as_mut().reset(due);
            }
            let fired = self.timer.as_mut().poll(cx).is_ready();
            let told = match &self.pool {
                Some(pool) if !others_wait => held.poll_waiters(pool, cx).is_ready(),
                _ => false,
            };
            if !fired && !told {
                return Poll::Pending;
            }
        }
    }

    /// Returns until when the oldest line can wait for a process: the error has to reach the client
    /// before it gives up.
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
        self.loan = Loan::Asked(ask(
            &self.session,
            &self.terms.want,
            time,
            self.pool.clone(),
        ));
    }

    fn take_line(&mut self, line: Bytes) -> Option<TunnelEnd> {
        let lesson = lesson_of(&line);
        if lesson == Lesson::Reset
            && let Some(patience) = timeout_of(&line)
        {
            self.terms.patience = patience;
        }
        self.unanswered_bytes += line.len();
        self.unanswered.push_back(Unanswered {
            line,
            lesson,
            came: Instant::now(),
            answer: None,
        });
        match self.loan {
            Loan::None => self.ask(),
            // It was asked for before this line told how long the client waits.
            Loan::Asked(_) if self.asked_until > self.patient_until() => self.ask(),
            Loan::Asked(_) => {}
            Loan::Held(_) => self.send(),
        }
        None
    }

    /// Sends the process every line that it has not got.
    fn send(&mut self) {
        let Loan::Held(held) = &self.loan else { return };
        for unanswered in self.unanswered.iter_mut().skip(self.sent) {
            let prompt = Prompt {
                token: held.lease.token,
                line: unanswered.line.clone(),
                timeout: Some(Duration::MAX),
                verbatim: true,
            };
            unanswered.answer = Some(Box::pin(held.lease.process.prompt.send(prompt)));
        }
        self.sent = self.unanswered.len();
    }

    fn lent(&mut self, lease: Result<Lease, GetProcError>) -> Option<TunnelEnd> {
        self.loan = Loan::None;
        match lease {
            Ok(lease) => {
                self.served = true;
                let now = self.clock.now();
                let held = Held::teach(lease, &self.taught, now, self.down.clone());
                self.loan = Loan::Held(held);
                self.quiet_since = now;
                self.send();
                None
            }
            Err(GetProcError::ShuttingDown) => {
                Some(TunnelEnd::ended("was ended: the service is shutting down"))
            }
            Err(GetProcError::Timeout { .. }) if self.patient_until() > Instant::now() => {
                // It was asked for before the line came.
                if !self.unanswered.is_empty() {
                    self.ask();
                }
                None
            }
            Err(error) if !self.served && !error.retryable() => Some(TunnelEnd::refused(error)),
            Err(error) => {
                self.refuse_head(&self.explain(error));
                None
            }
        }
    }

    /// Says why there is no process, and which limit is in the way.
    fn explain(&self, error: GetProcError) -> ErrorReply {
        let (
            GetProcError::Timeout {
                phase: Phase::Queue,
                waited,
            },
            Some(pool),
        ) = (&error, &self.pool)
        else {
            return error.into();
        };
        let limit = pool
            .limit()
            .map_or_else(String::new, |limit| format!("all {limit} "));
        let reason = format!(
            "no process of the pool '{}' was free within {} ms: {limit}that it may have are in use; \
             raise its limit (os_process_limit, or max of a pool of one's own)",
            pool.name,
            waited.as_millis()
        );
        ErrorReply::answer(error.name(), &reason, error.fault())
    }

    /// Answers the oldest line with an error, and sees to the next one.
    fn refuse_head(&mut self, error: &ErrorReply) {
        let Some(head) = self.unanswered.pop_front() else {
            return;
        };
        self.unanswered_bytes -= head.line.len();
        self.output.push(&last_line(error));
        self.tries_left = RESET_TRIES;
        if let Some(next) = self.unanswered.front_mut() {
            // Its time begins when it is the oldest, as a query server's does.
            next.came = Instant::now();
            self.ask();
        }
    }

    /// A process did not learn what others did: it goes, and another one is tried.
    fn not_learnt(&mut self, error: PromptError) -> Option<TunnelEnd> {
        self.part_with_process();
        self.tries_left -= 1;
        if self.tries_left > 0 {
            if !self.unanswered.is_empty() {
                self.ask();
            }
            return None;
        }
        self.refuse_head(&CallError::Reset(error).into());
        None
    }

    /// Lets go of the process; lines that it has not answered are for the next one.
    fn part_with_process(&mut self) {
        self.sent = 0;
        self.unanswered
            .iter_mut()
            .for_each(|line| line.answer = None);
        if let Loan::Held(held) = std::mem::replace(&mut self.loan, Loan::None) {
            // Ends with the manager's answer.
            actix_rt::spawn(held.lease.ret_proc(crate::policy::pool::ReturnStatus::Fail));
        }
    }

    fn answered(&mut self, answer: Result<Bytes, PromptError>) -> Option<TunnelEnd> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(PromptError::BadPrompt) => Bytes::from_static(NO_COMMAND),
            Err(_) => return self.process_down(),
        };
        let head = self.unanswered.pop_front()?;
        self.sent -= 1;
        self.unanswered_bytes -= head.line.len();
        self.output.push(&answer);
        self.tries_left = RESET_TRIES;
        if head.lesson != Lesson::None {
            // Log lines may stand before the answer.
            let text = answer.strip_suffix(b"\n").unwrap_or(&answer);
            let start = memchr::memrchr(b'\n', text).map_or(0, |at| at + 1);
            self.taught
                .answered(head.lesson, &head.line, &text[start..]);
        }
        self.quiet_since = self.clock.now();
        if let Some(next) = self.unanswered.front_mut() {
            next.came = Instant::now();
        }
        self.process_is_gone()
            .then(|| self.process_down())
            .flatten()
    }

    fn process_is_gone(&self) -> bool {
        match &self.loan {
            Loan::Held(held) => held.lease.process.shared.doom().is_some(),
            Loan::None | Loan::Asked(_) => false,
        }
    }

    /// The process has ended. Where it did so by itself, the client ends as its process did; where the
    /// service or the system ended it, another one goes on from where the client is.
    fn process_down(&mut self) -> Option<TunnelEnd> {
        let Loan::Held(held) = &self.loan else {
            return None;
        };
        if !self.process_is_gone() {
            // The end of one that went back before.
            return None;
        }
        let gone = held.lease.process.shared.gone();
        if !held.is_taught() {
            return self.not_learnt(gone);
        }
        let was_killed = gone
            .obituary()
            .and_then(|o| o.status)
            .is_some_and(|s| s > SIGNALLED);
        let unasked = self.unanswered.is_empty() && was_killed;
        if !self.taught.is_portable() || (gone.is_own_end() && !unasked) {
            return Some(TunnelEnd::of(&held.lease.process.shared));
        }
        self.part_with_process();
        // What was in hand is lost; nobody can tell how far it came.
        self.refuse_head(&gone.into());
        None
    }

    /// Gives the process back after the last answer, and tells whether it lived.
    async fn finish(mut self) -> TunnelEnd {
        match std::mem::replace(&mut self.loan, Loan::None) {
            Loan::Held(held) => held.give_back().await,
            Loan::None | Loan::Asked(_) => TunnelEnd::alive(),
        }
    }

    /// Ends with last words, which are written as far as the client takes them.
    async fn end_with(mut self, end: TunnelEnd) -> TunnelEnd {
        let flushed = std::future::poll_fn(|cx| self.output.poll_flush(cx));
        // In time or not: the client is told how it ended.
        let _ = actix_rt::time::timeout(LAST_WORDS_WAIT, flushed).await;
        end
    }
}
