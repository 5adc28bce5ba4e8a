//! NativeProcess: a query server inside this program that takes the same messages as a child.
//!
//! SUMMARY   Runs a [`NativeServer`] on a separate thread.
//! PROMISES  A server that blocks or panics only affects its own process.
//! SOURCE    couch_native_process and mango_native_proc: native query servers of CouchDB.
//! DIFFERS   A native process can be stopped like any other (D13).
//! LIMITS    A thread cannot be killed: one that never returns stays until the program ends, while its process is
//!           abandoned and replaced. A prompt costs two thread wake-ups (some ten microseconds) more than an inline
//!           call.

use std::collections::VecDeque;
use std::sync::mpsc;

use actix::prelude::*;
use actix_rt::time::Instant;
use bytes::{Buf, Bytes};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use slog::Logger;
use tokio::sync::oneshot;

use crate::actors::language::StartContext;
use crate::actors::process::{Backend, Process};
use crate::messages::opener::StartError;
use crate::messages::process::{ExitReport, Fault, ProcessRef, Prompt, PromptError, commands};
use crate::query_server::child_log::ChildLog;
use crate::query_server::prompt::Command;

/// A query server inside this program: answers one command at a time.
pub trait NativeServer: Send {
    /// Answers one command, a JSON array on one line, with one JSON value on one line, as a separate query server
    /// would: `["error", NAME, REASON]` reports an error. `["log",TEXT]` lines may precede the answer.
    fn prompt(&mut self, command: &str) -> String;

    /// Sets the log for the next command; records are attributed to its call.
    fn log_to(&mut self, _log: Logger) {}
}

/// The line that answers a command, or how the server ended.
pub type Answering = LocalBoxFuture<'static, Result<Bytes, ExitReport>>;

/// The actor of a native query server.
pub type NativeProcess = Process<NativeBackend>;

/// One native query server, working on one command at a time.
pub struct NativeBackend {
    server: Box<dyn FnMut(Bytes, Logger) -> Answering>,
    /// Unanswered commands, oldest first; the server works on the first.
    commands: VecDeque<Bytes>,
}

impl NativeProcess {
    /// Starts the server's thread and the actor in front of it.
    ///
    /// # Errors
    /// The system cannot create another thread.
    pub fn start_with(
        server: impl NativeServer + 'static,
        context: StartContext,
    ) -> Result<ProcessRef, StartError> {
        let jobs = start_thread(server, &context)?;
        let server = move |line, log| {
            let (answer, result) = oneshot::channel();
            // If the thread has ended, the job is dropped, which counts as a panic.
            drop(jobs.send(Job { line, log, answer }));
            let panicked = |_| ExitReport {
                exit: Some("panicked".into()),
                ..ExitReport::default()
            };
            async move { result.await.map(Bytes::from).map_err(panicked) }.boxed_local()
        };
        Ok(Self::start_answering(server, context))
    }

    /// Starts the actor of a server that answers on this thread.
    pub fn start_answering(
        server: impl FnMut(Bytes, Logger) -> Answering + 'static,
        context: StartContext,
    ) -> ProcessRef {
        let backend = NativeBackend {
            server: Box::new(server),
            commands: VecDeque::new(),
        };
        let child_log = ChildLog::new(
            context.log.clone(),
            context.clock,
            context.log_terms.clone(),
        );
        Self::start_as(backend, child_log, None, context)
    }

    /// Passes the oldest command to the server.
    fn work(&mut self, ctx: &mut Context<Self>) {
        let Some(command) = self.backend.commands.front().cloned() else {
            return;
        };
        let log = self.log();
        let answer = (self.backend.server)(command, log).into_actor(self);
        ctx.spawn(answer.map(|answer, process, ctx| {
            process.backend.commands.pop_front();
            match answer {
                Ok(lines) => process.take_answer(lines, ctx),
                Err(exit_report) => return process.died_over_prompt(exit_report, ctx),
            }
            process.work(ctx);
            process.watch_deadline(ctx);
        }));
    }

    /// Handles an answer, and the log lines before it.
    fn take_answer(&mut self, mut lines: Bytes, ctx: &mut Context<Self>) {
        let now = Instant::now();
        while is_log(&lines)
            && let Some(end) = memchr::memchr(b'\n', &lines)
        {
            let line = lines.split_to(end);
            lines.advance(1);
            self.take_line(line, now, ctx);
        }
        if is_log(&lines) {
            self.break_off("a log line instead of an answer", &lines, ctx)
        } else {
            self.take_line(lines, now, ctx)
        }
    }
}

fn is_log(lines: &[u8]) -> bool {
    lines.starts_with(b"[\"log\"")
}

impl Backend for NativeBackend {
    /// Refuses a line that is not a command or not UTF-8: the server would take it for a command.
    fn refusal(&self, prompt: &Prompt, _: &StartContext) -> Option<PromptError> {
        let is_none = prompt.verbatim && Command::of(&prompt.lines).is_none();
        let is_no_text = std::str::from_utf8(&prompt.lines).is_err();
        (is_none || is_no_text).then_some(PromptError::BadPrompt)
    }

    fn send(process: &mut NativeProcess, pieces: Vec<Bytes>, ctx: &mut Context<NativeProcess>) {
        let is_idle = process.backend.commands.is_empty();
        let commands = pieces.iter().flat_map(commands);
        process.backend.commands.extend(commands);
        if is_idle {
            process.work(ctx);
        }
    }

    /// Abandons the server. Its thread ends when its current command returns.
    fn kill(process: &mut NativeProcess, ctx: &mut Context<NativeProcess>) {
        process.backend.commands.clear();
        process.exited(ExitReport::default(), true, ctx);
    }
}

struct Job {
    line: Bytes,
    log: Logger,
    answer: oneshot::Sender<String>,
}

/// Runs the server on a thread that ends when its process drops the sender.
fn start_thread(
    mut server: impl NativeServer + 'static,
    context: &StartContext,
) -> Result<mpsc::Sender<Job>, StartError> {
    let (jobs, inbox) = mpsc::channel::<Job>();
    std::thread::Builder::new()
        .name(format!("native-{}", context.language))
        .spawn(move || {
            for job in inbox {
                let command = String::from_utf8_lossy(&job.line);
                server.log_to(job.log);
                // The process may have been abandoned meanwhile.
                drop(job.answer.send(server.prompt(&command)));
            }
        })
        .map_err(|error| StartError::new(format!("cannot start a thread: {error}"), Fault::Host))?;
    Ok(jobs)
}
