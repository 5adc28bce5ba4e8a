//! Errors of requests about replications.

use replication::crash::Crash;
use replication::spec::SpecError;
use store::StoreError;

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ReplicatorError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The body is not a replication. The caller's fault.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A database was named without a URL. The caller's fault.
    #[error(
        "{0:?} is the bare name of a database, and this service holds no databases: give the whole \
         URL of source and target"
    )]
    BareName(String),
    /// The replication's id cannot be computed, since the source does not return the filter's code. Worth a retry.
    #[error("{0}")]
    Filter(String),
    /// A selection or an order for jobs is invalid. The caller's fault.
    #[error("{0}")]
    Selection(String),
    /// More jobs are selected than expected. Nothing was done.
    #[error("{total} jobs are selected, and {expected} were expected: nothing was done")]
    Unexpected {
        /// The expected maximum.
        expected: usize,
        /// The number of selected jobs.
        total: usize,
    },
    /// There is no such job.
    #[error("missing")]
    Missing,
    /// The id belongs to a document's job, or to another user's.
    #[error("{0}")]
    Taken(String),
    /// The job belongs to a daemon with an expired lease, and is unreachable now. Worth a retry.
    #[error("no daemon has this job now: try again when one has it, within a minute")]
    Unowned,
    /// The job failed.
    #[error("{0}")]
    Crashed(Crash),
    /// The job was removed before its end.
    #[error("the replication was cancelled")]
    Cancelled,
    /// The service is shutting down. Worth a retry after its restart.
    #[error("the service is shutting down")]
    ShuttingDown,
}

pub(crate) type ReplicatorResult<T> = Result<T, ReplicatorError>;

impl ReplicatorError {
    /// Returns its name in bulk results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Store(_) => "store_unavailable",
            Self::Missing => "not_found",
            Self::Taken(_) | Self::Unowned => "conflict",
            Self::ShuttingDown => "shutting_down",
            Self::Spec(_)
            | Self::BareName(_)
            | Self::Filter(_)
            | Self::Selection(_)
            | Self::Unexpected { .. }
            | Self::Crashed(_)
            | Self::Cancelled => "bad_request",
        }
    }
}
