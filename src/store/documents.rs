//! Documents in the tables: reading, writing, the order of updates.
//!
//! SUMMARY   A document has one revision, the last one. A writer has to name it.
//! SOURCE    couch_db: update_docs/4; couch_db_updater.

use std::ops::Bound;

use redb::ReadableTable;

use super::records::{Records, Snapshot};
use super::revision::Revision;

/// Revision number, its hash, whether deleted, sequence number, body.
pub(super) type Row = (u64, &'static str, bool, u64, &'static str);

/// A document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its id.
    pub id: String,
    /// Its revision.
    pub revision: Revision,
    /// Whether it is deleted.
    pub deleted: bool,
    /// The sequence number of its last update.
    pub seq: u64,
    /// JSON text of an object without `_id`, `_rev` and `_deleted`.
    pub body: String,
}

impl Document {
    pub(super) fn of(id: &str, row: (u64, &str, bool, u64, &str)) -> Self {
        let (number, hash, deleted, seq, body) = row;
        let hash = hash.to_owned();
        Self {
            id: id.to_owned(),
            revision: Revision { number, hash },
            deleted,
            seq,
            body: body.to_owned(),
        }
    }
}

/// A document to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Which.
    pub id: String,
    /// The revision that the writer replaces.
    pub expected: Option<Revision>,
    /// Whether to delete it.
    pub deleted: bool,
    /// As in [`Document`].
    pub body: String,
}

/// The writer did not name the last revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Document update conflict.")]
pub struct Conflict;

/// Documents in the order of their updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The documents.
    pub documents: Vec<Document>,
    /// The last sequence number.
    pub update_seq: u64,
}

/// Counts of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Documents that are not deleted.
    pub documents: u64,
    /// Deleted ones.
    pub deleted: u64,
    /// The last sequence number.
    pub update_seq: u64,
    /// The name of the store.
    pub uuid: String,
    /// What the bodies of documents take, in bytes.
    pub bytes: u64,
}

impl Snapshot {
    pub(super) fn document(&self, id: &str) -> Result<Option<Document>, redb::Error> {
        let row = self.documents.get(id)?;
        Ok(row.map(|row| Document::of(id, row.value())))
    }

    pub(super) fn changes(&self, since: u64, limit: usize) -> Result<Changes, redb::Error> {
        let mut changes = Changes {
            update_seq: self.counter("last_update")?,
            ..Changes::default()
        };
        let updates = self
            .updates
            .range((Bound::Excluded(since), Bound::Unbounded))?;
        for entry in updates.take(limit) {
            let (_, id) = entry?;
            changes.documents.extend(self.document(id.value())?);
        }
        Ok(changes)
    }

    /// Counts the documents that were updated after `since`: a walk over them.
    pub(super) fn pending(&self, since: u64) -> Result<u64, redb::Error> {
        let updates = self
            .updates
            .range((Bound::Excluded(since), Bound::Unbounded))?;
        updates.map(|entry| Ok(entry.map(|_| 1)?)).sum()
    }

    pub(super) fn info(&self) -> Result<Info, redb::Error> {
        use redb::ReadableTableMetadata;

        // All of these are counters: this is asked often.
        let all = self.documents.len()?;
        let deleted = self.deaths.len()?;
        Ok(Info {
            documents: all.saturating_sub(deleted),
            deleted,
            update_seq: self.counter("last_update")?,
            uuid: self.uuid()?,
            bytes: self.counter("bytes")?,
        })
    }

    fn counter(&self, name: &str) -> Result<u64, redb::Error> {
        Ok(self.counters.get(name)?.map_or(0, |count| count.value()))
    }
}

impl Records<'_> {
    pub(super) fn document(&self, id: &str) -> Result<Option<Document>, redb::Error> {
        let row = self.documents.get(id)?;
        Ok(row.map(|row| Document::of(id, row.value())))
    }

    /// Gives a document that is there another body, if `change` has one for it.
    pub(super) fn change(
        &mut self,
        id: &str,
        change: impl FnOnce(&Document) -> Option<String>,
    ) -> Result<Option<Revision>, redb::Error> {
        let known = self.document(id)?.filter(|known| !known.deleted);
        match known.as_ref().and_then(change) {
            Some(body) => self.save(id, known.as_ref(), false, &body).map(Some),
            None => Ok(None),
        }
    }

    /// Writes a document whose writer names its last revision. A deleted document can be written without
    /// one; a document that is not there cannot be deleted.
    pub(super) fn edit(&mut self, edit: Edit) -> Result<Result<Revision, Conflict>, redb::Error> {
        let known = self.document(&edit.id)?;
        let fits = match (&known, &edit.expected) {
            (Some(known), Some(expected)) => known.revision == *expected,
            (None, Some(_)) => false,
            (known, None) => !edit.deleted && known.as_ref().is_none_or(|known| known.deleted),
        };
        match fits {
            true => {
                let saved = self.save(&edit.id, known.as_ref(), edit.deleted, &edit.body);
                saved.map(Ok)
            }
            false => Ok(Err(Conflict)),
        }
    }

    /// Writes a revision after the one that is known, as the document's last update.
    pub(super) fn save(
        &mut self,
        id: &str,
        known: Option<&Document>,
        deleted: bool,
        body: &str,
    ) -> Result<Revision, redb::Error> {
        let revision = Revision::after(known.map(|known| &known.revision), deleted, body);
        let seq = self.update_seq()? + 1;
        if let Some(known) = known {
            self.updates.remove(known.seq)?;
            self.deaths.remove(known.seq)?;
        }
        self.updates.insert(seq, id)?;
        if deleted {
            self.deaths.insert(seq, self.now)?;
        }
        let class = (!deleted).then(|| self.watcher.class(id, body));
        self.saved.push((id.to_owned(), class));
        self.counters.insert("last_update", seq)?;
        let bytes_before = known.map_or(0, |known| known.body.len());
        self.count_bytes(bytes_before, body.len())?;
        let row = (revision.number, revision.hash.as_str(), deleted, seq, body);
        self.documents.insert(id, row)?;
        Ok(revision)
    }

    /// Counts the size of a body, in bytes.
    pub(super) fn count_bytes(&mut self, before: usize, now: usize) -> Result<(), redb::Error> {
        let count = self.counters.get("bytes")?.map_or(0, |count| count.value());
        let count = count.saturating_add(now as u64);
        self.counters
            .insert("bytes", count.saturating_sub(before as u64))?;
        Ok(())
    }
}
