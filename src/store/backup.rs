//! A copy of the store, taken while it is in use: rows of one moment, and a file made of them.
//!
//! SUMMARY   [`Dump`] reads the tables as they were when it began, some rows at a time; [`NewFile`] takes
//!           the rows and becomes a file that a service can be started with.
//! PROMISES  A copy is of one moment, whatever is written meanwhile. No file is overwritten; the new one is
//!           there whole and on the disk, or not at all; its owner alone can read it.
//! LIMITS    [`ROWS_MAX`] rows, or [`BYTES_MAX`] bytes and one row, are read at a time. While a copy is
//!           being made nothing that it has to read is freed in the store's file.

use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use redb::{Database, ReadableTable, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::file::sync_folders;
use super::records::{FORMAT, META, Records, Snapshot};

/// Rows that are read at a time.
const ROWS_MAX: usize = 500;

/// Bytes of texts after which no more rows are read at a time.
const BYTES_MAX: usize = 256 << 10;

/// A row of a table. The order of the tables is that of the variants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DumpRow {
    /// `format` and `uuid`.
    Meta(String, String),
    /// A count.
    Counter(String, u64),
    /// A `_local/` document: name, number, body.
    Local(String, u64, String),
    /// What is kept of a document's job.
    Job(String, String),
    /// A document.
    Document {
        /// Its id.
        id: String,
        /// The number of its revision.
        number: u64,
        /// The hash of its revision.
        hash: String,
        /// Whether it is deleted.
        deleted: bool,
        /// Its last update.
        seq: u64,
        /// Its body.
        body: String,
        /// The revisions before.
        ancestors: String,
        /// Its other branches.
        conflicts: String,
        /// When it was deleted, in seconds since 1970.
        #[serde(default)]
        deleted_at: Option<u64>,
    },
}

impl DumpRow {
    /// Returns whether it is a document that is not deleted.
    pub fn is_document(&self) -> bool {
        matches!(self, Self::Document { deleted: false, .. })
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Meta(..) | Self::Counter(..) => 0,
            Self::Local(_, _, text) | Self::Job(_, text) => text.len(),
            Self::Document {
                body,
                ancestors,
                conflicts,
                ..
            } => body.len() + ancestors.len() + conflicts.len(),
        }
    }
}

/// What is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Small,
    Locals,
    Jobs,
    Documents,
    End,
}

impl Place {
    const fn next(self) -> Self {
        match self {
            Self::Small => Self::Locals,
            Self::Locals => Self::Jobs,
            Self::Jobs => Self::Documents,
            Self::Documents | Self::End => Self::End,
        }
    }
}

/// A copy that is being made.
pub struct Dump {
    tables: Snapshot,
    place: Place,
    /// The key of the last row that was read of this table.
    after: Option<String>,
}

impl Dump {
    pub(super) fn of(tables: Snapshot) -> Self {
        Self {
            tables,
            place: Place::Small,
            after: None,
        }
    }

    /// Reads some rows; none at the end.
    pub(super) fn next_rows(&mut self) -> Result<Vec<DumpRow>, redb::Error> {
        loop {
            let rows = self.rows_of_table()?;
            if !rows.is_empty() || self.place == Place::End {
                return Ok(rows);
            }
            (self.place, self.after) = (self.place.next(), None);
        }
    }

    fn rows_of_table(&mut self) -> Result<Vec<DumpRow>, redb::Error> {
        let tables = &self.tables;
        let after = self.after.take();
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = (from, Bound::Unbounded);
        let mut rows = Rows::default();
        match self.place {
            Place::Small if after.is_none() => {
                for entry in tables.meta.iter()? {
                    let (name, value) = entry?;
                    let (name, value) = (name.value().to_owned(), value.value().to_owned());
                    rows.push(name.clone(), DumpRow::Meta(name, value));
                }
                for entry in tables.counters.iter()? {
                    let (name, count) = entry?;
                    let name = name.value().to_owned();
                    rows.push(name.clone(), DumpRow::Counter(name, count.value()));
                }
            }
            Place::Locals => {
                for entry in tables.locals.range::<&str>(range)? {
                    let (id, row) = entry?;
                    let (id, (number, body)) = (id.value().to_owned(), row.value());
                    if !rows.push(id.clone(), DumpRow::Local(id, number, body.to_owned())) {
                        break;
                    }
                }
            }
            Place::Jobs => {
                for entry in tables.jobs.range::<&str>(range)? {
                    let (id, text) = entry?;
                    let id = id.value().to_owned();
                    if !rows.push(id.clone(), DumpRow::Job(id, text.value().to_owned())) {
                        break;
                    }
                }
            }
            Place::Documents => {
                for entry in tables.documents.range::<&str>(range)? {
                    let (id, row) = entry?;
                    let (number, hash, deleted, seq, body) = row.value();
                    let text = |table: &redb::ReadOnlyTable<&'static str, &'static str>| {
                        let found = table.get(id.value())?;
                        Ok::<_, redb::Error>(
                            found.map_or_else(String::new, |text| text.value().to_owned()),
                        )
                    };
                    let row = DumpRow::Document {
                        id: id.value().to_owned(),
                        number,
                        hash: hash.to_owned(),
                        deleted,
                        seq,
                        body: body.to_owned(),
                        ancestors: text(&tables.ancestors)?,
                        conflicts: text(&tables.conflicts)?,
                        deleted_at: tables.deaths.get(seq)?.map(|at| at.value()),
                    };
                    if !rows.push(id.value().to_owned(), row) {
                        break;
                    }
                }
            }
            Place::Small | Place::End => {}
        }
        self.after = rows.last;
        Ok(rows.rows)
    }
}

/// Rows that are read at one time.
#[derive(Default)]
struct Rows {
    rows: Vec<DumpRow>,
    bytes: usize,
    last: Option<String>,
}

impl Rows {
    /// Takes a row. Returns whether there is room for more.
    fn push(&mut self, key: String, row: DumpRow) -> bool {
        self.bytes += row.bytes();
        self.rows.push(row);
        self.last = Some(key);
        self.rows.len() < ROWS_MAX && self.bytes < BYTES_MAX
    }
}

/// A copy cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is a file of this name, which stays as it is.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// The system refuses it.
    #[error("{path} cannot be written: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, io::Error),
    /// The file cannot be written.
    #[error("{path} cannot be written: {error}", path = .0.display(), error = .1)]
    File(PathBuf, redb::Error),
    /// The rows are not those of a store that this program knows.
    #[error(
        "the service sent a copy of the form {0:?}, which this program does not know: use the service's own program"
    )]
    Form(String),
}

/// A file that is being made of rows. What is not finished is removed.
pub struct NewFile {
    path: PathBuf,
    /// What is written, until it is whole.
    part: PathBuf,
    database: Option<Database>,
}

impl NewFile {
    /// Begins a file, beside which there is another one until it is whole: `PATH.part`.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub fn create(path: &Path) -> Result<Self, BackupError> {
        let io = |error| BackupError::Io(path.to_owned(), error);
        if path.symlink_metadata().is_ok() {
            return Err(BackupError::Exists(path.to_owned()));
        }
        let mut part = path.to_owned().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        match options.open(&part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(BackupError::Exists(part));
            }
            opened => drop(opened.map_err(io)?),
        }
        let mut file = Self {
            path: path.to_owned(),
            part,
            database: None,
        };
        let database = Database::create(&file.part);
        file.database = Some(database.map_err(|error| file.failed(error.into()))?);
        Ok(file)
    }

    /// Writes rows.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub fn write(&mut self, rows: Vec<DumpRow>) -> Result<(), BackupError> {
        for row in &rows {
            if let DumpRow::Meta(name, form) = row
                && name == "format"
                && form != FORMAT
            {
                return Err(BackupError::Form(form.clone()));
            }
        }
        let written = self.database.as_ref().map(|database| {
            let transaction = database.begin_write()?;
            put(&transaction, rows)?;
            transaction.commit()?;
            Ok(())
        });
        written.transpose().map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Gives the file its name. It is whole and on the disk then.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub fn finish(mut self) -> Result<(), BackupError> {
        self.database = None;
        // Unlike a rename it fails where there is a file of this name by now.
        match fs::hard_link(&self.part, &self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(BackupError::Exists(self.path.clone()))
            }
            linked => linked
                .and_then(|()| sync_folders(&self.path))
                .map_err(|error| BackupError::Io(self.path.clone(), error)),
        }
    }

    fn failed(&self, error: redb::Error) -> BackupError {
        BackupError::File(self.path.clone(), error)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        self.database = None;
        // It was made by this command; if it cannot be removed, it says by its name what it is.
        drop(fs::remove_file(&self.part));
    }
}

fn put(transaction: &WriteTransaction, rows: Vec<DumpRow>) -> Result<(), redb::Error> {
    let mut tables = Records::of(transaction, &())?;
    let mut meta = transaction.open_table(META)?;
    for row in rows {
        match row {
            DumpRow::Meta(name, value) => drop(meta.insert(&*name, &*value)?),
            DumpRow::Counter(name, count) => drop(tables.counters.insert(&*name, count)?),
            DumpRow::Local(id, number, body) => {
                drop(tables.locals.insert(&*id, (number, &*body))?);
            }
            DumpRow::Job(id, text) => drop(tables.jobs.insert(&*id, &*text)?),
            DumpRow::Document {
                id,
                number,
                hash,
                deleted,
                seq,
                body,
                ancestors,
                conflicts,
                deleted_at,
            } => {
                let row = (number, &*hash, deleted, seq, &*body);
                tables.documents.insert(&*id, row)?;
                tables.updates.insert(seq, &*id)?;
                if let Some(at) = deleted_at {
                    tables.deaths.insert(seq, at)?;
                }
                if !ancestors.is_empty() {
                    tables.ancestors.insert(&*id, &*ancestors)?;
                }
                if !conflicts.is_empty() {
                    tables.conflicts.insert(&*id, &*conflicts)?;
                }
            }
        }
    }
    Ok(())
}
