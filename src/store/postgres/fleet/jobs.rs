//! The rows of documents' jobs.
//!
//! PROMISES  An owner writes into a row only while it is the owner, and the document asks for a replication.

use std::collections::{BTreeMap, HashMap};

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use crate::store::error::StoreError;
use crate::store::fleet::{IdTaken, JobRow};
use crate::store::postgres::connect::problem;
use crate::store::postgres::shared::{Param, Shared, epoch};
use policy::ownership::{DocId, Epoch};

pub(super) const ROWS: &str = "SELECT doc_id, kept, past FROM settee.jobs WHERE doc_id = ANY($1)";

pub(super) const OWNERS: &str = "SELECT doc_id, owner FROM settee.jobs JOIN settee.instances ON epoch = owner \
     WHERE doc_id = ANY($1)";

pub(super) const SAVE_PASTS: &str = "WITH held AS (SELECT j.doc_id, p.past FROM settee.jobs j \
     JOIN unnest($2::text[], $3::text[]) AS p (doc_id, past) ON j.doc_id = p.doc_id \
     WHERE j.owner = $1 AND j.wanted ORDER BY j.doc_id FOR UPDATE OF j) \
     UPDATE settee.jobs j SET past = h.past FROM held h WHERE j.doc_id = h.doc_id";

/// Whether the epoch has the document, and which other document has the replication.
const SET_ID: &str = "WITH other AS (SELECT doc_id FROM settee.jobs WHERE rep_id = $3 AND doc_id <> $2), \
     noted AS (UPDATE settee.jobs SET rep_id = $3 WHERE doc_id = $2 AND owner = $1 AND wanted \
     AND NOT EXISTS (SELECT 1 FROM other)) \
     SELECT EXISTS (SELECT 1 FROM settee.jobs WHERE doc_id = $2 AND owner = $1 AND wanted), (SELECT doc_id FROM other)";

/// How often a document that takes the replication at the same moment is looked for.
const TRIES: usize = 3;

pub(super) fn rows(docs: &[DocId], rows: &[Row]) -> Result<Vec<JobRow>, tokio_postgres::Error> {
    let found = rows.iter().map(|row| {
        let known = JobRow {
            kept: row.try_get(1)?,
            past: row.try_get(2)?,
        };
        Ok((row.try_get::<_, &str>(0)?, known))
    });
    let found: HashMap<&str, JobRow> = found.collect::<Result<_, tokio_postgres::Error>>()?;
    let row = |id: &DocId| found.get(&**id).cloned().unwrap_or_default();
    Ok(docs.iter().map(row).collect())
}

pub(super) fn owners(
    docs: &[DocId],
    rows: &[Row],
) -> Result<Vec<Option<Epoch>>, tokio_postgres::Error> {
    let found = rows
        .iter()
        .map(|row| Ok((row.try_get::<_, &str>(0)?, epoch(row.try_get(1)?))));
    let found: HashMap<&str, Epoch> = found.collect::<Result<_, tokio_postgres::Error>>()?;
    Ok(docs.iter().map(|id| found.get(&**id).copied()).collect())
}

pub(super) fn last_of_each(pasts: Vec<(DocId, String)>) -> BTreeMap<String, String> {
    let pasts = pasts.into_iter();
    pasts.map(|(id, past)| (id.to_string(), past)).collect()
}

pub(super) async fn set_replication_id(
    shared: &Shared,
    epoch: Epoch,
    doc: &DocId,
    id: &str,
) -> Result<Option<Result<(), IdTaken>>, StoreError> {
    let params = [
        Param::Epoch(epoch),
        Param::Text(doc.to_string()),
        Param::Text(id.to_owned()),
    ];
    let mut tries = 1;
    let rows = loop {
        match shared.write(SET_ID, &params).await? {
            Ok(rows) => break rows,
            // The other one was not to be seen yet.
            Err(failed)
                if failed.error.code() == Some(&SqlState::UNIQUE_VIOLATION) && tries < TRIES =>
            {
                tries += 1;
            }
            Err(failed) => return Err(shared.failed(problem(&failed.error))),
        }
    };
    let outcome = rows.first().map(|row| {
        let (is_owner, other): (bool, Option<&str>) = (row.try_get(0)?, row.try_get(1)?);
        Ok(match other {
            _ if !is_owner => None,
            Some(by) => Some(Err(IdTaken { by: by.into() })),
            None => Some(Ok(())),
        })
    });
    let outcome = outcome.unwrap_or(Ok(None));
    outcome.map_err(|error| shared.failed(problem(&error)))
}
