//! A child's output: answers go to prompts, log lines to the log; anything else ends the child. And its launcher's
//! reports of system calls that the cell refused.
//!
//! PROMISES  A line is an answer only if a prompt is waiting (PM-10).
//! SOURCE    couch_os_process, readjson.

use std::rc::Rc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::Instant;
use bytes::Bytes;
use futures_util::StreamExt;

use super::{ChildBackend, OsProcess};
use crate::actors::process::Unasked;
use crate::aside::{aside, is_long};
use crate::query_server::line::{Line, classify};
use crate::query_server::proc_shared::ProcFlag;
use child::line_buffer::PiecedLine;
use child::pipe::{Chunks, PipeReader};

/// Maximum reads in a row: enough for a full pipe, which holds at most one mebibyte. A child that writes as fast as we
/// read must not monopolize the arbiter.
const READS_OF_A_FULL_PIPE: usize = 16;

/// How long a child may live on after closing its output or input: one that ends closes both slightly before it can
/// be reaped, and should be reported with its own status.
const PIPE_END_GRACE: Duration = Duration::from_millis(500);

/// Whether a long line may be read later, on another thread; not when checking what arrived in time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CanWait {
    Yes,
    No,
}

impl OsProcess {
    /// Listens to the child's output.
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

    /// Handles a pipe closed by the child, usually at its end. A child that is not lent is ended at once, and a lent
    /// one unless it ends by itself within [`PIPE_END_GRACE`].
    pub(super) fn pipe_closed(&mut self, what: &'static str, ctx: &mut Context<Self>) {
        if self.shared.exit_error().is_some() {
            // It is already being ended, with a grace period.
            return;
        }
        self.shared.set(ProcFlag::PipeClosed, true);
        if !self.shared.is_assigned() {
            // Nothing waits for the child's end, and it must not be lent meanwhile. A child already ending keeps its own
            // status.
            match self.backend.reports {
                // Killing a launcher would lose its command's status.
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

    /// Processes output, line by line.
    fn take_output(&mut self, chunk: Bytes, can_wait: CanWait, ctx: &mut Context<Self>) {
        if self.shared.exit_error().is_some() {
            return;
        }
        self.backend.lines.add(chunk);
        // The lines were read together: they count as arrived at the same time.
        self.take_lines(None, can_wait, Instant::now(), ctx);
    }

    /// Processes available lines, beginning with `known`, a line that was already parsed, if any. The last prompt's
    /// answer is delivered once nothing is left to read: a line after it means that an earlier line answered no
    /// prompt, so answers are shifted.
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
                Some(known) => Ok(Some(known)),
                None => match self.backend.lines.next_pieced_line() {
                    Ok(Some(line))
                        if last.is_none() && can_wait == CanWait::Yes && is_long(line.length()) =>
                    {
                        return self.read_aside(line, now, ctx);
                    }
                    line => line.map(|line| line.map(read)),
                },
            };
            match next {
                Ok(Some((line, read))) => {
                    let stale = std::mem::take(&mut self.backend.line_is_stale);
                    let unasked = match &last {
                        Some(_) => Some(Unasked::BehindLast),
                        None => stale.then_some(Unasked::Stale),
                    };
                    match self.read_line(line, read, unasked, now, ctx) {
                        Some(answer) if self.unanswered.count() == 1 => last = Some(answer),
                        Some(answer) => self.unanswered.answer(answer, now),
                        None => {}
                    }
                }
                Ok(None) => {
                    let Some(answer) = last.take() else {
                        return;
                    };
                    let Some(chunk) = rest.next() else {
                        return self.unanswered.answer(answer, now);
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

    /// Reads a long line on another thread. The actor pauses meanwhile, so the order is kept.
    fn read_aside(&mut self, line: PiecedLine, now: Instant, ctx: &mut Context<Self>) {
        let copy = line.clone();
        let reading = aside(line.length(), move || read(copy)).into_actor(self);
        ctx.wait(reading.map(move |known, process, ctx| {
            // Without a thread the line is read here.
            let known = known.unwrap_or_else(|_| read(line));
            process.take_lines(Some(known), CanWait::Yes, now, ctx);
            process.watch_deadline(ctx);
        }));
    }

    /// Handles reports not read yet.
    pub(super) fn take_last_reports(&mut self) {
        if let Some(reports) = &mut self.backend.reports {
            reports
                .take_rest()
                .iter()
                .for_each(|call| self.refused(call));
        }
    }

    /// Processes unread output that the child has written by now.
    pub(super) fn take_what_is_there(&mut self, ctx: &mut Context<Self>) {
        let stdout = Rc::clone(&self.backend.stdout);
        for chunk in what_is_there(&stdout) {
            self.take_output(chunk, CanWait::No, ctx);
        }
    }
}

impl ChildBackend {
    /// Returns the child's last stderr lines, including unread ones.
    pub(super) fn last_words(&mut self) -> Vec<String> {
        self.read_stderr();
        self.stderr_log.last_words()
    }

    /// Drops all stderr lines that the child has written by now.
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

fn read(line: PiecedLine) -> (Bytes, Line) {
    let line = line.join();
    (line.clone(), classify(line))
}

/// Returns what a pipe now contains, in chunks: at most [`READS_OF_A_FULL_PIPE`].
fn what_is_there(pipe: &PipeReader) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(|| pipe.read().ok().filter(|chunk| !chunk.is_empty()))
        .take(READS_OF_A_FULL_PIPE)
}

struct StdoutChunk(Bytes);

struct StderrChunk(Bytes);

/// A report of the launcher.
struct ReportChunk(Bytes);

impl StreamHandler<StdoutChunk> for OsProcess {
    fn handle(&mut self, chunk: StdoutChunk, ctx: &mut Self::Context) {
        self.take_output(chunk.0, CanWait::Yes, ctx);
        self.watch_deadline(ctx);
    }

    fn finished(&mut self, ctx: &mut Self::Context) {
        self.pipe_closed("a closed standard output", ctx);
    }
}

impl StreamHandler<StderrChunk> for OsProcess {
    fn handle(&mut self, chunk: StderrChunk, _: &mut Self::Context) {
        self.speak_for_call();
        self.backend.stderr_log.add(&chunk.0);
    }

    fn finished(&mut self, _: &mut Self::Context) {}
}

impl StreamHandler<ReportChunk> for OsProcess {
    fn handle(&mut self, chunk: ReportChunk, _: &mut Self::Context) {
        if let Some(reports) = &mut self.backend.reports {
            reports
                .take(chunk.0)
                .iter()
                .for_each(|call| self.refused(call));
        }
    }

    fn finished(&mut self, _: &mut Self::Context) {}
}
