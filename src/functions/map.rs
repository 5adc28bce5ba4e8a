//! Maps documents with the engine of [`view`].
//!
//! SUMMARY   [`QueryServers::map_docs`] maps a list of documents, [`QueryServers::map`] a stream of them.
//! PROMISES  Answers keep the order of the documents, and their text is unchanged. Documents in flight and answers
//!           held back are bounded.
//! SOURCE    couch_query_servers: start_doc_map/3, map_doc_raw/2.

use std::cell::RefCell;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::decode::decode;
use super::{FunctionError, FunctionErrorKind, QueryServers};
use crate::functions::view::{
    self, BATCHES_AHEAD, Batches, Counts, Documents, InputError, MapSink, Mapped, Order, Part,
    Processes, Run, View, ViewError,
};
use crate::messages::client_error::Place;
use crate::messages::function::{MapDocs, MapStart};
use crate::query_server::call::Call;

/// Number of documents per borrowed process.
const DOCUMENTS_PER_PROCESS: usize = 256;

/// The number of processors, cached: the system reads files to find it.
static CORES: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, NonZero::get));

impl QueryServers {
    /// Maps documents (`map_docs`). The value is an array with an element for each document: a
    /// list for each function, of `[key, value]` pairs.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub async fn map_docs(&self, call: &MapDocs) -> Result<Bytes, FunctionError> {
        let mut documents = Documents::of(call.docs.iter());
        // A small number of documents is checked completely before the first is mapped.
        let first = documents.next_batch().map_err(|error| bad_input(&error))?;
        let width = call.docs.len().div_ceil(DOCUMENTS_PER_PROCESS).min(*CORES);
        let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
        let all = Collected {
            text: RefCell::new(vec![b'[']),
            call: self.caller.call(),
        };
        let mapped = self.map(&call.start, batches, width, &all);
        let (mapped, ()) = futures_util::join!(mapped, documents.send(first, sender));
        mapped.map_err(|error| from_view(error, call.start.funs.len()))?;
        let mut value = all.text.into_inner();
        value.push(b']');
        Ok(Bytes::from(value))
    }

    /// Maps documents as they arrive, in up to `width` processes, as available. `sink` gets the query server's answer
    /// to each document, in order.
    ///
    /// # Errors
    /// See [`ViewError`]; earlier answers have been passed on.
    pub async fn map(
        &self,
        start: &MapStart,
        documents: Batches,
        width: usize,
        sink: &impl MapSink,
    ) -> Result<(), ViewError> {
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
        let (from, tenant) = (start.at.from.clone(), start.at.db.clone().into());
        let processes = Processes::Pool(Rc::clone(&self.caller), from, tenant);
        view::map(&view, &processes, documents, sink, run).await
    }
}

/// Answers in one array.
struct Collected<'a> {
    text: RefCell<Vec<u8>>,
    /// Collects reports.
    call: Option<&'a Arc<Call>>,
}

impl MapSink for Collected<'_> {
    fn mapped(&self, mapped: &Mapped<'_>) {
        if let Some((told, call)) = mapped.told().zip(self.call) {
            call.take(told.clone(), false);
        }
        let mut all = self.text.borrow_mut();
        if all.len() > 1 {
            all.push(b',');
        }
        all.extend_from_slice(mapped.answer().trim_ascii());
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
    let cause = error.cause().cloned();
    let mut place = Place::default();
    match error {
        ViewError::Input(error) => return bad_input(&error),
        ViewError::Compile { part, .. } => {
            let function = match part {
                Part::Library => "lib".to_owned(),
                Part::Function(index) => {
                    place.index = Some(index);
                    if functions == 1 {
                        "map".to_owned()
                    } else {
                        format!("map {}", index + 1)
                    }
                }
            };
            place.function = Some(function);
        }
        ViewError::Document { id, .. } => place.doc = decode(&id),
        ViewError::Process(_) | ViewError::Reduce { .. } | ViewError::Unwanted => {}
    }
    cause
        .map_or_else(|| FunctionError::protocol(text), FunctionError::from)
        .at(place)
}
