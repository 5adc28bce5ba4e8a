//! What a child prints: lines to answers, log lines to the log, everything else to its end.
//!
//! PROMISES  A line is an answer only if a prompt waits for it (PM-10).
//! SOURCE    couch_os_process, readjson.

use std::rc::Rc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::Instant;
use bytes::Bytes;
use futures_util::StreamExt;

use super::refused::ReportChunk;
use super::{ChildBackend, OsProcess};
use crate::actors::process::Unasked;
use crate::aside::{aside, is_long};
use crate::query_server::line::{Line, classify};
use crate::query_server::proc_shared::ProcFlag;
use child::pipe::{Chunks, PipeReader};

/// How many reads take what a pipe held when they began: it holds a mebibyte at most. A child that
/// writes as fast as we read must not keep the arbiter for itself.
const READS_OF_A_FULL_PIPE: usize = 16;

/// How long a child may live on after it has closed its output or its input: one that ends closes both a moment before
/// it can be reaped, and should be reported with its own status.
const PIPE_END_GRACE: Duration = Duration::from_millis(500);

/// Whether a long line may be read later, on another thread; not where it is asked what was there in time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CanWait {
    Yes,
    No,
}

impl OsProcess {
    /// Listens to what the child prints.
    pub(super) fn listen(&self, ctx: &mut Context<Self>) {
        let stdout = Chunks::new(Rc::clone(&self.backend.stdout));
        ctx.add_stream(stdout.map(StdoutChunk));
        let stderr = Chunks::new(Rc::clone(&self.backend.stderr));
        ctx.add_stream(stderr.map(StderrChunk));
        if let Some(reports) = &self.backend.reports {
            let reports = Chunks::new(Rc::clone(&reports.pipe));
            ctx.add_stream(reports.map(ReportChunk));
        }
    }

    /// The child closed a pipe, as it does when it ends: its end should follow at once, and is made to.
    pub(super) fn pipe_closed(&mut self, what: &'static str, ctx: &mut Context<Self>) {
        if self.shared.exit_error().is_some() {
            // It is being ended, and has its time for that.
            return;
        }
        self.shared.set(ProcFlag::PipeClosed, true);
        if !self.shared.is_assigned() {
            // Nobody waits for how it ends, and nobody is to be lent it meanwhile. Where it is ending already, it ends
            // with its own status.
            match self.backend.reports {
                // A launcher would be killed before it has reported its command's status.
                Some(_) => {
                    self.shared.stay_awake();
                    self.backend.child.terminate();
                }
                None => return self.backend.child.kill(),
            }
        }
        ctx.run_later(PIPE_END_GRACE, move |process, ctx| {
            if process.shared.exit_error().is_none() {
                process.break_off(what, b"", ctx);
            }
        });
    }

    /// Takes output, line by line.
    fn take_output(&mut self, chunk: Bytes, can_wait: CanWait, ctx: &mut Context<Self>) {
        if self.shared.exit_error().is_some() {
            return;
        }
        self.backend.lines.add(chunk);
        // What was read at once came at once.
        self.take_lines(None, can_wait, Instant::now(), ctx);
    }

    /// Takes the lines that are there, behind one that is read already. The answer to the last prompt is handed out when
    /// nothing is left to read: a line behind it means that an earlier one answered nothing, so that answers are not their
    /// prompts'.
    fn take_lines(
        &mut self,
        mut known: Option<(Bytes, Line)>,
        can_wait: CanWait,
        now: Instant,
        ctx: &mut Context<Self>,
    ) {
        let stdout = Rc::clone(&self.backend.stdout);
        let mut rest = what_is_there(&stdout);
        let mut last = None;
        loop {
            let next = match known.take() {
                Some((line, read)) => Ok(Some((line, Some(read)))),
                None => (self.backend.lines.next_line()).map(|line| Some((line?, None))),
            };
            match next {
                Ok(Some((line, None)))
                    if last.is_none() && can_wait == CanWait::Yes && is_long(line.len()) =>
                {
                    return self.read_aside(line, now, ctx);
                }
                Ok(Some((line, read))) => {
                    let read = read.unwrap_or_else(|| classify(line.clone()));
                    let stale = std::mem::take(&mut self.backend.line_is_stale);
                    let unasked = match &last {
                        Some(_) => Some(Unasked::BehindLast),
                        None => stale.then_some(Unasked::Stale),
                    };
                    match self.read_line(line, read, unasked, now, ctx) {
                        Some(answer) if self.unanswered_count() == 1 => last = Some(answer),
                        Some(answer) => self.answer(answer, now),
                        None => {}
                    }
                }
                Ok(None) => {
                    let Some(answer) = last.take() else {
                        return;
                    };
                    let Some(chunk) = rest.next() else {
                        return self.answer(answer, now);
                    };
                    last = Some(answer);
                    self.backend.lines.add(chunk);
                }
                Err(_) => return self.break_off("a line that is too long", b"", ctx),
            }
            if self.shared.exit_error().is_some() {
                return;
            }
        }
    }

    /// Has a long line read on another thread. The actor does nothing else meanwhile: what comes stays in order.
    fn read_aside(&mut self, line: Bytes, now: Instant, ctx: &mut Context<Self>) {
        let copy = line.clone();
        let reading = aside(line.clone(), move |_| classify(copy)).into_actor(self);
        ctx.wait(reading.map(move |read, process, ctx| {
            // Without a thread it is read here.
            let read = read.unwrap_or_else(|_| classify(line.clone()));
            process.take_lines(Some((line, read)), CanWait::Yes, now, ctx);
            process.watch_deadline(ctx);
        }));
    }

    /// Takes the output that the child had written by now and that was not read yet.
    pub(super) fn take_what_is_there(&mut self, ctx: &mut Context<Self>) {
        let stdout = Rc::clone(&self.backend.stdout);
        for chunk in what_is_there(&stdout) {
            self.take_output(chunk, CanWait::No, ctx);
        }
    }
}

impl ChildBackend {
    /// Returns the last lines that the child wrote to stderr, with those that nobody read yet.
    pub(super) fn last_words(&mut self) -> Vec<String> {
        self.read_stderr();
        self.stderr_log.last_words()
    }

    /// Keeps no line that the child has written to stderr by now.
    pub(super) fn forget_words(&mut self) {
        self.read_stderr();
        self.stderr_log.forget();
    }

    fn read_stderr(&mut self) {
        for chunk in what_is_there(&self.stderr) {
            self.stderr_log.add(&chunk);
        }
    }
}

/// Reads what a pipe holds, at most as much as it can have held when the first read began.
fn what_is_there(pipe: &PipeReader) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(|| pipe.read_now().filter(|chunk| !chunk.is_empty()))
        .take(READS_OF_A_FULL_PIPE)
}

/// Output of the child.
struct StdoutChunk(Bytes);

/// Complaints of the child.
struct StderrChunk(Bytes);

impl StreamHandler<StdoutChunk> for OsProcess {
    fn handle(&mut self, chunk: StdoutChunk, ctx: &mut Self::Context) {
        self.take_output(chunk.0, CanWait::Yes, ctx);
        self.watch_deadline(ctx);
    }

    fn finished(&mut self, ctx: &mut Self::Context) {
        self.pipe_closed("the end of its output while it runs on", ctx);
    }
}

impl StreamHandler<StderrChunk> for OsProcess {
    fn handle(&mut self, chunk: StderrChunk, _: &mut Self::Context) {
        self.speak_for_call();
        self.backend.stderr_log.add(&chunk.0);
    }

    fn finished(&mut self, _: &mut Self::Context) {}
}
