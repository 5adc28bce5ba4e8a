//! Events of a document, and actions: the input and output of [`DocTable::handle`](super::DocTable::handle).

use std::sync::Arc;
use std::time::Duration;

use replication::id::ReplicationId;
use replication::spec::{DocRef, Replication};

/// The number of an attempt to make a job of a document; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Attempt(pub u64);

/// An event.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The document was written, or exists at the start: its current request.
    Changed(Wish),
    /// The version just reported by [`Event::Changed`] has no replication state, so this service did not write it:
    /// this service always writes an error with a state.
    Written,
    /// The id of a replication was computed, or cannot be computed yet.
    Identified {
        /// Its attempt.
        attempt: Attempt,
        /// The id, or why there is none yet.
        result: Result<ReplicationId, NotYet>,
    },
    /// The scheduler has accepted or refused a job.
    Scheduled {
        /// Its attempt.
        attempt: Attempt,
        /// The job.
        job: ReplicationId,
        /// Whether the id was free, or already this document's.
        result: Result<(), Taken>,
    },
    /// The time that this attempt requested was reached.
    Due(Attempt),
    /// This job has finished.
    Completed(ReplicationId),
}

/// Why a document has no job for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotYet {
    /// The full text.
    pub text: String,
    /// A short text, equal for equal causes.
    pub short: Arc<str>,
}

impl NotYet {
    pub fn new(text: impl Into<String>, short: impl Into<Arc<str>>) -> Self {
        let (text, short) = (text.into(), short.into());
        Self { text, short }
    }
}

/// A document's request.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// This replication.
    Run(Arc<Replication>),
    /// Nothing: it is deleted, has completed or has failed.
    Nothing,
    /// An invalid replication, or one that may not run.
    Broken {
        /// The reason.
        reason: String,
        /// The replication that it would be under another configuration; `None` if it is never valid.
        replication: Option<Arc<Replication>>,
    },
}

/// Another document or call has a job with the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A call of `_replicate`.
    Transient,
    /// Another document.
    Document(DocRef),
    /// A document with this id, which no longer requests the replication: its owner, another daemon, has not caught up
    /// yet.
    Former(Arc<str>),
}

/// Actions, executed in order.
#[derive(Clone, Debug)]
pub(crate) enum RowAction {
    /// Compute the id of a replication, and report [`Event::Identified`].
    Identify {
        /// The attempt.
        attempt: Attempt,
        /// The replication.
        replication: Arc<Replication>,
    },
    /// Pass a job to the scheduler, and report [`Event::Scheduled`].
    Schedule {
        /// The attempt.
        attempt: Attempt,
        /// The job.
        job: ReplicationId,
        /// The replication.
        replication: Arc<Replication>,
    },
    /// Remove a job, which may be gone already.
    RemoveJob(ReplicationId),
    /// Write into the document that its replication will never run.
    WriteFailed {
        /// The reason.
        reason: String,
        /// Its replication; `None` if unknown.
        replication: Option<Arc<Replication>>,
    },
    /// Write a temporary error into the document.
    WriteError {
        /// The error.
        reason: String,
        /// Its replication.
        replication: Arc<Replication>,
    },
    /// Report [`Event::Due`] after a random time between `least` and `most`.
    Wake {
        /// The attempt.
        attempt: Attempt,
        /// Minimum.
        least: Duration,
        /// Maximum.
        most: Duration,
    },
}
