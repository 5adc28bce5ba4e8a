//! The actor's part of a job's state; the core has the rest.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::actors::past_writer::PastOf;
use crate::messages::replication_job::{JobEnd, JobName, JobProgress};
use crate::messages::replication_scheduler::STALLED_AFTER;
use crate::metrics::GroupMember;
use crate::replicator::past::REFUSED_MAX;
use crate::replicator::{CheckpointGuard, NAME};
use policy::ownership::Epoch;
use policy::schedule::{Server, WallTime};
use replication::id::ReplicationId;
use replication::refused::RefusedDoc;
use replication::spec::{DocRef, Replication};

/// Maximum length of the reason of a document that was not replicated, in bytes.
const REASON_MAX: usize = 512;

#[derive(Debug)]
pub(super) struct JobEntry {
    pub id: ReplicationId,
    pub replication: Arc<Replication>,
    /// Consulted by its runs before each checkpoint.
    pub guard: CheckpointGuard,
    /// The key under which its past is saved; `None` if no other daemon could continue it.
    pub past_of: Option<Arc<PastOf>>,
    /// Progress of its current or latest run.
    pub progress: Option<Arc<JobProgress>>,
    /// When that progress was reported.
    pub progress_at: Option<WallTime>,
    /// Its place in its group's metrics.
    pub in_group: GroupMember,
    /// Documents that were not replicated, the latest last; at most [`REFUSED_MAX`].
    pub refused: VecDeque<Arc<RefusedDoc>>,
    /// Whether some of them are missing from the past saved last.
    pub has_new_refused: bool,
    /// Notified of its end.
    pub waiters: Vec<oneshot::Sender<JobEnd>>,
}

impl JobEntry {
    /// Returns its name in the log.
    pub fn name(&self) -> JobName {
        JobName::new(&self.id, &self.replication)
    }

    /// Returns whether its run, started at this time, has more to replicate, without progress for [`STALLED_AFTER`].
    pub fn is_stalled(&self, started: WallTime, now: WallTime) -> bool {
        let moved = self.progress_at.map_or(started, |at| at.max(started));
        let left = self.progress.as_ref().and_then(|it| it.changes_pending);
        left.is_some_and(|left| left > 0) && now.since(moved) >= STALLED_AFTER
    }

    /// Returns its document in this service's own database, if it has one.
    pub fn own_doc(&self) -> Option<&DocRef> {
        let doc = self.replication.doc.as_ref();
        doc.filter(|doc| doc.database == NAME)
    }

    /// Returns its source and target servers.
    pub fn servers(&self) -> [Server; 2] {
        let sides = [&self.replication.source, &self.replication.target];
        sides.map(|side| side.server().into())
    }

    /// Returns the key for saving its past, for documents owned by a lease.
    pub fn find_past_of(&self) -> Option<Arc<PastOf>> {
        Some(Arc::new(PastOf {
            doc: self.own_doc()?.id.as_str().into(),
            epoch: Epoch(self.guard.epoch()?),
            replication: Arc::clone(&self.replication),
        }))
    }

    /// Adds a waiter for its end, and forgets those that have left.
    pub fn add_waiter(&mut self, waiter: Option<oneshot::Sender<JobEnd>>) {
        self.waiters.retain(|known| !known.is_closed());
        self.waiters.extend(waiter);
    }

    /// Remembers a document that was not replicated, and drops the earliest beyond the maximum. A revision is
    /// remembered once, although later runs encounter it again.
    pub fn refuse(&mut self, mut doc: RefusedDoc) {
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
        self.refused.push_back(Arc::new(doc));
        self.has_new_refused = true;
    }

    /// Returns the remembered documents that were not replicated, the latest last.
    pub fn refused(&self) -> Vec<RefusedDoc> {
        self.refused
            .iter()
            .map(|doc| RefusedDoc::clone(doc))
            .collect()
    }

    /// Notifies the waiters.
    pub fn resolve(&mut self, outcome: &JobEnd) {
        for waiter in self.waiters.drain(..) {
            // The waiter may be gone.
            let _ = waiter.send(outcome.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::metrics::ReplicationMetrics;
    use replication::spec::UserCtx;

    fn entry() -> JobEntry {
        let body = json!({"source": "http://h/a", "target": "http://h/b"});
        let replication = Replication::parse(
            &body,
            &crate::replicator::defaults(&Default::default()),
            UserCtx::default(),
            None,
        );
        JobEntry {
            id: "abc".parse().unwrap(),
            replication: Arc::new(replication.unwrap()),
            guard: CheckpointGuard::default(),
            past_of: None,
            progress: None,
            progress_at: None,
            in_group: ReplicationMetrics::default().groups.join(None),
            refused: VecDeque::new(),
            has_new_refused: false,
            waiters: Vec::new(),
        }
    }

    #[test]
    fn waiters_that_have_left_are_forgotten() {
        let mut entry = entry();
        for _ in 0..3 {
            entry.add_waiter(Some(oneshot::channel().0));
        }
        assert_eq!(entry.waiters.len(), 1);
    }

    #[test]
    fn the_latest_refused_documents_are_kept_once_each_with_shortened_reasons() {
        let mut entry = entry();
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
