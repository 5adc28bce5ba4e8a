//! Why a replication's run ended early.
//!
//! SUMMARY   [`Crash`] is the reason reported by the job: a stable name, and a description.
//! PROMISES  It has no credentials: URLs come from endpoints, which mask them.
//! SOURCE    The exit reasons of `couch_replicator_scheduler_job`, under their names.

mod short;

use std::fmt;

pub use short::reason_group;

use super::endpoint::{Cause, Reply, RequestFailed, SentRequest};
use super::log::{CheckpointError, LogError};

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr, thiserror::Error)]
#[strum(serialize_all = "snake_case")]
pub enum Crash {
    /// A database answers 401 when it is opened. Not worth a retry with the same credentials.
    #[error("unauthorized: unauthorized to access or create database {0}")]
    Unauthorized(String),
    /// A database answers 403 when it is opened. Not worth a retry with the same credentials.
    #[error("forbidden: forbidden to access or create database {0}")]
    Forbidden(String),
    /// There is no database of this name.
    #[error("db_not_found: could not open {0}")]
    DbNotFound(String),
    /// The response to opening a database is not from a database.
    #[strum(serialize = "db_not_found")]
    #[error("db_not_found: could not open {0}")]
    NoDatabase(String),
    /// The name of a database's host is unknown.
    #[error("nxdomain: could not resolve {0}")]
    Nxdomain(String),
    /// A server refuses a session to these credentials. Not worth a retry with the same ones.
    #[error("replication_auth_error: {said}")]
    ReplicationAuthError {
        /// The response's status, 401 or 403.
        code: u16,
        said: String,
    },
    /// The checkpoints of earlier runs are unreadable.
    #[error("checkpoint_read_failure: {0}")]
    CheckpointReadFailure(#[from] LogError),
    /// A checkpoint cannot be written.
    #[error("checkpoint_commit_failure: {0}")]
    CheckpointCommitFailure(#[from] CheckpointError),
    /// The lease of the replication's document has expired, or soon will: another daemon may run it. No checkpoint
    /// was begun, or the current one was abandoned.
    #[error(
        "lease_lost: no checkpoint may be written, because another daemon may own the replication now"
    )]
    LeaseLost,
    /// A server answered 429 too many times.
    #[error("max_backoff")]
    MaxBackoff,
    /// The changes feed was refused, or failed too often.
    #[error("changes_req_failed: {0}")]
    ChangesReqFailed(Answered),
    /// A filter that runs here failed, or cannot run.
    #[error("filter_failed: {0}")]
    FilterFailed(String),
    /// The target did not answer which revisions it lacks.
    #[error("revs_diff_failed: {0}")]
    RevsDiffFailed(Answered),
    /// The target answered a batch with an error, or did not say which of its documents it wrote, despite all retries.
    #[error("bulk_docs_failed: {0}")]
    BulkDocsFailed(Answered),
    /// The target's response to a document is neither success nor a refusal of the document.
    #[error("doc_write_failed: {error}: {reason} ({asked})")]
    DocWriteFailed {
        /// Method and URL of the request.
        asked: String,
        /// The answer's status.
        code: u16,
        /// Id of the document.
        id: String,
        /// The error's name in the response, else its status.
        error: String,
        /// The reason in the response, else its body.
        reason: String,
    },
    /// The source did not deliver a document of its feed, despite all retries.
    #[strum(serialize = "worker_died")]
    #[error("worker_died: process_died: open_doc_revs_failed: document '{id}': {why}")]
    OpenDocRevsFailed {
        id: String,
        /// The last failure.
        why: String,
        /// The unanswered request, if that is the cause.
        failed: Option<Box<RequestFailed>>,
    },
    /// The source rejects even short URLs as too long.
    #[strum(serialize = "worker_died")]
    #[error("worker_died: request_uri_too_long: document '{id}'")]
    RequestUriTooLong { id: String },
    /// The source lacks a revision of its feed.
    #[strum(serialize = "worker_died")]
    #[error("worker_died: missing_doc: document '{id}' misses {revs}")]
    MissingDoc { id: String, revs: String },
    /// A request failed, despite its retries if it had any.
    #[error("http_request_failed: {0}")]
    HttpRequestFailed(RequestFailed),
    /// The changes reader ended unexpectedly.
    #[error("changes_reader_died: {0}")]
    ChangesReaderDied(String),
    /// The changes manager ended unexpectedly.
    #[error("changes_manager_died: {0}")]
    ChangesManagerDied(String),
    /// A worker ended unexpectedly.
    #[error("worker_died: {0}")]
    WorkerDied(String),
    /// The job ended unexpectedly, without a report.
    #[error("job_died: {0}")]
    JobDied(String),
}

/// An unexpected response, or why there was none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Method and URL of the request, if there was a response.
    pub(crate) asked: Option<String>,
    /// The response's status, if there was one.
    pub code: Option<u16>,
    /// Its body, or a description; long ones are cut.
    pub(crate) body: String,
    /// The unanswered request, if that is the cause.
    pub(crate) failed: Option<Box<RequestFailed>>,
    /// Whether it says that the server's disk is full.
    pub(crate) is_full: bool,
    /// The document's id and the error's name, if it is about a document.
    pub(crate) doc: Option<(String, String)>,
}

impl Answered {
    pub(crate) fn of(reply: &Reply) -> Self {
        Self::new(&reply.asked, reply.status.as_u16(), &reply.body)
    }

    /// Keeps the beginning of a response's body.
    pub fn new(asked: &SentRequest, code: u16, body: &[u8]) -> Self {
        Self {
            asked: Some(asked.to_string()),
            code: Some(code),
            body: asked.endpoint.excerpt(body),
            ..Self::default()
        }
    }

    /// Without a response.
    pub fn none(why: impl Into<String>) -> Self {
        Self {
            body: why.into(),
            ..Self::default()
        }
    }
}

impl From<RequestFailed> for Answered {
    fn from(failed: RequestFailed) -> Self {
        Self {
            failed: Some(Box::new(failed.clone())),
            ..Self::none(failed.to_string())
        }
    }
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(asked) = &self.asked {
            write!(f, "{asked}: ")?;
        }
        if let Some(code) = self.code {
            write!(f, "{code}: ")?;
        }
        f.write_str(&self.body)
    }
}

impl From<RequestFailed> for Crash {
    fn from(failed: RequestFailed) -> Self {
        match failed.cause {
            Cause::MaxBackoff => Self::MaxBackoff,
            Cause::Refused { status, said } => Self::ReplicationAuthError {
                code: status.as_u16(),
                said,
            },
            _ => Self::HttpRequestFailed(failed),
        }
    }
}

impl Crash {
    /// The source did not deliver a document: see [`Crash::OpenDocRevsFailed`].
    pub(crate) fn undelivered(id: &str, why: String, failed: Option<RequestFailed>) -> Self {
        Self::OpenDocRevsFailed {
            id: id.to_owned(),
            why,
            failed: failed.map(Box::new),
        }
    }

    /// Returns the reason's stable name.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns whether a server's rate limit is the cause: the job then backs off in its next run.
    pub fn is_max_backoff(&self) -> bool {
        *self == Self::MaxBackoff || self.cause() == Some(&Cause::MaxBackoff)
    }

    /// Returns whether the databases refuse the requests: retrying with the same credentials does not help.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Unauthorized(_) | Self::Forbidden(_) | Self::ReplicationAuthError { .. } => true,
            Self::CheckpointReadFailure(error) => error.is_refusal(),
            Self::CheckpointCommitFailure(error) => {
                error.log_error().is_some_and(LogError::is_refusal)
            }
            _ => matches!(self.code(), Some(401 | 403)),
        }
    }

    /// Returns why a request failed, if its failure ended the run.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::CheckpointReadFailure(error) => error.cause(),
            Self::CheckpointCommitFailure(error) => error.log_error()?.cause(),
            _ => self.failed_request().map(|failed| &failed.cause),
        }
    }

    /// Returns whether an unreachable server ended the run.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Nxdomain(_)) || self.cause().is_some_and(Cause::is_unreachable)
    }

    /// Returns the status of the response that ended the run, if one did.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::ChangesReqFailed(answered)
            | Self::RevsDiffFailed(answered)
            | Self::BulkDocsFailed(answered) => answered.code,
            Self::DocWriteFailed { code, .. } => Some(*code),
            _ => None,
        }
    }
}
