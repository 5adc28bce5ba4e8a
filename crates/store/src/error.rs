//! Why a store's request failed, and the remedy.

use std::io;

/// A request to the store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be opened, or refused the request: nothing was written. Once the cause is removed, the next
    /// request opens the store.
    #[error("{error}: {remedy}", error = .0, remedy = .0.remedy())]
    Open(#[from] OpenError),
    /// Reading or writing failed; nothing was written. The host's fault.
    #[error("the store failed: {0}: look at the disk; the next request tries again")]
    Failed(String),
    /// This store cannot hold such a document; nothing was written.
    #[error("{0}")]
    Unstorable(String),
    /// The thread has ended, because the service is shutting down.
    #[error("the store is closed: the service is shutting down")]
    Closed,
}

impl StoreError {
    /// Returns whether the store refused the request, rather than being in use or not answering.
    pub(crate) fn is_refusal(&self) -> bool {
        use OpenProblem as P;
        matches!(self, Self::Open(open) if !matches!(open.problem, P::InUse | P::Database(_)))
    }

    /// Returns the cause and the remedy.
    pub fn cause_and_remedy(&self) -> (String, &'static str) {
        match self {
            Self::Open(error) => (error.to_string(), error.remedy()),
            other => (other.to_string(), "docs/operations.md"),
        }
    }
}

/// The store cannot be opened, or refused a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store {place} {}", .problem.describe())]
pub struct OpenError {
    /// Its place.
    pub place: String,
    /// The reason.
    pub problem: OpenProblem,
}

/// Why the store cannot be opened, or refused a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenProblem {
    /// Another process uses it.
    InUse,
    /// The system refuses access.
    Io(io::ErrorKind, String),
    /// No space is left: on its disk, within a quota, or within a file size limit.
    Full(String),
    /// It is currently read-only for everyone.
    ReadOnly(String),
    /// Too many open files or connections, too little memory, or no `epoll` watch left.
    Limit(String),
    /// Reading it revealed damage.
    Damaged(String),
    /// Its first bytes are not those of a store.
    NoStore(String),
    /// It has the format of another program.
    Format(String),
    /// The database does not answer.
    Database(String),
    /// The database denies access to this service, or is unsuitable.
    Refused(String),
    /// This service lacks rights in the database.
    Rights(String),
    /// A constraint of the database rejected the write.
    Constraint(String),
    /// Something else; nothing was written.
    Failed(String),
}

impl OpenError {
    /// Returns whether a retry may succeed without intervention.
    pub fn may_pass(&self) -> bool {
        use OpenProblem as P;
        !matches!(
            self.problem,
            P::Damaged(_) | P::NoStore(_) | P::Format(_) | P::Refused(_) | P::Rights(_)
        )
    }

    /// Returns the remedy.
    pub fn remedy(&self) -> &'static str {
        match &self.problem {
            OpenProblem::InUse => "stop that one, or name another file in [store] path",
            OpenProblem::Io(io::ErrorKind::PermissionDenied, _) => {
                "let this user read and write it, or name another file in [store] path"
            }
            OpenProblem::Io(..) => {
                "look at the disk and the system's log, or name another file in [store] path"
            }
            OpenProblem::Full(_) => {
                "make room on its disk, or raise the quota or the limit on the size of files; what it holds stays, and the next request tries again"
            }
            OpenProblem::ReadOnly(_) => {
                "mount its disk for writing, or name the primary of the database; the next request tries again"
            }
            OpenProblem::Limit(_) => {
                "raise the limit that is named, on open files, watches of epoll, memory or connections; the next request tries again"
            }
            OpenProblem::Damaged(_) => {
                "stop the service, move this one away, and import the last export with `settee jobs import --replace`; without one see docs/operations.md, When something is lost"
            }
            OpenProblem::NoStore(_) => {
                "name the store in [store] path; if this was it, its beginning is damaged: see docs/operations.md, When something is lost"
            }
            OpenProblem::Format(_) => {
                "start the program that wrote it; `settee jobs import` takes here what its `settee jobs export` writes"
            }
            OpenProblem::Database(_) => {
                "see whether PostgreSQL runs there, can be reached and says more in its log; the next request tries again"
            }
            OpenProblem::Refused(_) => {
                "fix what the database names, or name another one in [store] url"
            }
            OpenProblem::Rights(_) => {
                "make its user the owner of the schema settee, or grant what the database names"
            }
            OpenProblem::Constraint(_) => {
                "undo what was changed in the schema settee; if nothing was, report this"
            }
            OpenProblem::Failed(_) => {
                "look at its disk or its log; the next request tries again; report this if it goes on"
            }
        }
    }
}

/// Linux's errors for too many open files of this process or the machine: EMFILE, ENFILE.
pub(crate) const TOO_MANY_FILES: [i32; 2] = [24, 23];

impl From<io::Error> for OpenProblem {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let text = error.to_string();
        match (error.kind(), error.raw_os_error()) {
            (Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge, _) => Self::Full(text),
            (Kind::ReadOnlyFilesystem, _) => Self::ReadOnly(text),
            (Kind::OutOfMemory, _) => Self::Limit(text),
            (_, Some(code)) if TOO_MANY_FILES.contains(&code) => Self::Limit(text),
            // Only redb returns these, from reads.
            (Kind::UnexpectedEof, _) => Self::Damaged("it ends too early".to_owned()),
            (Kind::InvalidData, _) => Self::NoStore(text),
            (kind, _) => Self::Io(kind, text),
        }
    }
}

impl OpenProblem {
    fn describe(&self) -> String {
        let (what, error) = match self {
            Self::InUse => return "is in use by another process".to_owned(),
            Self::Io(_, error) => ("cannot be read or written", error),
            Self::Full(error) => ("has no room left", error),
            Self::ReadOnly(error) => ("is read-only", error),
            Self::Limit(error) => ("is at a limit", error),
            Self::Damaged(error) => ("is damaged", error),
            Self::NoStore(error) => ("is not a store", error),
            Self::Format(error) => ("has another program's format", error),
            Self::Database(error) => ("does not answer", error),
            Self::Refused(error) => ("cannot be used", error),
            Self::Rights(error) => ("lacks rights for this service", error),
            Self::Constraint(error) => ("refuses what was written", error),
            Self::Failed(error) => ("failed", error),
        };
        format!("{what} ({error})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_file_is_reported_by_its_cause_and_an_intact_file_is_never_to_be_moved() {
        const EROFS: i32 = 30;
        const ENOSPC: i32 = 28;
        const EFBIG: i32 = 27;
        const EDQUOT: i32 = 122;
        let causes = [
            (ENOSPC, "has no room left", "make room"),
            (EFBIG, "has no room left", "limit on the size of files"),
            (EDQUOT, "has no room left", "quota"),
            (EROFS, "is read-only", "for writing"),
            (13, "cannot be read or written", "let this user"),
            (5, "cannot be read or written", "look at the disk"),
            (TOO_MANY_FILES[0], "is at a limit", "open files"),
            (TOO_MANY_FILES[1], "is at a limit", "open files"),
            (12, "is at a limit", "memory"),
        ];
        for (code, what, remedy) in causes {
            let error = OpenError {
                place: "P".to_owned(),
                problem: io::Error::from_raw_os_error(code).into(),
            };
            let text = StoreError::from(error.clone()).to_string();
            assert!(text.starts_with(&format!("the store P {what} (")), "{text}");
            assert!(text.contains(remedy), "{text}");
            assert!(!text.contains("away") && error.may_pass(), "{text}");
        }
    }
}
