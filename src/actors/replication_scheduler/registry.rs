//! What the scheduler's actor keeps of jobs; the core keeps the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::messages::replication_job::JobProgress;
use crate::messages::replication_scheduler::Outcome;
use crate::policy::schedule::{JobId, WallTime};
use crate::replication::id::ReplicationId;
use crate::replication::spec::Replication;

/// A job.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: ReplicationId,
    pub(super) replication: Arc<Replication>,
    /// How far it is, or was when it ran last.
    pub(super) progress: Option<Arc<JobProgress>>,
    /// When that was.
    pub(super) progress_at: Option<WallTime>,
    /// Who waits for its end.
    pub(super) waiters: Vec<oneshot::Sender<Outcome>>,
}

impl Entry {
    /// Tells everybody who waits.
    pub(super) fn resolve(&mut self, outcome: &Outcome) {
        for waiter in self.waiters.drain(..) {
            // He may have gone meanwhile.
            let _ = waiter.send(outcome.clone());
        }
    }
}

/// All jobs.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// Id -> job, in the order in which jobs are listed.
    jobs: BTreeMap<JobId, Entry>,
    /// Replicator database, document, id: the jobs of each.
    by_doc: BTreeSet<(String, String, JobId)>,
}

impl Registry {
    pub(super) fn get(&self, id: &str) -> Option<&Entry> {
        self.jobs.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut Entry> {
        self.jobs.get_mut(id)
    }

    /// Registers a job; returns the one that had its id.
    pub(super) fn insert(&mut self, id: JobId, entry: Entry) -> Option<Entry> {
        let replaced = self.remove(&id);
        self.by_doc.extend(place(&id, &entry));
        self.jobs.insert(id, entry);
        replaced
    }

    pub(super) fn remove(&mut self, id: &JobId) -> Option<Entry> {
        let entry = self.jobs.remove(id)?;
        if let Some(place) = place(id, &entry) {
            self.by_doc.remove(&place);
        }
        Some(entry)
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns all jobs, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&JobId, &Entry)> {
        self.jobs.iter()
    }

    /// Returns the ids of a document's jobs, or of a database's.
    pub(super) fn find(&self, database: &str, doc_id: Option<&str>) -> Vec<ReplicationId> {
        let first = doc_id.unwrap_or_default();
        let from = (database.to_owned(), first.to_owned(), JobId::from(""));
        let of_them = self
            .by_doc
            .range(from..)
            .take_while(|(db, doc, _)| db == database && doc_id.is_none_or(|doc_id| doc_id == doc));
        let entries = of_them.filter_map(|(.., id)| self.jobs.get(id));
        entries.map(|entry| entry.id.clone()).collect()
    }
}

fn place(id: &JobId, entry: &Entry) -> Option<(String, String, JobId)> {
    let doc = entry.replication.doc.as_ref()?;
    Some((doc.database.clone(), doc.id.clone(), id.clone()))
}
