//! The state of each replicator document, as a pure table.
//!
//! SUMMARY   [`DocTable`] has an entry for each document: its class in the store, the requested replication and its
//!           progress ([`Row`]), the lease that owns it, its job's state, and the reports of other daemons. The
//!           store, ReplicatorDocuments and the scheduler report to it; lists, counts and ownership are read from it.
//! PROMISES  A page costs only what it shows, however many documents it skips. Lists are loading
//!           ([`DocTable::loading`]) until the table knows the progress of every replication document that existed
//!           when the store was opened.
//! CALLED    Under the lock of [`DocStates`](super::DocStates).

mod event;
mod others;
mod owned;
mod row;

use std::ops::Bound;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::doc_state::DocState;
use policy::counted::{Class, Classes, CountedNames, Section};
use policy::schedule::{JobId, JobState, WallTime};
use store::fleet::StatusOf;

pub(crate) use event::{Attempt, Event, NotYet, RowAction, Taken, Wish};
pub(crate) use owned::ClaimWork;
use owned::OwnedDoc;
use row::RowTurn;
pub(crate) use row::{Row, RowState};

/// The class of design documents, which are counted and have no state.
pub(super) const DESIGN: Class = 7;

/// The state of a document.
#[derive(Debug, Default)]
struct Known {
    /// The class of its body; `None` while it does not exist.
    stored: Option<Class>,
    /// The requested replication, and its progress to a job.
    row: Option<Box<Row>>,
    /// The lease under which it is owned, if the store is shared.
    owned: Option<Box<OwnedDoc>>,
    /// The state of its job.
    job: Option<(JobId, JobState)>,
    /// Another daemon's report.
    other: Option<others::Other>,
    /// Whether it existed when the store was opened, or the scheduler restarted, and its progress has not been
    /// reported since.
    is_awaited: bool,
}

impl Known {
    fn class(&self) -> Option<Class> {
        let stored = self.stored?;
        Some(match (&self.row, &self.job) {
            (Some(_), Some((_, state))) => DocState::from(*state).class(),
            (Some(row), None) => row.state.shown().class(),
            (None, _) => self.other().map_or(stored, |other| other.class),
        })
    }

    /// Returns whether it requests a replication whose progress has not been reported.
    fn is_unread(&self) -> bool {
        self.class() == Some(0)
    }

    const fn is_gone(&self) -> bool {
        self.stored.is_none()
            && self.row.is_none()
            && self.owned.is_none()
            && self.job.is_none()
            && self.other.is_none()
    }
}

/// The documents to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The start, in the order of the list.
    pub start: Bound<String>,
    /// The end.
    pub end: Bound<String>,
    /// Whether the last id is first.
    pub descending: bool,
    /// The number of documents to skip.
    pub skip: usize,
    /// Maximum documents to list.
    pub limit: usize,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            start: Bound::Unbounded,
            end: Bound::Unbounded,
            descending: false,
            skip: 0,
            limit: usize::MAX,
        }
    }
}

/// Documents of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageOfIds {
    /// The number of all documents, regardless of the page.
    pub total: usize,
    /// The number of documents before the page.
    pub offset: usize,
    /// The ids on the page.
    pub ids: Vec<Arc<str>>,
}

/// All documents.
#[derive(Debug, Default)]
pub(crate) struct DocTable {
    known: FxHashMap<Arc<str>, Known>,
    /// Existing documents, in the order of lists.
    names: CountedNames,
    /// Changes to report to other daemons; `None` outside a fleet.
    changed: Option<others::Changed>,
    /// Whether there is a store that is not open yet.
    is_awaited: bool,
    /// The number of awaited documents in `known`.
    unread: usize,
    /// The number of documents in `known` with a row.
    rows: usize,
    /// The number of attempts to make a job of a document.
    attempts: u64,
    /// The number of failovers noticed.
    renumberings: u64,
}

impl DocTable {
    /// Handles an event of a document, and returns the actions.
    pub fn handle(&mut self, doc: &str, event: Event, now: WallTime) -> Vec<RowAction> {
        let (mut attempts, rows) = (self.attempts, self.rows);
        let actions = self.change_own(doc, |known| {
            let mut turn = RowTurn {
                doc,
                row: &mut known.row,
                attempts: &mut attempts,
                rows,
                now,
            };
            turn.handle(event)
        });
        self.attempts = attempts;
        actions
    }

    /// Returns the row of a document that requests a replication.
    pub fn row(&self, doc: &str) -> Option<&Row> {
        self.known.get(doc)?.row.as_deref()
    }

    /// Sets the state of a document's job; `None` if the job is gone.
    pub fn set_job(&mut self, id: &str, job: &JobId, state: Option<JobState>) {
        self.change_own(id, |known| match state {
            Some(state) => known.job = Some((Arc::clone(job), state)),
            // It may have another job by now.
            None => drop(known.job.take_if(|(own, _)| own == job)),
        });
    }

    /// Returns the job of a document.
    pub fn job_of(&self, id: &str) -> Option<JobId> {
        let (job, _) = self.known.get(id)?.job.as_ref()?;
        Some(Arc::clone(job))
    }

    /// Records that a store exists but is not open yet.
    pub const fn await_store(&mut self) {
        self.is_awaited = true;
    }

    /// The store was opened: it has these documents.
    pub fn opened(&mut self, documents: Vec<(String, Class)>) {
        self.change_all(|known| known.stored = None);
        for (id, class) in documents {
            self.change(&id, |known| known.stored = Some(class));
        }
        self.is_awaited = false;
        self.await_all();
    }

    /// These documents were written or deleted.
    pub fn written(&mut self, documents: Vec<(String, Option<Class>)>) {
        for (id, class) in documents {
            self.change(&id, |known| known.stored = class);
        }
    }

    /// The follower of documents starts over: it owns none, and reads all of them.
    pub fn forget_rows(&mut self) {
        self.change_all(|known| (known.row, known.owned) = (None, None));
        self.await_all();
    }

    /// The scheduler has lost its jobs: all documents are read again. Ownership stays.
    pub fn forget_jobs(&mut self) {
        self.change_all(|known| (known.row, known.job) = (None, None));
        self.forget_seen();
        self.await_all();
    }

    /// After a failover the store has other sequence numbers, and may have lost writes: all documents are read again.
    pub fn renumbered(&mut self) {
        self.forget_seen();
        self.renumberings += 1;
    }

    /// Returns how often the store was renumbered.
    pub const fn renumberings(&self) -> u64 {
        self.renumberings
    }

    /// Returns the number of documents without known progress, 0 before the store is open; `None` once lists are
    /// complete.
    pub fn loading(&self) -> Option<usize> {
        (self.is_awaited || self.unread > 0).then_some(self.unread)
    }

    /// Marks all documents without reported progress as awaited.
    fn await_all(&mut self) {
        self.unread = 0;
        for known in self.known.values_mut() {
            known.is_awaited = known.is_unread();
            self.unread += usize::from(known.is_awaited);
        }
    }

    fn change<T>(&mut self, id: &str, change: impl FnOnce(&mut Known) -> T) -> T {
        let known = match self.known.get_mut(id) {
            Some(known) => known,
            None => self.known.entry(id.into()).or_default(),
        };
        let (before, had_row) = (known.class(), known.row.is_some());
        let changed = change(known);
        let (class, has_row, is_gone) = (known.class(), known.row.is_some(), known.is_gone());
        if known.is_awaited && !known.is_unread() {
            known.is_awaited = false;
            self.unread -= 1;
        }
        self.rows = self.rows + usize::from(has_row) - usize::from(had_row);
        if class != before
            && let Some((name, _)) = self.known.get_key_value(id)
        {
            match class {
                Some(class) => drop(self.names.set(name, class)),
                None => drop(self.names.remove(name)),
            }
        }
        if is_gone {
            self.known.remove(id);
        }
        changed
    }

    fn change_all(&mut self, mut change: impl FnMut(&mut Known)) {
        let ids: Vec<Arc<str>> = self.known.keys().cloned().collect();
        for id in ids {
            self.change(&id, &mut change);
        }
    }

    /// Changes what this daemon knows of a document, and records the change if the document has or had a row.
    fn change_own<T>(&mut self, id: &str, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut is_own = false;
        let changed = self.change(id, |known| {
            is_own = known.row.is_some();
            let changed = change(known);
            is_own |= known.row.is_some();
            changed
        });
        if let Some(changed) = self.changed.as_mut().filter(|_| is_own) {
            let name = self
                .known
                .get_key_value(id)
                .map_or_else(|| id.into(), |(name, _)| Arc::clone(name));
            changed.add(StatusOf::Document(name));
        }
        changed
    }

    /// Returns a page of the documents in some states; without states, all except design documents.
    pub fn page(&self, page: &Page, states: &[DocState]) -> PageOfIds {
        let classes = match states {
            [] => (0..DESIGN).collect(),
            _ => states.iter().map(|state| state.class()).collect(),
        };
        self.page_of(page, classes)
    }

    /// Returns a page of all documents.
    pub fn page_of_all(&self, page: &Page) -> PageOfIds {
        self.page_of(page, Classes::ALL)
    }

    fn page_of(&self, page: &Page, classes: Classes) -> PageOfIds {
        let start = page.start.as_ref().map(String::as_str);
        let end = page.end.as_ref().map(String::as_str);
        let (lower, upper) = if page.descending {
            (end, start)
        } else {
            (start, end)
        };
        let total = self.names.count(Classes::ALL, Section::ALL);
        let section = Section { lower, upper };
        let (lower, upper) = if page.descending {
            (other_side(start), Bound::Unbounded)
        } else {
            (Bound::Unbounded, other_side(start))
        };
        let before = match start {
            Bound::Unbounded => 0,
            _ => self.names.count(Classes::ALL, Section { lower, upper }),
        };
        PageOfIds {
            total,
            offset: before.saturating_add(page.skip).min(total),
            ids: self
                .names
                .page(classes, section, page.descending, page.skip, page.limit),
        }
    }
}

/// Returns the bound of everything on the other side of a bound.
fn other_side(bound: Bound<&str>) -> Bound<&str> {
    match bound {
        Bound::Included(id) => Bound::Excluded(id),
        Bound::Excluded(id) => Bound::Included(id),
        Bound::Unbounded => Bound::Unbounded,
    }
}

#[cfg(test)]
mod tests;
