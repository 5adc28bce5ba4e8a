//! Keeps the file small: purges deleted documents, and returns free space.
//!
//! SUMMARY   A deleted document stays as a tombstone for readers of `_changes`. Purging removes old tombstones;
//!           compacting shrinks the file.
//! PROMISES  A purge removes deleted documents only. A file is compacted only if little has to be moved, so that
//!           writers wait no longer than [`COMPACT_DOCUMENTS_MAX`] implies.
//! SOURCE    couch_db_updater: compaction. `purge` in couch_db differs: it takes revisions.

use std::ops::RangeInclusive;

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use super::file::file_bytes;
use super::records::{DOCUMENTS, Records};
use crate::documents::Purged;
use crate::place::StorePlace;
use crate::tables::DocumentTables;

/// Minimum size of a file to compact, in bytes.
const COMPACT_FILE_MIN: u64 = 4 << 20;

/// Maximum documents of a file to compact, including deleted ones: moving that many takes a fraction of a second.
/// Later writes reuse the free space of larger files.
const COMPACT_DOCUMENTS_MAX: u64 = 100_000;

impl Records<'_> {
    pub(super) fn purge(
        &mut self,
        before: u64,
        seqs: RangeInclusive<u64>,
        limit: usize,
    ) -> Result<Purged, redb::Error> {
        let deaths: Vec<(u64, u64)> = self
            .deaths
            .range::<u64>(seqs)?
            .take(limit)
            .map(|entry| entry.map(|(seq, at)| (seq.value(), at.value())))
            .collect::<Result<_, _>>()?;
        let last = deaths.last().filter(|_| deaths.len() == limit);
        let mut purged = Purged {
            removed: 0,
            last: last.map(|(seq, _)| *seq),
        };
        for (seq, _) in deaths.into_iter().filter(|(_, at)| *at < before) {
            self.deaths.remove(seq)?;
            let id = self.updates.get(seq)?.map(|id| id.value().to_owned());
            let Some(id) = id else { continue };
            // An earlier version of Settee may have rewritten the document since.
            let dead = self.document(&id)?;
            let Some(dead) = dead.filter(|dead| dead.deleted && dead.seq == seq) else {
                continue;
            };
            self.documents.remove(&*id)?;
            self.jobs.remove(&*id)?;
            self.updates.remove(seq)?;
            self.count_bytes(dead.body.len(), 0)?;
            purged.removed += 1;
        }
        Ok(purged)
    }
}

/// Returns free space to the system if the file is large, has few documents, and at least half of it is free. Returns
/// the number of bytes.
pub(super) fn compact(database: &mut Database, place: &StorePlace) -> Result<u64, redb::Error> {
    let before = file_bytes(place);
    if before < COMPACT_FILE_MIN {
        return Ok(0);
    }
    let documents = database.begin_read()?.open_table(DOCUMENTS)?.len()?;
    if documents > COMPACT_DOCUMENTS_MAX {
        return Ok(0);
    }
    let transaction = database.begin_write()?;
    let stats = transaction.stats()?;
    let used = stats.allocated_pages() * stats.page_size() as u64;
    transaction.abort()?;
    if used > before / 2 {
        return Ok(0);
    }
    database.compact()?;
    Ok(before.saturating_sub(file_bytes(place)))
}
