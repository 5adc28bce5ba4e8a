//! Why a replication's run ended before it was done.
//!
//! SUMMARY   [`Crash`] is the reason as the job reports it: a name that stays the same, and words.
//! PROMISES  No credential is in it: URLs come from endpoints, which show none.
//! SOURCE    The exit reasons of `couch_replicator_scheduler_job`, under their names.

mod short;

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
    /// What answers when a database is opened is no database.
    #[strum(serialize = "db_not_found")]
    #[error("db_not_found: could not open {0}")]
    NoDatabase(String),
    /// The name of a database's host is unknown.
    #[error("nxdomain: could not resolve {0}")]
    Nxdomain(String),
    /// A server gives no session to these credentials. Not worth a retry with the same ones.
    #[error("replication_auth_error: {said}")]
    ReplicationAuthError {
        /// The status of its answer, 401 or 403.
        code: u16,
        said: String,
    },
    /// The checkpoints of earlier runs cannot be read.
    #[error("checkpoint_read_failure: {0}")]
    CheckpointReadFailure(#[from] LogError),
    /// A checkpoint cannot be written.
    #[error("checkpoint_commit_failure: {0}")]
    CheckpointCommitFailure(#[from] CheckpointError),
    /// The lease of the replication's document is over, or nearly: another daemon may run it. No checkpoint was
    /// begun, or the one at hand was given up.
    #[error(
        "lease_lost: no checkpoint may be written, because another daemon may own the replication now"
    )]
    LeaseLost,
    /// A server answered 429 too often.
    #[error("max_backoff")]
    MaxBackoff,
    /// The changes feed was refused, or failed too often.
    #[error("changes_req_failed: {0}")]
    ChangesReqFailed(Answered),
    /// A filter that is run here failed, or cannot be run.
    #[error("filter_failed: {0}")]
    FilterFailed(String),
    /// The target did not answer what it misses.
    #[error("revs_diff_failed: {0}")]
    RevsDiffFailed(Answered),
    /// The target took no batch.
    #[error("bulk_docs_failed: {0}")]
    BulkDocsFailed(Answered),
    /// The target's answer to a document is neither a success nor a refusal of the document.
    #[error("doc_write_failed: {error}: {reason} ({asked})")]
    DocWriteFailed {
        /// Method and URL of the request.
        asked: String,
        /// The answer's status.
        code: u16,
        /// Id of the document.
        id: String,
        /// The error's name in the answer, else its status.
        error: String,
        /// Why, in the answer's words, else its body.
        reason: String,
    },
    /// The source did not deliver a document of its feed, after all tries.
    #[strum(serialize = "worker_died")]
    #[error("worker_died: process_died: open_doc_revs_failed: document '{id}': {why}")]
    OpenDocRevsFailed {
        id: String,
        /// What happened the last time.
        why: String,
        /// The request that had no answer, if that is why.
        failed: Option<Box<RequestFailed>>,
    },
    /// The source finds even short URLs too long.
    #[strum(serialize = "worker_died")]
    #[error("worker_died: request_uri_too_long: document '{id}'")]
    RequestUriTooLong { id: String },
    /// The source does not have a revision of its feed.
    #[strum(serialize = "worker_died")]
    #[error("worker_died: missing_doc: document '{id}' misses {revs}")]
    MissingDoc { id: String, revs: String },
    /// No answer to a request.
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

/// An answer that is not what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Method and URL of the request, where there was an answer.
    pub(crate) asked: Option<String>,
    /// Its status, unless there was none.
    pub code: Option<u16>,
    /// Its body, or what happened, at most the beginning of it.
    pub(crate) body: String,
    /// The request that had no answer, if that is why.
    pub(crate) failed: Option<Box<RequestFailed>>,
    /// Whether it says that the server's disk is full.
    pub(crate) is_full: bool,
    /// The id of the document that it is about, and the error's name, where it is about one.
    pub(crate) doc: Option<(String, String)>,
}

impl Answered {
    /// Takes an answer.
    pub(crate) fn of(reply: &Reply) -> Self {
        Self::new(&reply.asked, reply.status.as_u16(), &reply.body)
    }

    /// Takes the beginning of an answer's body.
    pub fn new(asked: &SentRequest, code: u16, body: &[u8]) -> Self {
        Self {
            asked: Some(asked.to_string()),
            code: Some(code),
            body: asked.excerpt(body),
            ..Self::default()
        }
    }

    /// There was no answer.
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

impl std::fmt::Display for Answered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
    /// Returns the name of the reason, which never changes.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns whether a server's rate limit is why: such a job runs more gently the next time.
    pub fn is_max_backoff(&self) -> bool {
        *self == Self::MaxBackoff || self.cause() == Some(&Cause::MaxBackoff)
    }

    /// Returns whether the databases refuse what is asked of them: trying again with the same
    /// credentials does not help.
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

    /// Returns why the request failed that ended it, if one did.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::CheckpointReadFailure(error) => error.cause(),
            Self::CheckpointCommitFailure(error) => error.log_error()?.cause(),
            _ => self.failed_request().map(|failed| &failed.cause),
        }
    }

    /// Returns whether it ended because a server could not be reached.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Nxdomain(_)) || self.cause().is_some_and(Cause::is_unreachable)
    }

    /// Returns the status of the answer that ended it, where the answer is why.
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
