//! Errors between a client and the service.

use std::io;

use serde::Deserialize;
use serde_json::Value;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection failed or broke, because of the host or the service. Worth a retry once the service runs.
    #[error("cannot talk to the service: {0}")]
    Io(#[from] io::Error),
    /// The service closed the connection before it answered. Worth a retry on a new one.
    #[error("the service closed the connection")]
    Closed,
    /// The service refused, and reports who is at fault.
    #[error(transparent)]
    Service(Box<ServiceError>),
    /// A protocol error: another program or version listens there.
    #[error("the service did not keep to the protocol: {0}")]
    Protocol(String),
}

impl ClientError {
    /// Returns whether a retry of the call may succeed later, or on a new connection.
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
    /// Its name, CouchDB's if it has one, for example `unknown_query_language`; `error` over HTTP.
    #[serde(alias = "error")]
    pub name: String,
    /// The reason: a string, or any JSON thrown by the function.
    pub reason: Value,
    /// The step that failed: `queue`, `open`, `teach`, `reset`, `prompt` or `exit`.
    pub phase: String,
    /// The party at fault: `client`, `function`, `query_server`, `host` or `settee`.
    pub fault: String,
    /// Whether a later retry of the call may succeed.
    pub retry: bool,
    /// Whether the process ended because of it.
    pub fatal: bool,
    /// Whether the query server printed extra lines: earlier answers of the process may belong to other prompts.
    pub shifted: bool,
    /// How the process ended, in words.
    pub exit: Option<String>,
    /// Its exit status in a shell's form.
    pub status: Option<i32>,
    /// Its last lines on standard error.
    pub stderr: Vec<String>,
    /// The token that the client held the process under.
    pub proc: Option<String>,
    /// The function's database.
    pub db: Option<String>,
    /// The id of the function's design document.
    pub ddoc: Option<String>,
    /// The function: its path, joined by `/`, or the name of its call.
    pub function: Option<String>,
    /// The id of the function's document.
    pub doc: Option<String>,
}

impl ServiceError {
    /// Returns the reason as text: a string itself, anything else as JSON.
    pub fn reason_text(&self) -> String {
        match &self.reason {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}
