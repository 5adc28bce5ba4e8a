//! The rows of documents' jobs.
//!
//! PROMISES  A daemon writes into a row only while it owns it and the document requests a replication.

use std::collections::HashMap;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, Row};

use crate::error::StoreResult;
use crate::fleet::{IdsSet, JobNote, JobRow};
use crate::observer::DatabaseRequest;
use crate::postgres::shared::{Param, Shared};
use policy::ownership::{DocId, Epoch};

pub(super) const ROWS: &str = "SELECT doc_id, kept, past FROM settee.jobs WHERE doc_id = ANY($1)";

pub(super) const SAVE_PASTS: &str = "WITH held AS MATERIALIZED (SELECT j.doc_id, p.past \
     FROM (SELECT * FROM unnest($2::text[], $3::text[]) AS p (doc_id, past) ORDER BY doc_id COLLATE \"C\") p \
     CROSS JOIN LATERAL (SELECT doc_id FROM settee.jobs WHERE doc_id = p.doc_id \
     AND owner IS NOT DISTINCT FROM $1 AND wanted FOR UPDATE) j) \
     UPDATE settee.jobs j SET past = h.past FROM held h WHERE j.doc_id = h.doc_id";

/// The documents that the epoch owns, and for each the other document that has its replication. Rows are looked up by
/// id, one after the other: without current statistics, the planner assumes that an epoch has few documents, and
/// would read all of them for each request.
const SET_IDS: &str = "WITH held AS MATERIALIZED (SELECT j.doc_id, a.rep_id, ARRAY[a.source, a.target] AS servers, a.place \
     FROM (SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) \
     WITH ORDINALITY AS a (doc_id, rep_id, source, target, place) \
     ORDER BY doc_id COLLATE \"C\") a CROSS JOIN LATERAL (SELECT doc_id FROM settee.jobs WHERE doc_id = a.doc_id \
     AND owner IS NOT DISTINCT FROM $1 AND wanted FOR UPDATE) j), \
     taken AS (SELECT h.doc_id, h.rep_id, h.servers, coalesce(o.doc_id, nullif(first_value(h.doc_id) OVER same, h.doc_id)) AS by \
     FROM held h LEFT JOIN LATERAL (SELECT doc_id FROM settee.jobs \
     WHERE rep_id = h.rep_id AND doc_id <> h.doc_id OFFSET 0) o ON true \
     WINDOW same AS (PARTITION BY h.rep_id ORDER BY h.place)), \
     noted AS (UPDATE settee.jobs j SET rep_id = t.rep_id, servers = t.servers FROM taken t \
     WHERE j.doc_id = t.doc_id AND t.by IS NULL \
     AND (j.rep_id IS DISTINCT FROM t.rep_id OR j.servers IS DISTINCT FROM t.servers)) \
     SELECT doc_id, by FROM taken";

/// Maximum attempts of [`SET_IDS`]: one fails if another document takes a replication concurrently.
const TRIES: usize = 3;

pub(super) fn rows(docs: &[DocId], rows: &[Row]) -> Result<Vec<JobRow>, Error> {
    let found = rows.iter().map(|row| {
        Ok((
            row.try_get::<_, &str>(0)?,
            JobRow {
                kept: row.try_get(1)?,
                past: row.try_get(2)?,
            },
        ))
    });
    let found: HashMap<&str, JobRow> = found.collect::<Result<_, Error>>()?;
    let row = |id: &DocId| found.get(&**id).cloned().unwrap_or_default();
    Ok(docs.iter().map(row).collect())
}

fn texts(jobs: &[JobNote], of: fn(&JobNote) -> &str) -> Param {
    Param::Texts(jobs.iter().map(|job| of(job).to_owned()).collect())
}

pub(super) async fn set_replication_ids(
    shared: &Shared,
    epoch: Epoch,
    jobs: &[JobNote],
) -> StoreResult<IdsSet> {
    let params = [
        Param::Epoch(epoch),
        texts(jobs, |job| &job.doc),
        texts(jobs, |job| &job.id),
        texts(jobs, |job| &job.servers[0]),
        texts(jobs, |job| &job.servers[1]),
    ];
    let mut tries = 1;
    let rows = loop {
        match shared
            .once(DatabaseRequest::Write, SET_IDS, &params)
            .await?
        {
            Ok(rows) => break rows,
            // The other document was not visible yet.
            Err(failed)
                if failed.error.code() == Some(&SqlState::UNIQUE_VIOLATION) && tries < TRIES =>
            {
                tries += 1;
            }
            Err(failed) => return Err(shared.failed(failed.error)),
        }
    };
    let owned = rows.iter().map(|row| {
        let by: Option<&str> = row.try_get(1)?;
        let set = by.map_or(Ok(()), |by| Err(by.into()));
        Ok((row.try_get::<_, &str>(0)?, set))
    });
    let owned: Result<HashMap<&str, Result<(), DocId>>, Error> = owned.collect();
    let mut owned = owned.map_err(|error| shared.failed(error))?;
    Ok(jobs.iter().map(|job| owned.remove(&*job.doc)).collect())
}
