//! Documents that other daemons of a fleet own, and this daemon's unreported changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHashSet;

use super::{DESIGN, DocTable, Known};
use crate::replicator::DocState;
use crate::replicator::status::OtherStatus;
use policy::counted::{Class, Classes, Section};
use policy::schedule::JobId;
use store::fleet::StatusOf;

/// Another daemon's report about a document.
#[derive(Clone, Debug)]
pub(super) struct Other {
    pub class: Class,
    status: Arc<OtherStatus>,
}

impl Known {
    /// Returns the other daemon's report if it counts: the document requests a replication, and has no row here.
    pub(super) fn other(&self) -> Option<&Other> {
        let is_left_to_others = self.stored == Some(0) && self.row.is_none();
        self.other.as_ref().filter(|_| is_left_to_others)
    }
}

/// Changes not reported yet: each once, in order of the first change.
#[derive(Debug, Default)]
pub(super) struct Changed {
    queue: VecDeque<StatusOf>,
    queued: FxHashSet<StatusOf>,
}

impl Changed {
    pub fn add(&mut self, of: StatusOf) {
        if self.queued.insert(of.clone()) {
            self.queue.push_back(of);
        }
    }
}

impl DocTable {
    /// Begins to record changes for other daemons.
    pub fn track(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// Records that a transient job changed.
    pub fn note_transient(&mut self, job: &JobId) {
        self.note_changed([StatusOf::Transient(Arc::clone(job))]);
    }

    /// Records changes.
    pub fn note_changed(&mut self, what: impl IntoIterator<Item = StatusOf>) {
        if let Some(changed) = &mut self.changed {
            what.into_iter().for_each(|of| changed.add(of));
        }
    }

    /// Records a change of every document that this daemon has a row for.
    pub fn note_all(&mut self) {
        let Some(changed) = &mut self.changed else {
            return;
        };
        self.known
            .iter()
            .filter(|(_, known)| known.row.is_some())
            .for_each(|(id, _)| changed.add(StatusOf::Document(Arc::clone(id))));
    }

    /// Removes and returns at most `most` changes.
    pub fn take_changed(&mut self, most: usize) -> Vec<StatusOf> {
        let Some(changed) = &mut self.changed else {
            return Vec::new();
        };
        let count = changed.queue.len().min(most);
        let taken: Vec<StatusOf> = changed.queue.drain(..count).collect();
        for of in &taken {
            changed.queued.remove(of);
        }
        taken
    }

    /// Records another daemon's report about a document.
    pub fn set_other(&mut self, id: &str, status: Arc<OtherStatus>) {
        let other = status.body.state.map(|state| Other {
            class: state.class(),
            status: Arc::clone(&status),
        });
        self.change(id, |known| known.other = other);
    }

    /// Returns another daemon's report about a document that requests a replication and has no row here.
    pub fn other(&self, id: &str) -> Option<Arc<OtherStatus>> {
        Some(Arc::clone(&self.known.get(id)?.other()?.status))
    }

    /// Returns the reports that [`Self::other`] would return for all documents.
    pub fn others(&self) -> Vec<Arc<OtherStatus>> {
        self.known
            .values()
            .filter_map(Known::other)
            .map(|other| Arc::clone(&other.status))
            .collect()
    }

    /// Forgets reports that were read before this time, if their documents are missing or request nothing: a status
    /// may arrive before its document, but not this much earlier.
    pub fn forget_others(&mut self, before: Instant) {
        let over: Vec<Arc<str>> = self
            .known
            .iter()
            .filter(|(_, known)| {
                let other = known.other.as_ref();
                known.stored != Some(0) && other.is_some_and(|other| other.status.read < before)
            })
            .map(|(id, _)| Arc::clone(id))
            .collect();
        for id in over {
            self.change(&id, |known| known.other = None);
        }
    }

    /// Counts the documents that request a replication.
    pub fn wanted(&self) -> usize {
        let over = [
            DocState::Completed.class(),
            DocState::Failed.class(),
            DESIGN,
        ];
        let wanted: Classes = (0..=DESIGN).filter(|class| !over.contains(class)).collect();
        self.names.count(wanted, Section::ALL)
    }

    /// Counts the documents in a state.
    pub fn count(&self, state: DocState) -> usize {
        self.names
            .count([state.class()].into_iter().collect(), Section::ALL)
    }

    /// Returns the state of a document in this daemon's lists.
    pub fn state_of(&self, id: &str) -> DocState {
        self.known
            .get(id)
            .and_then(Known::class)
            .and_then(DocState::of_class)
            .unwrap_or(DocState::Initializing)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::replicator::Page;
    use crate::replicator::status::StatusBody;
    use crate::replicator::table::RowState;
    use policy::ownership::Epoch;

    fn status(id: &str, state: Option<DocState>) -> Arc<OtherStatus> {
        Arc::new(OtherStatus {
            epoch: Epoch(1),
            of: StatusOf::Document(id.into()),
            age: Duration::ZERO,
            read: Instant::now(),
            body: StatusBody {
                state,
                ..StatusBody::default()
            },
        })
    }

    fn in_state(states: &DocTable, state: DocState) -> Vec<String> {
        let page = states.page(&Page::default(), &[state]);
        page.ids.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn another_daemons_report_counts_until_this_one_knows_better() {
        let mut states = DocTable::default();
        states.opened(vec![("a".to_owned(), 0), ("b".to_owned(), 0)]);
        states.set_other("a", status("a", Some(DocState::Running)));
        states.set_other("later", status("later", Some(DocState::Crashing)));
        assert_eq!(in_state(&states, DocState::Running), ["a"]);
        assert_eq!(in_state(&states, DocState::Crashing), [""; 0]);
        states.written(vec![("later".to_owned(), Some(0))]);
        assert_eq!(
            in_state(&states, DocState::Crashing),
            ["later"],
            "the report came before the document"
        );
        assert_eq!((states.wanted(), states.others().len()), (3, 2));
        states.set_row("a", Some(RowState::Scheduled));
        assert_eq!(
            in_state(&states, DocState::Running),
            [""; 0],
            "this daemon has a row now"
        );
        assert!(states.other("a").is_none());
        states.set_row("a", None);
        assert_eq!(states.state_of("a"), DocState::Running);
        states.written(vec![("a".to_owned(), Some(DocState::Completed.class()))]);
        assert_eq!(
            in_state(&states, DocState::Completed),
            ["a"],
            "the outcome is newer"
        );
        assert!(states.other("a").is_none());
        assert_eq!(states.wanted(), 2);
        states.set_other("later", status("later", None));
        assert_eq!(states.state_of("later"), DocState::Initializing);
        states.set_other("never", status("never", Some(DocState::Running)));
        states.forget_others(Instant::now());
        states.written(vec![("a".into(), Some(0)), ("never".into(), Some(0))]);
        assert_eq!(
            in_state(&states, DocState::Running),
            [""; 0],
            "both are forgotten"
        );
    }

    #[test]
    fn changes_are_reported_once_in_order_of_the_first_change_and_only_in_a_fleet() {
        let mut states = DocTable::default();
        let doc = |id: &str| StatusOf::Document(id.into());
        states.set_row("a", Some(RowState::Error));
        assert_eq!(states.take_changed(9), []);
        states.track();
        states.set_row("c", Some(RowState::Error));
        states.note_transient(&"t".into());
        states.set_row("b", Some(RowState::Error));
        states.set_row("c", Some(RowState::Scheduled));
        let transient = StatusOf::Transient("t".into());
        assert_eq!(states.take_changed(2), [doc("c"), transient]);
        assert_eq!(states.take_changed(2), [doc("b")]);
        states.set_row("nothing", None);
        assert_eq!(states.take_changed(2), []);
        states.note_all();
        assert_eq!(states.take_changed(9).len(), 3);
    }
}
