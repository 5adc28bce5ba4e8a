//! Runs functions: the client layer above the pool.
//!
//! SUMMARY   [`QueryServers`] borrows processes, sends the prompts of one call, reads the answers and returns the
//!           processes. [`QueryServers::perform`] does so for a call given as data.
//! PROMISES  Dropping a call returns its processes. The text of an answer is passed on unchanged, once its shape is
//!           checked.
//! CALLED    On the pool's arbiter: by connections of the socket, by HTTP, and by programs that embed the pool.
//! SOURCE    couch_query_servers.
//! DIFFERS   A function's error does not end the process. A reset is retried a few times with a
//!           delay, not for ever.

mod acquire;
pub mod caller;
mod compile;
mod ddoc;
mod decode;
mod error;
mod filter;
mod index;
mod list;
mod long_calls;
mod map;
mod pipeline;
pub(crate) mod records;
mod reduce;
mod render;
mod response;
mod rewrite;
mod scrub;
pub(crate) mod served;
mod source_filter;
mod validate;
pub mod view;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

pub use error::FunctionErrorKind;
pub(crate) use error::{FunctionError, FunctionResult};
pub use list::{ListPart, Rows};
pub use reduce::finalize;
pub use response::Response;
pub(crate) use source_filter::SourceFilter;
pub use source_filter::filter_pool;

use crate::functions::caller::Caller;
use crate::functions::records::CallRecords;
use crate::messages::function::FunctionCall;
use crate::messages::proc_manager::CallError;
use crate::query_server::reduce::OverflowLog;

/// Runs functions on the query servers of the pool.
pub struct QueryServers {
    caller: Rc<Caller>,
    /// Where finished calls are recorded.
    records: Option<Rc<CallRecords>>,
    /// The log of built-in sums that are too long.
    sums: Option<Arc<OverflowLog>>,
}

impl QueryServers {
    /// Runs functions for a client of the pool.
    pub fn new(caller: Caller) -> Self {
        Self {
            caller: Rc::new(caller),
            records: None,
            sums: None,
        }
    }

    /// Records finished calls in `records`.
    #[must_use]
    pub(crate) fn recording(mut self, records: Rc<CallRecords>) -> Self {
        self.sums = Some(Arc::clone(&records.sums));
        self.records = Some(records);
        self
    }

    /// Returns the records of finished calls.
    pub(crate) fn records(&self) -> Option<&CallRecords> {
        self.records.as_deref()
    }

    /// Returns the client that functions run for.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Performs a call and returns its value as JSON text.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub async fn perform(&self, mut call: FunctionCall) -> FunctionResult<Bytes> {
        use FunctionCall::*;
        // If the call names no language, it has that of the pool or group.
        if let Some(at) = call.in_language()
            && at.language.as_str().is_empty()
        {
            let language = self.caller.language_of(at.from.clone()).await;
            at.language = language.map_err(CallError::GetProc)?;
        }
        match call {
            MapDocs(call) => self.map_docs(&call).await,
            Reduce(call) => json(self.reduce(&call).await),
            Rereduce(call) => json(self.rereduce(&call).await),
            Finalize(call) => json(finalize(&call)),
            IndexDocs(call) => json(self.index_docs(&call).await),
            TryCompile(call) => json(self.try_compile(&call).await.map(|()| true)),
            DdocPrompt(call) => self.ddoc_prompt(&call).await,
            ValidateDocs(call) => json(self.validate_docs(&call).await),
            FilterDocs(call) => json(self.filter_docs(&call).await),
            FilterView(call) => json(self.filter_view(&call).await),
            Show(call) => json(self.show(&call).await),
            List(call) => json(self.list_all(call).await),
            Update(call) => json(self.update(&call).await),
            Rewrite(call) => json(self.rewrite(&call).await),
        }
    }
}

/// Serializes a value as JSON text.
fn json(value: FunctionResult<impl Serialize>) -> FunctionResult<Bytes> {
    let text = serde_json::to_vec(&value?).expect("PM-10: strings and JSON texts can be written");
    Ok(Bytes::from(text))
}
