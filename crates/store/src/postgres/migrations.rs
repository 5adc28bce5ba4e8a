//! The tables, and how they came to be: numbered files of SQL.
//!
//! PROMISES  All files that are missing are one transaction, under a lock: services that start at the same time make
//!           one schema. Tables of a later program are left as they are.

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::connect::problem;
use crate::copy::UNFINISHED;
use crate::document_store::Watcher;
use crate::error::OpenProblem;

/// The files in their order; the first makes format 1.
const FILES: &[&str] = &[
    include_str!("migrations/1.sql"),
    include_str!("migrations/2.sql"),
];

/// The first format that knows which documents ask for replications.
const KNOWS_WANTED: usize = 2;

/// Documents that are read at a time.
const DOCUMENTS_MAX: i64 = 1000;

/// Today's format.
pub(crate) const FORMAT: usize = FILES.len();

/// In place of the format while a copy into the database is unfinished.
pub(crate) const UNFINISHED_FORMAT: i32 = -1;

/// The lock of whoever makes tables: the letters "settee".
const LOCK: i64 = 0x7365_7474_6565;

/// Makes the tables, or brings them to today's format. A new store is called `new_uuid`. An unfinished copy stays
/// as it is, for whoever takes one.
pub(crate) async fn migrate(
    client: &Client,
    new_uuid: &str,
    watcher: &dyn Watcher,
    takes_unfinished: bool,
) -> Result<(), OpenProblem> {
    match format(client).await? {
        Some(FORMAT) => return Ok(()),
        None if takes_unfinished => return Ok(()),
        None => return Err(OpenProblem::Refused(UNFINISHED.to_owned())),
        Some(_) => {}
    }
    let lock = format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})");
    let run = async |sql: &str| client.batch_execute(sql).await.map_err(|e| problem(&e));
    run(&lock).await?;
    let known = format(client).await?.unwrap_or(FORMAT);
    for file in &FILES[known..] {
        run(file).await?;
    }
    if (1..KNOWS_WANTED).contains(&known) {
        let noted = note_wanted(client, watcher).await;
        noted.map_err(|error| problem(&error))?;
    }
    if known == 0 {
        let made = "INSERT INTO settee.meta (server_uuid, format) VALUES ($1, 0)";
        let inserted = client.query_typed(made, &[(&new_uuid, Type::TEXT)]).await;
        inserted.map_err(|e| problem(&e))?;
    }
    run(&format!(
        "UPDATE settee.meta SET format = {FORMAT} WHERE format >= 0; COMMIT"
    ))
    .await
}

/// Notes of all documents that are there which ask for replications.
async fn note_wanted(client: &Client, watcher: &dyn Watcher) -> Result<(), tokio_postgres::Error> {
    let mut after = String::new();
    loop {
        let page =
            "SELECT id, body FROM settee.docs WHERE NOT deleted AND id > $1 ORDER BY id LIMIT $2";
        let params: [(&(dyn ToSql + Sync), Type); 2] =
            [(&after, Type::TEXT), (&DOCUMENTS_MAX, Type::INT8)];
        let rows = client.query_typed(page, &params).await?;
        let mut wanted: Vec<&str> = Vec::new();
        for row in &rows {
            let (id, body) = (row.try_get(0)?, row.try_get(1)?);
            wanted.extend(watcher.asks(id, body).then_some(id));
        }
        let note = "INSERT INTO settee.jobs (doc_id, wanted) SELECT *, true FROM unnest($1::text[]) \
                    ON CONFLICT (doc_id) DO UPDATE SET wanted = true";
        client
            .query_typed(note, &[(&wanted, Type::TEXT_ARRAY)])
            .await?;
        match rows.last() {
            Some(last) => after = last.try_get(0)?,
            None => return Ok(()),
        }
    }
}

/// Returns how many files have been run; none of an unfinished copy.
///
/// # Errors
/// Those of a later program; no answer.
async fn format(client: &Client) -> Result<Option<usize>, OpenProblem> {
    let number = async |sql: &str| {
        let rows = client.query_typed(sql, &[]).await;
        let rows = rows.map_err(|error| problem(&error))?;
        let number = rows.first().map(|row| row.try_get::<_, i32>(0));
        number.transpose().map_err(|error| problem(&error))
    };
    let is_there = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                    WHERE n.nspname = 'settee' AND c.relname = 'meta'";
    if number(is_there).await?.is_none() {
        return Ok(Some(0));
    }
    let format = number("SELECT format FROM settee.meta").await?.unwrap_or(0);
    match usize::try_from(format) {
        Ok(format) if format > FORMAT => Err(OpenProblem::Format(format!(
            "format {format}, this program knows {FORMAT}"
        ))),
        Ok(format) => Ok(Some(format)),
        Err(_) => Ok(None),
    }
}
