//! A file as one side of a copy.

use std::ops::Bound;

use redb::{Database, ReadableDatabase, ReadableTableMetadata};

use super::{CopyRow, Head, ROWS_MAX, RowKind};
use crate::error::OpenProblem;
use crate::new_uuid;
use crate::place::StorePlace;
use crate::redb::file;
use crate::redb::records::{Records, Snapshot, UNFINISHED_FORMAT, mark, meta, prepare};

/// Bytes of bodies after which no more rows are read at a time.
const BYTES_MAX: usize = 1 << 20;

pub(super) struct FileSide(Database);

impl FileSide {
    /// Opens a file; makes a target that is not there, and changes nothing in a source.
    pub fn open(place: &StorePlace, is_source: bool) -> Result<Self, OpenProblem> {
        let database = match place {
            StorePlace::File(path) if is_source => file::open_unchanged(path)?,
            place => file::open_target(place)?,
        };
        let write = database.begin_write().map_err(redb::Error::from)?;
        let format = meta(&write, "format")?;
        drop(write);
        if is_source && format.is_none() {
            return Err(OpenProblem::NoStore("it has no format".to_owned()));
        }
        let is_unfinished = format.as_deref() == Some(UNFINISHED_FORMAT);
        // A new file is empty.
        if is_source || !is_unfinished {
            prepare(&database, &new_uuid(), &())?;
        }
        Ok(Self(database))
    }

    pub fn head(&self) -> Result<Head, OpenProblem> {
        let read = self.0.begin_read().map_err(redb::Error::from)?;
        let tables = Snapshot::of(&read)?;
        let info = tables.info()?;
        let count = |rows: Result<u64, redb::StorageError>| rows.map_err(redb::Error::from);
        let small = count(tables.locals.len())? + count(tables.jobs.len())?;
        Ok(Head {
            uuid: tables.uuid()?,
            seq: info.update_seq,
            is_unfinished: tables.is_unfinished()?,
            is_empty: info.update_seq + info.documents + info.deleted + small == 0,
        })
    }

    pub fn rows(&self, kind: RowKind, after: &str) -> Result<Vec<CopyRow>, OpenProblem> {
        let read = self.0.begin_read().map_err(redb::Error::from)?;
        Ok(Snapshot::of(&read)?.rows(kind, after)?)
    }

    pub fn begin(&self, uuid: &str) -> Result<(), OpenProblem> {
        let write = self.0.begin_write().map_err(redb::Error::from)?;
        mark(&write, Some(uuid), true)?;
        Ok(write.commit().map_err(redb::Error::from)?)
    }

    pub fn put(&self, kind: RowKind, rows: &[CopyRow]) -> Result<(), OpenProblem> {
        Ok(self.write_rows(kind, rows)?)
    }

    fn write_rows(&self, kind: RowKind, rows: &[CopyRow]) -> Result<(), redb::Error> {
        let write = self.0.begin_write()?;
        {
            let mut tables = Records::of(&write, &())?;
            for row in rows {
                let (id, body) = (&*row.id, &*row.body);
                match kind {
                    RowKind::Documents => {
                        let deleted = row.deleted_at.is_some();
                        let value = (row.number, &*row.hash, deleted, row.seq, body);
                        tables.documents.insert(id, value)?;
                        tables.updates.insert(row.seq, id)?;
                        if let Some(at) = row.deleted_at {
                            tables.deaths.insert(row.seq, at)?;
                        }
                        tables.count_bytes(0, body.len())?;
                    }
                    RowKind::Locals => drop(tables.locals.insert(id, (row.number, body))?),
                    RowKind::Jobs => drop(tables.jobs.insert(id, body)?),
                }
            }
        }
        Ok(write.commit()?)
    }

    pub fn finish(&self, seq: u64) -> Result<(), OpenProblem> {
        let write = self.0.begin_write().map_err(redb::Error::from)?;
        {
            let mut tables = Records::of(&write, &())?;
            let last = tables.counters.insert("last_update", seq);
            drop(last.map_err(redb::Error::from)?);
        }
        mark(&write, None, false)?;
        Ok(write.commit().map_err(redb::Error::from)?)
    }
}

impl Snapshot {
    /// Returns the next rows after an id, in the order of their ids.
    pub(crate) fn rows(&self, kind: RowKind, after: &str) -> Result<Vec<CopyRow>, redb::Error> {
        let range = (Bound::Excluded(after), Bound::Unbounded);
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let mut take = |row: CopyRow| {
            bytes += row.body.len();
            rows.push(row);
            rows.len() >= ROWS_MAX || bytes >= BYTES_MAX
        };
        match kind {
            RowKind::Documents => {
                for entry in self.documents.range::<&str>(range)? {
                    let (id, row) = entry?;
                    let (number, hash, deleted, seq, body) = row.value();
                    let at = match deleted {
                        true => self.deaths.get(seq)?.map(|at| at.value()),
                        false => None,
                    };
                    let row = CopyRow {
                        id: id.value().to_owned(),
                        number,
                        hash: hash.to_owned(),
                        deleted_at: deleted.then(|| at.unwrap_or(0)),
                        seq,
                        body: body.to_owned(),
                    };
                    if take(row) {
                        break;
                    }
                }
            }
            RowKind::Locals => {
                for entry in self.locals.range::<&str>(range)? {
                    let (id, row) = entry?;
                    let (number, body) = row.value();
                    let row = CopyRow {
                        id: id.value().to_owned(),
                        number,
                        body: body.to_owned(),
                        ..CopyRow::default()
                    };
                    if take(row) {
                        break;
                    }
                }
            }
            RowKind::Jobs => {
                for entry in self.jobs.range::<&str>(range)? {
                    let (id, body) = entry?;
                    let row = CopyRow {
                        id: id.value().to_owned(),
                        body: body.value().to_owned(),
                        ..CopyRow::default()
                    };
                    if take(row) {
                        break;
                    }
                }
            }
        }
        Ok(rows)
    }
}
