//! Why a replication's run ended before it was done.
//!
//! SUMMARY   [`Crash`] is the reason as the job reports it: a name that stays the same, and words.
//! PROMISES  No credential is in it: URLs come from endpoints, which show none.
//! SOURCE    The exit reasons of `couch_replicator_scheduler_job`, under their names.

use super::endpoint::{Cause, Reply, RequestFailed, SentRequest};
use super::log::{CheckpointError, LogError};
use super::open::OpenError;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Crash {
    /// A database cannot be opened.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// The checkpoints of earlier runs cannot be read.
    #[error("checkpoint_read_failure: {0}")]
    ReadCheckpoint(#[from] LogError),
    /// A checkpoint cannot be written.
    #[error("checkpoint_commit_failure: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// A server said too often that it gets too many requests.
    #[error("max_backoff")]
    MaxBackoff,
    /// The changes feed was refused, or failed too often.
    #[error("changes_req_failed: {0}")]
    ChangesReqFailed(Answered),
    /// A filter that is run here failed, or cannot be run.
    #[error("filter_failed: {0}")]
    FilterFailed(String),
    /// The target did not say what it misses.
    #[error("revs_diff_failed: {0}")]
    RevsDiffFailed(Answered),
    /// The target took no batch.
    #[error("bulk_docs_failed: {0}")]
    BulkDocsFailed(Answered),
    /// The target took a document in no way that can be understood.
    #[error("doc_write_failed: {error}: {reason} ({asked})")]
    DocWriteFailed {
        /// Method and URL of the request.
        asked: String,
        /// The answer's status.
        code: u16,
        /// The error's name in the answer, else its status.
        error: String,
        /// Why, in the answer's words, else its body.
        reason: String,
    },
    /// The source did not deliver a document that it told of, however often it was asked.
    #[error("worker_died: process_died: open_doc_revs_failed: document '{id}': {why}")]
    OpenDocRevsFailed {
        id: String,
        /// What happened the last time.
        why: String,
        /// Why there was no answer, if there was none.
        cause: Option<Cause>,
    },
    /// The source takes not even short requests.
    #[error("worker_died: request_uri_too_long: document '{id}'")]
    RequestUriTooLong { id: String },
    /// The source told of a revision that it has not.
    #[error("worker_died: missing_doc: document '{id}' misses {revs}")]
    MissingDoc { id: String, revs: String },
    /// No answer to a request.
    #[error("http_request_failed: {0}")]
    HttpRequestFailed(RequestFailed),
    /// The changes reader ended in an unforeseen way.
    #[error("changes_reader_died: {0}")]
    ChangesReaderDied(String),
    /// The changes manager did.
    #[error("changes_manager_died: {0}")]
    ChangesManagerDied(String),
    /// A worker did.
    #[error("worker_died: {0}")]
    WorkerDied(String),
    /// The job itself did, without a word.
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
    /// Why there was no answer, if there was none.
    pub(crate) cause: Option<Cause>,
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
            cause: Some(failed.cause.clone()),
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
            Cause::Refused(why) => Self::Open(OpenError::Auth(why)),
            _ => Self::HttpRequestFailed(failed),
        }
    }
}

impl Crash {
    /// Returns the name of the reason, which never changes.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open(OpenError::Auth(_)) => "replication_auth_error",
            Self::Open(OpenError::Unauthorized(_)) => "unauthorized",
            Self::Open(OpenError::Forbidden(_)) => "forbidden",
            Self::Open(OpenError::NotFound(_)) => "db_not_found",
            Self::Open(OpenError::UnknownHost(_)) => "nxdomain",
            Self::Open(OpenError::MaxBackoff) | Self::MaxBackoff => "max_backoff",
            Self::Open(OpenError::Request(_)) | Self::HttpRequestFailed(_) => "http_request_failed",
            Self::ReadCheckpoint(_) => "checkpoint_read_failure",
            Self::Checkpoint(_) => "checkpoint_commit_failure",
            Self::ChangesReqFailed(_) => "changes_req_failed",
            Self::FilterFailed(_) => "filter_failed",
            Self::RevsDiffFailed(_) => "revs_diff_failed",
            Self::BulkDocsFailed(_) => "bulk_docs_failed",
            Self::DocWriteFailed { .. } => "doc_write_failed",
            Self::OpenDocRevsFailed { .. }
            | Self::RequestUriTooLong { .. }
            | Self::MissingDoc { .. }
            | Self::WorkerDied(_) => "worker_died",
            Self::ChangesReaderDied(_) => "changes_reader_died",
            Self::ChangesManagerDied(_) => "changes_manager_died",
            Self::JobDied(_) => "job_died",
        }
    }

    /// Returns whether a server's rate limit is why: such a job runs more gently the next time.
    pub fn is_max_backoff(&self) -> bool {
        self.name() == "max_backoff"
    }

    /// Returns whether the databases refuse what is asked of them: trying again with the same
    /// credentials does not help.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Open(error) => error.is_refusal(),
            Self::ReadCheckpoint(error) => error.is_refusal(),
            Self::Checkpoint(error) => error.log_error().is_some_and(LogError::is_refusal),
            Self::HttpRequestFailed(failed) => failed.is_refused(),
            _ => matches!(self.code(), Some(401 | 403)),
        }
    }

    /// Returns why the request failed that ended it, if one did.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::HttpRequestFailed(failed) | Self::Open(OpenError::Request(failed)) => {
                Some(&failed.cause)
            }
            Self::ReadCheckpoint(error) => error.cause(),
            Self::Checkpoint(error) => error.log_error()?.cause(),
            Self::ChangesReqFailed(answered) => answered.cause.as_ref(),
            Self::OpenDocRevsFailed { cause, .. } => cause.as_ref(),
            _ => None,
        }
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
