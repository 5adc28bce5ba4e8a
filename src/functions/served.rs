//! A function call from start to end.
//!
//! SUMMARY   [`QueryServers::begin`] returns a [`BegunCall`] and the [`QueryServers`] to run it with;
//!           [`BegunCall::end`] ends it. [`QueryServers::serve`] does both for a [`FunctionRequest`].
//! PROMISES  Every call of the socket and of HTTP is recorded once, at its end. A call dropped before, because its
//!           connection closed or its client cancelled it, ends as `disconnected`; one that panics, as an internal
//!           error.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::QueryServers;
use super::records::CallRecords;
use crate::aside::is_long;
use crate::messages::client_error::ErrorReply;
use crate::messages::function::{CallOptions, FunctionRequest};
use crate::otp::Pid;
use crate::query_server::call::{Call, FinishedCall, Subject};
use crate::query_server::request_id::RequestId;
use crate::query_server::told::{FunctionName, ReportedError};

/// A finished call and its value.
pub(crate) struct Served {
    pub value: Result<Bytes, ErrorReply>,
    pub finished: FinishedCall,
    /// Whether the client sent a request id.
    is_named: bool,
}

impl Served {
    /// Returns the reply's members besides value or error: a comma precedes each.
    pub fn members(&self) -> Bytes {
        match self.finished.report() {
            Some(report) => members(&report),
            None if self.is_named => {
                let request_id = &self.finished.call.request_id;
                format!(",\"request_id\":{}", serde_json::json!(request_id)).into()
            }
            None => Bytes::new(),
        }
    }
}

/// Writes an object's members, each after a comma.
pub(crate) fn members(object: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(object).expect("JSON: strings can always be written");
    text.pop();
    if let Some(bracket) = text.first_mut() {
        *bracket = b',';
    }
    text.into()
}

/// A call in progress.
pub(crate) struct BegunCall {
    call: Arc<Call>,
    client: Pid,
    /// Records the call at its end; `None` afterwards, or if calls are not recorded.
    records: Option<Rc<CallRecords>>,
}

impl BegunCall {
    /// Ends the call.
    pub fn end(mut self, error: Option<&ErrorReply>) -> FinishedCall {
        // A call that fails after its client has ended fails because of that.
        let disconnected = || (!self.client.is_alive()).then(ErrorReply::disconnected);
        let instead = error.and_then(|_| disconnected());
        self.finish(instead.as_ref().or(error))
    }

    fn finish(&mut self, error: Option<&ErrorReply>) -> FinishedCall {
        let finished = (self.call).finish(error.filter(|_| self.call.reports).map(reported));
        if let Some(error) = error.filter(|error| error.is_of_functions()) {
            finished.tell_tenant(&reported(error));
        }
        if let Some(records) = self.records.take() {
            records.note(&finished, error);
        }
        finished
    }
}

impl Drop for BegunCall {
    fn drop(&mut self) {
        if self.records.is_some() {
            let error = if std::thread::panicking() {
                ErrorReply::internal()
            } else {
                ErrorReply::disconnected()
            };
            self.finish(Some(&error));
        }
    }
}

impl QueryServers {
    /// Begins a call, which is to be run with the returned [`QueryServers`].
    pub(crate) fn begin(&self, subject: Subject, options: &CallOptions) -> (Self, BegunCall) {
        let request_id = options.request_id.clone().unwrap_or_else(RequestId::made);
        let call = Call::new(
            request_id,
            self.caller.who(),
            subject,
            options.report,
            options.run_time,
            self.records()
                .map(|records| Arc::clone(&records.tenant_logs)),
        );
        call.count_arguments(options.argument_bytes);
        let servers = Self {
            caller: Rc::new(self.caller.for_call(Arc::clone(&call))),
            records: self.records.clone(),
            sums: self.sums.clone(),
        };
        let begun = BegunCall {
            call,
            client: self.caller.client().clone(),
            records: self.records.clone(),
        };
        (servers, begun)
    }

    /// Performs a call from start to end.
    pub(crate) async fn serve(&self, request: FunctionRequest) -> Served {
        let FunctionRequest { call, options } = request;
        let (servers, begun) = self.begin(call.subject(), &options);
        let value = if is_long(options.argument_bytes) {
            servers.perform_aside(call).await
        } else {
            servers.perform(call).await
        };
        let value = value.map_err(ErrorReply::from);
        begun.call.count_value(value.as_ref().map_or(0, Bytes::len));
        Served {
            finished: begun.end(value.as_ref().err()),
            value,
            is_named: options.request_id.is_some(),
        }
    }
}

/// Returns a report of an error that no process reported.
fn reported(error: &ErrorReply) -> ReportedError {
    let place = error.place.as_deref().cloned().unwrap_or_default();
    let index = place.index.map(FunctionName::Index);
    ReportedError {
        function: index.or(place.function.map(FunctionName::Path)),
        doc: place.doc,
        name: error.name.clone(),
        message: error.reason_text(),
        ..ReportedError::default()
    }
}
