//! The operations of every document store.
//!
//! SUMMARY   [`DocumentStore`] is the interface of [`RedbStore`](super::redb::RedbStore), a file of one process, and
//!           of the store in PostgreSQL, which several daemons share. One test suite covers both.
//! PROMISES  An acknowledged write is durable, even if the process is killed afterwards. Writers of one document
//!           are serialized: all but the first get a conflict.
//! CALLED    By HTTP and by actors, on any thread; never blocks.

use std::fmt;
use std::ops::RangeInclusive;
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

/// A store's pending answer.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Returns another body for a document, or `None` to leave it unchanged.
pub type Change = Box<dyn FnOnce(&Document) -> Option<String> + Send>;

/// Returns another value for a document's job, given the kept one.
pub type ChangeKept = Box<dyn FnOnce(Option<&str>) -> Option<String> + Send>;

/// Notified of a store's documents, on the store's thread.
pub trait Watcher: Send + Sync + fmt::Debug {
    /// Returns the class of a document: a number below
    /// [`CLASSES_MAX`](policy::counted::CLASSES_MAX), 0 if it requests a replication.
    fn class(&self, id: &str, body: &str) -> Class;
    /// The store was opened with these documents.
    fn opened(&self, documents: Vec<(String, Class)>);
    /// These documents were written, or deleted, which leaves them without a class. Called once they are on disk,
    /// before their writers are answered.
    fn written(&self, documents: Vec<(String, Option<Class>)>);
}

/// Ignores all documents.
impl Watcher for () {
    fn class(&self, _: &str, _: &str) -> Class {
        0
    }

    fn opened(&self, _: Vec<(String, Class)>) {}

    fn written(&self, _: Vec<(String, Option<Class>)>) {}
}

/// A store of documents.
///
/// # Errors
/// Each answer is an error if the store cannot be opened, fails, or is closed: see [`StoreError`]. Nothing is written
/// then, unless a method states otherwise.
pub trait DocumentStore: Send + Sync + fmt::Debug {
    /// Returns its place.
    fn place(&self) -> &StorePlace;

    /// Opens the store, and creates it if it is missing. Every other request does the same first.
    fn open(&self) -> Answer<'_, ()>;

    /// Returns a receiver of the sequence number of the last update; `None` until the store is open.
    fn updates(&self) -> watch::Receiver<Option<u64>>;

    /// Returns the store's id: 32 hexadecimal digits, for its lifetime.
    fn uuid(&self) -> Answer<'_, String>;

    /// Returns several documents, including deleted ones, in the order of the request.
    fn documents(&self, ids: Vec<String>) -> Answer<'_, Vec<Option<Document>>>;

    /// Returns at most `limit` documents updated after `since`, oldest update first.
    fn changes(&self, since: u64, limit: usize) -> Answer<'_, Changes>;

    /// Returns at most `limit` documents, newest update first.
    fn last_changes(&self, limit: usize) -> Answer<'_, Vec<Document>>;

    /// Returns the number of documents updated after `since`.
    fn pending(&self, since: u64) -> Answer<'_, u64>;

    /// Replaces an existing document's body, if `change` returns one for its current state. Returns the new revision,
    /// if there is one. With an `owner`, writes only if that epoch owns the document's job; a daemon that does not share
    /// its store owns all.
    fn change(
        &self,
        owner: Option<Epoch>,
        id: &str,
        change: Change,
    ) -> Answer<'_, Option<Revision>>;

    /// Returns the counts.
    fn info(&self) -> Answer<'_, Info>;

    /// Writes all documents that do not conflict. Returns a result for each, in order; an edit sees those before it.
    /// A document that did not exist begins without a value kept for its job. After an error none is written.
    fn edit(&self, edits: Vec<Edit>) -> Answer<'_, Vec<Result<Revision, Conflict>>>;

    /// Writes documents that do not exist. Returns a result for each, in order. After an error none is written.
    fn import(&self, documents: Vec<Import>) -> Answer<'_, Vec<Imported>>;

    /// Returns a `_local/` document by its id without that prefix.
    fn local(&self, id: &str) -> Answer<'_, Option<LocalDocument>>;

    /// Writes a `_local/` document, or deletes it if there is no body. `expected` is the number that it replaces, if
    /// the document exists. Returns its new number.
    fn edit_local(
        &self,
        id: &str,
        expected: Option<u64>,
        body: Option<String>,
    ) -> Answer<'_, Result<u64, Conflict>>;

    /// Returns the values kept for jobs of several documents, in the order of the request, as JSON text.
    fn kept_of(&self, ids: Vec<String>) -> Answer<'_, Vec<Option<String>>>;

    /// Returns the value kept for a document's job.
    fn kept(&self, id: &str) -> Answer<'_, Option<String>> {
        let kept = self.kept_of(vec![id.to_owned()]);
        Box::pin(async { Ok(kept.await?.pop().flatten()) })
    }

    /// Changes the value kept for a document's job, or removes it. No other write comes between.
    fn change_kept(&self, id: &str, change: ChangeKept) -> Answer<'_, ()>;

    /// Keeps a value for a document's job, or removes it.
    fn keep(&self, id: &str, value: Option<String>) -> Answer<'_, ()> {
        self.change_kept(id, Box::new(move |_| value))
    }

    /// Purges deleted documents: checks at most `limit` of those deleted by the updates `seqs`, and removes those
    /// deleted before `before`, in seconds since 1970.
    fn purge(&self, before: u64, seqs: RangeInclusive<u64>, limit: usize) -> Answer<'_, Purged>;

    /// Gives free space in the store back to the system, if there is much. Returns the number of bytes given back.
    fn compact(&self) -> Answer<'_, u64>;

    /// Returns a snapshot of the store. It is dropped if not read for a minute.
    fn snapshot(&self) -> Answer<'_, StoreSnapshot>;

    /// Returns the interface for sharing this store; `None` if it cannot be shared.
    fn fleet(&self) -> Option<Arc<dyn FleetStore>> {
        None
    }
}
