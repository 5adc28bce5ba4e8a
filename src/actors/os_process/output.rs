//! What a child prints: lines to answers, log lines to the log, everything else to its end.
//!
//! PROMISES  A line is an answer only if a prompt waits for it (PM-10).
//! SOURCE    couch_os_process, readjson.

use std::rc::Rc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::Instant;
use bytes::Bytes;
use slog::warn;

use super::OsProcess;
use crate::messages::process::PromptError;
use crate::metrics::KillReason;
use crate::query_server::line::{Line, classify};
use crate::query_server::pipe::{Chunks, PipeReader};
use crate::query_server::prompt::leaves_list_open;

/// How many reads take what a pipe held when they began: it holds a mebibyte at most. A child that
/// writes as fast as we read must not keep the arbiter for itself.
const READS_OF_A_FULL_PIPE: usize = 16;

/// How long a child may live on after it has closed its output.
const OUTPUT_END_GRACE: Duration = Duration::from_millis(500);

impl OsProcess {
    /// Listens to what the child prints.
    pub(super) fn listen(&self, ctx: &mut Context<Self>) {
        ctx.add_stream(StdoutChunks(Chunks::new(Rc::clone(&self.stdout))));
        ctx.add_stream(StderrChunks(Chunks::new(Rc::clone(&self.stderr))));
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
    pub(super) fn take_what_is_there(&mut self) {
        let stdout = Rc::clone(&self.stdout);
        for chunk in what_is_there(&stdout) {
            self.take_output(chunk);
        }
    }

    fn take_line(&mut self, line: Bytes, now: Instant) {
        if let Some(transcript) = self.unanswered.transcript() {
            transcript.extend_from_slice(&line);
            transcript.push(b'\n');
        }
        let is_stale = std::mem::take(&mut self.line_is_stale);
        match classify(line.clone()) {
            Line::Log(text) => self.child_log.said(&text),
            Line::Malformed(what) => self.break_off(what, &line),
            _ if is_stale || self.unanswered.is_empty() => {
                self.break_off("output that nobody asked for", &line)
            }
            Line::Answer(answer) => {
                let open = leaves_list_open(&answer);
                self.unanswered.answer(Ok(answer), open, now);
            }
            Line::Error(error) => {
                self.unanswered
                    .answer(Err(PromptError::function(error, false)), false, now);
            }
            Line::Fatal(error) => {
                let error = PromptError::function(error, true);
                self.unanswered.answer(Err(error.clone()), false, now);
                // The error was that prompt's; the others were not run.
                let because = Box::new(error);
                self.end_for(PromptError::NotRun { because }, KillReason::Fatal);
            }
        }
    }

    fn break_off(&mut self, what: &'static str, line: &[u8]) {
        warn!(self.log, "query server broke the protocol and is killed";
              "error" => what, "count" => self.unanswered.count());
        self.end_for(PromptError::protocol(what, line), KillReason::Protocol);
    }

    /// Takes what the child said on stderr and nobody read yet.
    pub(super) fn take_complaints(&mut self) {
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
        self.shared.set_closed_output();
        if !self.shared.is_assigned() {
            // Nobody waits for how it ends, and nobody is to be lent it meanwhile. Where it is ending
            // already, it ends with its own status.
            return self.child.kill();
        }
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
