//! Why a call that runs functions has no value.

use std::fmt;

use serde_json::value::RawValue;

use crate::messages::client_error::{ErrorReply, Place};
use crate::messages::proc_manager::CallError;
use crate::messages::proc_manager::GetProcError;
use crate::messages::process::{Fault, PromptError};
use policy::pool::ReturnStatus;

/// A call has no value: what happened, and to what.
#[derive(Clone, Debug)]
pub struct FunctionError {
    /// What happened.
    pub kind: FunctionErrorKind,
    /// The function that it happened to, and what that was called with.
    pub place: Box<Place>,
}

/// What happened to a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionErrorKind {
    /// The call makes no sense. The caller's fault.
    #[error("{0}")]
    BadCall(String),
    /// There was no process for it: none was free, or it could not be started or taught.
    #[error(transparent)]
    NoProcess(GetProcError),
    /// No process that it got could be reset.
    #[error("the query server could not be reset: {0}")]
    Reset(PromptError),
    /// The function said no, or its process did not answer.
    #[error(transparent)]
    Prompt(PromptError),
    /// A function does not compile, or its process ended over it.
    #[error("{reason}")]
    Compilation {
        /// In the words of the reference.
        reason: String,
        /// What it is made of.
        error: PromptError,
    },
    /// There is an answer, and it is none that such a function may give.
    #[error("{reason}")]
    Answer {
        /// The error's name, CouchDB's where CouchDB has one.
        name: &'static str,
        /// What came and what was expected.
        reason: String,
        /// The reason as JSON text, where it is the function's own.
        raw_reason: Option<String>,
        /// The function author's ([`Fault::Client`]), or the query server's.
        fault: Fault,
    },
}

/// Kinds of trouble, for those who count or decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The call makes no sense.
    Call,
    /// The function: it said no, or answered what it may not.
    Function,
    /// The query server did not keep to the protocol, or ended.
    Protocol,
    /// Something took too long; the error's phase says what.
    Timeout,
    /// The machine or the configuration: a process could not be started.
    Host,
    /// The service is ending, or was asked for too much.
    Unavailable,
}

impl FunctionError {
    /// Says what it is about, where that is not known yet.
    pub(super) fn at(mut self, place: Place) -> Self {
        let known = *self.place;
        *self.place = Place {
            db: known.db.or(place.db),
            ddoc: known.ddoc.or(place.ddoc),
            function: known.function.or(place.function),
            doc: known.doc.or(place.doc),
        };
        self
    }

    /// Tells how a process goes back after this: to its end when it cannot be used any more.
    pub(super) fn return_status(&self) -> ReturnStatus {
        let is_broken = match &self.kind {
            FunctionErrorKind::Prompt(error)
            | FunctionErrorKind::Reset(error)
            | FunctionErrorKind::Compilation { error, .. } => error.is_final(),
            FunctionErrorKind::Answer { fault, .. } => *fault == Fault::QueryServer,
            FunctionErrorKind::BadCall(_) | FunctionErrorKind::NoProcess(_) => false,
        };
        if is_broken {
            ReturnStatus::Fail
        } else {
            ReturnStatus::Ok
        }
    }

    /// Returns what kind of trouble it is.
    pub fn class(&self) -> Class {
        match &self.kind {
            FunctionErrorKind::BadCall(_) => Class::Call,
            FunctionErrorKind::NoProcess(error) => match error {
                GetProcError::UnknownQueryLanguage(_)
                | GetProcError::NoSuchPool(_)
                | GetProcError::NotForCaller(_) => Class::Call,
                GetProcError::Timeout { .. } => Class::Timeout,
                GetProcError::SpawnFailed { .. }
                | GetProcError::Throttled { .. }
                | GetProcError::Unable { .. } => Class::Host,
                GetProcError::TeachFailed { .. } => Class::Protocol,
                GetProcError::PoolBusy { .. }
                | GetProcError::PoolRemoved { .. }
                | GetProcError::ShuttingDown => Class::Unavailable,
            },
            FunctionErrorKind::Reset(error) | FunctionErrorKind::Prompt(error) => match error {
                PromptError::Function { .. } => Class::Function,
                PromptError::Timeout { .. } => Class::Timeout,
                PromptError::Exited(_)
                | PromptError::Protocol { .. }
                | PromptError::NotRun { .. } => Class::Protocol,
                PromptError::BadPrompt => Class::Call,
                PromptError::TooMany { .. } | PromptError::NotHolder => Class::Unavailable,
            },
            FunctionErrorKind::Compilation { .. } => Class::Function,
            FunctionErrorKind::Answer { fault, .. } => match fault {
                Fault::QueryServer => Class::Protocol,
                _ => Class::Function,
            },
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
        FunctionErrorKind::Prompt(error).into()
    }
}

impl From<CallError> for FunctionError {
    fn from(error: CallError) -> Self {
        let kind = match error {
            CallError::GetProc(error) => FunctionErrorKind::NoProcess(error),
            CallError::Reset(error) => FunctionErrorKind::Reset(error),
            CallError::Prompt(error) => FunctionErrorKind::Prompt(error),
        };
        kind.into()
    }
}

impl From<FunctionError> for ErrorReply {
    fn from(error: FunctionError) -> Self {
        let reply = match error.kind {
            FunctionErrorKind::BadCall(reason) => Self::bad_request(reason),
            FunctionErrorKind::NoProcess(error) => error.into(),
            FunctionErrorKind::Reset(error) => CallError::Reset(error).into(),
            FunctionErrorKind::Prompt(error) => error.into(),
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
