//! Failures of calls that run functions.

use std::fmt;

use serde_json::value::RawValue;

use super::decode::decode;
use crate::messages::client_error::{ErrorReply, Place};
use crate::messages::proc_manager::CallError;
use crate::messages::process::{Fault, PromptError};
use policy::pool::ReturnStatus;

/// A call failed: how, and in which function.
#[derive(Clone, Debug)]
pub struct FunctionError {
    /// The kind of error.
    pub kind: FunctionErrorKind,
    /// The failed function, and its document.
    pub place: Box<Place>,
}

/// The value of a call, or how it failed.
pub(crate) type FunctionResult<T> = Result<T, FunctionError>;

/// How a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionErrorKind {
    /// The call is wrong. The caller's fault.
    #[error("{0}")]
    BadCall(String),
    /// No process was lent, none could be reset, or the process did not answer.
    #[error(transparent)]
    Call(CallError),
    /// A function does not compile, or compiling it ended its process.
    #[error("{reason}")]
    Compilation {
        /// The reference's message.
        reason: String,
        /// The error of the prompt.
        error: PromptError,
    },
    /// The answer is invalid for this kind of function, or an error that the function threw.
    #[error("{reason}")]
    Answer {
        /// The error's name, CouchDB's where CouchDB has one.
        name: &'static str,
        /// The answer and the expected one, or the reason that the function threw.
        reason: String,
        /// The reason as JSON text, if the function chose it.
        raw_reason: Option<String>,
        /// The function author's fault ([`Fault::Client`]), or the query server's.
        fault: Fault,
    },
}

/// The name of an error for answers that no function can cause.
const PROTOCOL_ERROR: &str = "query_protocol_error";

impl FunctionError {
    /// The error of an answer that is the function author's fault.
    pub(super) fn refused(name: &'static str, reason: String) -> Self {
        FunctionErrorKind::Answer {
            name,
            reason,
            raw_reason: None,
            fault: Fault::Client,
        }
        .into()
    }

    /// The error that a function threw, with the function's reason as JSON text.
    pub(super) fn thrown(name: &'static str, raw_reason: &str) -> Self {
        FunctionErrorKind::Answer {
            name,
            reason: decode(raw_reason).unwrap_or_else(|| raw_reason.to_owned()),
            raw_reason: Some(raw_reason.to_owned()),
            fault: Fault::Client,
        }
        .into()
    }

    /// The error of an answer that breaks the protocol, which is the query server's fault.
    pub(super) fn protocol(reason: String) -> Self {
        FunctionErrorKind::Answer {
            name: PROTOCOL_ERROR,
            reason,
            raw_reason: None,
            fault: Fault::QueryServer,
        }
        .into()
    }

    /// Adds the missing parts of the place.
    pub(super) fn at(mut self, place: Place) -> Self {
        let known = *self.place;
        *self.place = Place {
            db: known.db.or(place.db),
            ddoc: known.ddoc.or(place.ddoc),
            function: known.function.or(place.function),
            doc: known.doc.or(place.doc),
            index: known.index.or(place.index),
        };
        self
    }

    /// Returns the status to return the process with: failed if it is no longer usable.
    pub(super) fn return_status(&self) -> ReturnStatus {
        let is_broken = match &self.kind {
            FunctionErrorKind::Call(CallError::Prompt(error) | CallError::Reset(error))
            | FunctionErrorKind::Compilation { error, .. } => error.is_final(),
            FunctionErrorKind::Answer { fault, .. } => *fault == Fault::QueryServer,
            FunctionErrorKind::BadCall(_) | FunctionErrorKind::Call(CallError::GetProc(_)) => false,
        };
        if is_broken {
            ReturnStatus::Fail
        } else {
            ReturnStatus::Ok
        }
    }
}

impl fmt::Display for FunctionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        let parts = [place.ddoc.as_deref(), place.function.as_deref()];
        for part in parts.into_iter().flatten() {
            write!(f, "{part}: ")?;
        }
        if let Some(doc) = &place.doc {
            write!(f, "document {doc}: ")?;
        }
        self.kind.fmt(f)
    }
}

impl std::error::Error for FunctionError {}

impl From<FunctionErrorKind> for FunctionError {
    fn from(kind: FunctionErrorKind) -> Self {
        Self {
            kind,
            place: Box::default(),
        }
    }
}

impl From<PromptError> for FunctionError {
    fn from(error: PromptError) -> Self {
        CallError::Prompt(error).into()
    }
}

impl From<CallError> for FunctionError {
    fn from(error: CallError) -> Self {
        FunctionErrorKind::Call(error).into()
    }
}

impl From<FunctionError> for ErrorReply {
    fn from(error: FunctionError) -> Self {
        let reply = match error.kind {
            FunctionErrorKind::BadCall(reason) => Self::bad_request(reason),
            FunctionErrorKind::Call(error) => error.into(),
            FunctionErrorKind::Compilation { reason, error } => {
                let mut reply = Self::answer("compilation_error", &reason, Fault::Client);
                reply.exit_report = error.exit_report().cloned().map(Box::new);
                reply
            }
            FunctionErrorKind::Answer {
                name,
                reason,
                raw_reason,
                fault,
            } => {
                let mut reply = Self::answer(name, &reason, fault);
                if let Some(raw) = raw_reason.and_then(|raw| RawValue::from_string(raw).ok()) {
                    reply.reason = raw;
                }
                reply
            }
        };
        reply.at(error.place)
    }
}
