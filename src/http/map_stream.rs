//! `POST /_query/map` line by line: documents in, rows out, while more documents come.
//!
//! SUMMARY   The first line holds the arguments without documents; each further line is a document,
//!           and has one line of rows as its answer, in the same order.
//! PROMISES  Memory is bounded: who sends faster than functions run, or reads slower, has to wait. An
//!           error in the middle is a last line `{"error", "reason", "line"}`; one before the first
//!           answer has its code. However the request ends, its processes come back.
//! SOURCE    couch_query_servers: start_doc_map/3, map_doc_raw/2.
//! LIMITS    A client has to read while it writes. The head of the answer comes with the first rows.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::Shared;
use super::answer::{Answer, Refusal};
use super::body::{self, IDLE_MAX};
use super::tasks::{Running, Task};
use crate::actors::caller::Caller;
use crate::actors::gate::{GateError, Inside};
use crate::messages::client_error::ErrorReply;
use crate::messages::proc_manager::TakeFrom;
use crate::query_server::view::{
    self, BATCHES_AHEAD, Batches, Cause, Counts, Document, DocumentCutter, InputError, MapSink,
    Mapped, Order, ProcessError, Processes, Run, View, ViewError,
};

/// The content type of both directions.
pub(super) const NDJSON: &str = "application/x-ndjson";

/// Pieces of the answer that wait for the client.
const ANSWERS_AHEAD: usize = 16;

/// Processes that work for one stream, if they can be had.
const PROCESSES: usize = 2;

/// The longest timeout that may be asked for: a year, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 365 * 24 * 60 * 60 * 1000;

/// The first line.
#[derive(Deserialize)]
struct Arguments {
    #[serde(default = "javascript")]
    lang: String,
    #[serde(default)]
    lib: Option<Box<RawValue>>,
    funs: Vec<Box<RawValue>>,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

fn javascript() -> String {
    "javascript".to_owned()
}

pub(super) async fn answer(mut payload: web::Payload, shared: &web::Data<Shared>) -> Answer {
    let (first, rest) = first_line(&mut payload, shared).await?;
    let arguments = arguments(&first)?;
    let running = shared.tasks.begin(&arguments.lang);
    let (batches, input) = mpsc::channel(BATCHES_AHEAD);
    let (sink, answers) = mpsc::channel(ANSWERS_AHEAD);
    let task = Arc::clone(&running.task);
    let work = shared
        .gateway
        .run(move |inside| map(inside, arguments, input, sink, task));
    let line_max = shared.config.borrow().server.line_max;
    let task = Arc::clone(&running.task);
    let mut stream = Stream {
        pump: Some(Box::pin(pump(payload, rest, line_max, batches, task))),
        answers,
        work: Some(Box::pin(work)),
        _running: running,
    };
    // What fails before there is anything to answer fails with a code.
    let first = stream.next().await?;
    let rest = stream::unfold(Some(stream), async |stream| {
        let mut stream = stream?;
        match stream.next().await {
            Ok(None) => None,
            Ok(Some(chunk)) => Some((Ok(chunk), Some(stream))),
            Err(refusal) => Some((Ok(refusal.line()), None)),
        }
    });
    let first = stream::iter(first.map(Ok::<_, GateError>));
    Ok(HttpResponse::Ok()
        .content_type(NDJSON)
        .streaming(futures_util::StreamExt::chain(first, rest)))
}

/// Reads up to the first line feed. Returns the line, and what came after it.
async fn first_line(
    payload: &mut web::Payload,
    shared: &Shared,
) -> Result<(BytesMut, BytesMut), Refusal> {
    let limit = shared.config.borrow().server.line_max;
    let mut text = BytesMut::new();
    loop {
        let searched = text.len();
        let chunk = body::next(payload).await?;
        let is_end = chunk.is_none();
        text.extend_from_slice(&chunk.unwrap_or_default());
        let end = memchr::memchr(b'\n', &text[searched..]).map(|at| searched + at);
        if end.unwrap_or(text.len()) > limit {
            return Err(Refusal::too_large(limit));
        }
        match end {
            Some(end) => {
                let rest = text.split_off(end + 1);
                return Ok((text, rest));
            }
            None if is_end => return Ok((text, BytesMut::new())),
            None => {}
        }
    }
}

fn arguments(line: &[u8]) -> Result<Arguments, Refusal> {
    let arguments: Arguments = serde_json::from_slice(line).map_err(|error| {
        Refusal::bad_request(format!(
            "the first line must be the arguments, {{\"lang\", \"lib\", \"funs\"}}: {error}"
        ))
        .with_member("line", 1)
    })?;
    if arguments.timeout_ms.is_some_and(|ms| ms > TIMEOUT_MS_MAX) {
        let reason = format!("timeout_ms must be at most {TIMEOUT_MS_MAX}");
        return Err(Refusal::bad_request(reason).with_member("line", 1));
    }
    Ok(arguments)
}

type Worked = Result<Result<(), Refusal>, GateError>;

/// A request in progress: what comes, what is done with it, what goes out.
struct Stream {
    /// Brings documents to the pool; none once they are all there.
    pump: Option<Pin<Box<dyn Future<Output = ()>>>>,
    answers: mpsc::Receiver<Bytes>,
    /// None once it is over.
    work: Option<Pin<Box<dyn Future<Output = Worked>>>>,
    _running: Running,
}

impl Stream {
    /// Returns the next piece of the answer; none at its end.
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            tokio::select! {
                biased;
                answer = self.answers.recv() => match answer {
                    Some(answer) => return Ok(Some(answer)),
                    // The work lets go of its end when it is over.
                    None => return self.finish().await.map(|()| None),
                },
                () = pending_or(&mut self.pump) => self.pump = None,
            }
        }
    }

    async fn finish(&mut self) -> Result<(), Refusal> {
        match self.work.take() {
            Some(work) => work.await?,
            None => Ok(()),
        }
    }
}

async fn pending_or(future: &mut Option<Pin<Box<dyn Future<Output = ()>>>>) {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

type Batch = Result<Vec<Document>, InputError>;

/// Cuts what comes into documents and hands them over, until the end or an error.
async fn pump(
    mut payload: web::Payload,
    first: BytesMut,
    line_max: usize,
    batches: mpsc::Sender<Batch>,
    task: Arc<Task>,
) {
    let mut cutter = DocumentCutter::new(line_max);
    // The arguments are the first line.
    cutter.add(b"\n");
    cutter.add(&first);
    drop(first);
    let mut is_ended = false;
    loop {
        let batch = cutter.next_batch();
        let count = batch.as_ref().map_or(1, Vec::len);
        if count > 0 {
            task.docs_read.fetch_add(count as u64, Ordering::Relaxed);
            task.touch();
            let is_last = batch.is_err();
            // Nobody takes it any more: the work is over, and says why.
            if batches.send(batch).await.is_err() || is_last {
                return;
            }
            continue;
        }
        if is_ended {
            return;
        }
        match body::next(&mut payload).await {
            Ok(Some(chunk)) => cutter.add(&chunk),
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

/// Runs the functions, on the pool's arbiter.
async fn map(
    inside: Rc<Inside>,
    arguments: Arguments,
    input: Batches,
    answers: mpsc::Sender<Bytes>,
    task: Arc<Task>,
) -> Result<(), Refusal> {
    let view = View {
        language: arguments.lang,
        funs: arguments.funs,
        lib: arguments.lib,
    };
    let run = Run {
        width: PROCESSES,
        order: Order::AsRead,
        timeout: arguments.timeout_ms.map(Duration::from_millis),
        counts: &Counts::default(),
    };
    let processes = Processes::Pool(Rc::new(Caller::new(inside.manager.clone())), TakeFrom::Own);
    let sink = Sink {
        answers,
        ready: RefCell::default(),
        task,
    };
    let result = view::map(&view, &processes, input, &sink, run).await;
    // What was mapped before an error is told first.
    let is_read = sink.ready().await;
    match result {
        Err(ViewError::Unwanted) => Err(not_read()),
        Err(error) => Err(refusal_of(error)),
        Ok(()) if is_read => Ok(()),
        Ok(()) => Err(not_read()),
    }
}

fn not_read() -> Refusal {
    let reason = format!(
        "nothing of the answer was read for {} s",
        IDLE_MAX.as_secs()
    );
    Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", reason)
}

/// Passes answers on.
struct Sink {
    answers: mpsc::Sender<Bytes>,
    /// What can go out now: the answers to documents that were in flight together.
    ready: RefCell<BytesMut>,
    task: Arc<Task>,
}

impl MapSink for Sink {
    fn mapped(&self, mapped: &Mapped<'_>) {
        let mut ready = self.ready.borrow_mut();
        ready.extend_from_slice(mapped.answer());
        ready.extend_from_slice(b"\n");
        self.task.docs_written.fetch_add(1, Ordering::Relaxed);
    }

    async fn ready(&self) -> bool {
        let ready = self.ready.take();
        if ready.is_empty() {
            return true;
        }
        self.task.touch();
        let sending = self.answers.send_timeout(ready.freeze(), IDLE_MAX);
        sending.await.is_ok()
    }
}

fn refusal_of(error: ViewError) -> Refusal {
    let text = error.to_string();
    match error {
        ViewError::Input(InputError::Line { line, problem }) => {
            Refusal::bad_request(problem).with_member("line", line)
        }
        ViewError::Compile { cause, .. } => {
            let refusal = cause.map_or_else(
                || Refusal::bad_request(""),
                |cause| Refusal::from(reply_of(cause)),
            );
            refusal
                .named(StatusCode::BAD_REQUEST, "compilation_error")
                .because(text)
                .with_member("line", 1)
        }
        ViewError::Document { line, error, .. } => {
            refusal_of_process(error.map(|error| *error), text).with_member("line", line)
        }
        ViewError::Process(error) => refusal_of_process(Some(error), text),
        ViewError::Input(InputError::Read(_)) | ViewError::Reduce { .. } | ViewError::Unwanted => {
            Refusal::bad_request(text)
        }
    }
}

fn refusal_of_process(error: Option<ProcessError>, text: String) -> Refusal {
    let cause = error.as_ref().and_then(ProcessError::cause).cloned();
    match cause {
        Some(cause) => Refusal::from(reply_of(cause)).because(text),
        None => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "os_process_error", text),
    }
}

fn reply_of(cause: Cause) -> ErrorReply {
    match cause {
        Cause::Call(error) => (*error).into(),
        // Processes of another service are not asked for here.
        Cause::Service(_) => ErrorReply::internal(),
    }
}
