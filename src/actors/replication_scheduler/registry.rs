//! What the scheduler's actor keeps of jobs; the core keeps the rest.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::messages::replication_job::JobProgress;
use crate::messages::replication_scheduler::Outcome;
use policy::schedule::{JobId, WallTime};
use replication::id::ReplicationId;
use replication::refused::RefusedDoc;
use replication::spec::Replication;

/// The most documents that are remembered of those that were not replicated.
pub(super) const REFUSED_MAX: usize = 20;

/// The most bytes of the reason of each.
const REASON_MAX: usize = 512;

/// A job.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: ReplicationId,
    pub(super) replication: Arc<Replication>,
    /// How far it is, or was when it ran last.
    pub(super) progress: Option<Arc<JobProgress>>,
    /// When that was.
    pub(super) progress_at: Option<WallTime>,
    /// Documents that were not replicated, the latest last; at most [`REFUSED_MAX`].
    pub(super) refused: VecDeque<RefusedDoc>,
    /// Who waits for its end.
    pub(super) waiters: Vec<oneshot::Sender<Outcome>>,
}

impl Entry {
    /// Remembers a document that was not replicated, and forgets the earliest one if there are too many. The
    /// same revision is remembered once: a run after this one meets it again.
    pub(super) fn refuse(&mut self, mut doc: RefusedDoc) {
        let end = doc.reason.floor_char_boundary(REASON_MAX);
        if end < doc.reason.len() {
            doc.reason.truncate(end);
            doc.reason.push_str("..");
        }
        self.refused
            .retain(|known| (&known.id, &known.rev) != (&doc.id, &doc.rev));
        if self.refused.len() == REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back(doc);
    }

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use replication::spec::UserCtx;

    #[test]
    fn the_latest_refused_documents_are_remembered_each_once_and_not_at_any_length() {
        let body = json!({"source": "http://h/a", "target": "http://h/b"});
        let replication = Replication::parse(&body, &Default::default(), UserCtx::default(), None);
        let mut entry = Entry {
            id: "abc".parse().unwrap(),
            replication: Arc::new(replication.unwrap()),
            progress: None,
            progress_at: None,
            refused: VecDeque::new(),
            waiters: Vec::new(),
        };
        let doc = |n: usize, reason: &str| RefusedDoc {
            id: n.to_string(),
            rev: Some("1-x".into()),
            error: "forbidden".into(),
            reason: reason.into(),
        };
        (0..REFUSED_MAX + 5).for_each(|n| entry.refuse(doc(n, "no")));
        entry.refuse(doc(7, &"\u{e9}".repeat(REASON_MAX)));
        assert_eq!(entry.refused.len(), REFUSED_MAX);
        let ids: Vec<&str> = entry.refused.iter().map(|doc| &*doc.id).collect();
        assert_eq!((ids[0], ids[1], ids[19]), ("5", "6", "7"));
        let reason = &entry.refused[19].reason;
        assert!(reason.len() <= REASON_MAX + 2 && reason.ends_with("\u{e9}.."));
    }
}
