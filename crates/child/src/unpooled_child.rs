//! A child outside any pool, prompted line by line.
//!
//! SUMMARY   [`UnpooledChild`] starts a command, sends it bytes, reads its lines, and reports how it ended.
//! PROMISES  Neither side blocks the other: data is written while waiting for lines. Dropping it kills the child with
//!           its group and reaps it. The length of lines is bounded.
//! CALLED    By `settee conform` and by the probes of abilities, which test a command outside of any loan. Needs an
//!           actor system on its thread.
//! LIMITS    Has no deadline: a caller that sets one drops the child when it passes. Sent data is queued without
//!           bound, so callers send only their own data.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;

use crate::cell::report::Reports;
use crate::line_buffer::{LineBuffer, LineTooLong};
use crate::pipe::{Chunks, PipeReader, PipeWriter};
use crate::stderr::StderrLog;
use crate::{Child, CommandSpec, Exit, SpawnError, Spawner};

/// How long to wait for the rest of standard error after the child's end: a descendant may hold the pipe.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(200);

/// How long to wait for the exit of a child that has closed its output.
const END_WAIT: Duration = Duration::from_secs(1);

/// Lines of standard error quoted in an exit report.
const QUOTED_LINES: usize = 2;

/// How a child ended.
pub struct ChildEnd {
    /// In words: `exited with status 1`, and its last output.
    pub report: String,
    /// Whether it ended on its own: it was started, no signal ended it, and it reached no limit of its cell.
    pub is_its_own: bool,
}

/// A child, and its output so far.
pub struct UnpooledChild {
    child: Child,
    /// `None` once the input is closed.
    input: Option<PipeWriter>,
    output: Chunks,
    lines: LineBuffer,
    stderr: Rc<RefCell<StderrLog>>,
    /// Drains the child's standard error, so that it never blocks.
    listener: tokio::task::JoinHandle<()>,
    /// Reports of its cell's launcher.
    reports: Option<Reports>,
    answered: bool,
}

impl UnpooledChild {
    /// Starts the command. `line_bytes_max` is the maximum length of a line.
    ///
    /// # Errors
    /// See [`SpawnError`].
    pub async fn start(
        spawner: &Spawner,
        command: CommandSpec,
        line_bytes_max: usize,
    ) -> Result<Self, SpawnError> {
        let (child, pipes) = spawner.spawn(command).await?;
        let words = Rc::new(RefCell::new(StderrLog::new(None)));
        let mut stderr = Chunks::new(PipeReader::new(pipes.stderr)?);
        let kept = Rc::clone(&words);
        // Ends with the pipe, or when this is dropped.
        let listener = tokio::task::spawn_local(async move {
            while let Some(chunk) = stderr.next().await {
                kept.borrow_mut().add(&chunk);
            }
        });
        Ok(Self {
            input: Some(PipeWriter::new(pipes.stdin)?),
            output: Chunks::new(PipeReader::new(pipes.stdout)?),
            lines: LineBuffer::new(line_bytes_max),
            stderr: words,
            listener,
            reports: pipes.report.map(Reports::new).transpose()?,
            answered: false,
            child,
        })
    }

    /// Sends bytes unchanged. After [`Self::close`] they are dropped.
    pub fn send(&self, bytes: impl Into<Bytes>) {
        if let Some(input) = &self.input {
            input.queue_bytes(bytes.into());
        }
    }

    /// Closes the child's input once everything is sent.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Returns the next line; at the end of the output an unfinished one, then `None`.
    ///
    /// # Errors
    /// The line exceeds the maximum length; there are no further lines.
    pub async fn line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        loop {
            if let Some(line) = self.lines.next_line()? {
                self.answered = true;
                return Ok(Some(line));
            }
            match self.output.next().await {
                Some(chunk) => self.lines.add(chunk),
                None => return Ok(Some(self.lines.take_rest()).filter(|rest| !rest.is_empty())),
            }
        }
    }

    /// Closes the input and waits for the child's exit; its group is killed.
    pub async fn end(&mut self) -> Exit {
        self.close();
        let exit = self.child.reap().await;
        // Standard error that arrives later is not needed.
        drop(tokio::time::timeout(LAST_WORDS_WAIT, &mut self.listener).await);
        exit
    }

    /// Reports the exit of a child that has closed its output.
    pub async fn exit_report(&mut self) -> ChildEnd {
        let exit = tokio::time::timeout(END_WAIT, self.end()).await;
        // Refused calls do not matter here.
        self.reports.as_mut().map(Reports::take_rest);
        let reports = self.reports.as_ref();
        let is_explained = reports.is_some_and(|told| told.error.is_some() || told.met.is_some());
        let is_its_own = exit.as_ref().is_ok_and(|exit| !exit.is_by_signal()) && !is_explained;
        let described = |exit| {
            self.child
                .describe(exit, self.reports.as_ref(), self.answered)
        };
        let exit = exit.map_or_else(|_| "closed its output".into(), described);
        let words = self.stderr.borrow_mut().last_words();
        let report = match &words[words.len().saturating_sub(QUOTED_LINES)..] {
            [] => exit,
            words => format!("{exit}, its last words: {}", words.join(" / ")),
        };
        ChildEnd { report, is_its_own }
    }
}

impl Drop for UnpooledChild {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The spawner has to live as long as its children.
    async fn talk_to(script: &str) -> (UnpooledChild, Spawner) {
        let command = CommandSpec {
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
            cell: crate::cell::Cell::None,
        };
        let spawner = Spawner::start().unwrap();
        let child = UnpooledChild::start(&spawner, command, 1 << 16);
        (child.await.unwrap(), spawner)
    }

    #[actix_rt::test]
    async fn lines_go_in_and_out_and_the_end_is_reported() {
        let (mut child, _spawner) =
            talk_to("read a; echo \"<$a>\"; printf rest; echo why >&2; exit 3").await;
        child.send("one\n");
        assert_eq!(child.line().await.unwrap().unwrap(), "<one>");
        assert_eq!(child.line().await.unwrap().unwrap(), "rest");
        assert_eq!(child.line().await.unwrap(), None);
        assert_eq!(child.end().await.status(), 3);
        assert_eq!(child.stderr.borrow_mut().last_words(), ["why"]);
    }

    #[actix_rt::test]
    async fn input_that_nobody_reads_yet_blocks_nothing() {
        let (mut child, _spawner) = talk_to("echo first; wc -c").await;
        child.send(vec![b'x'; 1 << 20]);
        child.close();
        assert_eq!(child.line().await.unwrap().unwrap(), "first");
        assert_eq!(
            child.line().await.unwrap().unwrap().trim_ascii(),
            b"1048576"
        );
    }

    #[actix_rt::test]
    async fn a_flood_without_a_line_feed_is_an_error() {
        let (mut child, _spawner) = talk_to("yes | tr -d '\\n'").await;
        let line = tokio::time::timeout(Duration::from_secs(20), child.line()).await;
        assert_eq!(line.unwrap(), Err(LineTooLong { limit: 1 << 16 }));
    }
}
