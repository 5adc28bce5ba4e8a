//! Maps documents through several processes at once.
//!
//! SUMMARY   Each process has a worker that keeps many documents in flight; the workers share the input.
//! PROMISES  Documents in flight are bounded in number and bytes, and few while answers are slow. If a process dies
//!           or times out, its unanswered documents are retried once, one at a time in a fresh process: a query
//!           server may hold answers back while it works on more, so only then is it clear which document is at
//!           fault. The error names it. Waits only for the first process, and uses others as available.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::answer::{MapAnswer, Mapped};
use super::documents::Document;
use super::order::Order;
use super::processes::{Process, ProcessError, ProcessErrorKind, Processes};
use super::prompt_queue::{Answer, PromptQueue};
use super::reader::Batches;
use super::supply::{Numbered, Supply};
use super::{Part, View, ViewError};
use crate::query_server::abilities::Ability;
use crate::query_server::call::Call;
use crate::query_server::ddoc::DEFAULT_LANGUAGE;
use crate::query_server::prompt;

/// The initial and the maximum number of unanswered documents of one process. With documents of a few hundred bytes
/// the maximum exceeds a pipe's capacity, so that the process never waits for input.
const IN_FLIGHT: RangeInclusive<usize> = 8..=256;

/// Faster answers raise the number of documents in flight; much slower ones lower it.
///
/// With a slow function, documents queued behind others must not exceed their deadline.
const ANSWER_TIME_GOAL: Duration = Duration::from_millis(50);

/// Size of one process's unanswered documents from which no further one is sent, in bytes of their prompts.
const IN_FLIGHT_BYTES_MAX: usize = 1 << 20;

/// Accepts emitted rows, and reports when it can accept more.
pub trait MapSink {
    /// Takes the rows emitted for one document.
    fn mapped(&self, mapped: &Mapped<'_>);

    /// Waits until it can accept more; by default it always can. Returns false if no more are wanted.
    fn ready(&self) -> impl Future<Output = bool> {
        std::future::ready(true)
    }
}

/// The progress so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Documents that were mapped.
    pub documents: Cell<u64>,
    /// Rows emitted.
    pub rows: Cell<u64>,
    /// Bytes of prompts sent.
    pub bytes: Cell<u64>,
}

/// How a view is run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The number of parallel processes, if available.
    pub width: usize,
    /// The order in which results are passed on.
    pub order: Order,
    /// The time limit of one document; `None`: that of the process.
    pub timeout: Option<Duration>,
    /// The counters of progress.
    pub counts: &'a Counts,
}

/// Maps documents until the input ends.
///
/// # Errors
/// The first error of any worker; it stops the others. Earlier results have been passed on, as far as the order
/// allows.
pub async fn map(
    view: &View,
    processes: &Processes,
    input: Batches,
    sink: &impl MapSink,
    run: Run<'_>,
) -> Result<(), ViewError> {
    let shared = Shared {
        view,
        processes,
        supply: Supply::new(input, run.order),
        sink,
        run,
    };
    if shared.lib().is_some() {
        processes.require(&view.language, Ability::AddLib).await?;
    }
    // The first process shows whether the functions compile, before the others start.
    let first = shared.open().await?;
    let workers = (1..run.width.max(1)).map(|_| None).chain([Some(first)]);
    let shared_by_all = &shared;
    let workers = workers.map(|first| async move { Worker::new(shared_by_all).run(first).await });
    futures_util::future::try_join_all(workers).await?;
    // Everything before the invalid line is done by now.
    shared
        .supply
        .error
        .into_inner()
        .map_or(Ok(()), |error| Err(error.into()))
}

/// Shared by the workers.
struct Shared<'a, S> {
    view: &'a View,
    processes: &'a Processes,
    supply: Supply,
    sink: &'a S,
    run: Run<'a>,
}

impl<S> Shared<'_, S> {
    /// Borrows a process and teaches it the view's functions.
    async fn open(&self) -> Result<Process, ViewError> {
        let timeout = self.run.timeout;
        let process = self.processes.open(&self.view.language, timeout).await?;
        for (part, command) in self.commands() {
            if let Err(error) = process.expect_true(command, timeout).await {
                let usable = matches!(error.kind, ProcessErrorKind::Function(_));
                process.close(usable).await;
                return Err(refused(part, error));
            }
        }
        Ok(process)
    }

    /// Like [`Self::open`], but returns `None` if the work is done before there is a process, or if none is available
    /// for now.
    async fn open_another(&self) -> Result<Option<Process>, ViewError> {
        let opened = tokio::select! {
            opened = self.open() => opened,
            () = self.supply.exhausted() => return Ok(None),
        };
        match opened {
            Ok(process) => Ok(Some(process)),
            Err(ViewError::Process(ProcessError {
                kind: ProcessErrorKind::NoProcess { retry: true },
                ..
            })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The modules, if there are any.
    fn lib(&self) -> Option<&RawValue> {
        self.view
            .lib
            .as_deref()
            .filter(|lib| !is_empty_object(lib.get()))
    }

    /// Returns the call, if its report counts rows: only for JavaScript, whose functions are sources that emit rows.
    fn told_call(&self) -> Option<&Arc<Call>> {
        let is_javascript = self.view.language.eq_ignore_ascii_case(DEFAULT_LANGUAGE);
        let call = self.processes.call();
        call.filter(|call| call.reports && is_javascript)
    }

    fn commands(&self) -> impl Iterator<Item = (Part, Bytes)> {
        let funs = &self.view.funs;
        let lib = self
            .lib()
            .map(|lib| (Part::Library, prompt::line(&("add_lib", lib))));
        let funs = funs.iter().enumerate().map(|(index, fun)| {
            let command = prompt::line(&("add_fun", fun));
            (Part::Function(index), command)
        });
        lib.into_iter().chain(funs)
    }
}

fn is_empty_object(json: &str) -> bool {
    json.strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(|inside| inside.trim_ascii().is_empty())
}

fn refused(part: Part, error: ProcessError) -> ViewError {
    match error.kind {
        ProcessErrorKind::Unavailable | ProcessErrorKind::NoProcess { .. } => error.into(),
        _ => ViewError::Compile {
            part,
            error: Box::new(error),
        },
    }
}

/// A document that was sent.
struct Sent {
    document: Numbered,
    since: Instant,
}

/// One process and its documents.
struct Worker<'a, S> {
    shared: &'a Shared<'a, S>,
    /// Documents to retry, one at a time, oldest first.
    again: VecDeque<Numbered>,
    /// Documents in flight, oldest first.
    sent: VecDeque<Sent>,
    /// Bytes of their prompts.
    sent_bytes: usize,
    /// Whether the document in flight is a retry.
    is_second_try: bool,
    /// Maximum number of unanswered documents.
    window: usize,
    /// The answer being read.
    mapped: MapAnswer,
}

impl<'a, S: MapSink> Worker<'a, S> {
    fn new(shared: &'a Shared<'a, S>) -> Self {
        Self {
            shared,
            again: VecDeque::new(),
            sent: VecDeque::new(),
            sent_bytes: 0,
            is_second_try: false,
            window: *IN_FLIGHT.start(),
            mapped: MapAnswer::default(),
        }
    }

    /// Works until the input ends, replacing its process if necessary.
    async fn run(mut self, first: Option<Process>) -> Result<(), ViewError> {
        let mut next = first;
        loop {
            // A process is borrowed only if there is a document for it.
            if self.again.is_empty() && !self.shared.supply.wait().await {
                if let Some(process) = next {
                    process.close(true).await;
                }
                return Ok(());
            }
            let process = match next.take() {
                Some(process) => process,
                None if !self.again.is_empty() => self.shared.open().await?,
                None => match self.shared.open_another().await? {
                    Some(process) => process,
                    None => return Ok(()),
                },
            };
            let end = match self.turn(&process).await {
                Ok(None) => process
                    .fence()
                    .await
                    .map(|()| None)
                    .map_err(ViewError::from),
                end => end,
            };
            process.close(matches!(end, Ok(None))).await;
            match end? {
                None => return Ok(()),
                Some(error) => self.put_back(error)?,
            }
        }
    }

    /// Queues unanswered documents for a retry.
    ///
    /// # Errors
    /// The document in flight already was a retry.
    fn put_back(&mut self, error: ProcessError) -> Result<(), ViewError> {
        if self.is_second_try
            && let Some(sent) = self.sent.front()
        {
            let reason = format!("{error} (twice)");
            return Err(failed(&sent.document.1, reason, Some(error)));
        }
        while let Some(sent) = self.sent.pop_back() {
            self.again.push_front(sent.document);
        }
        self.sent_bytes = 0;
        Ok(())
    }

    /// Works with one process until the input ends. If the process is gone, returns the error, which one of the
    /// unanswered documents caused.
    async fn turn(&mut self, process: &Process) -> Result<Option<ProcessError>, ViewError> {
        let mut prompts = PromptQueue::with(process, self.shared.run.timeout);
        let mut answers = Vec::new();
        loop {
            self.send(&mut prompts);
            if self.sent.is_empty() {
                if self.again.is_empty() && !self.shared.supply.wait().await {
                    return Ok(None);
                }
                continue;
            }
            prompts.receive(&mut answers).await;
            let now = Instant::now();
            for answer in answers.drain(..) {
                self.mapped.told = answer.told;
                if let Some(error) = self.take(answer.answer, now)? {
                    return Ok(Some(error));
                }
            }
            if !self.shared.sink.ready().await {
                return Err(ViewError::Unwanted);
            }
        }
    }

    /// Sends documents up to the window, without waiting.
    fn send(&mut self, prompts: &mut PromptQueue<'_>) {
        let since = Instant::now();
        loop {
            let room = self.sent.len() < self.window && self.sent_bytes < IN_FLIGHT_BYTES_MAX;
            let alone = self.is_second_try || !self.again.is_empty();
            if !self.sent.is_empty() && (alone || !room) {
                return;
            }
            self.is_second_try = !self.again.is_empty();
            let Some(document) = self.again.pop_front().or_else(|| self.shared.supply.take())
            else {
                return;
            };
            let line = document.1.prompt.clone();
            self.sent_bytes += line.len();
            prompts.send(line);
            self.sent.push_back(Sent { document, since });
        }
    }

    /// Takes the answer to the oldest document, which arrived at `now`. Returns the error if the process is gone.
    fn take(&mut self, answer: Answer, now: Instant) -> Result<Option<ProcessError>, ViewError> {
        let head = self
            .sent
            .front()
            .expect("VW-5: an answer belongs to a document");
        let document = &head.document.1;
        let answer = match answer.map_err(|error| *error) {
            Ok(answer) => answer,
            Err(error) => {
                let is_only = self.sent.len() == 1;
                return match error.kind {
                    ProcessErrorKind::Died => Ok(Some(error)),
                    ProcessErrorKind::Timeout if !is_only => Ok(Some(error)),
                    // After `Shifted`, results already passed on may be wrong: nothing is retried.
                    ProcessErrorKind::Function(_)
                    | ProcessErrorKind::Shifted
                    | ProcessErrorKind::Timeout => {
                        Err(failed(document, error.to_string(), Some(error)))
                    }
                    _ => Err(error.into()),
                };
            }
        };
        self.mapped
            .read(answer, self.shared.view.funs.len())
            .map_err(|reason| failed(document, reason, None))?;
        let answer_time = now - head.since;
        if let Some(sent) = self.sent.pop_front() {
            self.sent_bytes -= sent.document.1.prompt.len();
            self.hand_on(sent.document);
        }
        self.adapt(answer_time);
        Ok(None)
    }

    fn hand_on(&mut self, document: Numbered) {
        let answer = &mut self.mapped;
        let Shared {
            supply, sink, run, ..
        } = self.shared;
        let Counts {
            documents,
            rows,
            bytes,
        } = run.counts;
        documents.set(documents.get() + 1);
        rows.set(rows.get() + answer.functions_with_rows().len() as u64);
        bytes.set(bytes.get() + document.1.prompt.len() as u64);
        if let Some(call) = self.shared.told_call() {
            let with_rows = answer.functions_with_rows();
            let functions = self.shared.view.funs.len();
            call.count_rows(functions, with_rows, answer.told.as_deref());
        }
        supply.hand_on(document, answer, |document, answer| {
            sink.mapped(&Mapped::new(document, answer));
        });
    }

    /// Adjusts the window: up slowly, down quickly.
    fn adapt(&mut self, answer_time: Duration) {
        if answer_time <= ANSWER_TIME_GOAL {
            self.window = (self.window + 1).min(*IN_FLIGHT.end());
        } else if answer_time > 2 * ANSWER_TIME_GOAL {
            self.window = (self.window / 2).max(1);
        }
    }
}

fn failed(document: &Document, reason: String, error: Option<ProcessError>) -> ViewError {
    ViewError::Document {
        line: document.line,
        id: document.id_text().to_owned(),
        reason,
        error: error.map(Box::new),
    }
}
