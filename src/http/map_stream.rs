//! `POST /_query/map` line by line: rows are returned while documents still arrive.
//!
//! SUMMARY   The first line has the arguments without documents; each further line is a document, answered by one
//!           line of rows, in the same order.
//! PROMISES  Those of [`super::line_stream`]; an error about a line has its number (`line`).
//! SOURCE    couch_query_servers: start_doc_map/3, map_doc_raw/2.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix_web::HttpRequest;
use bytes::{Bytes, BytesMut};
use serde::Serialize;
use tokio::sync::mpsc;

use super::Shared;
use super::access::User;
use super::answer::{Answer, Refusal, line};
use super::body::{IDLE_MAX, Incoming};
use super::line_stream::{self, ANSWERS_AHEAD, Lines, not_read, recorded};
use super::query::stream_options;
use super::tasks::Task;
use crate::actors::pool_executor::PoolWork;
use crate::functions::QueryServers;
use crate::functions::served::members;
use crate::functions::view::{
    BATCHES_AHEAD, Batches, Document, DocumentCutter, DocumentRules, InputError, MapSink, Mapped,
    ViewError,
};
use crate::messages::client_error::ErrorReply;
use crate::messages::function::{CallOptions, MapStart};
use crate::messages::proc_manager::GetLanguage;
use crate::messages::process::Fault;
use crate::query_server::told::{LogLine, ReportedError, Told};

/// Processes working for one stream, if available.
const PROCESSES: usize = 2;

/// `POST /_query/map` with a body of lines.
pub(super) async fn map(
    request: HttpRequest,
    incoming: Incoming,
    shared: Shared,
    user: User,
) -> Answer {
    let ((mut start, options), lines) = Lines::begin(incoming, &shared, MapStart::parse).await?;
    let options = stream_options(options, &request)?;
    if start.at.language.as_str().is_empty() {
        let language = GetLanguage(start.at.from.clone());
        start.at.language = shared
            .manager
            .call(language)
            .await?
            .map_err(ErrorReply::from)?;
    }
    let task = shared.tasks.begin(start.at.language.as_str());
    let (batches, input) = mpsc::channel(BATCHES_AHEAD);
    let (sink, answers) = mpsc::channel(ANSWERS_AHEAD);
    let cutter = DocumentCutter::new(
        shared.config.borrow().server.line_max,
        DocumentRules::default(),
    );
    let work = Map {
        start,
        input,
        sink: Sink {
            reports: options.report,
            answers: sink,
            is_cut: Arc::clone(&lines.incoming.is_cut),
            ready: RefCell::default(),
            task,
        },
        options,
    };
    line_stream::answer(
        pump(lines, cutter, batches, Arc::clone(&work.sink.task)),
        answers,
        work,
        (&shared, &user),
    )
    .await
}

/// Splits the body into documents and passes them on, until the end or an error.
async fn pump(
    mut lines: Lines,
    mut cutter: DocumentCutter,
    batches: mpsc::Sender<Result<Vec<Document>, InputError>>,
    task: Arc<Task>,
) {
    // The arguments are the first line.
    cutter.line = 1;
    cutter.add(lines.buffer.take_rest());
    let mut is_ended = false;
    loop {
        let batch = cutter.next_batch();
        let count = batch.as_ref().map_or(1, Vec::len);
        if count > 0 {
            task.docs_read.fetch_add(count as u64, Ordering::Relaxed);
            task.touch();
            let is_last = batch.is_err();
            // The receiver is gone if the call failed, with its own error.
            if batches.send(batch).await.is_err() || is_last {
                return;
            }
            continue;
        }
        if is_ended {
            return;
        }
        match lines.incoming.next().await {
            Ok(Some(chunk)) => cutter.add(chunk),
            Ok(None) => {
                cutter.end();
                is_ended = true;
            }
            Err(refusal) => {
                let error = io::Error::other(refusal.reason());
                // As above.
                let _ = batches.send(Err(InputError::Read(error))).await;
                return;
            }
        }
    }
}

/// Runs the functions over documents as they arrive.
struct Map {
    start: MapStart,
    input: Batches,
    sink: Sink,
    options: CallOptions,
}

impl PoolWork for Map {
    type Output = Result<(), Refusal>;

    async fn run(self, servers: QueryServers) -> Self::Output {
        let (start, sink) = (self.start, self.sink);
        let (servers, call) = servers.begin(start.at.subject("map_docs"), &self.options);
        let result = servers.map(&start, self.input, PROCESSES, &sink).await;
        let error = result
            .as_ref()
            .err()
            .map(|error| recorded(reply_of(error), &sink.answers, &sink.is_cut));
        let finished = call.end(error.as_ref());
        if sink.reports && result.is_ok() {
            let last = line(&finished.rest());
            sink.ready.borrow_mut().extend_from_slice(&last);
        }
        // Rows before an error are sent first.
        let is_read = sink.ready().await;
        match result {
            Err(ViewError::Unwanted) => Err(not_read()),
            Err(error) => Err(refusal_of(error).with_members(&finished.report())),
            Ok(()) if is_read => Ok(()),
            Ok(()) => Err(not_read()),
        }
    }
}

/// Passes answers on.
struct Sink {
    /// Whether each answer is sent with its report.
    reports: bool,
    answers: mpsc::Sender<Bytes>,
    is_cut: Arc<AtomicBool>,
    /// Answers not yet passed to the client; all of them are passed on together.
    ready: RefCell<BytesMut>,
    task: Arc<Task>,
}

impl Sink {
    fn line(&self, parts: &[&[u8]]) {
        let mut ready = self.ready.borrow_mut();
        parts.iter().for_each(|part| ready.extend_from_slice(part));
        ready.extend_from_slice(b"\n");
    }
}

/// The reports before an answer.
#[derive(Default, Serialize)]
struct Beside<'a> {
    logs: &'a [LogLine],
    #[serde(skip_serializing_if = "is_none")]
    logs_dropped: u64,
    errors: &'a [ReportedError],
    #[serde(skip_serializing_if = "is_none")]
    errors_dropped: u64,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl<'a> From<&'a Told> for Beside<'a> {
    fn from(told: &'a Told) -> Self {
        Self {
            logs: &told.logs,
            logs_dropped: told.logs_dropped,
            errors: &told.errors,
            errors_dropped: told.errors_dropped,
        }
    }
}

impl MapSink for Sink {
    fn mapped(&self, mapped: &Mapped<'_>) {
        if self.reports {
            let beside = mapped.told().map(Beside::from).unwrap_or_default();
            self.line(&[
                b"{\"ok\":",
                mapped.answer().trim_ascii(),
                &members(&beside),
                b"}",
            ]);
        } else {
            self.line(&[mapped.answer()]);
        }
        self.task.docs_written.fetch_add(1, Ordering::Relaxed);
    }

    async fn ready(&self) -> bool {
        let ready = self.ready.take();
        if ready.is_empty() {
            return true;
        }
        self.task.touch();
        self.answers
            .send_timeout(ready.freeze(), IDLE_MAX)
            .await
            .is_ok()
    }
}

fn reply_of(error: &ViewError) -> ErrorReply {
    match (error, error.cause()) {
        (ViewError::Unwanted, _) => ErrorReply::unread(),
        (_, Some(cause)) => cause.clone().into(),
        (ViewError::Document { .. } | ViewError::Process(_), None) => {
            ErrorReply::answer("os_process_error", &error.to_string(), Fault::QueryServer)
        }
        (_, None) => ErrorReply::bad_request(error.to_string()),
    }
}

fn refusal_of(error: ViewError) -> Refusal {
    let refusal = Refusal::from(reply_of(&error)).with_member("reason", error.to_string());
    match error {
        ViewError::Input(InputError::Line { line, problem }) => {
            Refusal::bad_request(problem).with_member("line", line)
        }
        ViewError::Compile { .. } => refusal.named("compilation_error").with_member("line", 1),
        ViewError::Document { line, .. } => refusal.with_member("line", line),
        ViewError::Input(_)
        | ViewError::Process(_)
        | ViewError::Reduce { .. }
        | ViewError::Unwanted => refusal,
    }
}
