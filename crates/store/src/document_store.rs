//! What every store of documents can do, wherever it keeps them.
//!
//! SUMMARY   [`DocumentStore`] is the interface of [`RedbStore`](super::redb::RedbStore), a file of one process, and of
//!           the store in PostgreSQL, which several daemons share. One suite of tests holds for all.
//! PROMISES  An acknowledged write is durable, whatever happens to the process afterwards. Writers of one document
//!           are serialized: each but the first meets a conflict.
//! CALLED    By HTTP and by actors, on any thread; nobody is blocked.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;

use super::documents::{Changes, Conflict, Document, Edit, Info, LocalDocument, Purged};
use super::error::StoreError;
use super::export::StoreSnapshot;
use super::fleet::FleetStore;
use super::place::StorePlace;
use super::revision::Revision;
use super::tables::{Import, Imported};
use policy::counted::Class;
use policy::ownership::Epoch;

/// What a store answers later.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Returns another body for a document, or none to leave it as it is.
pub type Change = Box<dyn FnOnce(&Document) -> Option<String> + Send>;

/// Hears of the documents of a store, on the store's thread.
pub trait Watcher: Send + Sync + fmt::Debug {
    /// Returns the class of a document: a number below
    /// [`CLASSES_MAX`](policy::counted::CLASSES_MAX).
    fn class(&self, id: &str, body: &str) -> Class;
    /// Returns whether a document that is there asks for a replication.
    fn asks(&self, id: &str, body: &str) -> bool;
    /// The store was opened: it has these documents.
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

    fn asks(&self, _: &str, _: &str) -> bool {
        true
    }

    fn opened(&self, _: Vec<(String, Class)>) {}

    fn written(&self, _: Vec<(String, Option<Class>)>) {}
}

/// A store of documents.
///
/// # Errors
/// Each answer is an error if the store cannot be opened, fails, or is closed: see [`StoreError`]. Nothing is
/// written then, unless a method says otherwise.
pub trait DocumentStore: Send + Sync + fmt::Debug {
    /// Returns where it is.
    fn place(&self) -> &StorePlace;

    /// Opens the store, and makes it when there is none. Every other request does so too.
    fn open(&self) -> Answer<'_, ()>;

    /// Returns a receiver of the sequence number of the last update; `None` until the store is open.
    fn updates(&self) -> watch::Receiver<Option<u64>>;

    /// Returns the name of this store: 32 hexadecimal digits, as long as it exists.
    fn uuid(&self) -> Answer<'_, String>;

    /// Returns several documents, deleted ones too, in the order asked.
    fn documents(&self, ids: Vec<String>) -> Answer<'_, Vec<Option<Document>>>;

    /// Returns at most `limit` documents that were updated after `since`, oldest update first.
    fn changes(&self, since: u64, limit: usize) -> Answer<'_, Changes>;

    /// Returns at most `limit` documents, newest update first.
    fn last_changes(&self, limit: usize) -> Answer<'_, Vec<Document>>;

    /// Returns how many documents were updated after `since`.
    fn pending(&self, since: u64) -> Answer<'_, u64>;

    /// Gives a document that is there another body, if `change` has one for what it is at that
    /// moment. Returns the new revision, if there is one.
    fn change_with(&self, id: &str, change: Change) -> Answer<'_, Option<Revision>>;

    /// As [`change_with`](Self::change_with), and nothing is written unless the epoch owns the document's job; where
    /// one daemon has the store to itself it owns all.
    fn change_as(&self, epoch: Epoch, id: &str, change: Change) -> Answer<'_, Option<Revision>> {
        let _ = epoch;
        self.change_with(id, change)
    }

    /// Returns the counts.
    fn info(&self) -> Answer<'_, Info>;

    /// Writes documents: all that do not conflict. Each has its own result, in the same order; an
    /// edit sees those before it. After an error none is written.
    fn edit(&self, edits: Vec<Edit>) -> Answer<'_, Vec<Result<Revision, Conflict>>>;

    /// Writes documents that are not there. Each has its own result, in the same order. After an error none is written.
    fn import(&self, documents: Vec<Import>) -> Answer<'_, Vec<Imported>>;

    /// Returns a `_local/` document by the rest of its id.
    fn local(&self, id: &str) -> Answer<'_, Option<LocalDocument>>;

    /// Writes a `_local/` document, or deletes it where there is no body. Returns its new number.
    fn edit_local(
        &self,
        id: &str,
        expected: Option<u64>,
        body: Option<String>,
    ) -> Answer<'_, Result<u64, Conflict>>;

    /// Returns what is kept of the jobs of several documents, in the order asked: JSON texts.
    fn kept_of(&self, ids: Vec<String>) -> Answer<'_, Vec<Option<String>>>;

    /// Returns what is kept of a document's job.
    fn kept(&self, id: &str) -> Answer<'_, Option<String>> {
        let kept = self.kept_of(vec![id.to_owned()]);
        Box::pin(async { Ok(kept.await?.pop().flatten()) })
    }

    /// Keeps a value for a document's job, or removes it.
    fn keep(&self, id: &str, value: Option<String>) -> Answer<'_, ()>;

    /// Removes deleted documents for good: of those deleted after the update `after`, at most `limit`
    /// are checked, and removed if they were deleted before `before`, in seconds since 1970.
    fn purge(&self, before: u64, after: u64, limit: usize) -> Answer<'_, Purged>;

    /// Gives what is free in the store back to the system, if that is much. Returns how many bytes that
    /// was.
    fn compact(&self) -> Answer<'_, u64>;

    /// Returns the store as it is at this moment. It is given up when it is not read for a minute.
    fn snapshot(&self) -> Answer<'_, StoreSnapshot>;

    /// Returns what several daemons share of this store; none where one daemon has it to itself.
    fn fleet(&self) -> Option<Arc<dyn FleetStore>> {
        None
    }
}
