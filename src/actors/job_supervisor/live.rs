//! The register of live runs of replications, shared by all schedulers.
//!
//! SUMMARY   A run holds its replication's id in [`LiveRuns`] until all of it is dropped. Until then, the JobSupervisor
//!           makes a later run of the same replication wait.
//! PROMISES  The register outlives schedulers and their supervisors: a run of a failed scheduler, or a killed run that
//!           has not ended, delays only its successor.
//! SOURCE    couch_replicator_scheduler_job 004: the name that a job registers with `global` for its lifetime.
//! DIFFERS   In CouchDB, a job whose name is taken fails with `already_started`.

use std::sync::{Arc, Mutex};

use rustc_hash::FxHashMap;

use crate::lock;
use crate::otp::Pid;
use replication::id::ReplicationId;

/// See the module's documentation. Clones share the register.
#[derive(Clone, Default)]
pub struct LiveRuns(Arc<Mutex<FxHashMap<ReplicationId, Pid>>>);

impl LiveRuns {
    /// Returns the live run with an id, if any.
    pub fn owner(&self, id: &ReplicationId) -> Option<Pid> {
        let owner = lock(&self.0).get(id).cloned();
        owner.filter(Pid::is_alive)
    }

    /// Registers a run under an id.
    pub(super) fn take(&self, id: ReplicationId, run: Pid) {
        lock(&self.0).insert(id, run);
    }

    /// Frees the id of a run that has ended, unless another run has taken it.
    pub(super) fn free(&self, id: &ReplicationId, run: &Pid) {
        let mut owners = lock(&self.0);
        if owners.get(id).is_some_and(|owner| owner.id() == run.id()) {
            owners.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otp::PidGuard;

    #[test]
    fn an_id_belongs_to_a_run_until_all_of_the_run_is_dropped() {
        let runs = LiveRuns::default();
        let id: ReplicationId = "abc".parse().unwrap();
        assert!(runs.owner(&id).is_none());
        let (first, second) = (PidGuard::new(), PidGuard::new());
        let (one, two) = (first.pid(), second.pid());
        runs.take(id.clone(), one.clone());
        assert!(runs.owner(&id).is_some());
        drop(first);
        assert!(
            runs.owner(&id).is_none(),
            "the run has ended without freeing its id"
        );
        runs.take(id.clone(), two);
        runs.free(&id, &one);
        assert!(runs.owner(&id).is_some(), "another run has the id now");
    }
}
