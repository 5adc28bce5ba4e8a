//! A store that counts the documents of each request for kept values, and fails the first ones, for tests.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::document_store::{Answer, Change, ChangeKept, DocumentStore};
use crate::documents::{Changes, Conflict, Document, Edit, Info, LocalDocument, Purged};
use crate::export::StoreSnapshot;
use crate::place::StorePlace;
use crate::revision::Revision;
use crate::tables::{Import, Imported};
use crate::{Store, StoreError};
use policy::ownership::Epoch;

/// The number of documents of each request.
pub type KeptCounts = Arc<Mutex<Vec<usize>>>;

#[derive(Debug)]
struct CountedStore {
    store: Store,
    counts: KeptCounts,
    failures: usize,
}

/// Returns a counting handle of a store, with its counts. The first `failures` requests fail.
pub fn counted(store: Store, failures: usize) -> (Store, KeptCounts) {
    let (counts, new_uuid) = (KeptCounts::default(), Arc::clone(&store.new_uuid));
    let counted = CountedStore {
        store,
        counts: Arc::clone(&counts),
        failures,
    };
    let store = Arc::new(counted);
    (Store { store, new_uuid }, counts)
}

impl DocumentStore for CountedStore {
    fn kept_of(&self, ids: Vec<String>) -> Answer<'_, Vec<Option<String>>> {
        let requests = {
            let mut counts = self.counts.lock().unwrap();
            counts.push(ids.len());
            counts.len()
        };
        if requests <= self.failures {
            return Box::pin(async { Err(StoreError::Failed("a test".to_owned())) });
        }
        self.store.kept_of(ids)
    }

    fn place(&self) -> &StorePlace {
        self.store.place()
    }

    fn open(&self) -> Answer<'_, ()> {
        self.store.open()
    }

    fn updates(&self) -> watch::Receiver<Option<u64>> {
        self.store.updates()
    }

    fn uuid(&self) -> Answer<'_, String> {
        self.store.uuid()
    }

    fn documents(&self, ids: Vec<String>) -> Answer<'_, Vec<Option<Document>>> {
        self.store.documents(ids)
    }

    fn changes(&self, since: u64, limit: usize) -> Answer<'_, Changes> {
        self.store.changes(since, limit)
    }

    fn last_changes(&self, limit: usize) -> Answer<'_, Vec<Document>> {
        self.store.last_changes(limit)
    }

    fn pending(&self, since: u64) -> Answer<'_, u64> {
        self.store.pending(since)
    }

    fn change(
        &self,
        owner: Option<Epoch>,
        id: &str,
        change: Change,
    ) -> Answer<'_, Option<Revision>> {
        self.store.change(owner, id, change)
    }

    fn info(&self) -> Answer<'_, Info> {
        self.store.info()
    }

    fn edit(&self, edits: Vec<Edit>) -> Answer<'_, Vec<Result<Revision, Conflict>>> {
        self.store.edit(edits)
    }

    fn import(&self, documents: Vec<Import>) -> Answer<'_, Vec<Imported>> {
        self.store.import(documents)
    }

    fn snapshot(&self) -> Answer<'_, StoreSnapshot> {
        self.store.snapshot()
    }

    fn local(&self, id: &str) -> Answer<'_, Option<LocalDocument>> {
        self.store.local(id)
    }

    fn edit_local(
        &self,
        id: &str,
        expected: Option<u64>,
        body: Option<String>,
    ) -> Answer<'_, Result<u64, Conflict>> {
        self.store.edit_local(id, expected, body)
    }

    fn change_kept(&self, id: &str, change: ChangeKept) -> Answer<'_, ()> {
        self.store.change_kept(id, change)
    }

    fn purge(&self, before: u64, seqs: RangeInclusive<u64>, limit: usize) -> Answer<'_, Purged> {
        self.store.purge(before, seqs, limit)
    }

    fn compact(&self) -> Answer<'_, u64> {
        self.store.compact()
    }
}
