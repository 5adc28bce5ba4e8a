//! Why one document was not replicated, and the consequence.

use crate::crash::Crash;
use crate::endpoint::{BodyFailed, Cause, RequestFailed};
use crate::multipart::writer::Following;
use crate::refused::RefusedDoc;

/// Why a read, or the write that depends on it, failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DocFailed {
    /// Worth a retry.
    #[error("{0}")]
    Retry(String),
    /// A failed request; worth a retry.
    #[error("{0}")]
    Request(RequestFailed),
    /// Worth a retry; if it persists, it ends the job.
    #[error("{0}")]
    RetryThen(Box<Crash>),
    /// The target no longer admits this user. A new session may help; if it does not, the job ends.
    #[error("{0}")]
    LockedOut(Box<Crash>),
    /// One of the requested revisions is too long to read, but it is unknown which.
    #[error("one of the revisions is too long")]
    AskSingly,
    /// An attachment that no URL can name.
    #[error("no URL can name an attachment")]
    Unnameable,
    /// The request line is too long for the source.
    #[error("the source refuses a request line of this length")]
    UriTooLong,
    /// The target lacks an attachment that it is supposed to have.
    #[error("the target lacks an attachment")]
    MissingStub,
    /// The target rejects the document. If it does so again, but accepts others, the document is refused; otherwise
    /// this ends the job.
    #[error("{crash}")]
    RefusedIfRepeated {
        doc: Box<RefusedDoc>,
        crash: Box<Crash>,
    },
    /// Ends the job.
    #[error("{0}")]
    Crash(Crash),
}

impl DocFailed {
    pub fn wrong_length(attachment: &Following) -> Self {
        let Following { name, length, .. } = attachment;
        Self::Retry(format!("attachment '{name}' does not have {length} bytes"))
    }
}

impl From<RequestFailed> for DocFailed {
    fn from(failed: RequestFailed) -> Self {
        match failed.cause {
            Cause::MaxBackoff | Cause::Refused { .. } => Self::Crash(failed.into()),
            _ => Self::Request(failed),
        }
    }
}

impl From<BodyFailed> for DocFailed {
    fn from(failed: BodyFailed) -> Self {
        Self::Retry(failed.to_string())
    }
}
