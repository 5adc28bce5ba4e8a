//! Persistent state of the service: replicator documents, the server's uuid, pauses of jobs.
//!
//! SUMMARY   A [`Store`] is a handle of a [`DocumentStore`]: a file in [`redb`], or a PostgreSQL database that
//!           several services share.
//! LIMITS    At most [`REQUESTS_MAX`] requests are queued for a store; later callers wait.

#![warn(missing_docs)]

pub mod document_store;
mod documents;
mod error;
mod export;
pub mod fleet;
mod observer;
mod place;
mod postgres;
mod redb;
mod revision;
pub mod shared_settings;
/// Cases and fakes for the tests of this and other crates; unused by the program.
#[cfg(any(test, feature = "suite"))]
#[path = "../tests/suite/mod.rs"]
pub mod suite;
mod tables;
#[cfg(test)]
mod tests;
pub mod uuid_file;

pub use document_store::{Answer, DocumentStore, Watcher};
pub use documents::{Changes, Document, Edit, unix_now};
pub use error::{OpenError, OpenProblem, StoreError};
pub use export::{
    ExportEnd, ExportError, ExportHead, ExportLines, ExportReader, ExportRow, StoreSnapshot,
};
pub use observer::{DatabaseRequest, StoreObserver};
pub use place::StorePlace;
pub use revision::Revision;
pub use tables::{Import, Imported};

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data_encoding::HEXLOWER;
use slog::Logger;
use tokio::sync::{mpsc, oneshot};

use redb::RedbStore;
use settee_config::password::random;

/// Maximum queued requests of a store.
const REQUESTS_MAX: usize = 1024;

/// Locks what stays usable if a thread panics while it holds the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a new store's id.
fn new_uuid() -> String {
    HEXLOWER.encode(&random::<16>())
}

/// Sends a request to a store's thread, and waits for its reply.
async fn ask<R, T>(
    requests: &mpsc::Sender<R>,
    request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> R,
) -> Result<T, StoreError> {
    let (reply, result) = oneshot::channel();
    requests
        .send(request(reply))
        .await
        .map_err(|_| StoreError::Closed)?;
    result.await.unwrap_or(Err(StoreError::Closed))
}

/// A handle of the store. Cheap to clone; the store is closed with the last clone.
#[derive(Clone, Debug)]
pub struct Store {
    store: Arc<dyn DocumentStore>,
    /// The uuid that the store gets if it is new.
    new_uuid: Arc<str>,
}

/// The operations of every store.
impl Deref for Store {
    type Target = dyn DocumentStore;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl Store {
    /// Starts the store's thread, which notifies `watcher` of each document, and `observer` of failures. The first
    /// request opens the store.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn start(
        place: StorePlace,
        watcher: Arc<dyn Watcher>,
        observer: Arc<dyn StoreObserver>,
        log: &Logger,
    ) -> std::io::Result<Self> {
        let new_uuid: Arc<str> = uuid_file::beside(&place)
            .and_then(|file| uuid_file::read(&file))
            .unwrap_or_else(new_uuid)
            .into();
        let uuid = Arc::clone(&new_uuid);
        let store: Arc<dyn DocumentStore> = match place {
            StorePlace::Postgres(url) => Arc::new(postgres::PostgresStore::start(
                url, uuid, watcher, observer, log,
            )?),
            place => Arc::new(RedbStore::start(place, uuid, watcher, observer, log)?),
        };
        Ok(Self { store, new_uuid })
    }

    /// Returns this store's id like [`uuid`](DocumentStore::uuid) if the store is open and answers, otherwise the id
    /// that a new one would get. Opens nothing: a service that only lends processes needs no store.
    pub async fn likely_uuid(&self) -> String {
        let is_open = self.updates().borrow().is_some();
        let uuid = if is_open {
            self.uuid().await.ok()
        } else {
            None
        };
        uuid.unwrap_or_else(|| self.new_uuid.to_string())
    }

    /// Returns a document, even a deleted one.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn document(&self, id: &str) -> Result<Option<Document>, StoreError> {
        let mut found = self.documents(vec![id.to_owned()]).await?;
        Ok(found.pop().flatten())
    }
}
