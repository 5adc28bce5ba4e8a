//! What outlives the service: replicator documents, the server's uuid, which jobs are paused.
//!
//! SUMMARY   A [`Store`] is a handle; the database is one file that one thread reads and writes. Writes that
//!           wait at the same time are one transaction.
//! PROMISES  A write that was answered is on the disk, whatever happens to the process afterwards. A
//!           file that cannot be used is an error that says why; it is never replaced by an empty one.
//! CALLED    By HTTP and by actors, on any thread; nobody is blocked.
//! LIMITS    At most [`REQUESTS_MAX`] requests wait; later callers wait for room. One process has the file.

mod documents;
mod file;
mod migrate;
mod records;
mod revision;
#[cfg(test)]
mod tests;
mod thread;
mod transfer;
mod upkeep;
pub mod uuid_file;

pub(crate) use documents::Edit;
pub use documents::{Changes, Conflict, Document, Info};
pub(crate) use file::OpenProblem;
pub use file::{OpenError, StorePlace};
pub(crate) use records::LocalDocument;
pub(crate) use revision::Revision;
pub(crate) use transfer::{Import, Imported};
pub(crate) use upkeep::{Purged, unix_now};

use std::fmt;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use slog::Logger;
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::password::random;
use policy::counted::Class;
use records::{Records, Snapshot};
use thread::{Keeper, Reply, StoreRequest};

/// Requests that wait for the thread.
const REQUESTS_MAX: usize = 1024;

/// Hears of the documents of a store, on the store's thread.
pub(crate) trait Watcher: Send + Sync + fmt::Debug {
    /// Returns the class of a document: a number below
    /// [`CLASSES_MAX`](policy::counted::CLASSES_MAX).
    fn class(&self, id: &str, body: &str) -> Class;
    /// The file was opened: it has these documents.
    fn opened(&self, documents: Vec<(String, Class)>);
    /// These documents were written, or deleted: then they have no class. Called when they are on the
    /// disk, before their writers are answered.
    fn written(&self, documents: Vec<(String, Option<Class>)>);
}

/// Ignores them.
impl Watcher for () {
    fn class(&self, _: &str, _: &str) -> Class {
        0
    }

    fn opened(&self, _: Vec<(String, Class)>) {}

    fn written(&self, _: Vec<(String, Option<Class>)>) {}
}

/// A request to the store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened. The operator has to mend that; then the next request opens it.
    #[error("{error}: {remedy}", error = .0, remedy = .0.remedy())]
    Open(#[from] OpenError),
    /// Reading or writing failed; nothing was written. The host's fault.
    #[error("the store failed: {0}: look at the disk; the next request tries again")]
    Failed(String),
    /// The thread has ended: the service ends.
    #[error("the store is closed, for the service is shutting down")]
    Closed,
}

/// A handle of the store. Cheap to clone; the file is closed when the last clone is gone.
#[derive(Clone, Debug)]
pub struct Store {
    requests: mpsc::Sender<StoreRequest>,
    update_seq: watch::Receiver<Option<u64>>,
    place: StorePlace,
    /// The uuid that the store gets if it is new.
    new_uuid: Arc<str>,
}

impl Store {
    /// Starts the thread, which tells `watcher` of each document. The file is opened by the first request.
    ///
    /// # Errors
    /// The system has no room for a thread.
    pub(crate) fn start(
        place: StorePlace,
        watcher: Arc<dyn Watcher>,
        log: &Logger,
    ) -> std::io::Result<Self> {
        let (requests, waiting) = mpsc::channel(REQUESTS_MAX);
        let (seq, update_seq) = watch::channel(None);
        let of_file = uuid_file::beside(&place).and_then(|file| uuid_file::read(&file));
        let new_uuid = of_file.unwrap_or_else(|| HEXLOWER.encode(&random::<16>()));
        let new_uuid: Arc<str> = new_uuid.into();
        let keeper = Keeper {
            place: place.clone(),
            new_uuid: Arc::clone(&new_uuid),
            watcher,
            requests: waiting,
            update_seq: seq,
            database: None,
            log: log.clone(),
        };
        keeper.start()?;
        Ok(Self {
            requests,
            update_seq,
            place,
            new_uuid,
        })
    }

    /// Returns where it is.
    pub fn place(&self) -> &StorePlace {
        &self.place
    }

    /// Opens the file, and makes it when there is none.
    ///
    /// # Errors
    /// It cannot be opened.
    pub async fn open(&self) -> Result<(), StoreError> {
        self.read(|_| Ok(())).await
    }

    /// Returns a receiver of the sequence number of the last update; `None` until the file is open.
    pub fn updates(&self) -> watch::Receiver<Option<u64>> {
        self.update_seq.clone()
    }

    /// Returns the name of this store: 32 hexadecimal digits, as long as the file exists.
    ///
    /// # Errors
    /// As every request: see [`StoreError`].
    pub async fn uuid(&self) -> Result<String, StoreError> {
        self.read(|tables| tables.uuid()).await
    }

    /// Returns the name of this store as [`Store::uuid`] does if the file is open, and else the name
    /// that a new file would get. Opens nothing: a service that only lends processes needs no store.
    pub(crate) async fn likely_uuid(&self) -> String {
        let is_open = self.update_seq.borrow().is_some();
        match is_open {
            true => self
                .uuid()
                .await
                .unwrap_or_else(|_| self.new_uuid.to_string()),
            false => self.new_uuid.to_string(),
        }
    }

    /// Returns a document, deleted ones too.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn document(&self, id: &str) -> Result<Option<Document>, StoreError> {
        let id = id.to_owned();
        self.read(move |tables| tables.document(&id)).await
    }

    /// Returns several documents, in the order asked.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn documents(&self, ids: Vec<String>) -> Result<Vec<Option<Document>>, StoreError> {
        self.read(move |tables| ids.iter().map(|id| tables.document(id)).collect())
            .await
    }

    /// Returns at most `limit` documents that were updated after `since`, oldest update first.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn changes(&self, since: u64, limit: usize) -> Result<Changes, StoreError> {
        self.read(move |tables| tables.changes(since, limit)).await
    }

    /// Returns how many documents were updated after `since`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn pending(&self, since: u64) -> Result<u64, StoreError> {
        self.read(move |tables| tables.pending(since)).await
    }

    /// Gives a document that is there another body, if `change` has one for what it is at that
    /// moment. Returns the new revision, if there is one.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn change(
        &self,
        id: &str,
        change: impl FnOnce(&Document) -> Option<String> + Send + 'static,
    ) -> Result<Option<Revision>, StoreError> {
        let id = id.to_owned();
        self.write(move |tables| tables.change(&id, change)).await
    }

    /// Returns the counts.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn info(&self) -> Result<Info, StoreError> {
        self.read(|tables| tables.info()).await
    }

    /// Writes documents: all that do not conflict. Each has its own result, in the same order; an
    /// edit sees those before it.
    ///
    /// # Errors
    /// See [`StoreError`]; then none is written.
    pub async fn edit(
        &self,
        edits: Vec<Edit>,
    ) -> Result<Vec<Result<Revision, Conflict>>, StoreError> {
        self.write(move |tables| edits.into_iter().map(|edit| tables.edit(edit)).collect())
            .await
    }

    /// Returns some documents after an id, in the order of their ids, each with what is kept of its job; none
    /// at the end.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn export(
        &self,
        after: Option<String>,
    ) -> Result<Vec<(Document, Option<String>)>, StoreError> {
        self.read(move |tables| tables.export(after.as_deref()))
            .await
    }

    /// Writes documents that are not there; with `replace` also in place of others of the same ids. Each
    /// has its own result, in the same order.
    ///
    /// # Errors
    /// See [`StoreError`]; then none is written.
    pub async fn import(
        &self,
        documents: Vec<Import>,
        replace: bool,
    ) -> Result<Vec<Imported>, StoreError> {
        self.write(move |tables| {
            let documents = documents.into_iter();
            documents
                .map(|document| tables.import(document, replace))
                .collect()
        })
        .await
    }

    /// Returns a `_local/` document by the rest of its id.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn local(&self, id: &str) -> Result<Option<LocalDocument>, StoreError> {
        let id = id.to_owned();
        self.read(move |tables| tables.local(&id)).await
    }

    /// Writes a `_local/` document, or deletes it where there is no body. Returns its new number.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(crate) async fn edit_local(
        &self,
        id: &str,
        expected: Option<u64>,
        body: Option<String>,
    ) -> Result<Result<u64, Conflict>, StoreError> {
        let id = id.to_owned();
        self.write(move |tables| tables.edit_local(&id, expected, body.as_deref()))
            .await
    }

    /// Returns what is kept of a document's job: JSON text.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn kept(&self, id: &str) -> Result<Option<String>, StoreError> {
        let id = id.to_owned();
        self.read(move |tables| tables.kept(&id)).await
    }

    /// Keeps something of a document's job, or nothing any more.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn keep(&self, id: &str, value: Option<String>) -> Result<(), StoreError> {
        let id = id.to_owned();
        self.write(move |tables| tables.keep(&id, value.as_deref()))
            .await
    }

    /// Removes deleted documents for good: of those deleted after the update `after`, at most `limit`
    /// are looked at, and removed if they were deleted before `before`, in seconds since 1970.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn purge(&self, before: u64, after: u64, limit: usize) -> Result<Purged, StoreError> {
        self.write(move |tables| tables.purge(before, after, limit))
            .await
    }

    /// Gives what is free in the file back to the system, if that is much. Returns how many bytes that
    /// was.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(crate) async fn compact(&self) -> Result<u64, StoreError> {
        self.ask(StoreRequest::Compact).await
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Snapshot) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (to, value) = oneshot::channel();
        let work = move |tables: &Snapshot| work(tables).map(|value| drop(to.send(value)));
        self.ask(|reply| StoreRequest::Read(Box::new(work), reply))
            .await?;
        value.await.map_err(|_| StoreError::Closed)
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Records<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (to, value) = oneshot::channel();
        let work = move |tables: &mut Records<'_>| work(tables).map(|value| drop(to.send(value)));
        self.ask(|reply| StoreRequest::Write(Box::new(work), reply))
            .await?;
        value.await.map_err(|_| StoreError::Closed)
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(Reply<T>) -> StoreRequest,
    ) -> Result<T, StoreError> {
        let (reply, result) = oneshot::channel();
        let sent = self.requests.send(request(reply)).await;
        sent.map_err(|_| StoreError::Closed)?;
        result.await.unwrap_or(Err(StoreError::Closed))
    }
}
