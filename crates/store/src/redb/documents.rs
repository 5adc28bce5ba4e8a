//! Documents in the tables: reads, writes, the order of updates.

use std::ops::Bound;

use redb::{Error, ReadableTable};

use super::records::{Records, Snapshot, counter};
use crate::documents::{Changes, Document, Info, mark};
use crate::revision::Revision;
use crate::tables::DocumentTables;

/// Revision number, its hash, whether deleted, sequence number, body.
pub(super) type Row = (u64, &'static str, bool, u64, &'static str);

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

impl Snapshot {
    pub(super) fn document(&self, id: &str) -> Result<Option<Document>, Error> {
        Ok(self
            .documents
            .get(id)?
            .map(|row| Document::of(id, row.value())))
    }

    pub(super) fn changes(&self, since: u64, limit: usize) -> Result<Changes, Error> {
        let mut changes = Changes {
            update_seq: counter(&self.counters, "last_update")?,
            mark: mark(&self.uuid()?).to_owned(),
            ..Changes::default()
        };
        let range = (Bound::Excluded(since), Bound::Unbounded);
        for entry in self.updates.range(range)?.take(limit) {
            let (_, id) = entry?;
            changes.documents.extend(self.document(id.value())?);
        }
        Ok(changes)
    }

    pub(super) fn last_changes(&self, limit: usize) -> Result<Vec<Document>, Error> {
        let mut documents = Vec::new();
        for entry in self.updates.range::<u64>(..)?.rev().take(limit) {
            let (_, id) = entry?;
            documents.extend(self.document(id.value())?);
        }
        Ok(documents)
    }

    /// Counts the documents updated after `since`, by walking over them.
    pub(super) fn pending(&self, since: u64) -> Result<u64, Error> {
        self.updates
            .range((Bound::Excluded(since), Bound::Unbounded))?
            .map(|entry| Ok(entry.map(|_| 1)?))
            .sum()
    }

    pub(crate) fn info(&self) -> Result<Info, Error> {
        use redb::ReadableTableMetadata;

        // Only counters, since this is called often.
        let all = self.documents.len()?;
        let deleted = self.deaths.len()?;
        Ok(Info {
            documents: all.saturating_sub(deleted),
            deleted,
            update_seq: counter(&self.counters, "last_update")?,
            mark: mark(&self.uuid()?).to_owned(),
            bytes: counter(&self.counters, "bytes")?,
        })
    }
}

impl DocumentTables for Records<'_> {
    type Error = Error;

    fn document(&self, id: &str) -> Result<Option<Document>, Error> {
        let row = self.documents.get(id)?;
        Ok(row.map(|row| Document::of(id, row.value())))
    }

    fn save(
        &mut self,
        id: &str,
        known: Option<&Document>,
        deleted: bool,
        body: &str,
    ) -> Result<Revision, Error> {
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
        self.saved.push((
            id.to_owned(),
            (!deleted).then(|| self.watcher.class(id, body)),
        ));
        self.counters.insert("last_update", seq)?;
        self.count_bytes(known.map_or(0, |known| known.body.len()), body.len())?;
        let row = (revision.number, revision.hash.as_str(), deleted, seq, body);
        self.documents.insert(id, row)?;
        Ok(revision)
    }

    fn kept(&self, id: &str) -> Result<Option<String>, Error> {
        Ok(self.jobs.get(id)?.map(|value| value.value().to_owned()))
    }

    fn keep(&mut self, id: &str, value: Option<&str>) -> Result<(), Error> {
        match value {
            Some(value) => drop(self.jobs.insert(id, value)?),
            None => drop(self.jobs.remove(id)?),
        }
        Ok(())
    }
}

impl Records<'_> {
    /// Updates the total size of all bodies after one changed from `before` to `now` bytes.
    pub(super) fn count_bytes(&mut self, before: usize, now: usize) -> Result<(), Error> {
        let count = counter(&self.counters, "bytes")?.saturating_add(now as u64);
        self.counters
            .insert("bytes", count.saturating_sub(before as u64))?;
        Ok(())
    }
}
