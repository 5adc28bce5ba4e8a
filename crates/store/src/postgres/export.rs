//! Exports from a PostgreSQL database, and imports that replace its content.
//!
//! PROMISES  An export is one transaction with one snapshot. A replacement is one transaction as well: complete or not
//!           at all. No daemon runs during a replacement; a starting one waits for its end.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_postgres::{Client, Error, Row};

use super::connect::{Connector, REQUEST_MAX, no_answer};
use super::schema;
use super::shared::{Param, count, int, query};
use super::storable;
use crate::document_store::{Answer, Watcher};
use crate::error::OpenProblem;
use crate::export::{BYTES_MAX, ExportRow, LOCAL, ROWS_MAX, RowKind, RowSource, StoreSnapshot};
use crate::new_uuid;
use crate::observer::StoreObserver;
use crate::place::StorePlace;
use settee_config::store_url::StoreUrl;

/// A dedicated connection.
struct Session {
    client: Client,
    place: StorePlace,
}

impl Session {
    async fn open(url: &StoreUrl) -> Result<Self, OpenProblem> {
        let observer: Arc<dyn StoreObserver> = Arc::new(());
        let client = Connector::of(url, &Arc::default(), &observer)?
            .connect()
            .await?;
        schema::make(&client, &new_uuid()).await?;
        let place = StorePlace::Postgres(url.clone());
        Ok(Self { client, place })
    }

    async fn run(&self, sql: &str) -> Result<(), OpenProblem> {
        in_time(self.client.batch_execute(sql)).await
    }

    async fn query(&self, sql: &str, params: &[Param]) -> Result<Vec<Row>, OpenProblem> {
        in_time(query(&self.client, sql, params)).await
    }

    async fn read(&self, kind: RowKind, after: &str) -> Result<Vec<ExportRow>, OpenProblem> {
        let from = match kind {
            RowKind::Documents => {
                "SELECT id, rev_number || '-' || rev_hash AS rev, seq, deleted_at, body, kept \
                 FROM settee.docs LEFT JOIN settee.jobs ON doc_id = id"
            }
            RowKind::Locals => {
                "SELECT id, '0-' || number AS rev, 0::bigint AS seq, NULL::bigint AS deleted_at, body, NULL::text AS kept \
                 FROM settee.locals"
            }
        };
        let sql = format!(
            "SELECT id, rev, seq, deleted_at, body, kept FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY id) - octet_length(body) AS before \
             FROM (SELECT * FROM ({from}) AS every WHERE id > $1 ORDER BY id LIMIT $2) page) d WHERE before < $3 ORDER BY id"
        );
        let params = [
            Param::Text(after.to_owned()),
            Param::Number(ROWS_MAX as u64),
            Param::Number(BYTES_MAX as u64),
        ];
        let rows = self.query(&sql, &params).await?;
        let read = rows.iter().map(|row| {
            let id: String = row.try_get(0)?;
            let id = match kind {
                RowKind::Documents => id,
                RowKind::Locals => format!("{LOCAL}{id}"),
            };
            let (rev, seq) = (row.try_get(1)?, count(row.try_get(2)?));
            let deleted_at: Option<i64> = row.try_get(3)?;
            let (at, body) = (deleted_at.map(count), row.try_get(4)?);
            ExportRow::of_store(id, rev, seq, at, body, row.try_get(5)?)
                .map_err(OpenProblem::Damaged)
        });
        read.collect()
    }
}

/// Waits for a sent request, at most [`REQUEST_MAX`].
async fn in_time<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, OpenProblem> {
    let done = timeout(REQUEST_MAX, work).await;
    Ok(done.map_err(|_| no_answer(REQUEST_MAX))??)
}

impl RowSource for Session {
    fn rows(&mut self, kind: RowKind, after: &str) -> Answer<'_, Vec<ExportRow>> {
        let after = after.to_owned();
        Box::pin(async move {
            self.read(kind, &after)
                .await
                .map_err(|problem| self.place.cannot_open(problem).into())
        })
    }
}

/// Opens a snapshot of a database. The database drops it if it is not read for a minute.
pub(crate) async fn snapshot(url: &StoreUrl) -> Result<StoreSnapshot, OpenProblem> {
    let session = Session::open(url).await?;
    session
        .run("SET idle_in_transaction_session_timeout = '1min'; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let sql = "SELECT server_uuid, seq FROM settee.meta";
    let rows = session.query(sql, &[]).await?;
    let Some(row) = rows.first() else {
        return Err(OpenProblem::Refused("settee.meta has no row".to_owned()));
    };
    let (uuid, seq) = (row.try_get(0)?, count(row.try_get(1)?));
    Ok(StoreSnapshot::new(uuid, seq, session))
}

/// Replaces all documents, the values kept for their jobs, and the uuid. `watcher` decides which documents request
/// replications.
///
/// # Errors
/// A daemon is running; the database refuses or does not answer. Nothing has changed then, unless the answer to the
/// commit was lost. The inner error is that of a row: nothing has changed.
pub(crate) async fn replace<E>(
    url: &StoreUrl,
    (uuid, seq): (&str, u64),
    mut rows: impl Iterator<Item = Result<ExportRow, E>>,
    watcher: &dyn Watcher,
) -> Result<Result<(), E>, OpenProblem> {
    let session = Session::open(url).await?;
    // A starting service reads settee.meta first.
    session
        .run(
            "SET idle_in_transaction_session_timeout = 0; BEGIN; \
             LOCK TABLE settee.meta IN ACCESS EXCLUSIVE MODE",
        )
        .await?;
    let daemons = "SELECT 1 FROM settee.instances WHERE lease_until > clock_timestamp()";
    if !session.query(daemons, &[]).await?.is_empty() {
        return Err(OpenProblem::InUse);
    }
    session
        .run("TRUNCATE settee.docs, settee.locals, settee.jobs, settee.job_status, settee.orders")
        .await?;
    loop {
        let some = match ExportRow::next_of(&mut rows, ROWS_MAX, BYTES_MAX) {
            Ok(some) => some,
            Err(error) => return Ok(Err(error)),
        };
        if some.is_empty() {
            break;
        }
        session.put(&some, watcher).await?;
    }
    let sql = "UPDATE settee.meta SET server_uuid = $1, seq = $2, purged_seq = 0";
    let params = [Param::Text(uuid.to_owned()), Param::Number(seq)];
    session.query(sql, &params).await?;
    // The first service finds statistics for its plans, without waiting for PostgreSQL to gather them.
    session.run("ANALYZE settee.docs, settee.jobs").await?;
    session.run("COMMIT").await.map(Ok)
}

impl Session {
    async fn put(&self, rows: &[ExportRow], watcher: &dyn Watcher) -> Result<(), OpenProblem> {
        let id = |row: &ExportRow| row.local().unwrap_or(&row.id).to_owned();
        let unfit = |_| OpenProblem::Refused("it cannot keep an id of the export".to_owned());
        rows.iter()
            .try_for_each(|row| storable(&id(row)))
            .map_err(unfit)?;
        let revisions: Result<Vec<_>, _> = rows.iter().map(ExportRow::revision).collect();
        let revisions = revisions.map_err(OpenProblem::Damaged)?;
        let numbers = revisions.iter().map(|revision| int(revision.number));
        let hashes = revisions.iter().map(|revision| revision.hash.clone());
        let asks = |row: &ExportRow| {
            row.local().is_none()
                && row.deleted_at.is_none()
                && watcher.class(&row.id, row.doc.get()) == 0
        };
        let died = |row: &ExportRow| row.deleted_at.map_or(-1, int);
        let kept = |row: &ExportRow| row.job.as_ref().map(|job| job.get().to_owned());
        let params = [
            Param::Flags(rows.iter().map(|row| row.local().is_some()).collect()),
            Param::Texts(rows.iter().map(id).collect()),
            Param::Integers(numbers.collect()),
            Param::Texts(hashes.collect()),
            Param::Integers(rows.iter().map(died).collect()),
            Param::Integers(rows.iter().map(|row| int(row.seq)).collect()),
            Param::Texts(rows.iter().map(|row| row.doc.get().to_owned()).collect()),
            Param::Flags(rows.iter().map(asks).collect()),
            Param::OptionalTexts(rows.iter().map(kept).collect()),
        ];
        let sql = "WITH every AS (SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             AS r (is_local, id, number, hash, at, seq, body, wanted, kept)), \
             docs AS (INSERT INTO settee.docs (id, rev_number, rev_hash, deleted, deleted_at, seq, body) \
             SELECT id, number, hash, at >= 0, nullif(at, -1), seq, body FROM every WHERE NOT is_local), \
             locals AS (INSERT INTO settee.locals (id, number, body) SELECT id, number, body FROM every WHERE is_local) \
             INSERT INTO settee.jobs (doc_id, wanted, kept) \
             SELECT id, wanted, kept FROM every WHERE wanted OR kept IS NOT NULL";
        self.query(sql, &params).await.map(drop)
    }
}
