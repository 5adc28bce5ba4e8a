//! The logic of writes, independent of the tables.
//!
//! SUMMARY   [`DocumentTables`] is a store's transaction: it finds and saves documents. Conflicts and imports are
//!           decided here.
//! SOURCE    couch_db: update_docs/4; couch_db_updater.

use super::documents::{Conflict, Document, Edit};
use super::revision::Revision;

/// A document to import.
#[derive(Clone, Debug)]
pub struct Import {
    /// Its id.
    pub id: String,
    /// As in [`Document`].
    pub body: String,
    /// The value to keep for its job.
    pub kept: Option<String>,
}

/// The result of importing a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// There was no document with this id.
    Created,
    /// The same document already exists.
    Unchanged,
    /// Another document with this id exists, and is kept.
    Conflict,
}

/// The tables of a store, in a transaction.
pub(super) trait DocumentTables {
    /// The store's error.
    type Error;

    fn document(&self, id: &str) -> Result<Option<Document>, Self::Error>;

    /// Writes a revision after the current one, as the document's last update.
    fn save(
        &mut self,
        id: &str,
        known: Option<&Document>,
        deleted: bool,
        body: &str,
    ) -> Result<Revision, Self::Error>;

    /// Returns the value kept for a document's job.
    fn kept(&self, id: &str) -> Result<Option<String>, Self::Error>;

    /// Saves or removes the value kept for a document's job.
    fn keep(&mut self, id: &str, value: Option<&str>) -> Result<(), Self::Error>;

    /// Replaces the value kept for a document's job by the one that `change` returns.
    fn change_kept(
        &mut self,
        id: &str,
        change: impl FnOnce(Option<&str>) -> Option<String>,
    ) -> Result<(), Self::Error> {
        let known = self.kept(id)?;
        let value = change(known.as_deref());
        if value == known {
            return Ok(());
        }
        self.keep(id, value.as_deref())
    }

    /// Replaces an existing document's body, if `change` returns another.
    fn change(
        &mut self,
        id: &str,
        change: impl FnOnce(&Document) -> Option<String>,
    ) -> Result<Option<Revision>, Self::Error> {
        let known = self.document(id)?.filter(|known| !known.deleted);
        match known.as_ref().and_then(change) {
            Some(body) => self.save(id, known.as_ref(), false, &body).map(Some),
            None => Ok(None),
        }
    }

    /// Writes a document if its writer names the last revision. A missing or deleted document can be written, but not
    /// deleted, without a revision. A document that did not exist begins without a value kept for its job.
    fn edit(&mut self, edit: Edit) -> Result<Result<Revision, Conflict>, Self::Error> {
        let known = self.document(&edit.id)?;
        let fits = match (&known, &edit.expected) {
            (Some(known), Some(expected)) => known.revision == *expected,
            (None, Some(_)) => false,
            (known, None) => !edit.deleted && known.as_ref().is_none_or(|known| known.deleted),
        };
        if fits {
            if known.as_ref().is_none_or(|known| known.deleted) {
                self.keep(&edit.id, None)?;
            }
            self.save(&edit.id, known.as_ref(), edit.deleted, &edit.body)
                .map(Ok)
        } else {
            Ok(Err(Conflict))
        }
    }

    /// Writes a document that does not exist, with the value kept for its job; leaves an existing one unchanged.
    fn import(&mut self, document: Import) -> Result<Imported, Self::Error> {
        let known = self.document(&document.id)?;
        Ok(match known.as_ref().filter(|known| !known.deleted) {
            Some(known) if known.body == document.body => Imported::Unchanged,
            Some(_) => Imported::Conflict,
            None => {
                self.save(&document.id, known.as_ref(), false, &document.body)?;
                self.keep(&document.id, document.kept.as_deref())?;
                Imported::Created
            }
        })
    }
}

/// Returns the number of a `_local/` document after a write, if its writer knows the previous one.
pub(super) fn next_local(
    known: Option<u64>,
    expected: Option<u64>,
    deletes: bool,
) -> Result<u64, Conflict> {
    if known != expected || known.is_none() && deletes {
        Err(Conflict)
    } else {
        Ok(known.unwrap_or(0) + 1)
    }
}
