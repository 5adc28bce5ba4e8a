//! The tables and their creation.
//!
//! PROMISES  The tables are created in one transaction, under a lock: services that start simultaneously create one
//!           schema. Another program's tables are not touched.

use tokio_postgres::Client;

use super::first;
use super::shared::{Param, query};
use crate::error::OpenProblem;

/// Creates all tables.
const TABLES: &str = include_str!("schema.sql");

/// Adds what tables created by the first version of this format lack. Versions that do not know the additions are not
/// affected.
/// `kept_at` is when `kept` was set, in microseconds since 1970, by the database's clock.
const ADDITIONS: &str = "ALTER TABLE settee.jobs ADD COLUMN IF NOT EXISTS servers text[], ADD COLUMN IF NOT EXISTS kept_at bigint; \
     CREATE TABLE IF NOT EXISTS settee.unreached (\
     epoch bigint NOT NULL, server text COLLATE \"C\" NOT NULL, \
     avoided_from timestamptz NOT NULL, until timestamptz NOT NULL, span_ms bigint NOT NULL, \
     PRIMARY KEY (epoch, server)); \
     CREATE TABLE IF NOT EXISTS settee.reports (\
     epoch bigint PRIMARY KEY, body text NOT NULL, at timestamptz NOT NULL); \
     CREATE INDEX IF NOT EXISTS jobs_claims ON settee.jobs (coalesce(owner, 0), hashtext(doc_id)) WHERE wanted";

/// The format version of the tables. Earlier formats were never released.
pub(crate) const FORMAT: i32 = 2;

/// The lock for creating tables: the letters "settee".
const LOCK: i64 = 0x7365_7474_6565;

/// Creates missing tables. A new store gets the id `new_uuid`.
///
/// # Errors
/// The tables have another format; or the database refuses or does not answer.
pub(crate) async fn make(client: &Client, new_uuid: &str) -> Result<(), OpenProblem> {
    if is_made(client).await? && has_additions(client).await? {
        return Ok(());
    }
    let begin = format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})");
    client.batch_execute(&begin).await?;
    if !is_made(client).await? {
        client.batch_execute(TABLES).await?;
        let insert = format!("INSERT INTO settee.meta (server_uuid, format) VALUES ($1, {FORMAT})");
        query(client, &insert, &[Param::Text(new_uuid.to_owned())]).await?;
    }
    if !has_additions(client).await? {
        client.batch_execute(ADDITIONS).await?;
    }
    Ok(client.batch_execute("COMMIT").await?)
}

/// Returns whether [`ADDITIONS`] were made.
async fn has_additions(client: &Client) -> Result<bool, OpenProblem> {
    let sql = "SELECT to_regclass('settee.reports') IS NOT NULL AND to_regclass('settee.jobs_claims') IS NOT NULL \
               AND EXISTS (SELECT FROM pg_attribute \
               WHERE attrelid = to_regclass('settee.jobs') AND attname = 'kept_at' AND NOT attisdropped)";
    let rows = client.query_typed(sql, &[]).await?;
    Ok(first(&rows, |row| row.try_get(0))?.unwrap_or(false))
}

/// Returns whether the tables exist, in this format.
async fn is_made(client: &Client) -> Result<bool, OpenProblem> {
    let number = async |sql: &str| {
        let rows = client.query_typed(sql, &[]).await?;
        first(&rows, |row| row.try_get::<_, i32>(0))
    };
    let is_there = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                    WHERE n.nspname = 'settee' AND c.relname = 'meta'";
    if number(is_there).await?.is_none() {
        return Ok(false);
    }
    match number("SELECT format FROM settee.meta").await? {
        None => Ok(false),
        Some(FORMAT) => Ok(true),
        Some(other) => Err(OpenProblem::Format(format!(
            "format {other}, this program knows {FORMAT}"
        ))),
    }
}
