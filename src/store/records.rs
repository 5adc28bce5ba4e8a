//! The tables of the file.
//!
//! SUMMARY   [`Snapshot`] is all of them for reading, [`Records`] for writing; documents are in
//!           [`super::documents`], the small things here. A file of an earlier form is brought to
//!           this one when it is opened.

use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, Table,
    TableDefinition, WriteTransaction,
};

use super::Watcher;
use super::documents::Row;
use super::tree::Conflict;
use super::upkeep::unix_now;
use policy::counted::Class;

/// The form of the file, which a later program may not know any more.
pub(super) const FORMAT: &str = "2";
/// The form before: a document had one revision and no history.
const FORMAT_1: &str = "1";
/// Documents of that form: revision number, hash, whether deleted, sequence number, body.
const DOCUMENTS_1: TableDefinition<&str, (u64, u128, bool, u64, &str)> =
    TableDefinition::new("documents");

/// Id -> the leaf that wins: revision, whether deleted, sequence number of the last update, body as
/// JSON text without `_id` and `_rev`.
pub(super) const DOCUMENTS: TableDefinition<&str, Row> = TableDefinition::new("winners");
/// Id -> hashes of the revisions before the winner, newest first, with commas between them; nothing
/// for those that have none.
pub(super) const ANCESTORS: TableDefinition<&str, &str> = TableDefinition::new("ancestors");
/// Id -> the other leaves, as [`super::tree::leaves_text`] writes them; nothing for those that have
/// none.
pub(super) const CONFLICTS: TableDefinition<&str, &str> = TableDefinition::new("conflicts");
/// Sequence number -> id; each document once, at its last update.
pub(super) const UPDATES: TableDefinition<u64, &str> = TableDefinition::new("updates");
/// Sequence number of a deletion -> when it was, in seconds since 1970; each deleted document once.
pub(super) const DEATHS: TableDefinition<u64, u64> = TableDefinition::new("deaths");
/// `last_update`, `deleted` and `bytes`, for documents.
pub(super) const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
/// Id without `_local/` -> number of updates, body as JSON text.
const LOCALS: TableDefinition<&str, (u64, &str)> = TableDefinition::new("locals");
/// Document id -> JSON text.
const JOBS: TableDefinition<&str, &str> = TableDefinition::new("jobs");
/// `format` and `uuid`.
pub(super) const META: TableDefinition<&str, &str> = TableDefinition::new("meta");

/// The file is not as it should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum PrepareError {
    /// A later program wrote it.
    #[error("it has the form {0:?}, which this program does not know")]
    Format(String),
    #[error(transparent)]
    Database(#[from] redb::Error),
}

/// Makes what is not there yet: tables, `new_uuid` as the uuid. Returns the last sequence number and
/// the uuid; tells `watcher` of all documents.
pub(super) fn prepare(
    database: &Database,
    new_uuid: &str,
    watcher: &dyn Watcher,
) -> Result<(u64, String), PrepareError> {
    let transaction = database.begin_write().map_err(redb::Error::from)?;
    let prepared = {
        let mut records = Records::of(&transaction, watcher)?;
        let mut meta = transaction.open_table(META).map_err(redb::Error::from)?;
        let known = meta.get("format").map_err(redb::Error::from)?;
        let known = known.map(|format| format.value().to_owned());
        match known {
            Some(format) if format == FORMAT => {}
            Some(format) if format == FORMAT_1 => {
                records.take_over(
                    &transaction
                        .open_table(DOCUMENTS_1)
                        .map_err(redb::Error::from)?,
                )?;
                meta.insert("format", FORMAT).map_err(redb::Error::from)?;
            }
            Some(format) => return Err(PrepareError::Format(format)),
            None => {
                meta.insert("uuid", new_uuid).map_err(redb::Error::from)?;
                meta.insert("format", FORMAT).map_err(redb::Error::from)?;
            }
        }
        let uuid = meta.get("uuid").map_err(redb::Error::from)?;
        let uuid = uuid.map_or_else(String::new, |uuid| uuid.value().to_owned());
        watcher.opened(records.take_stock()?);
        (records.update_seq()?, uuid)
    };
    transaction
        .delete_table(DOCUMENTS_1)
        .map_err(redb::Error::from)?;
    transaction.commit().map_err(redb::Error::from)?;
    Ok(prepared)
}

/// A `_local/` document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalDocument {
    /// How often it was written; its revision is `0-NUMBER`.
    pub number: u64,
    /// JSON text without `_id` and `_rev`.
    pub body: String,
}

/// The tables, as they were at one moment.
pub(super) struct Snapshot {
    pub(super) documents: ReadOnlyTable<&'static str, Row>,
    pub(super) ancestors: ReadOnlyTable<&'static str, &'static str>,
    pub(super) conflicts: ReadOnlyTable<&'static str, &'static str>,
    pub(super) updates: ReadOnlyTable<u64, &'static str>,
    pub(super) deaths: ReadOnlyTable<u64, u64>,
    pub(super) counters: ReadOnlyTable<&'static str, u64>,
    pub(super) locals: ReadOnlyTable<&'static str, (u64, &'static str)>,
    pub(super) jobs: ReadOnlyTable<&'static str, &'static str>,
    pub(super) meta: ReadOnlyTable<&'static str, &'static str>,
}

impl Snapshot {
    pub(super) fn of(transaction: &ReadTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            documents: transaction.open_table(DOCUMENTS)?,
            ancestors: transaction.open_table(ANCESTORS)?,
            conflicts: transaction.open_table(CONFLICTS)?,
            updates: transaction.open_table(UPDATES)?,
            deaths: transaction.open_table(DEATHS)?,
            counters: transaction.open_table(COUNTERS)?,
            locals: transaction.open_table(LOCALS)?,
            jobs: transaction.open_table(JOBS)?,
            meta: transaction.open_table(META)?,
        })
    }

    pub(super) fn uuid(&self) -> Result<String, redb::Error> {
        let uuid = self.meta.get("uuid")?;
        Ok(uuid.map_or_else(String::new, |uuid| uuid.value().to_owned()))
    }

    pub(super) fn local(&self, id: &str) -> Result<Option<LocalDocument>, redb::Error> {
        let found = self.locals.get(id)?;
        Ok(found.map(|found| {
            let (number, body) = found.value();
            LocalDocument {
                number,
                body: body.to_owned(),
            }
        }))
    }

    pub(super) fn kept(&self, id: &str) -> Result<Option<String>, redb::Error> {
        let found = self.jobs.get(id)?;
        Ok(found.map(|value| value.value().to_owned()))
    }
}

/// The tables, in a transaction.
pub(super) struct Records<'t> {
    pub(super) documents: Table<'t, &'static str, Row>,
    pub(super) ancestors: Table<'t, &'static str, &'static str>,
    pub(super) conflicts: Table<'t, &'static str, &'static str>,
    pub(super) updates: Table<'t, u64, &'static str>,
    pub(super) deaths: Table<'t, u64, u64>,
    pub(super) counters: Table<'t, &'static str, u64>,
    pub(super) locals: Table<'t, &'static str, (u64, &'static str)>,
    pub(super) jobs: Table<'t, &'static str, &'static str>,
    pub(super) watcher: &'t dyn Watcher,
    /// Documents that were saved, each with its class while it is there.
    pub(super) saved: Vec<(String, Option<Class>)>,
    /// When the transaction began, in seconds since 1970.
    pub(super) now: u64,
}

impl<'t> Records<'t> {
    pub(super) fn of(
        transaction: &'t WriteTransaction,
        watcher: &'t dyn Watcher,
    ) -> Result<Self, redb::Error> {
        Ok(Self {
            documents: transaction.open_table(DOCUMENTS)?,
            ancestors: transaction.open_table(ANCESTORS)?,
            conflicts: transaction.open_table(CONFLICTS)?,
            updates: transaction.open_table(UPDATES)?,
            deaths: transaction.open_table(DEATHS)?,
            counters: transaction.open_table(COUNTERS)?,
            locals: transaction.open_table(LOCALS)?,
            jobs: transaction.open_table(JOBS)?,
            watcher,
            saved: Vec::new(),
            now: unix_now(),
        })
    }

    /// Returns the documents that are there, with their classes. What an earlier program did not
    /// count is counted: sizes, and deletions, which are taken to be of now.
    fn take_stock(&mut self) -> Result<Vec<(String, Class)>, redb::Error> {
        let (mut there, mut deaths, mut bytes) = (Vec::new(), Vec::new(), 0);
        for entry in self.documents.iter()? {
            let (id, row) = entry?;
            let (_, _, deleted, seq, body) = row.value();
            bytes += body.len() as u64;
            match deleted {
                true => deaths.push(seq),
                false => there.push((id.value().to_owned(), self.watcher.class(id.value(), body))),
            }
        }
        if self.deaths.len()? != deaths.len() as u64 {
            self.deaths.retain(|_, _| false)?;
            for seq in deaths {
                self.deaths.insert(seq, self.now)?;
            }
        }
        self.counters.insert("bytes", bytes)?;
        Ok(there)
    }

    /// Takes over the documents of a file of the first form.
    fn take_over(
        &mut self,
        before: &impl ReadableTable<&'static str, (u64, u128, bool, u64, &'static str)>,
    ) -> Result<(), redb::Error> {
        for entry in before.iter()? {
            let (id, row) = entry?;
            let (number, hash, deleted, seq, body) = row.value();
            let hash = format!("{hash:032x}");
            let row = (number, hash.as_str(), deleted, seq, body);
            self.documents.insert(id.value(), row)?;
        }
        Ok(())
    }

    pub(super) fn update_seq(&self) -> Result<u64, redb::Error> {
        let seq = self.counters.get("last_update")?;
        Ok(seq.map_or(0, |seq| seq.value()))
    }

    pub(super) fn edit_local(
        &mut self,
        id: &str,
        expected: Option<u64>,
        body: Option<&str>,
    ) -> Result<Result<u64, Conflict>, redb::Error> {
        let known = self.locals.get(id)?.map(|found| found.value().0);
        if known != expected || known.is_none() && body.is_none() {
            return Ok(Err(Conflict));
        }
        let number = known.unwrap_or(0) + 1;
        match body {
            Some(body) => self.locals.insert(id, (number, body))?.map(drop),
            None => self.locals.remove(id)?.map(drop),
        };
        Ok(Ok(number))
    }

    pub(super) fn keep(&mut self, id: &str, value: Option<&str>) -> Result<(), redb::Error> {
        match value {
            Some(value) => self.jobs.insert(id, value)?.map(drop),
            None => self.jobs.remove(id)?.map(drop),
        };
        Ok(())
    }
}
