//! Documents: revisions, conflicts, the order of updates.
//!
//! SUMMARY   A document has one revision, the last; who writes must know it. A deleted one stays as
//!           its last revision.
//! SOURCE    couch_db: update_doc; couch_db_updater. A deleted document may be made again with and
//!           without its revision.
//! DIFFERS   No revision trees: nobody replicates into this store.

use std::ops::Bound;

use redb::ReadableTable;

use super::records::{Records, Snapshot};
use super::revision::Revision;

/// Revision number, its hash, whether deleted, sequence number, body.
pub(super) type Row = (u64, u128, bool, u64, &'static str);

/// A document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its id.
    pub id: String,
    /// Its last revision.
    pub revision: Revision,
    /// Whether it is deleted.
    pub deleted: bool,
    /// The sequence number of its last update.
    pub seq: u64,
    /// JSON text of an object without `_id`, `_rev` and `_deleted`.
    pub body: String,
}

/// A wish to write a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Which.
    pub id: String,
    /// The revision that the writer knows.
    pub expected: Option<Revision>,
    /// Whether to delete it.
    pub deleted: bool,
    /// As in [`Document`].
    pub body: String,
}

/// The writer does not know the last revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Document update conflict.")]
pub struct Conflict;

/// Which documents to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Where to begin, in the order of the list.
    pub start: Bound<String>,
    /// Where to end.
    pub end: Bound<String>,
    /// Whether the last id comes first.
    pub descending: bool,
    /// How many to pass over.
    pub skip: usize,
    /// How many at most.
    pub limit: usize,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            start: Bound::Unbounded,
            end: Bound::Unbounded,
            descending: false,
            skip: 0,
            limit: usize::MAX,
        }
    }
}

/// Documents of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// How many there are in all.
    pub total: u64,
    /// How many stand before the first of the page.
    pub offset: u64,
    /// Those of the page.
    pub documents: Vec<Document>,
    /// The last sequence number.
    pub update_seq: u64,
}

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
    /// What the documents take, in bytes.
    pub bytes: u64,
}

fn document(
    id: &str,
    (number, hash, deleted, seq, body): (u64, u128, bool, u64, &str),
) -> Document {
    Document {
        id: id.to_owned(),
        revision: Revision { number, hash },
        deleted,
        seq,
        body: body.to_owned(),
    }
}

impl Snapshot {
    pub(super) fn document(&self, id: &str) -> Result<Option<Document>, redb::Error> {
        let row = self.documents.get(id)?;
        Ok(row.map(|row| document(id, row.value())))
    }

    pub(super) fn list(&self, page: &Page) -> Result<Listing, redb::Error> {
        let info = self.info()?;
        let mut listing = Listing {
            total: info.documents,
            offset: self.before(page)?,
            update_seq: info.update_seq,
            ..Listing::default()
        };
        let mut to_skip = page.skip;
        let mut take = |entry: Result<Entry<'_>, redb::StorageError>| {
            let (id, row) = entry?;
            let row = row.value();
            if row.2 {
                return Ok(true);
            }
            if listing.documents.len() >= page.limit {
                return Ok(false);
            }
            if to_skip > 0 {
                to_skip -= 1;
                listing.offset += 1;
            } else {
                listing.documents.push(document(id.value(), row));
            }
            Ok::<bool, redb::Error>(true)
        };
        let (lower, upper) = match page.descending {
            false => (&page.start, &page.end),
            true => (&page.end, &page.start),
        };
        if is_empty(lower, upper) {
            return Ok(listing);
        }
        let range = (text(lower), text(upper));
        let mut entries = self.documents.range::<&str>(range)?;
        loop {
            let entry = match page.descending {
                false => entries.next(),
                true => entries.next_back(),
            };
            match entry {
                Some(entry) => {
                    if !take(entry)? {
                        return Ok(listing);
                    }
                }
                None => return Ok(listing),
            }
        }
    }

    /// Counts what stands before the beginning of a page.
    fn before(&self, page: &Page) -> Result<u64, redb::Error> {
        let range: (Bound<&str>, Bound<&str>) = match (&page.start, page.descending) {
            (Bound::Unbounded, _) => return Ok(0),
            (Bound::Included(id), false) => (Bound::Unbounded, Bound::Excluded(id)),
            (Bound::Excluded(id), false) => (Bound::Unbounded, Bound::Included(id)),
            (Bound::Included(id), true) => (Bound::Excluded(id), Bound::Unbounded),
            (Bound::Excluded(id), true) => (Bound::Included(id), Bound::Unbounded),
        };
        let mut count = 0;
        for entry in self.documents.range::<&str>(range)? {
            count += u64::from(!entry?.1.value().2);
        }
        Ok(count)
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

        let all = self.documents.len()?;
        let deleted = self.counter("deleted")?;
        Ok(Info {
            documents: all.saturating_sub(deleted),
            deleted,
            update_seq: self.counter("last_update")?,
            uuid: self.uuid()?,
            bytes: self.documents.stats()?.stored_bytes(),
        })
    }

    fn counter(&self, name: &str) -> Result<u64, redb::Error> {
        Ok(self.counters.get(name)?.map_or(0, |count| count.value()))
    }
}

/// A row of the table of documents.
type Entry<'a> = (
    redb::AccessGuard<'a, &'static str>,
    redb::AccessGuard<'a, Row>,
);

fn text(bound: &Bound<String>) -> Bound<&str> {
    bound.as_ref().map(String::as_str)
}

/// The library takes a range whose beginning comes after its end for a mistake.
fn is_empty(lower: &Bound<String>, upper: &Bound<String>) -> bool {
    match (lower, upper) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from >= to,
        _ => false,
    }
}

impl Records<'_> {
    /// Gives a document that is there another body, if `change` has one for it.
    pub(super) fn change(
        &mut self,
        id: &str,
        change: impl FnOnce(&Document) -> Option<String>,
    ) -> Result<Option<Revision>, redb::Error> {
        let row = self.documents.get(id)?;
        let Some(known) = row.map(|row| document(id, row.value())) else {
            return Ok(None);
        };
        let Some(body) = change(&known).filter(|_| !known.deleted) else {
            return Ok(None);
        };
        let edit = Edit {
            id: known.id,
            expected: Some(known.revision),
            deleted: false,
            body,
        };
        Ok(self.edit(&edit)?.ok())
    }

    pub(super) fn edit(&mut self, edit: &Edit) -> Result<Result<Revision, Conflict>, redb::Error> {
        let known = self.documents.get(edit.id.as_str())?.map(|row| {
            let (number, hash, deleted, seq, _) = row.value();
            (Revision { number, hash }, deleted, seq)
        });
        let is_known = match (known, edit.expected) {
            (Some((revision, ..)), Some(expected)) => revision == expected,
            // What is deleted can be made again, and what is not there cannot be deleted.
            (Some((_, deleted, _)), None) => deleted && !edit.deleted,
            (None, expected) => expected.is_none() && !edit.deleted,
        };
        if !is_known {
            return Ok(Err(Conflict));
        }
        let parent = known.map(|(revision, ..)| revision);
        let revision = Revision::after(parent, edit.deleted, &edit.body);
        let seq = self.update_seq()? + 1;
        if let Some((.., before)) = known {
            self.updates.remove(before)?;
        }
        self.updates.insert(seq, edit.id.as_str())?;
        self.counters.insert("last_update", seq)?;
        let was_deleted = known.is_some_and(|(_, deleted, _)| deleted);
        self.count_deleted(was_deleted, edit.deleted)?;
        let Revision { number, hash } = revision;
        let row = (number, hash, edit.deleted, seq, edit.body.as_str());
        self.documents.insert(edit.id.as_str(), row)?;
        Ok(Ok(revision))
    }

    fn count_deleted(&mut self, before: bool, after: bool) -> Result<(), redb::Error> {
        if before == after {
            return Ok(());
        }
        let count = self
            .counters
            .get("deleted")?
            .map_or(0, |count| count.value());
        let count = if after {
            count + 1
        } else {
            count.saturating_sub(1)
        };
        self.counters.insert("deleted", count)?;
        Ok(())
    }
}
