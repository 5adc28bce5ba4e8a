//! Documents on their way out of the store and into it: `settee jobs export` and `import`.
//!
//! SUMMARY   An export is read some documents at a time, in the order of their ids, with what is kept of their
//!           jobs. An import writes documents that are not there.
//! PROMISES  Another document of the same id is replaced only where that is asked for.
//! LIMITS    [`DOCUMENTS_MAX`] documents, or [`BYTES_MAX`] bytes and one document, are read at a time.

use std::ops::Bound;

use super::documents::Document;
use super::records::{Records, Snapshot};

/// Documents that are read at a time.
const DOCUMENTS_MAX: usize = 500;

/// Bytes of bodies after which no more documents are read at a time.
const BYTES_MAX: usize = 256 << 10;

/// A document to import.
#[derive(Clone, Debug)]
pub(crate) struct Import {
    /// Its id.
    pub id: String,
    /// As in [`Document`].
    pub body: String,
    /// What is to be kept of its job.
    pub kept: Option<String>,
}

/// The result of importing a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Imported {
    /// There was none of this id.
    Created,
    /// The same document is there already.
    Unchanged,
    /// Another one was there, and is replaced.
    Replaced,
    /// Another one is there, and stays.
    Conflict,
}

impl Snapshot {
    /// Reads some documents after an id, deleted ones not, each with what is kept of its job.
    pub(super) fn export(
        &self,
        after: Option<&str>,
    ) -> Result<Vec<(Document, Option<String>)>, redb::Error> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut documents, mut bytes) = (Vec::new(), 0);
        for entry in self.documents.range::<&str>((from, Bound::Unbounded))? {
            let (id, row) = entry?;
            let document = Document::of(id.value(), row.value());
            if document.deleted {
                continue;
            }
            bytes += document.body.len();
            let kept = self.kept(&document.id)?;
            documents.push((document, kept));
            if documents.len() >= DOCUMENTS_MAX || bytes >= BYTES_MAX {
                break;
            }
        }
        Ok(documents)
    }
}

impl Records<'_> {
    pub(super) fn import(
        &mut self,
        document: Import,
        replace: bool,
    ) -> Result<Imported, redb::Error> {
        let Import { id, body, kept } = document;
        let known = self.document(&id)?;
        let is_there = known.as_ref().filter(|known| !known.deleted);
        let imported = match is_there {
            None => Imported::Created,
            Some(known) if known.body == body => Imported::Unchanged,
            Some(_) if replace => Imported::Replaced,
            Some(_) => Imported::Conflict,
        };
        if matches!(imported, Imported::Created | Imported::Replaced) {
            self.save(&id, known.as_ref(), false, &body)?;
            self.keep(&id, kept.as_deref())?;
        }
        Ok(imported)
    }
}
