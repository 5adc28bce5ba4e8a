//! A PostgreSQL database as one side of a copy.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::{CopyRow, Head, ROWS_MAX, RowKind};
use crate::document_store::Watcher;
use crate::error::OpenProblem;
use crate::new_uuid;
use crate::observer::StoreObserver;
use crate::postgres::connect::{Connector, REQUEST_MAX, no_answer, problem};
use crate::postgres::schema::{self, FORMAT, UNFINISHED_FORMAT};
use crate::postgres::shared::{Param, count, int, query};
use crate::postgres::storable;
use settee_config::store_url::StoreUrl;

/// The lock of whoever copies into a database: the letters "copyto".
const LOCK: u64 = 0x636f_7079_746f;

/// Bytes of bodies after which no more rows are read at a time.
const BYTES_MAX: u64 = 1 << 20;

pub(super) struct DatabaseSide {
    client: Client,
    watcher: Arc<dyn Watcher>,
}

impl DatabaseSide {
    /// Opens a database. Of a source all is read as it is at this moment.
    pub async fn open(
        url: &StoreUrl,
        watcher: &Arc<dyn Watcher>,
        is_source: bool,
    ) -> Result<Self, OpenProblem> {
        let observer: Arc<dyn StoreObserver> = Arc::new(());
        let client = Connector::of(url, &Arc::default(), &observer)?
            .connect()
            .await?;
        schema::make(&client, &new_uuid(), !is_source).await?;
        let side = Self {
            client,
            watcher: Arc::clone(watcher),
        };
        // The other side may be slow.
        side.run("SET idle_in_transaction_session_timeout = 0")
            .await?;
        match is_source {
            true => {
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                side.run(begin).await?;
            }
            false => {
                let lock = side.query("SELECT pg_try_advisory_lock($1)", &[Param::Number(LOCK)]);
                let lock = lock.await?;
                if !lock.first().is_some_and(|row| row.get(0)) {
                    return Err(OpenProblem::InUse);
                }
                let daemons =
                    "SELECT 1 FROM settee.instances WHERE lease_until > clock_timestamp()";
                if !side.query(daemons, &[]).await?.is_empty() {
                    return Err(OpenProblem::InUse);
                }
            }
        }
        Ok(side)
    }

    async fn run(&self, sql: &str) -> Result<(), OpenProblem> {
        let run = timeout(REQUEST_MAX, self.client.batch_execute(sql)).await;
        let run = run.map_err(|_| no_answer(REQUEST_MAX))?;
        run.map_err(|error| problem(&error))
    }

    async fn query(
        &self,
        sql: &str,
        params: &[Param],
    ) -> Result<Vec<tokio_postgres::Row>, OpenProblem> {
        let rows = timeout(REQUEST_MAX, query(&self.client, sql, params)).await;
        let rows = rows.map_err(|_| no_answer(REQUEST_MAX))?;
        rows.map_err(|error| problem(&error))
    }

    pub async fn head(&self) -> Result<Head, OpenProblem> {
        let sql = "SELECT server_uuid, seq, format, NOT (EXISTS (SELECT 1 FROM settee.docs) \
                   OR EXISTS (SELECT 1 FROM settee.locals) OR EXISTS (SELECT 1 FROM settee.jobs) OR seq > 0) \
                   FROM settee.meta";
        let rows = self.query(sql, &[]).await?;
        let Some(row) = rows.first() else {
            return Err(OpenProblem::Refused("settee.meta has no row".to_owned()));
        };
        let head = || {
            Ok(Head {
                uuid: row.try_get(0)?,
                seq: count(row.try_get(1)?),
                is_unfinished: row.try_get::<_, i32>(2)? == UNFINISHED_FORMAT,
                is_empty: row.try_get(3)?,
            })
        };
        head().map_err(|error| problem(&error))
    }

    pub async fn rows(&self, kind: RowKind, after: &str) -> Result<Vec<CopyRow>, OpenProblem> {
        let columns = match kind {
            RowKind::Documents => {
                "id, rev_number, rev_hash, deleted_at, seq, body FROM settee.docs"
            }
            RowKind::Locals => "id, number, '', NULL::bigint, 0::bigint, body FROM settee.locals",
            RowKind::Jobs => {
                "doc_id, 0::bigint, '', NULL::bigint, 0::bigint, kept FROM settee.jobs WHERE kept IS NOT NULL"
            }
        };
        let sql = format!(
            "SELECT * FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY id) - octet_length(body) AS before \
             FROM (SELECT * FROM (SELECT {columns}) AS every (id, number, hash, deleted_at, seq, body) \
             WHERE id > $1 ORDER BY id LIMIT $2) page) d WHERE before < $3 ORDER BY id"
        );
        let params = [
            Param::Text(after.to_owned()),
            Param::Number(ROWS_MAX as u64),
            Param::Number(BYTES_MAX),
        ];
        let rows = self.query(&sql, &params).await?;
        let rows = rows.iter().map(|row| {
            Ok(CopyRow {
                id: row.try_get(0)?,
                number: count(row.try_get(1)?),
                hash: row.try_get(2)?,
                deleted_at: row.try_get::<_, Option<i64>>(3)?.map(count),
                seq: count(row.try_get(4)?),
                body: row.try_get(5)?,
            })
        });
        let rows: Result<_, tokio_postgres::Error> = rows.collect();
        rows.map_err(|error| problem(&error))
    }

    pub async fn begin(&self, uuid: &str) -> Result<(), OpenProblem> {
        let sql = "UPDATE settee.meta SET server_uuid = $1, seq = 0, format = $2";
        let params: [(&(dyn ToSql + Sync), Type); 2] =
            [(&uuid, Type::TEXT), (&UNFINISHED_FORMAT, Type::INT4)];
        let begun = self.client.query_typed(sql, &params).await;
        begun.map(drop).map_err(|error| problem(&error))
    }

    pub async fn put(&self, kind: RowKind, rows: &[CopyRow]) -> Result<(), OpenProblem> {
        for row in rows {
            storable(&row.id)
                .map_err(|_| OpenProblem::Refused(format!("it cannot keep the id {:?}", row.id)))?;
        }
        let texts = |of: fn(&CopyRow) -> &str| -> Vec<&str> { rows.iter().map(of).collect() };
        let numbers =
            |of: fn(&CopyRow) -> u64| -> Vec<i64> { rows.iter().map(|row| int(of(row))).collect() };
        let (ids, hashes) = (texts(|row| &row.id), texts(|row| &row.hash));
        let bodies = texts(|row| &row.body);
        let (revisions, seqs) = (numbers(|row| row.number), numbers(|row| row.seq));
        let deleted = rows.iter().map(|row| row.deleted_at.map(int));
        let deleted: Vec<Option<i64>> = deleted.collect();
        let asks =
            |row: &&CopyRow| row.deleted_at.is_none() && self.watcher.asks(&row.id, &row.body);
        let wanted: Vec<&str> = rows.iter().filter(asks).map(|row| &*row.id).collect();
        let ids: (&(dyn ToSql + Sync), Type) = (&ids, Type::TEXT_ARRAY);
        let revisions: (&(dyn ToSql + Sync), Type) = (&revisions, Type::INT8_ARRAY);
        let bodies: (&(dyn ToSql + Sync), Type) = (&bodies, Type::TEXT_ARRAY);
        let (sql, params) = match kind {
            RowKind::Documents => (
                "WITH docs AS (INSERT INTO settee.docs (id, rev_number, rev_hash, deleted, deleted_at, seq, body) \
                 SELECT id, number, hash, at IS NOT NULL, at, seq, body \
                 FROM unnest($1, $2, $3, $4, $5, $6) AS r (id, number, hash, at, seq, body)) \
                 INSERT INTO settee.jobs (doc_id, wanted) SELECT *, true FROM unnest($7) \
                 ON CONFLICT (doc_id) DO UPDATE SET wanted = true",
                vec![
                    ids,
                    revisions,
                    (&hashes, Type::TEXT_ARRAY),
                    (&deleted, Type::INT8_ARRAY),
                    (&seqs, Type::INT8_ARRAY),
                    bodies,
                    (&wanted, Type::TEXT_ARRAY),
                ],
            ),
            RowKind::Locals => (
                "INSERT INTO settee.locals (id, number, body) SELECT * FROM unnest($1, $2, $3)",
                vec![ids, revisions, bodies],
            ),
            RowKind::Jobs => (
                "INSERT INTO settee.jobs (doc_id, kept) SELECT * FROM unnest($1, $2) \
                 ON CONFLICT (doc_id) DO UPDATE SET kept = excluded.kept",
                vec![ids, bodies],
            ),
        };
        let put = timeout(REQUEST_MAX, self.client.query_typed(sql, &params)).await;
        let put = put.map_err(|_| no_answer(REQUEST_MAX))?;
        put.map(drop).map_err(|error| problem(&error))
    }

    pub async fn finish(&self, seq: u64) -> Result<(), OpenProblem> {
        // The first service finds statistics for its plans, and does not wait until PostgreSQL gathers them by itself.
        self.run("ANALYZE settee.docs, settee.jobs").await?;
        let sql = format!(
            "UPDATE settee.meta SET seq = {}, format = {FORMAT}",
            int(seq)
        );
        self.run(&sql).await
    }
}
