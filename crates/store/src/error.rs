//! Why a request to a store failed, and what to do about it.

use std::io;

/// A request to the store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be opened. The operator has to mend that; then the next request opens it.
    #[error("{error}: {remedy}", error = .0, remedy = .0.remedy())]
    Open(#[from] OpenError),
    /// Reading or writing failed; nothing was written. The host's fault.
    #[error("the store failed: {0}: look at the disk; the next request tries again")]
    Failed(String),
    /// This store cannot keep such a document; nothing was written.
    #[error("{0}")]
    Unstorable(String),
    /// The thread has ended: the service ends.
    #[error("the store is closed, for the service is shutting down")]
    Closed,
}

/// The store cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store {place} {}", .problem.describe())]
pub struct OpenError {
    /// Where it was looked for.
    pub place: String,
    /// Why.
    pub problem: OpenProblem,
}

/// Why the store cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenProblem {
    /// Another process has it.
    InUse,
    /// The system refuses it.
    Io(io::ErrorKind, String),
    /// It is no store, or a damaged one.
    Broken(String),
    /// Another program wrote it.
    Format(String),
    /// The database does not answer, or a request to it failed.
    Database(String),
    /// The database does not let this service in, or cannot be used for it.
    Refused(String),
}

impl OpenError {
    /// Returns whether a later try may succeed without anybody looking at the store.
    pub fn may_pass(&self) -> bool {
        !matches!(
            self.problem,
            OpenProblem::Broken(_) | OpenProblem::Format(_) | OpenProblem::Refused(_)
        )
    }

    /// Returns what to do about it.
    pub fn remedy(&self) -> &'static str {
        match &self.problem {
            OpenProblem::InUse => "stop that one, or name another file in [store] path",
            OpenProblem::Io(..) => "let this user at it, or name another file in [store] path",
            OpenProblem::Broken(_) => {
                "move it away to begin with an empty one, and import what was exported"
            }
            OpenProblem::Format(_) => {
                "start the program that wrote it; `settee jobs import` takes here what its `settee jobs export` writes"
            }
            OpenProblem::Database(_) => {
                "see whether PostgreSQL runs there, can be reached and says more in its log; the next request tries again"
            }
            OpenProblem::Refused(_) => {
                "mend what the database names, or name another one in [store] url"
            }
        }
    }
}

impl From<io::Error> for OpenProblem {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind(), error.to_string())
    }
}

impl OpenProblem {
    fn describe(&self) -> String {
        match self {
            Self::InUse => "is in use by another process".to_owned(),
            Self::Io(_, error) => format!("cannot be opened ({error})"),
            Self::Broken(error) => format!("cannot be read ({error})"),
            Self::Format(error) => format!("is of another program ({error})"),
            Self::Database(error) => format!("does not answer ({error})"),
            Self::Refused(error) => format!("cannot be used ({error})"),
        }
    }
}
