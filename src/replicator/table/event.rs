//! Events of documents, and actions: the input and output of [`DocTable::handle`](super::DocTable::handle).

use std::sync::Arc;
use std::time::Duration;

use replication::id::ReplicationId;
use replication::spec::{DocRef, Replication};

/// One attempt to make a job of a document; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Attempt(pub u64);

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A document was written, or is there at the start.
    Changed {
        /// Its id.
        doc: String,
        /// What it says now.
        wish: Wish,
    },
    /// A version of a document was read that does not say the replication's state, after its
    /// [`Event::Changed`]: what this service wrote of an error says so.
    Written {
        /// Its id.
        doc: String,
    },
    /// The id of a replication is known, or not yet.
    Identified {
        /// The document.
        doc: String,
        /// Which attempt.
        attempt: Attempt,
        /// The id, or why there is none yet.
        result: Result<ReplicationId, NotYet>,
    },
    /// The scheduler has, or has not, taken a job.
    Scheduled {
        /// The document.
        doc: String,
        /// Which attempt.
        attempt: Attempt,
        /// The job.
        job: ReplicationId,
        /// Whether the id was free, or this document's already.
        result: Result<(), Taken>,
    },
    /// A time that was asked for has come.
    Due {
        /// The document.
        doc: String,
        /// Which attempt asked.
        attempt: Attempt,
    },
    /// A job has done its work.
    Completed {
        /// The document.
        doc: String,
        /// The job.
        job: ReplicationId,
    },
}

impl Event {
    /// Returns the document that it happened to.
    pub fn doc(&self) -> &str {
        match self {
            Self::Changed { doc, .. }
            | Self::Written { doc }
            | Self::Identified { doc, .. }
            | Self::Scheduled { doc, .. }
            | Self::Due { doc, .. }
            | Self::Completed { doc, .. } => doc,
        }
    }
}

/// Why a document has no job for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotYet {
    /// In words.
    pub text: String,
    /// In a few words, equal for equal causes.
    pub short: Arc<str>,
}

impl NotYet {
    pub fn new(text: impl Into<String>, short: impl Into<Arc<str>>) -> Self {
        let (text, short) = (text.into(), short.into());
        Self { text, short }
    }
}

/// What a document asks for.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// This replication.
    Run(Arc<Replication>),
    /// Nothing: it is deleted, has completed or has failed.
    Nothing,
    /// Something that is no replication, or not one that may run.
    Broken {
        /// Why.
        reason: String,
        /// What it would be under another configuration; none for what never is a replication.
        replication: Option<Arc<Replication>>,
    },
}

/// Somebody else has a job of the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A call of `_replicate`.
    Transient,
    /// Another document.
    Document(DocRef),
    /// Another document of this id, which no longer asks for it: its owner has not caught up yet.
    Former(Arc<str>),
}

/// Something to do, in this order.
#[derive(Clone, Debug)]
pub(crate) enum RowAction {
    /// Compute the id of a replication, and tell [`Event::Identified`].
    Identify {
        /// The document.
        doc: String,
        /// The attempt.
        attempt: Attempt,
        /// The replication.
        replication: Arc<Replication>,
    },
    /// Hand a job to the scheduler, and tell [`Event::Scheduled`].
    Schedule {
        /// The document.
        doc: String,
        /// The attempt.
        attempt: Attempt,
        /// The job.
        job: ReplicationId,
        /// The replication.
        replication: Arc<Replication>,
    },
    /// Remove a job, which may be gone already.
    RemoveJob {
        /// Which.
        job: ReplicationId,
    },
    /// Write into a document that it never will run.
    WriteFailed {
        /// The document.
        doc: String,
        /// Why.
        reason: String,
        /// What it asked for; none where nobody could tell.
        replication: Option<Arc<Replication>>,
    },
    /// Write into a document what went wrong for now.
    WriteError {
        /// The document.
        doc: String,
        /// What.
        reason: String,
        /// What it asked for.
        replication: Arc<Replication>,
    },
    /// Tell [`Event::Due`] after a time between the two, drawn at random.
    Wake {
        /// The document.
        doc: String,
        /// The attempt.
        attempt: Attempt,
        /// The shortest time.
        least: Duration,
        /// The longest.
        most: Duration,
    },
}
