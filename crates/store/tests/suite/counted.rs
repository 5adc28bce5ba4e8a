//! A store that counts the documents of each request for kept values, for tests.

use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::Store;
use crate::document_store::{Answer, Change, DocumentStore};
use crate::documents::{Changes, Conflict, Document, Edit, Info, LocalDocument, Purged};
use crate::export::StoreSnapshot;
use crate::place::StorePlace;
use crate::revision::Revision;
use crate::tables::{Import, Imported};
use policy::ownership::Epoch;

/// The number of documents of each request.
pub type KeptCounts = Arc<Mutex<Vec<usize>>>;

#[derive(Debug)]
struct CountedStore {
    store: Store,
    counts: KeptCounts,
}

/// Returns a counting handle of a store, with its counts.
pub fn counted(store: Store) -> (Store, KeptCounts) {
    let (counts, new_uuid) = (KeptCounts::default(), Arc::clone(&store.new_uuid));
    let counted = CountedStore {
        store,
        counts: Arc::clone(&counts),
    };
    let store = Arc::new(counted);
    (Store { store, new_uuid }, counts)
}

impl DocumentStore for CountedStore {
    fn kept_of(&self, ids: Vec<String>) -> Answer<'_, Vec<Option<String>>> {
        self.counts.lock().unwrap().push(ids.len());
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

    fn keep(&self, id: &str, value: Option<String>) -> Answer<'_, ()> {
        self.store.keep(id, value)
    }

    fn purge(&self, before: u64, after: u64, limit: usize) -> Answer<'_, Purged> {
        self.store.purge(before, after, limit)
    }

    fn compact(&self) -> Answer<'_, u64> {
        self.store.compact()
    }
}
