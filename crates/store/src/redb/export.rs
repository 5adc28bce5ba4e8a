//! Exports from a store's file, and imports into a new one.
//!
//! PROMISES  A file is replaced atomically, by one that is synced, and only while no service uses it.

use std::fs::OpenOptions;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use redb::backends::FileBackend;
use redb::{Database, Error, ReadableDatabase, StorageBackend};
use tokio::sync::mpsc::Sender;

use super::file::{builder, open_unchanged};
use super::records::{FORMAT, Records, Snapshot, prepare, set_meta};
use super::thread::{Keeper, StoreRequest, run};
use crate::document_store::Answer;
use crate::documents::Document;
use crate::error::OpenProblem;
use crate::export::{BYTES_MAX, ExportRow, LOCAL, ROWS_MAX, RowKind, RowSource, StoreSnapshot};
use crate::place::StorePlace;
use settee_config::new_file::NewFile;
use settee_config::own_folder;

impl Snapshot {
    /// Returns the next rows of a kind after an id, in the order of their ids.
    pub(super) fn rows(&self, kind: RowKind, after: &str) -> Result<Vec<ExportRow>, Error> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let mut take = |row: Result<ExportRow, String>| {
            let row = row.map_err(Error::Corrupted)?;
            bytes += row.doc.get().len();
            rows.push(row);
            Ok::<_, Error>(rows.len() >= ROWS_MAX || bytes >= BYTES_MAX)
        };
        let from = match after {
            "" => Bound::Unbounded,
            after => Bound::Excluded(after),
        };
        let range = (from, Bound::Unbounded);
        match kind {
            RowKind::Documents => {
                for entry in self.documents.range::<&str>(range)? {
                    let (id, row) = entry?;
                    let Document {
                        id,
                        revision,
                        deleted,
                        seq,
                        body,
                    } = Document::of(id.value(), row.value());
                    let died = self.deaths.get(seq)?.map_or(0, |at| at.value());
                    let (rev, kept) = (revision.to_string(), self.kept(&id)?);
                    let died = deleted.then_some(died);
                    if take(ExportRow::of_store(id, rev, seq, died, body, kept))? {
                        break;
                    }
                }
            }
            RowKind::Locals => {
                for entry in self.locals.range::<&str>(range)? {
                    let (id, row) = entry?;
                    let (number, body) = row.value();
                    let (id, rev) = (format!("{LOCAL}{}", id.value()), format!("0-{number}"));
                    if take(ExportRow::of_store(id, rev, 0, None, body.to_owned(), None))? {
                        break;
                    }
                }
            }
        }
        Ok(rows)
    }
}

/// A snapshot held by the thread of a running service.
pub(super) struct HeldRows {
    pub requests: Sender<StoreRequest>,
    pub number: u64,
}

impl RowSource for HeldRows {
    fn rows(&mut self, kind: RowKind, after: &str) -> Answer<'_, Vec<ExportRow>> {
        let (number, after) = (self.number, after.to_owned());
        let read = move |keeper: &mut Keeper| keeper.read_held(number, kind, &after);
        Box::pin(run(&self.requests, read))
    }
}

impl Drop for HeldRows {
    fn drop(&mut self) {
        let number = self.number;
        let release = Box::new(move |keeper: &mut Keeper| keeper.release(number));
        // If the queue is full, the snapshot is dropped later as idle.
        drop(self.requests.try_send(StoreRequest::Other(release)));
    }
}

/// A file that no service uses.
struct FileRows {
    place: StorePlace,
    tables: Snapshot,
    /// Keeps services from opening it.
    _database: Database,
}

impl RowSource for FileRows {
    fn rows(&mut self, kind: RowKind, after: &str) -> Answer<'_, Vec<ExportRow>> {
        let rows = self
            .tables
            .rows(kind, after)
            .map_err(|error| self.place.cannot_open(error.into()).into());
        Box::pin(async { rows })
    }
}

/// Opens a file that no service uses, without changing it. Blocks.
pub(crate) fn snapshot(path: &Path) -> Result<StoreSnapshot, OpenProblem> {
    let database = open_unchanged(path, false)?;
    prepare(&database, "", &())?;
    let read = database.begin_read().map_err(Error::from)?;
    let tables = Snapshot::of(&read)?;
    let (uuid, seq) = (tables.uuid()?, tables.info()?.update_seq);
    Ok(StoreSnapshot::new(
        uuid,
        seq,
        FileRows {
            place: StorePlace::File(path.to_owned()),
            tables,
            _database: database,
        },
    ))
}

/// Writes these rows to a new file, replacing an existing one. A file made by root is given to the owner of its folder.
/// Blocks.
///
/// # Errors
/// A service uses the file, or the system refuses. The inner error is that of a row. The existing file stays unchanged.
pub(crate) fn replace<E>(
    path: &Path,
    is_of: (&str, u64),
    rows: impl Iterator<Item = Result<ExportRow, E>>,
) -> Result<Result<(), E>, OpenProblem> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(path);
    own_folder::make(folder)?;
    // A damaged file is replaced, too: only its lock matters.
    let lock = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => {
            let known = FileBackend::new(file).map_err(Error::from)?;
            match known.try_lock_range(Bound::Unbounded, Bound::Unbounded) {
                Ok(true) => Some(known),
                _ => return Err(OpenProblem::InUse),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let new = NewFile::begin(path)?;
    if let Err(error) = fill(&new, is_of, rows)? {
        return Ok(Err(error));
    }
    if new.file().metadata().is_ok_and(|made| made.uid() == 0) {
        let owner = folder.metadata()?;
        fchown(new.file(), Some(owner.uid()), Some(owner.gid()))?;
    }
    new.replace()?;
    drop(lock);
    Ok(Ok(()))
}

fn fill<E>(
    new: &NewFile,
    (uuid, seq): (&str, u64),
    rows: impl Iterator<Item = Result<ExportRow, E>>,
) -> Result<Result<(), E>, Error> {
    let file = FileBackend::new(new.file().try_clone()?)?;
    let database = builder().create_with_backend(file)?;
    let write = database.begin_write()?;
    {
        let mut tables = Records::of(&write, &())?;
        for row in rows {
            match row {
                Ok(row) => tables.put(&row)?,
                Err(error) => return Ok(Err(error)),
            }
        }
        tables.counters.insert("last_update", seq)?;
    }
    set_meta(&write, "uuid", uuid)?;
    set_meta(&write, "format", FORMAT)?;
    write.commit()?;
    database.close()?;
    Ok(Ok(()))
}

impl Records<'_> {
    /// Puts a row into a new file.
    fn put(&mut self, row: &ExportRow) -> Result<(), Error> {
        let (id, body) = (&*row.id, row.doc.get());
        let revision = row.revision().map_err(Error::Corrupted)?;
        if let Some(id) = row.local() {
            self.locals.insert(id, (revision.number, body))?;
            return Ok(());
        }
        let deleted = row.deleted_at.is_some();
        let value = (revision.number, &*revision.hash, deleted, row.seq, body);
        self.documents.insert(id, value)?;
        self.updates.insert(row.seq, id)?;
        if let Some(at) = row.deleted_at {
            self.deaths.insert(row.seq, at)?;
        }
        if let Some(job) = &row.job {
            self.jobs.insert(id, job.get())?;
        }
        Ok(())
    }
}
