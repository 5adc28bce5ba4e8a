//! OsProcess: one child, its prompts and their answers.
//!
//! SUMMARY   Sends prompts, matches answers to them first in, first out, and ends the child.
//! PROMISES  Every prompt is answered once. A late, duplicated, unsolicited or malformed line is
//!           never an answer (PM-10): it ends the child. The actor ends when its child is reaped;
//!           its lifeline tells everybody, whatever happened.
//! CALLED    Started by an opener; prompted by the holder of the process under its token.
//! SOURCE    couch_os_process.
//! DIFFERS   Prompts are pipelined. The deadline of a prompt counts from when it is the oldest one
//!           and is not extended by log lines or output in pieces. The ways in which a prompt can
//!           meet a process that is gone are one error. Children are ended politely where they did
//!           nothing wrong.
//! LIMITS    An extra line that arrives after the next prompt was sent cannot be told from its
//!           answer; the line that is then left over ends the child.

mod end;
mod output;
mod stopped;
mod unanswered;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::Instant;
use bytes::Bytes;
use slog::{Logger, info, o, warn};

use self::unanswered::{Pending, Unanswered};
use crate::actors::answerer::{Answerer, commands};
use crate::actors::language::StartContext;
use crate::actors::process_duties::{ProcessDuties, set_timeout, watch_idleness};
use crate::logging::RepeatLimiter;
use crate::messages::process::{
    MANAGER_TOKEN, ProcShared, ProcessRef, Prompt, PromptError, Prompts, SetTimeout,
};
use crate::metrics::KillReason;
use crate::otp::deferred::{Deferred, deferred};
use crate::otp::lifeline::{Lifeline, Watch};
use crate::query_server::child::Child;
use crate::query_server::child_log::ChildLog;
use crate::query_server::line::LineBuffer;
use crate::query_server::pipe::{PipeReader, PipeWriter};
use crate::query_server::prompt::{PromptClass, PromptKind, kind_and_class_of};
use crate::query_server::stderr::StderrLog;
use policy::pool::Token;

/// How many prompts may be unanswered at a time.
pub const PROMPTS_IN_FLIGHT_MAX: usize = 1024;

/// One child and what is going on with it.
pub struct OsProcess {
    context: StartContext,
    log: Logger,
    /// Before the lifeline: the child is killed before anybody hears of the actor's end.
    child: Rc<Child>,
    stdin: Option<PipeWriter>,
    stdout: Rc<PipeReader>,
    stderr: Rc<PipeReader>,
    lines: LineBuffer,
    /// Whether the line in the buffer began before any prompt that is unanswered now was sent.
    line_is_stale: bool,
    child_log: Rc<ChildLog>,
    stderr_log: StderrLog,
    shared: Arc<ProcShared>,
    unanswered: Unanswered,
    /// The deadline timer that is set: when it fires, and how to cancel it.
    timer: Option<(Instant, SpawnHandle)>,
    prompt_timeout: Duration,
    stopping: bool,
    /// Whether the child was killed: counted once, whatever follows.
    killed: bool,
    /// Warnings of a child that was stopped by a signal.
    stopped: RepeatLimiter,
    /// The watch on the manager, with which it ends.
    owner: Option<Watch>,
    lifeline: Lifeline,
}

impl OsProcess {
    /// Starts the actor for a child that was just started.
    ///
    /// # Errors
    /// The event loop has no room for its pipes; the child is killed.
    pub fn start_with(mut child: Child, context: StartContext) -> io::Result<ProcessRef> {
        let missing = || io::Error::other("a pipe is missing");
        let stdin = PipeWriter::new(child.stdin.take().ok_or_else(missing)?)?;
        let stdout = PipeReader::new(child.stdout.take().ok_or_else(missing)?)?;
        let stderr = PipeReader::new(child.stderr.take().ok_or_else(missing)?)?;
        let log = context.log.new(o!("os_pid" => child.pid()));
        let child_log = ChildLog::new(log.clone(), context.clock, context.log_terms.clone());
        let shared = ProcShared::new(Some(child.pid()));
        shared.note_activity(context.clock.now());
        let lifeline = Lifeline::new();
        let pulse = lifeline.pulse();
        let address = Self {
            stderr_log: StderrLog::new(Some(Rc::clone(&child_log))),
            child_log,
            log,
            child: Rc::new(child),
            stdin: Some(stdin),
            stdout,
            stderr,
            lines: LineBuffer::new(context.line_bytes_max),
            line_is_stale: false,
            shared: Arc::clone(&shared),
            unanswered: Unanswered::new(Arc::clone(&shared), Arc::clone(&context.metrics.language)),
            timer: None,
            prompt_timeout: context.prompt_timeout,
            stopping: false,
            killed: false,
            stopped: RepeatLimiter::default(),
            owner: None,
            lifeline,
            context,
        }
        .start();
        Ok(ProcessRef {
            prompt: address.clone().recipient(),
            prompts: address.clone().recipient(),
            set_timeout: address.clone().recipient(),
            stop: address.recipient(),
            pulse,
            shared,
        })
    }

    /// Reasons to refuse prompts before anything is sent.
    fn refusal(&self, token: Token, count: usize) -> Option<PromptError> {
        if !self.shared.is_assigned_to(token) {
            return Some(PromptError::NotHolder);
        }
        if let Some(doom) = self.shared.doom() {
            return Some(doom.clone());
        }
        let unsent = self.stdin.as_ref().map_or(0, PipeWriter::unsent_bytes);
        let too_many = self.unanswered.count() + count > PROMPTS_IN_FLIGHT_MAX;
        // One line of any size is always taken; more than that waits for the child.
        (too_many || unsent > self.context.line_bytes_max).then_some(PromptError::TooMany {
            limit: PROMPTS_IN_FLIGHT_MAX,
        })
    }

    /// Has a look at the child before it is prompted.
    fn before_prompt(&mut self) {
        if self.unanswered.is_empty() {
            // What the child printed since its last answer belongs to nobody.
            self.take_what_is_there();
            self.line_is_stale = self.lines.has_partial();
        }
    }

    /// Takes prompts on; what is sent for them goes to the child after this.
    fn take_on(&mut self, prompts: Pending, token: Token) {
        if prompts.kind == PromptKind::Teach && token != MANAGER_TOKEN {
            self.shared.set_taught_by_client();
        }
        self.unanswered.add(prompts);
    }

    /// Sends the lines of so many prompts.
    fn send(&mut self, line: &[u8], count: usize, ctx: &mut Context<Self>) {
        self.shared.note_activity(self.context.clock.now());
        if self.shared.has_started() {
            let bytes = line.len() - (count - 1);
            self.context.metrics.language.prompts_sent(count, bytes);
        }
        let Some(stdin) = &self.stdin else { return };
        if count == 1 && self.unanswered.count() > 1 {
            // The child is busy: leave the line for the end of the turn, with others.
            stdin.queue_line(line);
        } else {
            stdin.write_line(line);
        }
        self.watch_deadline(ctx);
    }

    /// Makes sure that a timer fires no later than the oldest prompt's deadline. An earlier one is
    /// left alone: it will look again, so that a stream of quick prompts sets no timers.
    fn watch_deadline(&mut self, ctx: &mut Context<Self>) {
        let Some(deadline) = self.unanswered.deadline() else {
            return;
        };
        if let Some((fires, handle)) = self.timer {
            if fires <= deadline {
                return;
            }
            ctx.cancel_future(handle);
        }
        let wait = deadline.saturating_duration_since(Instant::now());
        let handle = ctx.run_later(wait, |process, ctx| {
            process.timer = None;
            process.check_deadline(ctx);
        });
        self.timer = Some((deadline, handle));
    }

    fn check_deadline(&mut self, ctx: &mut Context<Self>) {
        if self.unanswered.overdue().is_some() {
            // An answer that came in time may not have been read yet, where we are slow ourselves.
            self.take_what_is_there();
        }
        let Some((timeout, work)) = self.unanswered.overdue() else {
            return self.watch_deadline(ctx);
        };
        warn!(self.log, "query server did not answer in time and is killed";
              "timeout_ms" => u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self.context.metrics.pool.prompt_timed_out();
        self.end_for(PromptError::Timeout { timeout, work }, KillReason::Timeout);
    }
}

impl Actor for OsProcess {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // A holder's prompts must not have to wait for room in the mailbox: those that wait are
        // overtaken by later ones.
        ctx.set_mailbox_capacity(PROMPTS_IN_FLIGHT_MAX);
        self.listen(ctx);
        let child = Rc::clone(&self.child);
        let exit = async move { child.reap().await }.into_actor(self);
        ctx.spawn(exit.map(|exit, process, ctx| process.child_exited(exit, ctx)));
        self.owner = Some(self.context.owner.watch(ctx.address().recipient()));
        watch_idleness(self, ctx);
        stopped::watch(ctx);
        info!(self.log, "query server started");
    }
}

impl Handler<Prompt> for OsProcess {
    type Result = Deferred<Result<Bytes, PromptError>>;

    fn handle(&mut self, prompt: Prompt, ctx: &mut Self::Context) -> Self::Result {
        let (answer, replier) = deferred();
        self.before_prompt();
        // Whoever wants to hear exactly what the process prints may also say to it what he likes.
        let free = prompt.verbatim && memchr::memchr(b'\n', &prompt.line).is_none();
        let other = (PromptKind::Plain, PromptClass::Other);
        let known = kind_and_class_of(&prompt.line).or(free.then_some(other));
        let (kind, class) = match (self.refusal(prompt.token, 1), known) {
            (None, Some(known)) => known,
            (refusal, _) => {
                drop(replier.send(Err(refusal.unwrap_or(PromptError::BadPrompt))));
                return answer;
            }
        };
        let pending = Pending {
            answerer: Answerer::One(replier),
            count: 1,
            kind,
            class,
            timeout: prompt.timeout.unwrap_or(self.prompt_timeout),
            transcript: prompt.verbatim.then(Vec::new),
        };
        self.take_on(pending, prompt.token);
        self.send(&prompt.line, 1, ctx);
        answer
    }
}

impl Handler<Prompts> for OsProcess {
    type Result = ();

    fn handle(&mut self, prompts: Prompts, ctx: &mut Self::Context) {
        self.before_prompt();
        let Some(lines) = prompts.lines.strip_suffix(b"\n") else {
            return refuse(&prompts, &PromptError::BadPrompt);
        };
        let known: Option<Vec<_>> = commands(&prompts.lines)
            .map(|line| kind_and_class_of(&line))
            .collect();
        let count = known.as_ref().map_or(0, Vec::len);
        let known = match (self.refusal(prompts.token, count), known) {
            (None, Some(known)) => known,
            (refusal, _) => {
                return refuse(&prompts, &refusal.unwrap_or(PromptError::BadPrompt));
            }
        };
        for same in known.chunk_by(PartialEq::eq) {
            let (kind, class) = same[0];
            let pending = Pending {
                answerer: Answerer::Several(prompts.answers.clone()),
                count: same.len(),
                kind,
                class,
                timeout: prompts.timeout.unwrap_or(self.prompt_timeout),
                transcript: None,
            };
            self.take_on(pending, prompts.token);
        }
        self.send(lines, count, ctx);
    }
}

/// Answers all prompts with an error.
fn refuse(prompts: &Prompts, error: &PromptError) {
    for _ in commands(&prompts.lines) {
        drop(prompts.answers.send(Err(error.clone())));
    }
}

impl ProcessDuties for OsProcess {
    fn start_context(&self) -> &StartContext {
        &self.context
    }

    fn shared(&self) -> &ProcShared {
        &self.shared
    }

    fn is_busy(&self) -> bool {
        !self.unanswered.is_empty()
    }

    fn prompt_timeout(&mut self) -> &mut Duration {
        &mut self.prompt_timeout
    }
}

impl Handler<SetTimeout> for OsProcess {
    type Result = bool;

    fn handle(&mut self, msg: SetTimeout, _: &mut Self::Context) -> bool {
        set_timeout(self, &msg)
    }
}
