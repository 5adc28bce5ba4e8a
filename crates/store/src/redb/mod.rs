//! The store of a single service: a file read and written by one thread.
//!
//! SUMMARY   [`RedbStore`] passes each request to the thread. Queued writes share one transaction.
//! PROMISES  An acknowledged write is on disk. An unusable file is an error with the reason; it is never replaced by
//!           an empty one.
//! LIMITS    Only one process can use the file at a time.

mod documents;
pub(super) mod export;
pub(super) mod file;
pub(super) mod records;
#[cfg(test)]
mod tests;
mod thread;
mod unchanged;
mod upkeep;

use std::ops::RangeInclusive;
use std::sync::Arc;

use slog::Logger;
use tokio::sync::{mpsc, oneshot, watch};

use super::document_store::{Answer, Change, ChangeKept, DocumentStore, Watcher};
use super::documents::{Changes, Conflict, Document, Edit, Info, LocalDocument, Purged};
use super::error::StoreError;
use super::export::StoreSnapshot;
use super::observer::{Refusals, StoreObserver};
use super::place::StorePlace;
use super::revision::Revision;
use super::tables::{DocumentTables, Import, Imported};
use super::{REQUESTS_MAX, ask};
use export::HeldRows;
use policy::ownership::Epoch;
use records::{Records, Snapshot};
use thread::{Keeper, StoreRequest, run};

/// A store in a file, or in memory. The file is closed when this is dropped.
#[derive(Debug)]
pub(super) struct RedbStore {
    requests: mpsc::Sender<StoreRequest>,
    update_seq: watch::Receiver<Option<u64>>,
    place: StorePlace,
}

impl RedbStore {
    /// Starts the thread. The first request opens the file.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn start(
        place: StorePlace,
        new_uuid: Arc<str>,
        watcher: Arc<dyn Watcher>,
        observer: Arc<dyn StoreObserver>,
        log: &Logger,
    ) -> std::io::Result<Self> {
        let (requests, waiting) = mpsc::channel(REQUESTS_MAX);
        let (seq, update_seq) = watch::channel(None);
        let keeper = Keeper {
            place: place.clone(),
            new_uuid,
            watcher,
            requests: waiting,
            update_seq: seq,
            database: None,
            held: Vec::new(),
            held_count: 0,
            refusals: Refusals::new(observer, log.clone()),
            log: log.clone(),
        };
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || keeper.run())?;
        Ok(Self {
            requests,
            update_seq,
            place,
        })
    }

    fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Snapshot) -> Result<T, redb::Error> + Send + 'static,
    ) -> Answer<'_, T> {
        Box::pin(run(&self.requests, |keeper| keeper.read(work)))
    }

    fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Records<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Answer<'_, T> {
        Box::pin(async {
            let (to, value) = oneshot::channel();
            let work =
                move |tables: &mut Records<'_>| work(tables).map(|value| drop(to.send(value)));
            let request = |reply| StoreRequest::Write(Box::new(work), reply);
            ask(&self.requests, request).await?;
            value.await.map_err(|_| StoreError::Closed)
        })
    }
}

impl DocumentStore for RedbStore {
    fn place(&self) -> &StorePlace {
        &self.place
    }

    fn open(&self) -> Answer<'_, ()> {
        self.read(|_| Ok(()))
    }

    fn updates(&self) -> watch::Receiver<Option<u64>> {
        self.update_seq.clone()
    }

    fn uuid(&self) -> Answer<'_, String> {
        self.read(|tables| tables.uuid())
    }

    fn documents(&self, ids: Vec<String>) -> Answer<'_, Vec<Option<Document>>> {
        self.read(move |tables| ids.iter().map(|id| tables.document(id)).collect())
    }

    fn changes(&self, since: u64, limit: usize) -> Answer<'_, Changes> {
        self.read(move |tables| tables.changes(since, limit))
    }

    fn last_changes(&self, limit: usize) -> Answer<'_, Vec<Document>> {
        self.read(move |tables| tables.last_changes(limit))
    }

    fn pending(&self, since: u64) -> Answer<'_, u64> {
        self.read(move |tables| tables.pending(since))
    }

    fn change(&self, _: Option<Epoch>, id: &str, change: Change) -> Answer<'_, Option<Revision>> {
        let id = id.to_owned();
        self.write(move |tables| tables.change(&id, change))
    }

    fn info(&self) -> Answer<'_, Info> {
        self.read(|tables| tables.info())
    }

    fn edit(&self, edits: Vec<Edit>) -> Answer<'_, Vec<Result<Revision, Conflict>>> {
        self.write(move |tables| edits.into_iter().map(|edit| tables.edit(edit)).collect())
    }

    fn import(&self, documents: Vec<Import>) -> Answer<'_, Vec<Imported>> {
        self.write(move |tables| {
            documents
                .into_iter()
                .map(|document| tables.import(document))
                .collect()
        })
    }

    fn local(&self, id: &str) -> Answer<'_, Option<LocalDocument>> {
        let id = id.to_owned();
        self.read(move |tables| tables.local(&id))
    }

    fn edit_local(
        &self,
        id: &str,
        expected: Option<u64>,
        body: Option<String>,
    ) -> Answer<'_, Result<u64, Conflict>> {
        let id = id.to_owned();
        self.write(move |tables| tables.edit_local(&id, expected, body.as_deref()))
    }

    fn kept_of(&self, ids: Vec<String>) -> Answer<'_, Vec<Option<String>>> {
        self.read(move |tables| ids.iter().map(|id| tables.kept(id)).collect())
    }

    fn change_kept(&self, id: &str, change: ChangeKept) -> Answer<'_, ()> {
        let id = id.to_owned();
        self.write(move |tables| tables.change_kept(&id, change))
    }

    fn purge(&self, before: u64, seqs: RangeInclusive<u64>, limit: usize) -> Answer<'_, Purged> {
        self.write(move |tables| tables.purge(before, seqs, limit))
    }

    fn compact(&self) -> Answer<'_, u64> {
        Box::pin(run(&self.requests, Keeper::compact))
    }

    fn snapshot(&self) -> Answer<'_, StoreSnapshot> {
        Box::pin(async {
            let (number, uuid, seq) = run(&self.requests, Keeper::hold).await?;
            let requests = self.requests.clone();
            Ok(StoreSnapshot::new(uuid, seq, HeldRows { requests, number }))
        })
    }
}
