//! The replicator database: the store, with the rules for its documents.

use std::sync::Arc;

use serde_json::value::to_raw_value;

use super::document::{
    DocKind, DocumentError, Incoming, Person, check, invalid_rev, members, strip, with_head,
};
use super::kept::Kept;
use super::members::DocMembers;
use super::states::DocStates;
use crate::ConfigWatch;
use replication::spec::Defaults;
use store::{
    Edit, ExportLines, ExportRow, Import, Imported, Revision, Store, StoreError, StoreSnapshot,
};

/// The name of the database.
pub const NAME: &str = "_replicator";

/// The database. Cheap to clone.
#[derive(Clone)]
pub struct Database {
    pub(crate) store: Store,
    /// The states of its documents.
    pub(crate) states: Arc<DocStates>,
    config: ConfigWatch,
}

/// A written document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its id.
    pub id: String,
    /// Its new revision.
    pub rev: String,
}

/// A refused document: its id, and the reason.
pub type Refused = (String, DocumentError);

impl Database {
    /// Makes a database of a store.
    pub fn new(store: Store, states: Arc<DocStates>, config: ConfigWatch) -> Self {
        Self {
            store,
            states,
            config,
        }
    }

    /// Writes documents that have ids; each has its own result, in the same order.
    ///
    /// # Errors
    /// See [`StoreError`]; then only `_local/` documents may have been written.
    pub async fn write(
        &self,
        documents: Vec<Incoming>,
        writer: &Person,
    ) -> Result<Vec<Result<Written, Refused>>, StoreError> {
        let defaults = super::defaults(&self.config.borrow().replicator);
        let mut results = Vec::with_capacity(documents.len());
        let (mut edits, mut places) = (Vec::new(), Vec::new());
        for mut incoming in documents {
            let id = incoming.id.take().unwrap_or_default();
            let rev = match check(&id, &mut incoming, writer, &defaults) {
                Ok(DocKind::Local) => self.write_local(&id, incoming).await?,
                Ok(_) => edit(&id, incoming).map(|edit| {
                    places.push(results.len());
                    edits.push(edit);
                    String::new()
                }),
                Err(error) => Err(error),
            };
            results.push((id, rev));
        }
        if !edits.is_empty() {
            let written = self.store.edit(edits).await?;
            for (place, written) in places.into_iter().zip(written) {
                let rev = written.map(|revision| revision.to_string());
                results[place].1 = rev.map_err(|_| DocumentError::Conflict);
            }
        }
        let results = results.into_iter().map(|(id, rev)| match rev {
            Ok(rev) => Ok(Written { id, rev }),
            Err(error) => Err((id, error)),
        });
        Ok(results.collect())
    }

    /// Returns the owner of a document, even a deleted one.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn owner(&self, id: &str) -> Result<Option<String>, StoreError> {
        let found = self.store.document(id).await?;
        Ok(found.and_then(|document| members(&document).text("owner")))
    }

    /// Writes the documents of an export that do not exist yet. Each has its own result, in the same order.
    ///
    /// # Errors
    /// See [`StoreError`]; then none is written.
    pub async fn import(
        &self,
        rows: Vec<ExportRow>,
    ) -> Result<Vec<Result<(String, Imported), Refused>>, StoreError> {
        let defaults = super::defaults(&self.config.borrow().replicator);
        let read: Vec<_> = rows
            .into_iter()
            .map(|row| to_import(row, &defaults))
            .collect();
        let mut imported = self
            .store
            .import(read.iter().flatten().cloned().collect())
            .await?
            .into_iter();
        Ok(read
            .into_iter()
            .map(|read| Ok((read?.id, imported.next().unwrap_or(Imported::Conflict))))
            .collect())
    }

    async fn write_local(
        &self,
        id: &str,
        incoming: Incoming,
    ) -> Result<Result<String, DocumentError>, StoreError> {
        let expected = match incoming.rev.as_deref().map(local_number).transpose() {
            Ok(expected) => expected,
            Err(error) => return Ok(Err(error)),
        };
        let body = (!incoming.deleted).then(|| incoming.members.to_string());
        Ok(self
            .store
            .edit_local(local_name(id), expected, body)
            .await?
            .map(|number| local_rev(number, incoming.deleted))
            .map_err(|_| DocumentError::Conflict))
    }

    /// Returns a `_local/` document with its id and revision.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn local(&self, id: &str) -> Result<Option<DocMembers>, StoreError> {
        let found = self.store.local(local_name(id)).await?;
        Ok(found.map(|found| {
            with_head(
                id,
                &local_rev(found.number, false),
                false,
                DocMembers::parse(&found.body).unwrap_or_default(),
            )
        }))
    }
}

fn local_name(id: &str) -> &str {
    id.strip_prefix("_local/").unwrap_or(id)
}

/// CouchDB reports `0-0` for a deleted `_local/` document.
fn local_rev(number: u64, deleted: bool) -> String {
    format!("0-{}", if deleted { 0 } else { number })
}

fn local_number(rev: &str) -> Result<u64, DocumentError> {
    rev.strip_prefix("0-")
        .and_then(|text| text.parse().ok())
        .ok_or_else(invalid_rev)
}

fn edit(id: &str, incoming: Incoming) -> Result<Edit, DocumentError> {
    let expected = incoming.rev.as_deref().map(str::parse::<Revision>);
    Ok(Edit {
        id: id.to_owned(),
        expected: expected.transpose().map_err(|_| invalid_rev())?,
        deleted: incoming.deleted,
        body: incoming.members.to_string(),
    })
}

/// Returns the lines of a store's export, with or without credentials.
pub(crate) fn export_lines(snapshot: StoreSnapshot, secrets: bool) -> ExportLines {
    let strip = |row: &mut ExportRow| {
        let mut members = DocMembers::parse(row.doc.get()).unwrap_or_default();
        if strip(&mut members)
            && let Ok(doc) = to_raw_value(&members)
        {
            row.doc = doc;
        }
    };
    ExportLines::new(snapshot, (!secrets).then_some(strip))
}

/// Checks a row of an export, and returns the document to import.
fn to_import(row: ExportRow, defaults: &Defaults) -> Result<Import, Refused> {
    let ExportRow {
        id,
        doc,
        job,
        deleted_at,
        ..
    } = row;
    let checked = Incoming::of(doc.get()).and_then(|mut incoming| {
        let operator = Person {
            name: None,
            is_admin: true,
        };
        let kind = check(&id, &mut incoming, &operator, defaults)?;
        if incoming.deleted || deleted_at.is_some() || kind == DocKind::Local {
            Err(DocumentError::BadRequest(
                "deletions and _local documents are not imported".to_owned(),
            ))
        } else {
            Ok(incoming.members.to_string())
        }
    });
    match checked {
        Ok(body) => Ok(Import {
            id,
            body,
            kept: job.and_then(|kept| Kept::read(kept.get()).text()),
        }),
        Err(error) => Err((id, error)),
    }
}
