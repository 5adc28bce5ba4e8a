//! NativeProcess: a query server inside this program, behind the same messages as a child.
//!
//! SUMMARY   Runs a [`NativeServer`] on a thread of its own.
//! PROMISES  A server that blocks or panics costs its own process and nothing else.
//! SOURCE    couch_native_process and mango_native_proc: native query servers of CouchDB.
//! DIFFERS   A native process can be stopped like any other (D13).
//! LIMITS    A thread cannot be killed: one that never comes back stays until the program ends,
//!           while its process is given up and replaced. A prompt costs two wake-ups of another
//!           thread, some ten microseconds, more than the same call in line.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::Instant;
use bytes::Bytes;
use slog::{info, warn};
use tokio::sync::oneshot;

use crate::actors::answerer::{Answerer, each};
use crate::actors::language::StartContext;
use crate::actors::process_duties::{ProcessDuties, set_timeout, watch_idleness};
use crate::messages::opener::StartError;
use crate::messages::process::{
    Fault, MANAGER_TOKEN, Obituary, ProcShared, ProcessRef, Prompt, PromptError, Prompts,
    SetTimeout, StopProc,
};
use crate::metrics::KillReason;
use crate::otp::deferred::{Deferred, deferred};
use crate::otp::lifeline::{Down, ExitReason, Lifeline, Watch};
use crate::query_server::line::{Line, classify};
use crate::query_server::prompt::{
    PromptClass, PromptKind, Work, kind_and_class_of, leaves_list_open,
};

/// How many prompts may wait for the server's thread.
const PROMPTS_IN_FLIGHT_MAX: usize = 1024;

/// A query server as a type: gets one command, gives one answer.
pub trait NativeServer: Send {
    /// Answers one command, a JSON array on one line, with one JSON value on one line, as a query
    /// server in a process of its own would print it: `["error", NAME, REASON]` says no.
    fn prompt(&mut self, command: &str) -> String;
}

struct Job {
    line: Bytes,
    answer: oneshot::Sender<String>,
}

struct Pending {
    prompt: Prompt,
    kind: PromptKind,
    class: PromptClass,
    answerer: Answerer,
}

/// One native query server and its thread.
pub struct NativeProcess {
    context: StartContext,
    jobs: mpsc::Sender<Job>,
    shared: Arc<ProcShared>,
    prompt_timeout: Duration,
    /// Unanswered prompts, oldest first; the server works on the first.
    pending: VecDeque<Pending>,
    /// When the server was given the first.
    head_since: Instant,
    /// The watch on the manager, with which it ends.
    owner: Option<Watch>,
    lifeline: Lifeline,
}

impl NativeProcess {
    /// Starts the server's thread and the actor in front of it.
    ///
    /// # Errors
    /// The system has no room for another thread.
    pub fn start_with(
        server: impl NativeServer + 'static,
        context: StartContext,
    ) -> Result<ProcessRef, StartError> {
        let jobs = start_thread(server, &context)?;
        let shared = ProcShared::new(None);
        shared.note_activity(context.clock.now());
        let lifeline = Lifeline::new();
        let pulse = lifeline.pulse();
        let address = Self {
            prompt_timeout: context.prompt_timeout,
            context,
            jobs,
            shared: Arc::clone(&shared),
            pending: VecDeque::new(),
            head_since: Instant::now(),
            owner: None,
            lifeline,
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

    fn refusal(&self, prompt: &Prompt) -> Option<PromptError> {
        if !self.shared.is_assigned_to(prompt.token) {
            return Some(PromptError::NotHolder);
        }
        if std::str::from_utf8(&prompt.line).is_err() {
            return Some(PromptError::BadPrompt);
        }
        (self.pending.len() >= PROMPTS_IN_FLIGHT_MAX).then_some(PromptError::TooMany {
            limit: PROMPTS_IN_FLIGHT_MAX,
        })
    }

    /// Gives the oldest prompt to the server.
    fn work(&mut self, ctx: &mut Context<Self>) {
        let Some(head) = self.pending.front() else {
            return;
        };
        let timeout = head.prompt.timeout.unwrap_or(self.prompt_timeout);
        let work = Work::of(head.kind, head.class);
        self.head_since = Instant::now();
        let (answer, result) = oneshot::channel();
        // A thread that is gone drops the job, which is seen as an answer that never comes.
        drop(self.jobs.send(Job {
            line: head.prompt.line.clone(),
            answer,
        }));
        let result = actix_rt::time::timeout(timeout, result).into_actor(self);
        ctx.spawn(result.map(move |result, process, ctx| {
            let answer = match result {
                Ok(Ok(text)) => Ok(Bytes::from(text)),
                Ok(Err(_)) => Err(PromptError::Exited(Obituary {
                    exit: Some("panicked".into()),
                    ..Obituary::default()
                })),
                Err(_) => Err(PromptError::Timeout { timeout, work }),
            };
            process.answered(answer, ctx);
        }));
    }

    fn answered(&mut self, line: Result<Bytes, PromptError>, ctx: &mut Context<Self>) {
        let Some(head) = self.pending.pop_front() else {
            return;
        };
        self.shared.prompt_answered();
        let answer = line.clone().and_then(read_answer);
        let took = self.head_since.elapsed();
        let metrics = &self.context.metrics;
        metrics.language.prompt_done(head.class, took, &answer);
        if matches!(head.kind, PromptKind::OpenList | PromptKind::ListRow) {
            let open = answer.as_deref().is_ok_and(leaves_list_open);
            self.shared.set_list_open(open);
        }
        let end = answer
            .as_ref()
            .err()
            .filter(|error| error.is_final())
            .cloned();
        if let Some(error) = &end {
            // The error was that prompt's; the others were not run.
            self.shared.set_doom(PromptError::NotRun {
                because: Box::new(error.clone()),
            });
        }
        head.answerer.send(match line {
            // As it was printed, error lines and all, with its line feed.
            Ok(line) if head.prompt.verbatim => Ok(Bytes::from([&line[..], b"\n"].concat())),
            _ => answer,
        });
        match end {
            None => self.work(ctx),
            Some(error) => {
                warn!(self.context.log, "native query server failed"; "error" => %error);
                self.count_end(&error);
                self.end(ExitReason::Failed(error.to_string()), ctx);
            }
        }
    }

    fn count_end(&self, error: &PromptError) {
        let metrics = &self.context.metrics;
        match error {
            PromptError::Timeout { .. } => {
                metrics.pool.prompt_timed_out();
                metrics.language.killed(KillReason::Timeout);
            }
            PromptError::Protocol { .. } => metrics.language.killed(KillReason::Protocol),
            PromptError::Function { .. } => metrics.language.killed(KillReason::Fatal),
            // It panicked.
            _ => metrics.language.exited(false),
        }
    }

    fn end(&mut self, reason: ExitReason, ctx: &mut Context<Self>) {
        for prompt in self.pending.drain(..) {
            self.shared.prompt_answered();
            let gone = self.shared.gone();
            self.context.metrics.language.prompt_failed(&gone);
            prompt.answerer.send(Err(gone));
        }
        self.lifeline.ending(reason);
        ctx.stop();
    }
}

fn read_answer(line: Bytes) -> Result<Bytes, PromptError> {
    match classify(line.clone()) {
        Line::Answer(answer) => Ok(answer),
        Line::Error(error) => Err(PromptError::function(error, false)),
        Line::Fatal(error) => Err(PromptError::function(error, true)),
        Line::Log(_) => Err(PromptError::protocol(
            "a log line instead of an answer",
            &line,
        )),
        Line::Malformed(what) => Err(PromptError::protocol(what, &line)),
    }
}

/// Runs the server on a thread that ends when its process drops the sender.
fn start_thread(
    mut server: impl NativeServer + 'static,
    context: &StartContext,
) -> Result<mpsc::Sender<Job>, StartError> {
    let (jobs, inbox) = mpsc::channel::<Job>();
    let thread = std::thread::Builder::new().name(format!("native-{}", context.language));
    thread
        .spawn(move || {
            for job in inbox {
                let command = String::from_utf8_lossy(&job.line);
                // Nobody waits when the process was given up meanwhile.
                drop(job.answer.send(server.prompt(&command)));
            }
        })
        .map_err(|error| StartError {
            reason: format!("cannot start a thread: {error}"),
            fault: Fault::Host,
        })?;
    Ok(jobs)
}

impl Actor for NativeProcess {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // As in an OsProcess: prompts that wait for room are overtaken by later ones.
        ctx.set_mailbox_capacity(PROMPTS_IN_FLIGHT_MAX);
        self.owner = Some(self.context.owner.watch(ctx.address().recipient()));
        watch_idleness(self, ctx);
        info!(self.context.log, "native query server started");
    }
}

impl NativeProcess {
    fn take(&mut self, prompt: Prompt, answerer: Answerer, ctx: &mut Context<Self>) {
        let known = kind_and_class_of(&prompt.line).ok_or(PromptError::BadPrompt);
        let (kind, class) = match (self.refusal(&prompt), known) {
            (Some(error), _) | (None, Err(error)) => return answerer.send(Err(error)),
            (None, Ok(known)) => known,
        };
        if kind == PromptKind::Teach && prompt.token != MANAGER_TOKEN {
            self.shared.set_taught_by_client();
        }
        self.shared.prompt_sent();
        self.shared.note_activity(self.context.clock.now());
        self.context.metrics.language.prompt_sent(&prompt.line);
        self.pending.push_back(Pending {
            prompt,
            kind,
            class,
            answerer,
        });
        if self.pending.len() == 1 {
            self.work(ctx);
        }
    }
}

impl Handler<Prompt> for NativeProcess {
    type Result = Deferred<Result<Bytes, PromptError>>;

    fn handle(&mut self, prompt: Prompt, ctx: &mut Self::Context) -> Self::Result {
        let (answer, replier) = deferred();
        self.take(prompt, Answerer::One(replier), ctx);
        answer
    }
}

impl Handler<Prompts> for NativeProcess {
    type Result = ();

    fn handle(&mut self, prompts: Prompts, ctx: &mut Self::Context) {
        each(&prompts).for_each(|(prompt, answerer)| self.take(prompt, answerer, ctx));
    }
}

impl ProcessDuties for NativeProcess {
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

impl Handler<SetTimeout> for NativeProcess {
    type Result = bool;

    fn handle(&mut self, msg: SetTimeout, _: &mut Self::Context) -> bool {
        set_timeout(self, &msg)
    }
}

impl Handler<StopProc> for NativeProcess {
    type Result = ();

    fn handle(&mut self, _: StopProc, ctx: &mut Self::Context) {
        self.end(ExitReason::Shutdown, ctx);
    }
}

/// The manager is gone: so is every process of its.
impl Handler<Down> for NativeProcess {
    type Result = ();

    fn handle(&mut self, _: Down, ctx: &mut Self::Context) {
        self.end(ExitReason::Shutdown, ctx);
    }
}
