//! Whether a job may begin a checkpoint: always, or while the daemon holds the lease of its document.
//!
//! SOURCE    FL-3 of `policy::ownership`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The lease under which a document's job runs.
pub trait JobLease: fmt::Debug + Send + Sync {
    /// Returns for how long a checkpoint that is begun now may take; none if none may be begun.
    fn left(&self) -> Option<Duration>;

    /// Returns the epoch of the owner, for the checkpoint's history.
    fn epoch(&self) -> u64;
}

/// What a job asks before each checkpoint. Cheap to clone; the default always says yes.
#[derive(Clone, Debug, Default)]
pub struct CheckpointGuard(Option<Arc<dyn JobLease>>);

impl CheckpointGuard {
    /// Says yes for as long as the lease does.
    pub fn of(lease: Arc<dyn JobLease>) -> Self {
        Self(Some(lease))
    }

    /// Returns for how long a checkpoint that is begun now may take; none if none may be begun.
    pub(crate) fn left(&self) -> Option<Duration> {
        let Some(lease) = &self.0 else {
            return Some(Duration::MAX);
        };
        lease.left()
    }

    /// Whether both are the same lease.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Returns the epoch of the owner; none where one daemon owns everything.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.0.as_ref().map(|lease| lease.epoch())
    }
}
