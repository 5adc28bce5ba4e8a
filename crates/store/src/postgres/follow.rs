//! Reads writes of other services, and notifies the watcher in the order of the updates.
//!
//! SUMMARY   A connection listens; on each notification, and every [`POLL`], it reads the updates after the last
//!           known one. Writers of this service notify the watcher themselves, unless others wrote in between.
//! PROMISES  The watcher gets each update, and a document's updates in order. Updates missed while there was no
//!           connection are read later.

use std::sync::Arc;
use std::time::Duration;

use slog::warn;
use tokio::time::sleep;
use tokio_postgres::{Client, Error, Row};

use super::connect::REQUEST_MAX;
use super::first;
use super::kept::keep_again;
use super::shared::{Param, Shared, WAIT_MAX, count, query};
use crate::documents::mark;
use crate::error::StoreResult;
use crate::lock;
use crate::observer::DatabaseRequest;
use policy::counted::Class;

/// Poll interval without notifications.
const POLL: Duration = Duration::from_secs(10);

/// Maximum number of documents read at a time.
const DOCUMENTS_MAX: u64 = 1000;

/// The store's id and the timeline of PostgreSQL's log: a promoted standby starts a new timeline, and may lack the last
/// updates.
pub(super) const MARK: &str =
    "m.server_uuid || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";

/// Number of hexadecimal digits of a timeline.
const TIMELINE_DIGITS: usize = 8;

/// Returns the mark of sequence numbers, given the answer to [`MARK`].
pub(super) fn mark_of(answer: &str) -> String {
    let (uuid, timeline) = answer.split_at(answer.len().saturating_sub(TIMELINE_DIGITS));
    match timeline.trim_start_matches('0') {
        "1" => mark(uuid).to_owned(),
        timeline => mark(uuid).to_owned() + timeline,
    }
}
const LISTEN: &str = "LISTEN settee_docs; LISTEN settee_fleet";

/// Selects the next documents after an id.
const DOCUMENTS: &str = "SELECT id, body FROM settee.docs WHERE NOT deleted AND id > $1 \
     ORDER BY id LIMIT $2";

/// Follows the updates until the store is closed.
pub(super) async fn follow(shared: Arc<Shared>) {
    let mut is_told = false;
    loop {
        let Err(error) = listen(&shared, &mut is_told).await;
        if !std::mem::replace(&mut is_told, true) {
            warn!(shared.log, "cannot listen to the store's database"; "error" => %error,
                  "effect" => "writes of other daemons are seen later");
        }
        sleep(WAIT_MAX).await;
    }
}

/// Follows the updates while there is a connection.
async fn listen(shared: &Arc<Shared>, is_told: &mut bool) -> StoreResult<std::convert::Infallible> {
    let client = shared.connect().await?;
    client
        .batch_execute(LISTEN)
        .await
        .map_err(|error| shared.failed(error))?;
    shared.news.bump_all();
    loop {
        catch_up(shared, &client).await?;
        *is_told = false;
        tokio::select! {
            () = shared.news.documents.notified() => {}
            () = shared.nudge.notified() => {}
            () = sleep(POLL) => {}
        }
    }
}

async fn read(shared: &Shared, client: &Client, since: u64) -> StoreResult<Vec<Row>> {
    let params = [Param::Number(since), Param::Number(DOCUMENTS_MAX)];
    let updates = format!(
        "SELECT m.seq, m.purged_seq, {MARK}, d.seq, d.id, d.deleted, d.body FROM settee.meta m \
         LEFT JOIN (SELECT * FROM settee.docs WHERE seq > $1 ORDER BY seq LIMIT $2) d ON true ORDER BY d.seq"
    );
    let read = query(client, &updates, &params);
    shared
        .ended(REQUEST_MAX, DatabaseRequest::Read, read)
        .await?
        .map_err(|error| shared.failed(error))
}

/// Reads all updates unknown to the watcher.
async fn catch_up(shared: &Arc<Shared>, client: &Client) -> StoreResult<()> {
    loop {
        let since = shared.update_seq.borrow().unwrap_or(0);
        let rows = read(shared, client, since).await?;
        let updates = Updates::of(shared, &rows).map_err(|error| shared.failed(error))?;
        // A deletion was purged before it was read, or a failover may have lost updates.
        if updates.purged > since || updates.last < since || updates.mark != *lock(&shared.mark) {
            begin_anew(shared).await?;
            continue;
        }
        let is_end = (updates.documents.len() as u64) < DOCUMENTS_MAX;
        updates.tell(shared, is_end);
        if is_end {
            return Ok(());
        }
    }
}

/// Updates in order.
#[derive(Default)]
struct Updates {
    last: u64,
    purged: u64,
    mark: String,
    /// Sequence number, id, and the class unless deleted.
    documents: Vec<(u64, String, Option<Class>)>,
}

impl Updates {
    fn of(shared: &Shared, rows: &[Row]) -> Result<Self, Error> {
        let mut updates = Self::default();
        for row in rows {
            updates.last = count(row.try_get(0)?);
            updates.purged = count(row.try_get(1)?);
            updates.mark = mark_of(row.try_get(2)?);
            let Some(seq) = row.try_get::<_, Option<i64>>(3)? else {
                continue;
            };
            let (id, deleted): (String, bool) = (row.try_get(4)?, row.try_get(5)?);
            let body: &str = row.try_get(6)?;
            let class = (!deleted).then(|| shared.watcher.class(&id, body));
            updates.documents.push((count(seq), id, class));
        }
        Ok(updates)
    }

    /// Notifies the watcher of updates that no writer has reported meanwhile.
    fn tell(self, shared: &Shared, is_end: bool) {
        let last = match (is_end, self.documents.last()) {
            (false, Some((seq, ..))) => *seq,
            _ => self.last,
        };
        shared.update_seq.send_if_modified(|known| {
            if known.is_some_and(|known| known >= last) {
                return false;
            }
            let news = self
                .documents
                .into_iter()
                .filter(|(seq, ..)| known.is_none_or(|known| *seq > known));
            shared
                .watcher
                .written(news.map(|(_, id, class)| (id, class)).collect());
            *known = Some(last);
            true
        });
    }
}

/// Rewrites acknowledged states of jobs, and passes all documents to the watcher again.
async fn begin_anew(shared: &Arc<Shared>) -> StoreResult<()> {
    keep_again(shared, None).await?;
    loop {
        let before = *shared.update_seq.borrow();
        let Stock {
            seq,
            mark,
            documents,
        } = stock(shared).await?;
        let mut is_done = false;
        shared.update_seq.send_if_modified(|known| {
            is_done = *known == before;
            if is_done {
                shared.watcher.opened(documents);
                *lock(&shared.mark) = mark;
                *known = Some(seq);
            }
            is_done
        });
        if is_done {
            return Ok(());
        }
    }
}

/// All existing documents.
pub(super) struct Stock {
    /// The number of the last update.
    pub seq: u64,
    /// The mark of the numbering.
    pub mark: String,
    /// Their ids and classes.
    pub documents: Vec<(String, Class)>,
}

/// Reads the number of the last update, and then all existing documents with their classes, which may already include
/// later updates.
pub(super) async fn stock(shared: &Arc<Shared>) -> StoreResult<Stock> {
    let failed = |error: Error| shared.failed(error);
    let meta = format!("SELECT m.seq, {MARK} FROM settee.meta m");
    let rows = shared.rows(DatabaseRequest::Read, &meta, &[]).await?;
    let read = |row: &Row| Ok((count(row.try_get(0)?), mark_of(row.try_get(1)?)));
    let (seq, mark) = first(&rows, read).map_err(failed)?.unwrap_or_default();
    let mut documents: Vec<(String, Class)> = Vec::new();
    loop {
        let params = [
            Param::Text(documents.last().map_or(String::new(), |(id, _)| id.clone())),
            Param::Number(DOCUMENTS_MAX),
        ];
        let rows = shared
            .rows(DatabaseRequest::Read, DOCUMENTS, &params)
            .await?;
        for row in &rows {
            let (id, body): (String, &str) = (
                row.try_get(0).map_err(failed)?,
                row.try_get(1).map_err(failed)?,
            );
            let class = shared.watcher.class(&id, body);
            documents.push((id, class));
        }
        if (rows.len() as u64) < DOCUMENTS_MAX {
            return Ok(Stock {
                seq,
                mark,
                documents,
            });
        }
    }
}
