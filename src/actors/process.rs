//! Process: the actor that represents one query server, a child process or a native one.
//!
//! SUMMARY   Sends prompts, matches answers to them first in, first out, enforces their deadlines, and notifies the
//!           manager when it is idle. A [`Backend`] runs the query server: a child
//!           ([`OsProcess`](super::os_process::OsProcess)) or this program
//!           ([`NativeProcess`](super::native_process::NativeProcess)).
//! PROMISES  Every prompt is answered once. A late, duplicated, unsolicited or malformed line is never an answer
//!           (PM-10): it ends the process. State left by the previous holder is reset before the first line of the
//!           next, or together with it, unless a call left the process reset; the previous holder's timeout, stderr
//!           and printed lines never affect the next. The actor ends with its process; its pid guard notifies every
//!           watcher, however the actor ends.
//! CALLED    Started by an opener; prompted under its token by its holder.
//! SOURCE    couch_os_process.
//! DIFFERS   Prompts are pipelined. A prompt's deadline counts from when it becomes the oldest; log lines and partial
//!           output do not extend it. A prompt to an ended process always fails with the same error. A process
//!           without a fault is stopped gracefully.
//! LIMITS    An extra line that arrives while prompts are unanswered counts as the next answer. Then one line is left
//!           over: if it is read as the answer to a fence, or together with the last answer, it turns that answer into
//!           an error; if it is read later, it ends the process.

mod unanswered;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::Instant;
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use slog::{Logger, debug, warn};

use self::unanswered::{Unanswered, UnansweredPrompt};
use crate::actors::language::StartContext;
use crate::messages::proc_manager::OsProcIdle;
use crate::messages::process::{
    AnswerTo, ExitReport, ProcShared, ProcessRef, Prompt, PromptError, SetTimeout, StopProc,
    is_true,
};
use crate::metrics::KillReason;
use crate::otp::{DeadlineTimer, Down, ExitReason, PidGuard, Tell, Watch};
use crate::query_server::call::call_log;
use crate::query_server::child_log::{ChildLog, remedy_of_refused};
use crate::query_server::isolates::evicted;
use crate::query_server::line::{Line, classify};
use crate::query_server::proc_shared::{First, MANAGER_TOKEN, ProcFlag};
use crate::query_server::prompt::{self, Command};
use crate::query_server::prompt_error::{TOO_MANY_ANSWERS, UNASKED};
use policy::pool::Token;

/// Maximum number of unanswered prompts.
pub(crate) const PROMPTS_IN_FLIGHT_MAX: usize = 1024;

/// The fault of a process that did not select an isolate.
const NOT_SELECTED: &str = "an answer to tenant that does not say which isolates have ended";

/// The fault of a process that logs without end before an answer that must be verbatim.
const TOO_MUCH_LOGGED: &str = "too much log output before an answer";

/// Minimum interval between checks whether a process is idle.
const IDLE_CHECK_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Runs a query server: sends lines and receives answers.
///
/// A backend passes every printed line to its process, and reports the end of the query server.
pub trait Backend: Sized + Unpin + 'static {
    /// Starts listening to the query server.
    fn started(_: &mut Process<Self>, _: &mut Context<Process<Self>>) {}

    /// Returns why it refuses a prompt, apart from the reasons common to all processes.
    fn refusal(&self, prompt: &Prompt, context: &StartContext) -> Option<PromptError>;

    /// Passes on printed lines that have not been read yet.
    fn catch_up(_: &mut Process<Self>, _: &mut Context<Process<Self>>) {}

    /// Sends commands; each piece has one, or several separated by line feeds. They are already among the unanswered.
    fn send(process: &mut Process<Self>, pieces: Vec<Bytes>, ctx: &mut Context<Process<Self>>);

    /// Drops the query server's last stderr lines, so that they are not reported to the next holder.
    fn forget_words(_: &mut Process<Self>) {}

    /// Collects the cell's refusals so far.
    fn take_refused(_: &mut Process<Self>) {}

    /// Returns a check of whether its cell has throttled it; `None` if it certainly has not.
    fn held_back(_: &Process<Self>) -> Option<LocalBoxFuture<'static, bool>> {
        None
    }

    /// Kills the query server. The reason is already recorded.
    fn kill(process: &mut Process<Self>, ctx: &mut Context<Process<Self>>);

    /// Ends the query server, which gets time to exit on its own if it needs any.
    fn stop_politely(process: &mut Process<Self>, ctx: &mut Context<Process<Self>>) {
        Self::kill(process, ctx);
    }
}

/// Why a line does not count as an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unasked {
    /// The query server began it before the prompt was sent.
    Stale,
    /// It follows the last answer.
    BehindLast,
}

/// One query server and its state.
pub struct Process<B: Backend> {
    /// Dropped before the pid guard: the query server is gone before any watcher is notified of the actor's end.
    pub(super) backend: B,
    pub(super) context: StartContext,
    pub(super) shared: Arc<ProcShared>,
    /// Takes the query server's log output.
    pub(super) child_log: Rc<ChildLog>,
    pub(super) unanswered: Unanswered,
    /// Checks the deadlines of prompts.
    timer: DeadlineTimer<Instant>,
    /// The timeout of prompts that do not set one, and the token of the holder who set it: the next gets the default.
    timeout_set: Option<(Token, Duration)>,
    /// The token of the latest prompt; the kept stderr lines are for its holder.
    prompted_by: Option<Token>,
    /// Whether a holder has prompted since our own last `reset`.
    is_used: bool,
    /// Whether it was killed: a kill is counted once.
    killed: bool,
    /// Watches the manager: the process ends with it.
    owner: Option<Watch>,
    pid_guard: PidGuard,
}

impl<B: Backend> Process<B> {
    /// Starts the actor of a query server just started.
    pub(super) fn start_as(
        backend: B,
        child_log: Rc<ChildLog>,
        os_pid: Option<u32>,
        context: StartContext,
    ) -> ProcessRef {
        let shared = ProcShared::new(os_pid);
        shared.note_activity(context.clock.now());
        if os_pid.is_none() {
            // Only a child is sent a first `reset`.
            shared.set(ProcFlag::Started, true);
        }
        let pid_guard = PidGuard::new();
        let pid = pid_guard.pid();
        let address = Self {
            backend,
            child_log,
            shared: Arc::clone(&shared),
            unanswered: Unanswered::new(Arc::clone(&shared), Arc::clone(&context.metrics.language)),
            timer: DeadlineTimer::default(),
            timeout_set: None,
            prompted_by: None,
            is_used: false,
            killed: false,
            owner: None,
            pid_guard,
            context,
        }
        .start();
        ProcessRef::new(&address, pid, shared)
    }

    /// Returns why prompts are refused without sending anything.
    fn refusal(&self, prompt: &Prompt, count: usize) -> Option<PromptError> {
        if let Some(exit_error) = self.shared.exit_error() {
            return Some(exit_error.clone());
        }
        if !self.shared.is_assigned_to(prompt.token) {
            return Some(PromptError::NotHolder);
        }
        if self.unanswered.count() + count > PROMPTS_IN_FLIGHT_MAX {
            let limit = PROMPTS_IN_FLIGHT_MAX;
            return Some(PromptError::TooMany { limit });
        }
        self.backend.refusal(prompt, &self.context)
    }

    /// Returns the lines to send before a prompt, already added to the unanswered: the selection of an isolate, and a
    /// `reset` if another holder left state. The holder's own `reset` replaces ours only if `true` is its sole valid
    /// answer: a query server may refuse any other `reset`, and keep its state.
    fn lines_before(&mut self, prompt: &Prompt, commands: &[Command]) -> Vec<Bytes> {
        let is_ours = prompt.token == MANAGER_TOKEN;
        let resets = matches!(commands.first(), Some(Command::Reset | Command::Forget));
        let was_used = self.is_used;
        self.is_used = !is_ours || (was_used && !resets);
        if !self.shared.is(ProcFlag::LeftByAnother) {
            return Vec::new();
        }
        let First { config, select } = self.shared.take_first();
        let is_selected = select.is_none();
        let is_reset = if is_ours {
            resets || (is_selected && self.shared.is_left_by_call())
        } else {
            prompt.answer_to.awaits_reset()
        };
        let mut lines = Vec::new();
        if let (Some(select), Some(isolates)) = (select, &self.context.isolates) {
            lines.push(isolates.line(&select));
            self.add_first(Command::Other, true);
            self.shared.set_left_reset(None);
        }
        if let Some(config) = config
            && (was_used || !is_selected)
            && !is_reset
        {
            self.is_used = !is_ours;
            lines.push(prompt::reset(&config));
            self.add_first(Command::Reset, false);
        }
        lines
    }

    /// Adds a command of our own to the unanswered: an isolate's selection, or a `reset`.
    fn add_first(&mut self, command: Command, selects: bool) {
        self.unanswered.add(UnansweredPrompt {
            timeout: self.context.prompt_timeout,
            tenant_key: None,
            reset_timeout: self.context.prompt_timeout,
            answer_to: AnswerTo::One(None),
            commands: vec![command].into_iter(),
            transcript: None,
            loan: None,
            unless_true: !selects,
            selects,
        });
    }

    /// Records the current holder; later output is attributed to it. Returns whether the previous holder was
    /// another: the next output may still be for that holder.
    fn note_holder(&mut self, token: Token) -> bool {
        let before = self.prompted_by.replace(token);
        if before.is_some_and(|before| before != token || token == MANAGER_TOKEN) {
            B::forget_words(self);
        }
        before.is_some_and(|before| ![token, MANAGER_TOKEN].contains(&before))
    }

    /// Whether output is for the current holder, not for an earlier one.
    fn speaks_to_its_holder(&self) -> bool {
        let is_its = |token| {
            let is_nobodys = token == MANAGER_TOKEN && !self.is_used;
            is_nobodys || self.shared.is_assigned_to(token)
        };
        self.prompted_by.is_none_or(is_its)
    }

    /// Returns the timeout of a prompt that does not set one.
    fn prompt_timeout(&self, token: Token) -> Duration {
        self.timeout_set
            .filter(|(by, _)| *by == token)
            .map_or(self.context.prompt_timeout, |(_, timeout)| timeout)
    }

    /// Returns the log, with the current call.
    pub(super) fn log(&self) -> Logger {
        call_log(self.unanswered.call(), &self.context.log)
    }

    /// Attributes the following stderr lines to the current call.
    pub(super) fn speak_for_call(&self) {
        self.child_log.speak_for(self.unanswered.call());
    }

    /// Counts and logs a system call that the cell refused, and adds it to the call's report.
    pub(super) fn refused(&self, call: &str) {
        let pool = &self.context.metrics.pool;
        pool.count().refused_calls.add(call, 1);
        self.speak_for_call();
        self.child_log.refused(call);
        if let Some(loan) = self.unanswered.loan() {
            let remedy = remedy_of_refused(call);
            loan.warn(format!("the cell refused the system call {call}: {remedy}"));
        }
    }

    /// Sets the timer to the oldest prompt's deadline, or earlier.
    pub(super) fn watch_deadline(&mut self, ctx: &mut Context<Self>) {
        if let Some(deadline) = self.unanswered.deadline() {
            let wait = deadline.saturating_duration_since(Instant::now());
            self.timer
                .look_by(deadline, wait, ctx, Self::check_deadline);
        }
    }

    fn check_deadline(&mut self, ctx: &mut Context<Self>) {
        self.timer.fired();
        if self.unanswered.overdue().is_some() {
            // If this program is slow, an answer that arrived in time may still be unread.
            B::catch_up(self, ctx);
        }
        let question = self.unanswered.overdue().and_then(|_| B::held_back(self));
        let Some(question) = question else {
            return self.time_out(false, ctx);
        };
        let told = question.into_actor(self);
        ctx.spawn(told.map(|held_back, process, ctx| process.time_out(held_back, ctx)));
    }

    /// Ends a query server if it is still overdue.
    fn time_out(&mut self, held_back: bool, ctx: &mut Context<Self>) {
        let Some((timeout, command, tenant_key)) = self.unanswered.overdue() else {
            return self.watch_deadline(ctx);
        };
        warn!(self.log(), "query server did not answer in time and is killed";
              "timeout_ms" => u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self.context.metrics.pool.prompt_timed_out();
        let error = PromptError::Timeout {
            timeout,
            command,
            held_back,
            tenant_key,
        };
        self.end_for(error, KillReason::Timeout, ctx);
    }

    /// Takes a printed line, for the oldest prompt.
    pub(super) fn take_line(&mut self, line: Bytes, now: Instant, ctx: &mut Context<Self>) {
        let read = classify(line.clone());
        if let Some(answer) = self.read_line(line, read, None, now, ctx) {
            self.unanswered.answer(answer, now);
        }
    }

    /// Takes a printed line and its parsed form; returns the answer for the oldest prompt. `None` if it is a
    /// log line, or if it ends the query server. Every `unasked` line that is not a log line ends it.
    pub(super) fn read_line(
        &mut self,
        line: Bytes,
        read: Line,
        unasked: Option<Unasked>,
        now: Instant,
        ctx: &mut Context<Self>,
    ) -> Option<Result<Bytes, PromptError>> {
        // An answer of any permitted length has room behind as many bytes of log lines.
        let most = 2 * self.context.line_bytes_max;
        if unasked != Some(Unasked::BehindLast) && !self.unanswered.note_printed(&line, most) {
            self.break_off(TOO_MUCH_LOGGED, &line, ctx);
            return None;
        }
        let wrong = match unasked {
            Some(Unasked::BehindLast) => Some(TOO_MANY_ANSWERS),
            _ if unasked.is_some() || self.unanswered.is_empty() => Some(UNASKED),
            _ => self.unanswered.unless_true().filter(|_| !is_true(&line)),
        };
        if self.unanswered.call().is_some_and(|call| call.reports) {
            // The cell's refusals precede the answer.
            B::take_refused(self);
        }
        match (read, wrong) {
            (Line::Log(entry), _) => {
                self.speak_for_call();
                self.child_log.said(&entry.text);
                if let Some(loan) = self.unanswered.loan() {
                    loan.said(entry);
                }
            }
            (Line::Malformed(what), _) | (_, Some(what)) => self.break_off(what, &line, ctx),
            (_, None) if self.unanswered.selects() => match evicted(&line) {
                Some(tenants) => {
                    self.shared.note_evicted(tenants);
                    return Some(Ok(line));
                }
                None => self.break_off(NOT_SELECTED, &line, ctx),
            },
            (Line::Answer(answer), None) => return Some(Ok(answer)),
            (Line::Error(error), None) => return Some(Err(error)),
            (Line::Fatal(error), None) => {
                self.unanswered.answer(Err(error.clone()), now);
                // The error belongs to that prompt; the others were not run.
                let because = Box::new(error);
                self.end_for(PromptError::NotRun { because }, KillReason::Fatal, ctx);
            }
        }
        None
    }

    /// Ends a query server that broke the protocol.
    pub(super) fn break_off(&mut self, what: &'static str, line: &[u8], ctx: &mut Context<Self>) {
        warn!(self.log(), "query server broke the protocol and is killed";
              "error" => what, "count" => self.unanswered.count());
        // A holder is not shown output for another holder.
        let is_its_holders = self.speaks_to_its_holder() && !self.unanswered.is_for_another();
        let line = if is_its_holders { line } else { b"" };
        self.end_for(PromptError::protocol(what, line), KillReason::Protocol, ctx);
    }

    /// Kills the query server for `reason`, which all waiters receive.
    fn end_for(&mut self, reason: PromptError, why: KillReason, ctx: &mut Context<Self>) {
        // Set first, so that a holder that learns of it and returns the process at once returns a broken one.
        self.shared.set_exit_error(match &reason {
            PromptError::Timeout { .. } => PromptError::NotRun {
                because: Box::new(reason.clone()),
            },
            _ => reason.clone(),
        });
        self.unanswered.fail(&reason);
        self.kill(why, ctx);
    }

    pub(super) fn kill(&mut self, why: KillReason, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.killed, true) {
            self.context.metrics.language.kills.one(why);
        }
        B::kill(self, ctx);
    }

    /// The query server has ended, on its own or not: fails the unanswered prompts.
    pub(super) fn exited(
        &mut self,
        mut exit_report: ExitReport,
        in_order: bool,
        ctx: &mut Context<Self>,
    ) {
        if !self.speaks_to_its_holder() {
            exit_report.stderr.clear();
        }
        let log = self.log();
        let exit = exit_report.exit.clone().unwrap_or_default();
        let wanted = self.shared.exit_error().is_some();
        if !wanted {
            self.context.metrics.language.exited(in_order);
        }
        if wanted || in_order {
            debug!(log, "query server ended"; "exit" => exit);
            self.pid_guard.ending(ExitReason::Normal);
        } else {
            warn!(log, "query server ended unasked"; "exit" => exit);
            self.pid_guard
                .ending(ExitReason::Failed(exit_report.to_string()));
        }
        let gone = PromptError::Exited(exit_report);
        self.unanswered.fail(&gone);
        self.shared.set_exit_error(gone);
        ctx.stop();
    }

    /// The query server ended during the oldest prompt: the others were not run.
    pub(super) fn died_over_prompt(&mut self, exit_report: ExitReport, ctx: &mut Context<Self>) {
        let error = PromptError::Exited(exit_report.clone());
        self.unanswered.answer(Err(error.clone()), Instant::now());
        let because = Box::new(error);
        self.unanswered.fail(&PromptError::NotRun { because });
        self.exited(exit_report, false, ctx);
    }

    /// Repeatedly notifies the manager once the process has been idle for `idle_limit`.
    fn watch_idleness(wait: Duration, ctx: &mut Context<Self>) {
        ctx.run_later(wait, |process, ctx| {
            let context = &process.context;
            let limit = context.idle_limit;
            let idle = process.shared.idle_time(context.clock.now());
            if idle < limit || !process.unanswered.is_empty() {
                let rest = limit.saturating_sub(idle).max(IDLE_CHECK_INTERVAL_MIN);
                return Self::watch_idleness(rest, ctx);
            }
            // May be lost if the manager is gone: then the process ends anyway.
            context.manager.tell(OsProcIdle { proc: context.proc });
            Self::watch_idleness(limit, ctx);
        });
    }
}

impl<B: Backend> Actor for Process<B> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // A holder's messages must not wait for room in the mailbox: later ones would overtake them.
        ctx.set_mailbox_capacity(PROMPTS_IN_FLIGHT_MAX);
        B::started(self, ctx);
        self.owner = Some(self.context.owner.watch(ctx.address().recipient()));
        Self::watch_idleness(self.context.idle_limit, ctx);
    }
}

/// Returns the commands of a message; `None` if one of them is invalid.
fn commands_of(prompt: &Prompt) -> Option<Vec<Command>> {
    match prompt.answer_to {
        AnswerTo::One(_) => {
            // A verbatim prompt may be any single line.
            let free = prompt.verbatim && memchr::memchr(b'\n', &prompt.lines).is_none();
            let known = Command::of(&prompt.lines).or(free.then_some(Command::Other));
            known.map(|known| vec![known])
        }
        AnswerTo::Several(_) => prompt
            .commands()
            .map(|line| Command::of_line(&line))
            .collect(),
        // The service made each piece as one line: a long one is neither copied nor searched here.
        AnswerTo::Framed(_) => prompt
            .pieces()
            .into_iter()
            .flatten()
            .map(|line| Command::of_line(&line))
            .collect(),
    }
}

impl<B: Backend> Handler<Prompt> for Process<B> {
    type Result = ();

    fn handle(&mut self, mut prompt: Prompt, ctx: &mut Self::Context) {
        if self.unanswered.is_empty() {
            // Output since the last answer belongs to no prompt.
            B::catch_up(self, ctx);
        }
        let commands = commands_of(&prompt);
        let count = commands.as_ref().map_or(0, Vec::len);
        let commands = match (self.refusal(&prompt, count), commands) {
            (None, Some(commands)) => commands,
            (refusal, _) => return prompt.refuse(&refusal.unwrap_or(PromptError::BadPrompt)),
        };
        if commands.is_empty() {
            return;
        }
        let changes_ddocs = |command: &Command| matches!(command, Command::Teach | Command::Forget);
        if prompt.token != MANAGER_TOKEN && commands.iter().any(changes_ddocs) {
            self.shared.set(ProcFlag::TaughtByClient, true);
        }
        if matches!(prompt.answer_to, AnswerTo::Several(_)) && prompt.lines.ends_with(b"\n") {
            prompt.lines.truncate(prompt.lines.len() - 1);
        }
        let is_after_another = self.note_holder(prompt.token);
        let before = self.lines_before(&prompt, &commands);
        let count = count + before.len();
        // Teaching by the manager does not undo a `reset`.
        let is_lesson = prompt.token == MANAGER_TOKEN && commands == [Command::Teach];
        if !is_lesson {
            self.shared.set_left_reset(None);
        }
        let own_timeout = self.prompt_timeout(prompt.token);
        let timeout = prompt.timeout.unwrap_or(own_timeout);
        let pieces: Vec<Bytes> = before
            .into_iter()
            .chain(prompt.pieces().into_iter().flatten())
            .collect();
        let bound = self
            .shared
            .prompt_bound()
            .filter(|bound| prompt.token != MANAGER_TOKEN && bound.timeout < timeout);
        self.unanswered.add(UnansweredPrompt {
            timeout: bound.as_ref().map_or(timeout, |bound| bound.timeout),
            tenant_key: bound.map(|bound| bound.key),
            reset_timeout: match prompt.answer_to {
                AnswerTo::Framed(_) => own_timeout,
                _ => timeout,
            },
            unless_true: is_after_another && prompt.answer_to.awaits_reset(),
            selects: false,
            answer_to: prompt.answer_to,
            commands: commands.into_iter(),
            transcript: prompt.verbatim.then(Vec::new),
            loan: prompt.loan,
        });
        self.shared.note_activity(self.context.clock.now());
        if self.shared.is(ProcFlag::Started) {
            let line_feeds = count - pieces.len();
            let bytes = pieces.iter().map(Bytes::len).sum::<usize>() - line_feeds;
            self.context.metrics.language.prompts_sent(count, bytes);
        }
        B::send(self, pieces, ctx);
        self.watch_deadline(ctx);
    }
}

impl<B: Backend> Handler<SetTimeout> for Process<B> {
    type Result = bool;

    /// Returns whether the sender holds the process.
    fn handle(&mut self, msg: SetTimeout, _: &mut Self::Context) -> bool {
        let holds = self.shared.is_assigned_to(msg.token);
        if holds {
            self.timeout_set = Some((msg.token, msg.timeout));
        }
        holds
    }
}

impl<B: Backend> Handler<StopProc> for Process<B> {
    type Result = ();

    fn handle(&mut self, StopProc { polite, by }: StopProc, ctx: &mut Self::Context) {
        let told = PromptError::Exited(ExitReport::stopped(by.as_deref()));
        if by.is_some() && !polite {
            // Waiters get the stop as the reason, not the signal.
            return self.end_for(told, KillReason::Stopped, ctx);
        }
        self.shared.set_exit_error(told);
        if polite {
            B::stop_politely(self, ctx);
        } else {
            self.kill(KillReason::Stopped, ctx);
        }
    }
}

/// The manager is gone, and its processes end with it.
impl<B: Backend> Handler<Down> for Process<B> {
    type Result = ();

    fn handle(&mut self, _: Down, ctx: &mut Self::Context) {
        let told = PromptError::Exited(ExitReport::stopped(None));
        self.shared.set_exit_error(told);
        self.kill(KillReason::Stopped, ctx);
    }
}
