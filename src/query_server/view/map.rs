//! Documents in, rows out, through several processes at once.
//!
//! SUMMARY   One worker a process keeps many documents in flight; the workers share the input.
//! PROMISES  Documents in flight are bounded in number and bytes, and are few while answers are
//!           slow.
//!           When a process died, or did not answer in time, its unanswered documents are tried
//!           once
//!           more, one at a time in a fresh process: a query server may hold answers back while it
//!           works on more, so only then is it clear which document it was. That one is an error
//!           that names it.
//! LIMITS    Rows of different documents come in any order.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, StreamExt};
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use super::documents::{Batches, Document, InputError};
use super::processes::{Process, ProcessError, Processes};
use super::rows::Row;
use super::{View, ViewError};
use crate::query_server::prompt;

/// How many documents one process may have unanswered at first, and at most.
const IN_FLIGHT: RangeInclusive<usize> = 8..=128;

/// Answers that come sooner than this make the documents in flight more; much later ones, fewer.
///
/// A function that takes long must not let a queue of documents run into the deadline of the first.
const ANSWER_TIME_GOAL: Duration = Duration::from_millis(50);

/// How many bytes of documents one process may have unanswered, if it is more than one document.
const IN_FLIGHT_BYTES_MAX: usize = 1 << 20;

/// Takes rows, and says when the next ones may come.
pub trait RowSink {
    /// Takes a row.
    fn row(&self, row: &Row<'_>);

    /// Waits until there is room for more rows. `false`: nobody wants more.
    fn ready(&self) -> impl Future<Output = bool>;
}

/// What has been done so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Documents that were mapped.
    pub documents: Cell<u64>,
    /// Rows that they emitted.
    pub rows: Cell<u64>,
    /// Bytes of prompts sent for them.
    pub bytes: Cell<u64>,
}

/// Maps documents with `width` processes until the input ends.
///
/// # Errors
/// The first error of any worker; the others stop over it. Rows before it have been handed on.
pub async fn map(
    view: &View,
    processes: &Processes,
    input: Batches,
    sink: &impl RowSink,
    run: Run<'_>,
) -> Result<(), ViewError> {
    let shared = Shared {
        view,
        processes,
        input: Mutex::new(input),
        sink,
        counts: run.counts,
        input_error: RefCell::new(None),
    };
    let worker = |first| {
        let shared = &shared;
        async move { Worker::new(shared).run(first).await }
    };
    // The first one finds out whether the function compiles, before the others start.
    let first = shared.open().await?;
    let others = (1..run.width.max(1)).map(|_| worker(None));
    let workers = others.chain([worker(Some(first))]);
    futures_util::future::try_join_all(workers).await?;
    // Everything before the bad line is done by now.
    shared
        .input_error
        .take()
        .map_or(Ok(()), |error| Err(error.into()))
}

/// How a view is run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// How many processes work at a time.
    pub width: usize,
    /// Where progress is counted.
    pub counts: &'a Counts,
}

/// What the workers have in common.
struct Shared<'a, S> {
    view: &'a View,
    processes: &'a Processes,
    input: Mutex<Batches>,
    sink: &'a S,
    counts: &'a Counts,
    /// Why the input ended early, if it did.
    input_error: RefCell<Option<InputError>>,
}

impl<S> Shared<'_, S> {
    /// Borrows a process and gives it the view's functions.
    async fn open(&self) -> Result<Process, ViewError> {
        let process = self.processes.open(&self.view.language).await?;
        let mut commands = Vec::new();
        if !self.view.lib.is_empty() {
            commands.push(prompt::line(&("add_lib", &self.view.lib)));
        }
        commands.push(prompt::line(&("add_fun", &self.view.map)));
        for command in commands {
            if let Err(error) = process.expect_true(command).await {
                process
                    .close(matches!(error, ProcessError::Function { .. }))
                    .await;
                return Err(match error {
                    ProcessError::Function { name, reason } => ViewError::Compile { name, reason },
                    ProcessError::Timeout(reason) | ProcessError::Died(reason) => {
                        let name = "os_process_error".into();
                        ViewError::Compile { name, reason }
                    }
                    other => ViewError::Process(other),
                });
            }
        }
        Ok(process)
    }
}

/// Why a process's turn is over.
enum TurnEnd {
    /// Everything that was sent is answered, and there is no more input.
    NoMore,
    /// The process is gone, over one of the unanswered documents.
    Failed(String),
}

/// One process and its documents.
struct Worker<'a, S> {
    shared: &'a Shared<'a, S>,
    /// Documents not sent yet, or to be sent again, oldest first.
    queue: VecDeque<Document>,
    /// Documents sent and not answered, oldest first, and when they were sent.
    sent: VecDeque<(Document, Instant)>,
    /// How many documents may be unanswered.
    window: usize,
    /// How many documents at the head of the queue are tried a second time.
    again: usize,
}

impl<'a, S: RowSink> Worker<'a, S> {
    fn new(shared: &'a Shared<'a, S>) -> Self {
        Self {
            shared,
            queue: VecDeque::new(),
            sent: VecDeque::new(),
            window: *IN_FLIGHT.start(),
            again: 0,
        }
    }

    /// Works until the input ends, with one process after the other if need be.
    async fn run(mut self, first: Option<Process>) -> Result<(), ViewError> {
        let mut next = first;
        loop {
            // A process is borrowed when there is something for it.
            if self.queue.is_empty() && !self.take_batch(true).await {
                if let Some(process) = next {
                    process.close(true).await;
                }
                return Ok(());
            }
            let process = match next.take() {
                Some(process) => process,
                None => self.shared.open().await?,
            };
            let end = self.turn(&process).await;
            process.close(matches!(end, Ok(TurnEnd::NoMore))).await;
            match end? {
                TurnEnd::NoMore => return Ok(()),
                TurnEnd::Failed(reason) => self.put_back(reason)?,
            }
        }
    }

    /// Has unanswered documents tried again, unless this was their second time.
    fn put_back(&mut self, reason: String) -> Result<(), ViewError> {
        if self.again > 0
            && let Some((document, _)) = self.sent.front()
        {
            return Err(failed(document, format!("{reason} (twice)")));
        }
        self.again = self.sent.len();
        while let Some((document, _)) = self.sent.pop_back() {
            self.queue.push_front(document);
        }
        Ok(())
    }

    /// Works with one process.
    async fn turn(&mut self, process: &Process) -> Result<TurnEnd, ViewError> {
        let mut answers = FuturesOrdered::new();
        let mut bytes = 0;
        loop {
            while self.may_send(bytes) {
                if self.queue.is_empty() && !self.take_batch(self.sent.is_empty()).await {
                    break;
                }
                let Some(document) = self.queue.pop_front() else {
                    break;
                };
                bytes += document.prompt.len();
                answers.push_back(process.prompt(document.prompt.clone()));
                self.sent.push_back((document, Instant::now()));
            }
            let Some(answer) = answers.next().await else {
                return Ok(TurnEnd::NoMore);
            };
            let (head, since) = self
                .sent
                .front()
                .expect("VW-5: an answer belongs to a document");
            match answer {
                Ok(answer) => self.take_rows(head, &answer)?,
                Err(ProcessError::Timeout(reason)) if self.sent.len() == 1 => {
                    return Err(failed(head, reason));
                }
                Err(ProcessError::Died(reason) | ProcessError::Timeout(reason)) => {
                    return Ok(TurnEnd::Failed(reason));
                }
                Err(error @ ProcessError::Function { .. }) => {
                    return Err(failed(head, error.to_string()));
                }
                Err(error) => return Err(error.into()),
            }
            bytes -= head.prompt.len();
            self.adapt(since.elapsed());
            self.sent.pop_front();
            self.again = self.again.saturating_sub(1);
            if !self.shared.sink.ready().await {
                return Err(ViewError::Unwanted);
            }
        }
    }

    fn may_send(&self, bytes: usize) -> bool {
        let room = self.sent.len() < self.window && bytes < IN_FLIGHT_BYTES_MAX;
        self.sent.is_empty() || (room && self.again == 0)
    }

    /// Widens or narrows the window: slowly up, quickly down.
    fn adapt(&mut self, answer_time: Duration) {
        if answer_time <= ANSWER_TIME_GOAL {
            self.window = (self.window + 1).min(*IN_FLIGHT.end());
        } else if answer_time > 2 * ANSWER_TIME_GOAL {
            self.window = (self.window / 2).max(1);
        }
    }

    /// Takes more documents from the input: waits for them, or takes those that are there.
    /// `false`: there are none.
    async fn take_batch(&mut self, wait: bool) -> bool {
        let input = &self.shared.input;
        let batch = if wait {
            input.lock().await.recv().await
        } else {
            input
                .try_lock()
                .ok()
                .and_then(|mut input| input.try_recv().ok())
        };
        match batch {
            Some(Ok(batch)) => {
                self.queue.extend(batch);
                true
            }
            Some(Err(error)) => {
                self.shared.input_error.replace(Some(error));
                false
            }
            None => false,
        }
    }

    fn take_rows(&self, document: &Document, answer: &Bytes) -> Result<(), ViewError> {
        let columns: Vec<Vec<(&RawValue, &RawValue)>> =
            serde_json::from_slice(answer).map_err(|_| {
                failed(
                    document,
                    format!(
                        "the query server answered {} instead of rows",
                        excerpt(answer)
                    ),
                )
            })?;
        let [rows] = columns.as_slice() else {
            let reason = format!(
                "the query server answered for {} functions, not for one",
                columns.len()
            );
            return Err(failed(document, reason));
        };
        let id = id_text(document);
        for (key, value) in rows {
            self.shared.sink.row(&Row {
                line: document.line,
                id,
                key: key.get(),
                value: value.get(),
            });
        }
        let counts = self.shared.counts;
        counts.documents.set(counts.documents.get() + 1);
        counts.rows.set(counts.rows.get() + rows.len() as u64);
        counts
            .bytes
            .set(counts.bytes.get() + document.prompt.len() as u64);
        Ok(())
    }
}

fn id_text(document: &Document) -> &str {
    std::str::from_utf8(&document.id).unwrap_or_default()
}

fn failed(document: &Document, reason: String) -> ViewError {
    ViewError::Document {
        line: document.line,
        id: id_text(document).to_owned(),
        reason,
    }
}

/// How much of an answer an error quotes, in characters.
const EXCERPT_CHARACTERS: usize = 100;

fn excerpt(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer)
        .chars()
        .take(EXCERPT_CHARACTERS)
        .collect()
}
