//! Which state each document is in, for lists of documents in some states.
//!
//! SUMMARY   [`DocStates`] has the ids of all documents in order, with what the store, ReplicatorDocuments
//!           and the scheduler know of each. Each of the three tells it of every change.
//! PROMISES  A document that was written is here before its writer is answered. A page costs what it
//!           shows, however many documents it passes over. Lists are [`Loading`] until of each document that was there
//!           when the store was opened, and asks for a replication, it is known how far it is.
//! CALLED    By the store's thread, by both actors, and by HTTP; the lock is held for one page at most.

mod others;

use std::ops::{Bound, Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use tokio::sync::watch;

use super::doc_state::DocState;
use super::members::DocMembers;
use super::rows::RowState;
use super::state::{COMPLETED, FAILED, STATE};
use policy::counted::{Class, Classes, CountedNames, Section};
use policy::schedule::{JobId, JobState};
use store::Watcher;
use store::fleet::StatusOf;

/// The class of design documents, which are counted and have no state.
const DESIGN: Class = 7;

/// What is known of a document.
#[derive(Clone, Debug, Default)]
struct Known {
    /// What its body says; none while it is not there.
    stored: Option<Class>,
    /// How far it is on its way to a job.
    row: Option<Class>,
    /// The state of its job.
    job: Option<(JobId, Class)>,
    /// What another daemon told of it.
    other: Option<others::Other>,
    /// Whether it was there when the store was opened, or when the scheduler was started again, and nobody has told since
    /// how far it is.
    is_awaited: bool,
}

impl Known {
    fn class(&self) -> Option<Class> {
        let stored = self.stored?;
        Some(match (self.row, &self.job) {
            (Some(_), Some((_, job))) => *job,
            (Some(row), None) => row,
            (None, _) => self.class_of_other().unwrap_or(stored),
        })
    }

    /// Whether it asks for a replication, and nobody told how far it is.
    fn is_unread(&self) -> bool {
        self.class() == Some(0)
    }
}

#[derive(Debug, Default)]
struct Inner {
    names: CountedNames,
    known: FxHashMap<Arc<str>, Known>,
    /// What other daemons are to be told; none where there are none.
    changed: Option<others::Changed>,
    /// Whether there is a store that was not opened yet.
    is_awaited: bool,
    /// How many of `known` are awaited.
    unread: usize,
}

impl Inner {
    fn loading(&self) -> Loading {
        match (self.is_awaited, self.unread) {
            (false, 0) => Loading::Done,
            (_, documents) => Loading::Documents(documents),
        }
    }

    /// Waits for news of all documents of which nobody told how far they are.
    fn await_all(&mut self) {
        self.unread = 0;
        for known in self.known.values_mut() {
            known.is_awaited = known.is_unread();
            self.unread += usize::from(known.is_awaited);
        }
    }

    fn change(&mut self, id: &str, change: impl FnOnce(&mut Known)) {
        let known = match self.known.get_mut(id) {
            Some(known) => known,
            None => self.known.entry(id.into()).or_default(),
        };
        let before = known.class();
        change(known);
        let class = known.class();
        if known.is_awaited && !known.is_unread() {
            known.is_awaited = false;
            self.unread -= 1;
        }
        let is_gone = known.stored.is_none()
            && known.row.is_none()
            && known.job.is_none()
            && known.other.is_none();
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
    }

    /// Changes what this daemon knows of a document, and notes that it did.
    fn change_own(&mut self, id: &str, change: impl FnOnce(&mut Known)) {
        let mut is_own = false;
        self.change(id, |known| {
            is_own = known.row.is_some();
            change(known);
            is_own |= known.row.is_some();
        });
        if let Some(changed) = self.changed.as_mut().filter(|_| is_own) {
            let known = self.known.get_key_value(id);
            let name = known.map_or_else(|| id.into(), |(name, _)| Arc::clone(name));
            changed.add(StatusOf::Document(name));
        }
    }
}

/// Whether lists are whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loading {
    /// They are.
    Done,
    /// So many documents are still to be read, and their jobs to be made; none is known before the store is open.
    Documents(usize),
}

/// The states of all documents.
#[derive(Debug, Default)]
pub struct DocStates {
    inner: Mutex<Inner>,
    /// Whether lists are not whole yet.
    is_loading: watch::Sender<bool>,
}

/// The lock; whoever waits for lists to be whole hears of it when it is given back.
struct Locked<'s> {
    inner: MutexGuard<'s, Inner>,
    was_loading: bool,
    is_loading: &'s watch::Sender<bool>,
}

impl Deref for Locked<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let is_loading = self.inner.loading() != Loading::Done;
        if is_loading != self.was_loading {
            self.is_loading.send_replace(is_loading);
        }
    }
}

/// Which documents to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Where to begin, in the order of the list.
    pub start: Bound<String>,
    /// Where to end.
    pub end: Bound<String>,
    /// Whether the last id comes first.
    pub descending: bool,
    /// How many to pass over.
    pub skip: usize,
    /// How many at most.
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
pub struct PageOfIds {
    /// How many documents there are in all, whatever was asked for.
    pub total: usize,
    /// How many stand before the page.
    pub offset: usize,
    /// Those of the page.
    pub ids: Vec<Arc<str>>,
}

impl DocStates {
    /// Notes how far a document is on its way to a job.
    pub(crate) fn set_row(&self, id: &str, state: Option<RowState>) {
        let class = state.map(|state| state.shown().class());
        self.lock().change_own(id, |known| known.row = class);
    }

    /// Notes the state of a document's job; none when the job is gone.
    pub(crate) fn set_job(&self, id: &str, job: &JobId, state: Option<JobState>) {
        self.lock().change_own(id, |known| match state {
            Some(state) => known.job = Some((Arc::clone(job), DocState::from(state).class())),
            // Another one may be its job by now.
            None => drop(known.job.take_if(|(own, _)| own == job)),
        });
    }

    /// Returns the job of a document.
    pub(crate) fn job_of(&self, id: &str) -> Option<JobId> {
        let inner = self.lock();
        let (job, _) = inner.known.get(id)?.job.as_ref()?;
        Some(Arc::clone(job))
    }

    /// There is a store, which is to be opened.
    pub(crate) fn await_store(&self) {
        self.lock().is_awaited = true;
    }

    /// Returns whether lists are whole.
    pub(crate) fn loading(&self) -> Loading {
        self.lock().loading()
    }

    /// Waits until lists are whole. Safe to cancel.
    pub(crate) async fn loaded(&self) {
        // Its sender is here.
        drop(
            self.is_loading
                .subscribe()
                .wait_for(|is_loading| !is_loading)
                .await,
        );
    }

    /// Forgets what the two actors told.
    pub(crate) fn forget_jobs(&self) {
        let mut inner = self.lock();
        let ids: Vec<Arc<str>> = inner.known.keys().cloned().collect();
        for id in ids {
            inner.change(&id, |known| (known.row, known.job) = (None, None));
        }
        inner.await_all();
    }

    /// Returns a page of the documents in some states, all but design documents without states.
    pub(crate) fn page(&self, page: &Page, states: &[DocState]) -> PageOfIds {
        let classes = match states {
            [] => (0..DESIGN).collect(),
            _ => states.iter().map(|state| state.class()).collect(),
        };
        self.page_of(page, classes)
    }

    /// Returns a page of all documents.
    pub(crate) fn page_of_all(&self, page: &Page) -> PageOfIds {
        self.page_of(page, Classes::ALL)
    }

    fn page_of(&self, page: &Page, classes: Classes) -> PageOfIds {
        let inner = self.lock();
        let start = page.start.as_ref().map(String::as_str);
        let end = page.end.as_ref().map(String::as_str);
        let (lower, upper) = match page.descending {
            false => (start, end),
            true => (end, start),
        };
        let total = inner.names.count(Classes::ALL, Section::ALL);
        let section = Section { lower, upper };
        let (lower, upper) = match page.descending {
            false => (Bound::Unbounded, other_side(start)),
            true => (other_side(start), Bound::Unbounded),
        };
        let before = match start {
            Bound::Unbounded => 0,
            _ => inner.names.count(Classes::ALL, Section { lower, upper }),
        };
        PageOfIds {
            total,
            offset: before.saturating_add(page.skip).min(total),
            ids: inner
                .names
                .page(classes, section, page.descending, page.skip, page.limit),
        }
    }

    fn lock(&self) -> Locked<'_> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Locked {
            was_loading: inner.loading() != Loading::Done,
            inner,
            is_loading: &self.is_loading,
        }
    }
}

/// Returns the bound of what stands on the other side of a bound.
fn other_side(bound: Bound<&str>) -> Bound<&str> {
    match bound {
        Bound::Included(id) => Bound::Excluded(id),
        Bound::Excluded(id) => Bound::Included(id),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl Watcher for DocStates {
    fn class(&self, id: &str, body: &str) -> Class {
        if id.starts_with("_design/") {
            return DESIGN;
        }
        if !body.contains(STATE) {
            return 0;
        }
        let state = DocMembers::parse(body)
            .ok()
            .and_then(|body| body.text(STATE));
        match state.as_deref() {
            Some(COMPLETED) => DocState::Completed.class(),
            Some(FAILED) => DocState::Failed.class(),
            _ => 0,
        }
    }

    /// All but design documents, and those whose replication has completed or failed.
    fn asks(&self, id: &str, body: &str) -> bool {
        self.class(id, body) == 0
    }

    fn opened(&self, documents: Vec<(String, Class)>) {
        let mut inner = self.lock();
        let gone: Vec<Arc<str>> = inner.known.keys().cloned().collect();
        for id in gone {
            inner.change(&id, |known| known.stored = None);
        }
        for (id, class) in documents {
            inner.change(&id, |known| known.stored = Some(class));
        }
        inner.is_awaited = false;
        inner.await_all();
    }

    fn written(&self, documents: Vec<(String, Option<Class>)>) {
        let mut inner = self.lock();
        for (id, class) in documents {
            inner.change(&id, |known| known.stored = class);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn ids(states: &DocStates, of: &[&str]) -> Vec<String> {
        let of: Vec<DocState> = of
            .iter()
            .filter_map(|name| DocState::of_name(name))
            .collect();
        let page = states.page(&Page::default(), &of);
        page.ids.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_document_is_in_the_state_of_its_job_of_its_row_or_of_its_body() {
        let states = DocStates::default();
        let class = |id, body: &str| states.class(id, body);
        let completed = class("c", r#"{"_replication_state":"completed"}"#);
        let failed = class("f", r#"{"note":1,"_replication_state":"failed"}"#);
        let free = class("a", r#"{"_replication_state":"triggered"}"#);
        let design = class("_design/d", r#"{"_replication_state":"failed"}"#);
        let documents = [
            ("a", free),
            ("b", free),
            ("c", completed),
            ("f", failed),
            ("_design/d", design),
        ];
        states.opened(documents.map(|(id, class)| (id.to_owned(), class)).into());
        let asks = |id, body: &str| states.asks(id, body);
        assert!(asks("a", "{}") && asks("a", r#"{"_replication_state":"triggered"}"#));
        assert!(!asks("c", r#"{"_replication_state":"completed"}"#) && !asks("_design/d", "{}"));
        assert_eq!(ids(&states, &[]), ["a", "b", "c", "f"]);
        assert_eq!(ids(&states, &["initializing"]), ["a", "b"]);
        assert_eq!(ids(&states, &["failed", "completed"]), ["c", "f"]);
        assert_eq!(
            states.page(&Page::default(), &[]).total,
            5,
            "design documents too"
        );
        let (job, other): (JobId, JobId) = ("job".into(), "other".into());
        states.set_row("a", Some(RowState::Scheduled));
        assert_eq!(ids(&states, &["pending"]), ["a"]);
        states.set_job("a", &job, Some(JobState::Crashing));
        states.set_job("a", &other, None);
        assert_eq!(
            ids(&states, &["crashing"]),
            ["a"],
            "another job's end means nothing"
        );
        states.set_job("a", &job, None);
        states.set_row("b", Some(RowState::Error));
        assert_eq!(ids(&states, &["error", "pending"]), ["a", "b"]);
        states.written(vec![("a".to_owned(), None), ("b".to_owned(), Some(failed))]);
        states.set_row("b", None);
        assert_eq!(ids(&states, &["failed"]), ["b", "f"]);
        assert_eq!(ids(&states, &["pending"]), [""; 0], "a is deleted");
        states.written(vec![("a".to_owned(), Some(free))]);
        assert_eq!(ids(&states, &["pending"]), ["a"], "its row is still there");
        states.forget_jobs();
        assert_eq!(ids(&states, &["initializing"]), ["a"]);
    }

    #[test]
    fn the_offset_counts_what_stands_before_the_page_and_is_no_more_than_there_is() {
        let states = DocStates::default();
        let documents = (0..10).map(|n| (format!("d{n}"), 0));
        states.opened(documents.collect());
        let page = |start: Bound<&str>, descending, skip| Page {
            start: start.map(str::to_owned),
            descending,
            skip,
            limit: 1,
            ..Page::default()
        };
        for (start, descending, skip, offset, id) in [
            (Bound::Unbounded, false, 0, 0, Some("d0")),
            (Bound::Unbounded, true, 2, 2, Some("d7")),
            (Bound::Included("d3"), false, 2, 5, Some("d5")),
            (Bound::Excluded("d3"), false, 0, 4, Some("d4")),
            (Bound::Included("d3"), true, 1, 7, Some("d2")),
            (Bound::Unbounded, false, 99, 10, None),
        ] {
            let found = states.page(&page(start, descending, skip), &[]);
            assert_eq!(
                (found.total, found.offset),
                (10, offset),
                "{start:?} {skip}"
            );
            assert_eq!(found.ids.first().map(|id| &**id), id);
        }
    }

    #[test]
    fn lists_are_loading_until_of_each_document_it_is_known_how_far_it_is() {
        let states = DocStates::default();
        let class = |id, body: &str| states.class(id, body);
        assert_eq!(states.loading(), Loading::Done, "there may be no store");
        states.await_store();
        assert_eq!(states.loading(), Loading::Documents(0));
        let documents = [
            ("a", 0),
            ("b", 0),
            ("c", class("c", r#"{"_replication_state":"completed"}"#)),
            ("d", 0),
            ("_design/d", class("_design/d", "{}")),
        ];
        states.opened(documents.map(|(id, class)| (id.to_owned(), class)).into());
        assert_eq!(states.loading(), Loading::Documents(3));
        states.set_row("a", Some(RowState::Initializing));
        assert_eq!(states.loading(), Loading::Documents(3), "it has no job yet");
        states.set_row("a", Some(RowState::Scheduled));
        states.set_row("b", Some(RowState::Error));
        states.written(vec![("later".to_owned(), Some(0))]);
        assert_eq!(states.loading(), Loading::Documents(1));
        let mut loaded = Box::pin(states.loaded());
        assert_eq!((&mut loaded).now_or_never(), None);
        states.written(vec![("d".to_owned(), None)]);
        assert_eq!(loaded.now_or_never(), Some(()), "it was deleted");
        assert_eq!(states.loading(), Loading::Done);
        states.forget_jobs();
        assert_eq!(
            states.loading(),
            Loading::Documents(3),
            "they are read again"
        );
    }

    #[test]
    fn a_page_is_what_all_docs_shows() {
        let states = DocStates::default();
        let documents = ["a", "b", "c", "d", "e"].map(|id| (id.to_owned(), 0));
        states.opened(documents.into());
        let ids = |page: Page| {
            let page = states.page_of_all(&page);
            (page.ids.concat(), page.total)
        };
        let included = |id: &str| Bound::Included(id.to_owned());
        let page = Page::default();
        assert_eq!(ids(page.clone()), ("abcde".into(), 5));
        let from = Page {
            start: included("b"),
            end: included("d"),
            skip: 1,
            limit: 1,
            ..page.clone()
        };
        assert_eq!(ids(from), ("c".into(), 5));
        let down = Page {
            start: included("d"),
            end: Bound::Excluded("b".to_owned()),
            descending: true,
            ..page.clone()
        };
        assert_eq!(ids(down), ("dc".into(), 5));
        let none = Page {
            start: included("d"),
            end: included("b"),
            ..page.clone()
        };
        assert_eq!(ids(none), (String::new(), 5));
        let empty = Page { limit: 0, ..page };
        assert_eq!(ids(empty), (String::new(), 5));
    }
}
