//! Mapping documents: the engine of views, with the errors of the client layer.
//!
//! SUMMARY   [`QueryServers::map_docs`] maps documents that are all there,
//!           [`QueryServers::map_stream`] those that come by and by.
//! PROMISES  Answers are in the order of the documents and stay the text they came as. What is in
//!           flight or held back is bounded.
//! SOURCE    couch_query_servers: start_doc_map/3, map_doc_raw/2.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::num::NonZero;
use std::rc::Rc;

use bytes::Bytes;
use tokio::sync::{Mutex, mpsc};

use super::decode::decode;
use super::{FunctionError, FunctionErrorKind, PROTOCOL_ERROR, QueryServers};
use crate::functions::view::{
    self, Batches, Cause, Counts, InputError, MapSink, Mapped, Order, Part, ProcessError,
    Processes, Run, View, ViewError, batches_of,
};
use crate::messages::client_error::Place;
use crate::messages::function::{MapDocs, MapStart};
use crate::messages::process::Fault;

/// For how many documents a further process is taken.
const DOCUMENTS_PER_PROCESS: usize = 256;

impl QueryServers {
    /// Maps documents (`map_docs`). The value is an array with an element for each document: a
    /// list for each function, of `[key, value]` pairs.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub async fn map_docs(&self, call: &MapDocs) -> Result<Bytes, FunctionError> {
        let documents = view::documents(call.docs.iter().map(|doc| doc.get()));
        let documents = documents.map_err(|error| bad_input(&error))?;
        let width = documents.len().div_ceil(DOCUMENTS_PER_PROCESS).min(cores());
        let all = Collected(RefCell::new(vec![b'[']));
        self.map(&call.start, batches_of(documents), width, &all)
            .await?;
        let mut value = all.0.into_inner();
        value.push(b']');
        Ok(Bytes::from(value))
    }

    /// Maps documents as they come, in as many processes as there are cores. `answers` gets what
    /// the query server answers to each document, in their order. It ends early when nobody takes
    /// the answers any more.
    ///
    /// # Errors
    /// See [`FunctionError`]; the answers before it have been handed on.
    pub async fn map_stream(
        &self,
        start: &MapStart,
        documents: Batches,
        answers: mpsc::Sender<Bytes>,
    ) -> Result<(), FunctionError> {
        let sink = Forwarded {
            waiting: RefCell::default(),
            answers: Mutex::new(answers),
        };
        let mapped = self.map(start, documents, cores(), &sink).await;
        sink.ready().await;
        mapped
    }

    async fn map(
        &self,
        start: &MapStart,
        documents: Batches,
        width: usize,
        sink: &impl MapSink,
    ) -> Result<(), FunctionError> {
        let view = View {
            language: start.at.language.to_string(),
            funs: start.funs.clone(),
            lib: start.lib.clone(),
        };
        let run = Run {
            width,
            order: Order::AsRead,
            timeout: start.at.timeout,
            counts: &Counts::default(),
        };
        let processes = Processes::Pool(Rc::clone(&self.caller), start.at.from.clone());
        match view::map(&view, &processes, documents, sink, run).await {
            Ok(()) | Err(ViewError::Unwanted) => Ok(()),
            Err(error) => Err(from_view(error, start.funs.len())),
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Answers in one array.
struct Collected(RefCell<Vec<u8>>);

impl MapSink for Collected {
    fn mapped(&self, mapped: &Mapped<'_>) {
        let mut all = self.0.borrow_mut();
        if all.len() > 1 {
            all.push(b',');
        }
        all.extend_from_slice(mapped.answer().trim_ascii());
    }

    async fn ready(&self) -> bool {
        true
    }
}

/// Answers on their way to somebody.
struct Forwarded {
    waiting: RefCell<VecDeque<Bytes>>,
    /// Whoever has it forwards what waits, so that the order stays.
    answers: Mutex<mpsc::Sender<Bytes>>,
}

impl MapSink for Forwarded {
    fn mapped(&self, mapped: &Mapped<'_>) {
        self.waiting.borrow_mut().push_back(mapped.answer().clone());
    }

    async fn ready(&self) -> bool {
        let answers = self.answers.lock().await;
        loop {
            let next = self.waiting.borrow_mut().pop_front();
            let Some(next) = next else {
                return !answers.is_closed();
            };
            if answers.send(next).await.is_err() {
                return false;
            }
        }
    }
}

fn bad_input(error: &InputError) -> FunctionError {
    let reason = match error {
        InputError::Line { line, problem } => format!("document {line}: {problem}"),
        InputError::Read(error) => format!("the documents cannot be read: {error}"),
    };
    FunctionErrorKind::BadCall(reason).into()
}

fn from_view(error: ViewError, functions: usize) -> FunctionError {
    let text = error.to_string();
    let mut place = Place::default();
    let cause = match error {
        ViewError::Input(error) => return bad_input(&error),
        ViewError::Process(error) => Some(error).and_then(pool_cause),
        ViewError::Compile { part, cause, .. } => {
            place.function = Some(match part {
                Part::Library => "lib".to_owned(),
                Part::Function(_) if functions == 1 => "map".to_owned(),
                Part::Function(index) => format!("map {}", index + 1),
            });
            cause.and_then(call_error)
        }
        ViewError::Document { id, error, .. } => {
            place.doc = decode(&id);
            error.and_then(|error| pool_cause(*error))
        }
        ViewError::Reduce { .. } | ViewError::Unwanted => None,
    };
    let error = cause.unwrap_or_else(|| {
        FunctionErrorKind::Answer {
            name: PROTOCOL_ERROR,
            reason: text,
            raw_reason: None,
            fault: Fault::QueryServer,
        }
        .into()
    });
    error.at(place)
}

fn pool_cause(error: ProcessError) -> Option<FunctionError> {
    error.cause().cloned().and_then(call_error)
}

fn call_error(cause: Cause) -> Option<FunctionError> {
    match cause {
        Cause::Call(error) => Some((*error).into()),
        // The processes are always those of the pool.
        Cause::Service(_) => None,
    }
}
