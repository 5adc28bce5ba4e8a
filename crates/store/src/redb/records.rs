//! The tables of the file.
//!
//! SUMMARY   [`Snapshot`] reads them all, [`Records`] writes them; documents are in [`super::documents`], the
//!           rest is here.

use redb::{
    Database, Error, ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, Table,
    TableDefinition, WriteTransaction,
};

use super::documents::Row;
use crate::document_store::Watcher;
use crate::documents::{Conflict, LocalDocument, unix_now};
use crate::error::OpenProblem;
use crate::tables::next_local;
use policy::counted::Class;

/// The file's format, which other versions of the program may not know. Earlier formats were never released.
pub(super) const FORMAT: &str = "3";

/// Id -> revision, whether deleted, sequence number of the last update, body as JSON text without `_id` and
/// `_rev`.
pub(super) const DOCUMENTS: TableDefinition<&str, Row> = TableDefinition::new("winners");
/// Sequence number -> id; each document once, at its latest update.
const UPDATES: TableDefinition<u64, &str> = TableDefinition::new("updates");
/// Sequence number of a deletion -> its time, in seconds since 1970; each deleted document once.
const DEATHS: TableDefinition<u64, u64> = TableDefinition::new("deaths");
/// `last_update` and `bytes`, for documents.
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
/// Id without `_local/` -> number of updates, body as JSON text.
const LOCALS: TableDefinition<&str, (u64, &str)> = TableDefinition::new("locals");
/// Document id -> the value kept for its job, as JSON text.
const JOBS: TableDefinition<&str, &str> = TableDefinition::new("jobs");
/// `format` and `uuid`.
const META: TableDefinition<&str, &str> = TableDefinition::new("meta");

/// Creates missing tables, and sets the uuid to `new_uuid` if there is none. Reports all documents to `watcher`.
/// Returns the uuid and the last sequence number.
///
/// # Errors
/// The file has another format, or cannot be read or written. It stays unchanged.
pub(crate) fn prepare(
    database: &Database,
    new_uuid: &str,
    watcher: &dyn Watcher,
) -> Result<(String, u64), OpenProblem> {
    let transaction = database.begin_write().map_err(Error::from)?;
    let known = meta(&transaction, "format")?;
    let prepared = {
        let mut records = Records::of(&transaction, watcher)?;
        match known.as_deref() {
            None => {
                set_meta(&transaction, "uuid", new_uuid)?;
                set_meta(&transaction, "format", FORMAT)?;
            }
            Some(FORMAT) => {}
            Some(other) => {
                return Err(OpenProblem::Format(format!(
                    "format {other}, this program knows {FORMAT}"
                )));
            }
        }
        watcher.opened(records.take_stock()?);
        let uuid = meta(&transaction, "uuid")?.unwrap_or_default();
        (uuid, records.update_seq()?)
    };
    transaction.commit().map_err(Error::from)?;
    Ok(prepared)
}

/// Returns whether a file is a store's; with `may_be_new`, one without tables is, too.
pub(super) fn is_store(database: &Database, may_be_new: bool) -> Result<bool, Error> {
    let transaction = database.begin_write()?;
    let is_empty = transaction.list_tables()?.next().is_none();
    Ok((may_be_new && is_empty) || meta(&transaction, "format")?.is_some())
}

fn meta(transaction: &WriteTransaction, name: &str) -> Result<Option<String>, Error> {
    let table = transaction.open_table(META)?;
    let value = table.get(name)?;
    Ok(value.map(|value| value.value().to_owned()))
}

pub(super) fn set_meta(
    transaction: &WriteTransaction,
    name: &str,
    value: &str,
) -> Result<(), Error> {
    transaction.open_table(META)?.insert(name, value)?;
    Ok(())
}

/// The tables at one moment.
pub(crate) struct Snapshot {
    pub documents: ReadOnlyTable<&'static str, Row>,
    pub updates: ReadOnlyTable<u64, &'static str>,
    pub deaths: ReadOnlyTable<u64, u64>,
    pub counters: ReadOnlyTable<&'static str, u64>,
    pub locals: ReadOnlyTable<&'static str, (u64, &'static str)>,
    pub jobs: ReadOnlyTable<&'static str, &'static str>,
    pub(super) meta: ReadOnlyTable<&'static str, &'static str>,
}

impl Snapshot {
    pub fn of(transaction: &ReadTransaction) -> Result<Self, Error> {
        Ok(Self {
            documents: transaction.open_table(DOCUMENTS)?,
            updates: transaction.open_table(UPDATES)?,
            deaths: transaction.open_table(DEATHS)?,
            counters: transaction.open_table(COUNTERS)?,
            locals: transaction.open_table(LOCALS)?,
            jobs: transaction.open_table(JOBS)?,
            meta: transaction.open_table(META)?,
        })
    }

    pub fn uuid(&self) -> Result<String, Error> {
        Ok(self
            .meta
            .get("uuid")?
            .map_or_else(String::new, |uuid| uuid.value().to_owned()))
    }

    pub(super) fn local(&self, id: &str) -> Result<Option<LocalDocument>, Error> {
        Ok(self.locals.get(id)?.map(|found| {
            let (number, body) = found.value();
            LocalDocument {
                number,
                body: body.to_owned(),
            }
        }))
    }

    pub(super) fn kept(&self, id: &str) -> Result<Option<String>, Error> {
        Ok(self.jobs.get(id)?.map(|value| value.value().to_owned()))
    }
}

/// Returns a counter.
pub(super) fn counter(
    counters: &impl ReadableTable<&'static str, u64>,
    name: &str,
) -> Result<u64, Error> {
    Ok(counters.get(name)?.map_or(0, |count| count.value()))
}

/// The tables, in a transaction.
pub(crate) struct Records<'t> {
    pub documents: Table<'t, &'static str, Row>,
    pub updates: Table<'t, u64, &'static str>,
    pub deaths: Table<'t, u64, u64>,
    pub counters: Table<'t, &'static str, u64>,
    pub locals: Table<'t, &'static str, (u64, &'static str)>,
    pub jobs: Table<'t, &'static str, &'static str>,
    pub(super) watcher: &'t dyn Watcher,
    /// Saved documents, each with its class unless deleted.
    pub(super) saved: Vec<(String, Option<Class>)>,
    /// The start of the transaction, in seconds since 1970.
    pub(super) now: u64,
}

impl<'t> Records<'t> {
    pub fn of(transaction: &'t WriteTransaction, watcher: &'t dyn Watcher) -> Result<Self, Error> {
        Ok(Self {
            documents: transaction.open_table(DOCUMENTS)?,
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

    /// Returns the documents that are not deleted, with their classes. Computes what an earlier version did not
    /// record: sizes, and deletions, which are dated now.
    fn take_stock(&mut self) -> Result<Vec<(String, Class)>, Error> {
        let (mut there, mut deaths, mut bytes) = (Vec::new(), Vec::new(), 0);
        for entry in self.documents.iter()? {
            let (id, row) = entry?;
            let (_, _, deleted, seq, body) = row.value();
            bytes += body.len() as u64;
            if deleted {
                deaths.push(seq)
            } else {
                there.push((id.value().to_owned(), self.watcher.class(id.value(), body)))
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

    pub(super) fn update_seq(&self) -> Result<u64, Error> {
        counter(&self.counters, "last_update")
    }

    pub(super) fn edit_local(
        &mut self,
        id: &str,
        expected: Option<u64>,
        body: Option<&str>,
    ) -> Result<Result<u64, Conflict>, Error> {
        let known = self.locals.get(id)?.map(|found| found.value().0);
        let number = match next_local(known, expected, body.is_none()) {
            Ok(number) => number,
            Err(conflict) => return Ok(Err(conflict)),
        };
        match body {
            Some(body) => drop(self.locals.insert(id, (number, body))?),
            None => drop(self.locals.remove(id)?),
        }
        Ok(Ok(number))
    }
}
