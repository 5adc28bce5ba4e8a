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
    pub trouble: Trouble,
    /// The function that it happened to, and what that was called with.
    pub place: Box<Place>,
}

/// What happened to a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
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
        let is_broken = match &self.trouble {
            Trouble::Prompt(error) | Trouble::Reset(error) | Trouble::Compilation { error, .. } => {
                error.is_final()
            }
            Trouble::Answer { fault, .. } => *fault == Fault::QueryServer,
            Trouble::BadCall(_) | Trouble::NoProcess(_) => false,
        };
        if is_broken {
            ReturnStatus::Fail
        } else {
            ReturnStatus::Ok
        }
    }

    /// Returns what kind of trouble it is.
    pub fn class(&self) -> Class {
        match &self.trouble {
            Trouble::BadCall(_) => Class::Call,
            Trouble::NoProcess(error) => match error {
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
            Trouble::Reset(error) | Trouble::Prompt(error) => match error {
                PromptError::Function { .. } => Class::Function,
                PromptError::Timeout { .. } => Class::Timeout,
                PromptError::Exited(_)
                | PromptError::Protocol { .. }
                | PromptError::NotRun { .. } => Class::Protocol,
                PromptError::BadPrompt => Class::Call,
                PromptError::TooMany { .. } | PromptError::NotHolder => Class::Unavailable,
            },
            Trouble::Compilation { .. } => Class::Function,
            Trouble::Answer { fault, .. } => match fault {
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
        self.trouble.fmt(f)
    }
}

impl std::error::Error for FunctionError {}

impl From<Trouble> for FunctionError {
    fn from(trouble: Trouble) -> Self {
        Self {
            trouble,
            place: Box::default(),
        }
    }
}

impl From<PromptError> for FunctionError {
    fn from(error: PromptError) -> Self {
        Trouble::Prompt(error).into()
    }
}

impl From<CallError> for FunctionError {
    fn from(error: CallError) -> Self {
        let trouble = match error {
            CallError::GetProc(error) => Trouble::NoProcess(error),
            CallError::Reset(error) => Trouble::Reset(error),
            CallError::Prompt(error) => Trouble::Prompt(error),
        };
        trouble.into()
    }
}

impl From<FunctionError> for ErrorReply {
    fn from(error: FunctionError) -> Self {
        let reply = match error.trouble {
            Trouble::BadCall(reason) => Self::bad_request(reason),
            Trouble::NoProcess(error) => error.into(),
            Trouble::Reset(error) => CallError::Reset(error).into(),
            Trouble::Prompt(error) => error.into(),
            Trouble::Compilation { reason, error } => {
                let mut reply = Self::answer("compilation_error", &reason, Fault::Client);
                reply.obituary = error.obituary().cloned().map(Box::new);
                reply
            }
            Trouble::Answer {
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
