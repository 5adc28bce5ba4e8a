//! Why one document was not replicated, and what follows from that.

use crate::crash::Crash;
use crate::endpoint::{BodyFailed, Cause, RequestFailed};
use crate::multipart::writer::Following;
use crate::refused::RefusedDoc;

/// Why a read, or the write that hangs on it, brought nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DocFailed {
    /// It is worth another try.
    #[error("{0}")]
    Retry(String),
    /// No answer; it is worth another try.
    #[error("{0}")]
    Request(RequestFailed),
    /// It is worth another try; if it stays it is the job's end.
    #[error("{0}")]
    RetryThen(Box<Crash>),
    /// The target no longer knows this user or lets it in; a new session may help. If not, it is the job's end.
    #[error("{0}")]
    LockedOut(Box<Crash>),
    /// A revision is too long to be read, and it is not known which one of those asked for.
    #[error("one of the revisions is too long")]
    AskSingly,
    /// No URL can name an attachment.
    #[error("no URL can name an attachment")]
    Unnameable,
    /// The request's line is too long for the source.
    #[error("the source takes no request of this length")]
    UriTooLong,
    /// The target has not the attachment that it was said to have.
    #[error("the target misses an attachment")]
    MissingStub,
    /// The target does not take the document. If it says so again, and takes others, the document is refused; if not, it
    /// is the job's end.
    #[error("{crash}")]
    RefusedIfRepeated {
        doc: Box<RefusedDoc>,
        crash: Box<Crash>,
    },
    /// It is the job's end.
    #[error("{0}")]
    Crash(Crash),
}

impl DocFailed {
    pub(super) fn wrong_length(attachment: &Following) -> Self {
        let Following { name, length, .. } = attachment;
        Self::Retry(format!("attachment '{name}' does not have {length} bytes"))
    }
}

impl From<RequestFailed> for DocFailed {
    fn from(failed: RequestFailed) -> Self {
        match failed.cause {
            Cause::MaxBackoff | Cause::Refused { .. } => Self::Crash(failed.into()),
            Cause::SessionLost => Self::LockedOut(Box::new(failed.into())),
            _ => Self::Request(failed),
        }
    }
}

impl From<BodyFailed> for DocFailed {
    fn from(failed: BodyFailed) -> Self {
        Self::Retry(failed.to_string())
    }
}
