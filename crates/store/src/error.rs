//! Why a store's request failed, and the remedy.

use std::io;

/// A request to the store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be opened, or refused the request: nothing was written. Once the cause is removed, the next
    /// request opens the store.
    #[error("{0}: {remedy}", remedy = .0.remedy())]
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

pub(crate) type StoreResult<T> = Result<T, StoreError>;

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
#[error("the store {place} {problem}")]
pub struct OpenError {
    /// Its place.
    pub place: String,
    /// The reason.
    pub problem: OpenProblem,
}

/// Why the store cannot be opened, or refused a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenProblem {
    /// Another process uses it.
    #[error("is in use by another process")]
    InUse,
    /// The system refuses access.
    #[error("cannot be read or written ({1})")]
    Io(io::ErrorKind, String),
    /// No space is left: on its disk, within a quota, or within a file size limit.
    #[error("has no room left ({0})")]
    Full(String),
    /// It is currently read-only for everyone.
    #[error("is read-only ({0})")]
    ReadOnly(String),
    /// Too many open files or connections, too little memory, or no `epoll` watch left.
    #[error("is at a limit ({0})")]
    Limit(String),
    /// Reading it revealed damage.
    #[error("is damaged ({0})")]
    Damaged(String),
    /// It is not a store's file.
    #[error("is not a store ({0})")]
    NoStore(String),
    /// It has the format of another program.
    #[error("has another program's format ({0})")]
    Format(String),
    /// The database does not answer.
    #[error("does not answer ({0})")]
    Database(String),
    /// The database denies access to this service, or is unsuitable.
    #[error("cannot be used ({0})")]
    Refused(String),
    /// This service lacks rights in the database.
    #[error("lacks rights for this service ({0})")]
    Rights(String),
    /// A constraint of the database rejected the write.
    #[error("refuses what was written ({0})")]
    Constraint(String),
    /// Something else; nothing was written.
    #[error("failed ({0})")]
    Failed(String),
}

impl OpenError {
    /// Returns whether a retry may succeed without intervention.
    pub fn may_pass(&self) -> bool {
        use OpenProblem::*;
        !matches!(
            self.problem,
            Damaged(_) | NoStore(_) | Format(_) | Refused(_) | Rights(_)
        )
    }

    /// Returns the remedy.
    pub fn remedy(&self) -> &'static str {
        use OpenProblem::*;
        match &self.problem {
            InUse => "stop that one, or name another file in [store] path",
            Io(io::ErrorKind::PermissionDenied, _) => {
                "let this user read and write it, or name another file in [store] path"
            }
            Io(..) => "look at the disk and the system's log, or name another file in [store] path",
            Full(_) => {
                "make room on its disk, or raise the quota or the limit on the size of files; what it holds stays, and the next request tries again"
            }
            ReadOnly(_) => {
                "mount its disk for writing, or name the primary of the database; the next request tries again"
            }
            Limit(_) => {
                "raise the limit that is named, on open files, watches of epoll, memory or connections; the next request tries again"
            }
            Damaged(_) => {
                "stop the service, move this one away, and import the last export with `settee jobs import --replace`; without one see docs/operations.md, When something is lost"
            }
            NoStore(_) => {
                "name the store in [store] path; if this was it, its beginning is damaged: see docs/operations.md, When something is lost"
            }
            Format(_) => {
                "start the program that wrote it; `settee jobs import` takes here what its `settee jobs export` writes"
            }
            Database(_) => {
                "see whether PostgreSQL runs there, can be reached and says more in its log; the next request tries again"
            }
            Refused(_) => "fix what the database names, or name another one in [store] url",
            Rights(_) => {
                "make its user the owner of the schema settee, or grant what the database names"
            }
            Constraint(_) => {
                "undo what was changed in the schema settee; if nothing was, report this"
            }
            Failed(_) => {
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
