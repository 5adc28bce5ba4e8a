//! OsProcess: a process with a child as query server.
//!
//! PROMISES  The actor ends when its child is reaped. A child is killed once; one without a fault is stopped
//!           gracefully.
//! SOURCE    couch_os_process, readjson and the exit of the port.

mod output;
mod stopped;

use std::io;
use std::rc::Rc;

use actix::prelude::*;
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use slog::o;

use crate::actors::language::StartContext;
use crate::actors::process::{Backend, PROMPTS_IN_FLIGHT_MAX, Process};
use crate::logging::RepeatLimiter;
use crate::messages::process::{ExitReport, ProcessRef, Prompt, PromptError};
use crate::metrics::KillReason;
use crate::query_server::child_log::ChildLog;
use crate::query_server::proc_shared::ProcFlag;
use child::cell::report::Reports;
use child::cell::rest::Orders;
use child::line_buffer::LineBuffer;
use child::pipe::{PipeReader, PipeWriter};
use child::stderr::StderrLog;
use child::{Child, Exit, Pipes};

/// The actor of a child.
pub type OsProcess = Process<ChildBackend>;

/// One child and its pipes.
pub struct ChildBackend {
    child: Rc<Child>,
    stdin: Option<PipeWriter>,
    /// Monitors `stdin` and keeps it open.
    stdin_watch: SpawnHandle,
    stdout: Rc<PipeReader>,
    stderr: Rc<PipeReader>,
    lines: LineBuffer,
    /// Whether the buffered line began before any unanswered prompt was sent.
    line_is_stale: bool,
    stderr_log: StderrLog,
    /// Reports of its cell's launcher.
    reports: Option<Reports>,
    /// Rate-limits warnings about a child stopped by a signal.
    stopped: RepeatLimiter,
}

impl OsProcess {
    /// Starts the actor for a new child.
    ///
    /// # Errors
    /// The event loop cannot register its pipes; the child is killed.
    pub fn start_with(
        child: Child,
        pipes: Pipes,
        mut context: StartContext,
    ) -> io::Result<ProcessRef> {
        let stdin = PipeWriter::new(pipes.stdin)?;
        let stdout = PipeReader::new(pipes.stdout)?;
        let stderr = PipeReader::new(pipes.stderr)?;
        let orders = pipes.report.as_ref().map(Orders::by).transpose()?;
        let reports = pipes.report.map(Reports::new).transpose()?;
        let pid = child.pid();
        context.log = context.log.new(o!("os_pid" => pid));
        let log = context.log.clone();
        let child_log = ChildLog::new(log, context.clock, context.log_terms.clone());
        let complaints = Rc::clone(&child_log);
        let backend = ChildBackend {
            stderr_log: StderrLog::new(Some(Box::new(move |line| complaints.complained(line)))),
            child: Rc::new(child),
            stdin: Some(stdin),
            stdin_watch: SpawnHandle::default(),
            stdout,
            stderr,
            lines: LineBuffer::new(context.line_bytes_max),
            line_is_stale: false,
            reports,
            stopped: RepeatLimiter::default(),
        };
        let is_launcher = backend.reports.is_some();
        let process = Self::start_as(backend, child_log, Some(pid), context);
        process.shared.set(ProcFlag::Launcher, is_launcher);
        process.shared.set_orders(orders);
        Ok(process)
    }

    /// Takes the child's input, which closes once the returned value is dropped and everything is sent.
    fn take_stdin(&mut self, ctx: &mut Context<Self>) -> Option<PipeWriter> {
        ctx.cancel_future(self.backend.stdin_watch);
        self.backend.stdin.take()
    }

    /// Handles the child's exit: reads its last output and resolves the prompts that it answered.
    fn child_exited(&mut self, exit: Exit, ctx: &mut Context<Self>) {
        self.shared.stay_awake();
        (self.shared).set_last_cpu_time(self.backend.child.cpu_time_at_end());
        self.take_what_is_there(ctx);
        self.take_last_reports();
        let answered = self.shared.is(ProcFlag::Started) || self.shared.exit_error().is_some();
        let backend = &self.backend;
        let described = (backend.child).describe(exit, backend.reports.as_ref(), answered);
        let reports = backend.reports.as_ref();
        let met = reports.and_then(|reports| reports.met);
        let is_hosts_fault = reports.is_some_and(|reports| reports.is_hosts_fault);
        let exit_report = ExitReport {
            exit: Some(described),
            status: Some(exit.status()),
            stderr: self.backend.last_words(),
            met,
            is_hosts_fault,
        };
        self.exited(exit_report, exit.is_success(), ctx);
    }
}

impl Backend for ChildBackend {
    fn started(process: &mut OsProcess, ctx: &mut Context<OsProcess>) {
        process.listen(ctx);
        let child = Rc::clone(&process.backend.child);
        let exit = async move { child.reap().await }.into_actor(process);
        ctx.spawn(exit.map(|exit, process, ctx| process.child_exited(exit, ctx)));
        if let Some(stdin) = &process.backend.stdin {
            let closed = stdin.unreadable().into_actor(process);
            process.backend.stdin_watch = ctx.spawn(closed.map(|(), process, ctx| {
                process.pipe_closed("a closed standard input", ctx);
            }));
        }
        stopped::watch(ctx);
    }

    /// Refuses further lines while more bytes are unsent than one line may have.
    fn refusal(&self, _: &Prompt, context: &StartContext) -> Option<PromptError> {
        let unsent = self.stdin.as_ref().map_or(0, PipeWriter::unsent_bytes);
        (unsent > context.line_bytes_max).then_some(PromptError::TooMany {
            limit: PROMPTS_IN_FLIGHT_MAX,
        })
    }

    fn catch_up(process: &mut OsProcess, ctx: &mut Context<OsProcess>) {
        process.take_what_is_there(ctx);
        if process.unanswered.is_empty() {
            process.backend.line_is_stale = process.backend.lines.partial_bytes() > 0;
        }
    }

    fn send(process: &mut OsProcess, pieces: Vec<Bytes>, _: &mut Context<OsProcess>) {
        let Some(stdin) = &process.backend.stdin else {
            return;
        };
        match <[Bytes; 1]>::try_from(pieces) {
            // The child is busy: batch the line with others at the end of the turn.
            Ok([line]) if process.unanswered.count() > 1 => stdin.queue_line(line),
            Ok([line]) => stdin.write_lines([line]),
            Err(pieces) => stdin.write_lines(pieces),
        }
    }

    fn forget_words(process: &mut OsProcess) {
        process.speak_for_call();
        process.backend.forget_words();
    }

    fn take_refused(process: &mut OsProcess) {
        process.take_last_reports();
    }

    fn held_back(process: &OsProcess) -> Option<LocalBoxFuture<'static, bool>> {
        let question = process.backend.child.held_back()?;
        // If no thread can be started for the query, the process does not count as held back.
        let answer = async { blocking::run("cpu_max", question).await.unwrap_or(false) };
        Some(Box::pin(answer))
    }

    fn kill(process: &mut OsProcess, ctx: &mut Context<OsProcess>) {
        process.backend.child.kill();
        drop(process.take_stdin(ctx));
    }

    /// Closes the child's input, then sends TERM, then kills it. A child stopped by a signal notices only the last.
    fn stop_politely(process: &mut OsProcess, ctx: &mut Context<OsProcess>) {
        process.shared.stay_awake();
        // The input is closed after `stop_send`, and the child's reply is discarded.
        if let (Some(stdin), Some(line)) = (process.take_stdin(ctx), &process.context.stop_send) {
            stdin.write_lines([Bytes::copy_from_slice(line.as_bytes())]);
        }
        let grace = process.context.stop_grace;
        ctx.run_later(grace / 2, |process, _| process.backend.child.terminate());
        ctx.run_later(grace, |process, ctx| process.kill(KillReason::Overdue, ctx));
    }
}
