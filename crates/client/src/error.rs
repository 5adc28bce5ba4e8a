//! What can go wrong between a client and the service.

use std::io;

use serde::Deserialize;
use serde_json::Value;

/// Why a call has no value.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection could not be made or broke. Host or service; worth a retry once it runs.
    #[error("cannot talk to the service: {0}")]
    Io(#[from] io::Error),
    /// The service closed the connection before it answered. Worth a retry on a new one.
    #[error("the service closed the connection")]
    Closed,
    /// The service said no; it says whose fault that is.
    #[error(transparent)]
    Service(Box<ServiceError>),
    /// What came is not the protocol: another program listens there, or another version.
    #[error("the service did not keep to the protocol: {0}")]
    Protocol(String),
}

impl ClientError {
    /// Returns whether the same call may succeed later, or on a new connection.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Io(_) | Self::Closed => true,
            Self::Service(error) => error.retry,
            Self::Protocol(_) => false,
        }
    }
}

/// The error object of a reply.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, thiserror::Error)]
#[error("{name}: {}", self.reason_text())]
#[serde(default)]
pub struct ServiceError {
    /// CouchDB's name of it where CouchDB has one, for example `unknown_query_language`; HTTP calls it `error`.
    #[serde(alias = "error")]
    pub name: String,
    /// Why: a text, or whatever JSON the function threw.
    pub reason: Value,
    /// What was going on: `queue`, `open`, `teach`, `reset`, `prompt` or `exit`.
    pub phase: String,
    /// Whose doing it is: `client`, `query_server`, `host` or `settee`.
    pub fault: String,
    /// Whether the same call may succeed later.
    pub retry: bool,
    /// Whether the process ended over it.
    pub fatal: bool,
    /// Whether the query server printed more than it was asked for: earlier answers of the process may not be those of
    /// their prompts.
    pub shifted: bool,
    /// How the process ended, in words.
    pub exit: Option<String>,
    /// Its exit status as a shell shows it.
    pub status: Option<i32>,
    /// The last lines that it wrote to its standard error.
    pub stderr: Vec<String>,
    /// The process, as the token under which it was held.
    pub proc: Option<String>,
    /// The database of the function that it is about.
    pub db: Option<String>,
    /// The id of the design document that the function is in.
    pub ddoc: Option<String>,
    /// The function: its path, joined by `/`, or what it was sent as.
    pub function: Option<String>,
    /// The id of the document that the function was called with.
    pub doc: Option<String>,
}

impl ServiceError {
    /// Returns the reason as text: a string's own, JSON of anything else.
    pub fn reason_text(&self) -> String {
        match &self.reason {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}
