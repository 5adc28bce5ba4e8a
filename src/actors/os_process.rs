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

mod stopped;

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::Instant;
use bytes::Bytes;
use slog::{Logger, debug, info, o, warn};

use crate::actors::answerer::{Answerer, commands};
use crate::actors::deferred::{Deferred, deferred};
use crate::actors::lifeline::{Down, ExitReason, Lifeline, Watch};
use crate::actors::process_duties::{ProcessDuties, set_timeout, watch_idleness};
use crate::logging::RepeatLimiter;
use crate::messages::process::{
    MANAGER_TOKEN, Obituary, ProcShared, ProcessRef, Prompt, PromptError, Prompts, SetTimeout,
    StopProc, TOLD_TO_STOP,
};
use crate::metrics::KillReason;
use crate::policy::pool::Token;
use crate::query_server::child::{Child, Exit};
use crate::query_server::language::StartContext;
use crate::query_server::line::{Line, LineBuffer, classify};
use crate::query_server::pipe::{Chunks, PipeReader, PipeWriter};
use crate::query_server::prompt::{PromptClass, PromptKind, kind_and_class_of, leaves_list_open};
use crate::query_server::stderr::StderrLog;

/// How many prompts may be unanswered at a time.
pub const PROMPTS_IN_FLIGHT_MAX: usize = 1024;

/// How many reads take what a pipe held when they began: it holds a mebibyte at most. A child that
/// writes as fast as we read must not keep the arbiter for itself.
const READS_OF_A_FULL_PIPE: usize = 16;

/// How long a child may live on after it has closed its output.
const OUTPUT_END_GRACE: Duration = Duration::from_millis(500);

/// A prompt that waits for its answer, or several of one kind that came together.
struct Pending {
    answerer: Answerer,
    /// How many of them are unanswered; never none.
    count: usize,
    kind: PromptKind,
    class: PromptClass,
    timeout: Duration,
    /// Everything printed for it so far, when it is to be answered verbatim.
    transcript: Option<Vec<u8>>,
}

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
    stderr_log: StderrLog,
    shared: Arc<ProcShared>,
    /// Unanswered prompts, oldest first: the order of the answers.
    pending: VecDeque<Pending>,
    /// How many they are.
    unanswered: usize,
    /// When the oldest prompt became the oldest.
    head_since: Instant,
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
        let shared = ProcShared::new(Some(child.pid()));
        shared.note_activity(context.clock.now());
        let lifeline = Lifeline::new();
        let pulse = lifeline.pulse();
        let address = Self {
            stderr_log: StderrLog::new(log.clone()),
            log,
            child: Rc::new(child),
            stdin: Some(stdin),
            stdout,
            stderr,
            lines: LineBuffer::new(context.line_bytes_max),
            line_is_stale: false,
            shared: Arc::clone(&shared),
            pending: VecDeque::new(),
            unanswered: 0,
            head_since: Instant::now(),
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
        let too_many = self.unanswered + count > PROMPTS_IN_FLIGHT_MAX;
        // One line of any size is always taken; more than that waits for the child.
        (too_many || unsent > self.context.line_bytes_max).then_some(PromptError::TooMany {
            limit: PROMPTS_IN_FLIGHT_MAX,
        })
    }

    /// Has a look at the child before it is prompted.
    fn before_prompt(&mut self) {
        if self.pending.is_empty() {
            // What the child printed since its last answer belongs to nobody.
            self.take_what_is_there();
            self.line_is_stale = self.lines.has_partial();
            self.head_since = Instant::now();
        }
    }

    /// Takes prompts on; what is sent for them goes to the child after this.
    fn take_on(&mut self, prompts: Pending, token: Token) {
        if prompts.kind == PromptKind::Teach && token != MANAGER_TOKEN {
            self.shared.set_taught_by_client();
        }
        self.unanswered += prompts.count;
        self.shared
            .prompts_sent(u32::try_from(prompts.count).unwrap_or(u32::MAX));
        self.pending.push_back(prompts);
    }

    /// Sends the lines of so many prompts.
    fn send(&mut self, line: &[u8], count: usize, ctx: &mut Context<Self>) {
        self.shared.note_activity(self.context.clock.now());
        let bytes = line.len() - (count - 1);
        self.context.metrics.language.prompts_sent(count, bytes);
        let Some(stdin) = &self.stdin else { return };
        if count == 1 && self.pending.len() > 1 {
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
        let Some(head) = self.pending.front() else {
            return;
        };
        let Some(deadline) = self.head_since.checked_add(head.timeout) else {
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
        let Some(head) = self.pending.front() else {
            return;
        };
        let timeout = head.timeout;
        if self.head_since.elapsed() < timeout {
            return self.watch_deadline(ctx);
        }
        warn!(self.log, "query server did not answer in time and is killed";
              "timeout_ms" => u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self.context.metrics.pool.prompt_timed_out();
        self.end_for(PromptError::Timeout { timeout }, KillReason::Timeout);
    }

    /// Takes output, line by line.
    fn take_output(&mut self, chunk: Bytes) {
        if self.shared.doom().is_some() {
            return;
        }
        // What was read at once came at once.
        let now = Instant::now();
        self.lines.add(chunk);
        loop {
            match self.lines.next_line() {
                Ok(Some(line)) => self.take_line(line, now),
                Ok(None) => return,
                Err(_) => return self.break_off("a line that is too long", b""),
            }
            if self.shared.doom().is_some() {
                return;
            }
        }
    }

    /// Takes the output that the child had written by now and that was not read yet.
    fn take_what_is_there(&mut self) {
        let stdout = Rc::clone(&self.stdout);
        for chunk in what_is_there(&stdout) {
            self.take_output(chunk);
        }
    }

    fn take_line(&mut self, line: Bytes, now: Instant) {
        if let Some(transcript) = self.pending.front_mut().and_then(|p| p.transcript.as_mut()) {
            transcript.extend_from_slice(&line);
            transcript.push(b'\n');
        }
        let is_stale = std::mem::take(&mut self.line_is_stale);
        match classify(line.clone()) {
            Line::Log(text) => info!(self.log, "query server log"; "line" => text),
            Line::Malformed(what) => self.break_off(what, &line),
            _ if is_stale || self.pending.is_empty() => {
                self.break_off("output that nobody asked for", &line)
            }
            Line::Answer(answer) => {
                let open = leaves_list_open(&answer);
                self.answer(Ok(answer), open, now);
            }
            Line::Error(error) => {
                self.answer(Err(PromptError::function(error, false)), false, now);
            }
            Line::Fatal(error) => {
                self.answer(Err(PromptError::function(error, true)), false, now);
                // The error was that prompt's; the others are told of the end.
                let end = PromptError::Exited(Obituary {
                    exit: Some("was killed after it reported a fatal error".into()),
                    ..Obituary::default()
                });
                self.end_for(end, KillReason::Fatal);
            }
        }
    }

    /// Answers the oldest prompt.
    fn answer(&mut self, result: Result<Bytes, PromptError>, leaves_open: bool, now: Instant) {
        let Some(head) = self.pending.front_mut() else {
            return;
        };
        self.unanswered -= 1;
        self.shared.prompt_answered();
        if matches!(head.kind, PromptKind::OpenList | PromptKind::ListRow) {
            self.shared.set_list_open(leaves_open);
        }
        if result.is_ok() && !matches!(head.class, PromptClass::Reset | PromptClass::DdocNew) {
            self.shared.set_served();
        }
        let took = now - std::mem::replace(&mut self.head_since, now);
        let metrics = &self.context.metrics.language;
        metrics.prompt_done(head.class, took, &result);
        if head.count > 1
            && let Answerer::Several(answers) = &head.answerer
        {
            head.count -= 1;
            // As in `Answerer::send`.
            return drop(answers.send(result));
        }
        let Some(head) = self.pending.pop_front() else {
            return;
        };
        let result = match head.transcript {
            // Verbatim: whatever the process printed up to its answer is the answer.
            Some(transcript) if !transcript.is_empty() => Ok(Bytes::from(transcript)),
            _ => result,
        };
        head.answerer.send(result);
    }

    fn break_off(&mut self, what: &'static str, line: &[u8]) {
        warn!(self.log, "query server broke the protocol and is killed";
              "error" => what, "count" => self.unanswered);
        self.end_for(PromptError::protocol(what, line), KillReason::Protocol);
    }

    /// Kills the child for `reason`, which everybody who waits gets.
    fn end_for(&mut self, reason: PromptError, why: KillReason) {
        self.kill(why);
        self.stdin = None;
        // First, so that whoever hears of it and returns the process at once returns a broken one.
        self.shared.set_doom(reason.clone());
        self.fail_pending(&reason);
    }

    fn kill(&mut self, why: KillReason) {
        if !std::mem::replace(&mut self.killed, true) {
            self.context.metrics.language.killed(why);
        }
        self.child.kill();
    }

    fn fail_pending(&mut self, reason: &PromptError) {
        // These were not at fault: they are told of the end, not of its cause.
        let not_at_fault = match reason {
            // The end itself is the same for all.
            PromptError::Exited(_) => reason.clone(),
            _ => PromptError::Exited(Obituary {
                exit: Some("was killed because of an earlier prompt".into()),
                ..Obituary::default()
            }),
        };
        let metrics = &self.context.metrics.language;
        let mut error = reason;
        for prompts in std::mem::take(&mut self.pending) {
            let printed = prompts.transcript.filter(|text| !text.is_empty());
            if let Answerer::Several(answers) = &prompts.answerer {
                for _ in 1..prompts.count {
                    self.shared.prompt_answered();
                    metrics.prompt_failed(error);
                    drop(answers.send(Err(error.clone())));
                    error = &not_at_fault;
                }
            }
            self.shared.prompt_answered();
            let result = match printed {
                Some(text) => {
                    metrics.prompt_failed(reason);
                    Ok(Bytes::from(text))
                }
                None => {
                    metrics.prompt_failed(error);
                    Err(error.clone())
                }
            };
            prompts.answerer.send(result);
            error = &not_at_fault;
        }
        self.unanswered = 0;
    }

    /// A signal that we did not send is most often the answer to too much memory.
    fn exit_in_words(&self, exit: Exit) -> String {
        match self.context.memory_max {
            Some(bytes) if exit.is_signal() && !self.killed => {
                format!("{exit}, memory limit {} MiB", bytes.div_ceil(1 << 20))
            }
            _ => exit.to_string(),
        }
    }

    /// The child has ended: takes its last words, answers what it answered, fails the rest.
    fn child_exited(&mut self, exit: Exit, ctx: &mut Context<Self>) {
        self.take_what_is_there();
        for chunk in what_is_there(&self.stderr) {
            self.stderr_log.add(&chunk);
        }
        let obituary = Obituary {
            exit: Some(self.exit_in_words(exit)),
            status: Some(exit.status()),
            stderr: self.stderr_log.last_words(),
        };
        let wanted = self.stopping || self.shared.doom().is_some();
        if !wanted {
            self.context.metrics.language.exited(exit.is_success());
        }
        if wanted || exit.is_success() {
            debug!(self.log, "query server ended"; "exit" => %exit);
            self.lifeline.ending(ExitReason::Normal);
        } else {
            warn!(self.log, "query server ended unasked"; "exit" => %exit);
            self.lifeline
                .ending(ExitReason::Failed(obituary.to_string()));
        }
        let gone = PromptError::Exited(obituary);
        self.fail_pending(&gone);
        self.shared.set_doom(gone);
        ctx.stop();
    }
}

/// Reads what a pipe holds, at most as much as it can have held when the first read began.
fn what_is_there(pipe: &PipeReader) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(|| pipe.read_now().filter(|chunk| !chunk.is_empty()))
        .take(READS_OF_A_FULL_PIPE)
}

impl Actor for OsProcess {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // A holder's prompts must not have to wait for room in the mailbox: those that wait are
        // overtaken by later ones.
        ctx.set_mailbox_capacity(PROMPTS_IN_FLIGHT_MAX);
        ctx.add_stream(StdoutChunks(Chunks::new(Rc::clone(&self.stdout))));
        ctx.add_stream(StderrChunks(Chunks::new(Rc::clone(&self.stderr))));
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
        !self.pending.is_empty()
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

impl Handler<StopProc> for OsProcess {
    type Result = ();

    fn handle(&mut self, msg: StopProc, ctx: &mut Self::Context) {
        self.stopping = true;
        self.stdin = None;
        self.shared.set_doom(PromptError::Exited(Obituary {
            exit: Some(TOLD_TO_STOP.into()),
            ..Obituary::default()
        }));
        if !msg.polite {
            return self.kill(KillReason::Stopped);
        }
        let grace = self.context.stop_grace;
        ctx.run_later(grace / 2, |process, _| process.child.terminate());
        ctx.run_later(grace, |process, _| process.kill(KillReason::Overdue));
    }
}

/// The manager is gone: so is every process of its.
impl Handler<Down> for OsProcess {
    type Result = ();

    fn handle(&mut self, _: Down, _: &mut Self::Context) {
        self.stopping = true;
        self.kill(KillReason::Stopped);
    }
}

/// Output of the child.
struct StdoutChunks(Chunks);

/// Complaints of the child.
struct StderrChunks(Chunks);

struct StdoutChunk(Bytes);

struct StderrChunk(Bytes);

macro_rules! tagged_stream {
    ($stream:ident, $item:ident) => {
        impl futures_util::Stream for $stream {
            type Item = $item;

            fn poll_next(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<$item>> {
                std::pin::Pin::new(&mut self.0)
                    .poll_next(cx)
                    .map(|chunk| chunk.map($item))
            }
        }
    };
}

tagged_stream!(StdoutChunks, StdoutChunk);
tagged_stream!(StderrChunks, StderrChunk);

impl StreamHandler<StdoutChunk> for OsProcess {
    fn handle(&mut self, chunk: StdoutChunk, ctx: &mut Self::Context) {
        self.take_output(chunk.0);
        self.watch_deadline(ctx);
    }

    /// The child closed its output: its exit should follow at once, and is made to.
    fn finished(&mut self, ctx: &mut Self::Context) {
        ctx.run_later(OUTPUT_END_GRACE, |process, _| {
            process.break_off("the end of its output while it runs on", b"");
        });
    }
}

impl StreamHandler<StderrChunk> for OsProcess {
    fn handle(&mut self, chunk: StderrChunk, _: &mut Self::Context) {
        self.stderr_log.add(&chunk.0);
    }

    fn finished(&mut self, _: &mut Self::Context) {}
}
