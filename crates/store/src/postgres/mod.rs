//! The store of several services: a PostgreSQL database.
//!
//! SUMMARY   [`PostgresStore`] has a thread with its own runtime for the connections: one for reads, one for writes,
//!           one that listens for other services' writes, and one for leases if there is a fleet. Its tables are in
//!           the schema `settee`.
//! PROMISES  An acknowledged write is committed. Other services get each service's writes in the order of the
//!           sequence numbers, without gaps, even if connections are lost.
//! SOURCE    PostgreSQL: LISTEN, NOTIFY; explicit locking.
//! LIMITS    PostgreSQL 13 or newer, with UTF8. An id has at most [`ID_BYTES_MAX`] bytes, and no NUL. A request waits
//!           for the database at most twice [`REQUEST_MAX`](connect::REQUEST_MAX): for earlier requests, and for its
//!           own.

mod batch;
mod connect;
pub(super) mod export;
mod fleet;
mod follow;
mod kept;
mod news;
mod schema;
mod shared;
mod thread;
mod tls;
mod writer;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use child::watches;
use slog::Logger;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_postgres::{Error, Row};

use super::document_store::{Answer, Change, ChangeKept, DocumentStore, Watcher};
use super::documents::{Changes, Conflict, Document, Edit, Info, LocalDocument, Purged};
use super::error::StoreError;
use super::export::StoreSnapshot;
use super::fleet::FleetStore;
use super::observer::StoreObserver;
use super::place::StorePlace;
use super::revision::Revision;
use super::tables::{DocumentTables, Import, Imported};
use super::{REQUESTS_MAX, ask};
use batch::{Batch, COLUMNS, document};
use follow::{MARK, mark_of};
use kept::keep_again;
use policy::ownership::Epoch;
use settee_config::store_url::StoreUrl;
use shared::{Param, Shared, count};
use thread::StoreThread;
use writer::{Write, WriteRequest, Writer};

/// Maximum length of an id, in bytes: limited by an index.
const ID_BYTES_MAX: usize = 2600;

/// A store in a PostgreSQL database. Its connections are closed when it is dropped.
#[derive(Debug)]
pub(super) struct PostgresStore {
    writes: mpsc::Sender<WriteRequest>,
    update_seq: watch::Receiver<Option<u64>>,
    thread: StoreThread,
}

impl PostgresStore {
    /// Starts the thread. The first request connects.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn start(
        url: StoreUrl,
        new_uuid: Arc<str>,
        watcher: Arc<dyn Watcher>,
        observer: Arc<dyn StoreObserver>,
        log: &Logger,
    ) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(watches::named)?;
        let (writes, waiting) = mpsc::channel(REQUESTS_MAX);
        let shared = Arc::new(Shared::new(url, new_uuid, watcher, observer, log.clone()));
        let writer = Writer::new(Arc::clone(&shared), waiting);
        let store = Self {
            writes,
            update_seq: shared.update_seq.subscribe(),
            thread: StoreThread::new(shared, runtime.handle().clone()),
        };
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || runtime.block_on(writer.run()))?;
        Ok(store)
    }

    fn write<T: Send + 'static>(
        &self,
        documents: Vec<String>,
        local: Option<String>,
        work: impl FnOnce(&mut Batch<'_>) -> T + Send + 'static,
    ) -> Answer<'_, T> {
        Box::pin(async move {
            let mut ids = documents.iter().chain(&local);
            ids.try_for_each(|id| storable(id))?;
            let (to, value) = oneshot::channel();
            let work = Box::new(move |batch: &mut Batch<'_>| drop(to.send(work(batch))));
            let request = |reply| {
                WriteRequest::Write(Write {
                    documents,
                    local,
                    work,
                    reply,
                })
            };
            ask(&self.writes, request).await?;
            value.await.map_err(|_| StoreError::Closed)
        })
    }
}

/// Refuses an id that the database would reject, which would fail other writes of the batch.
fn storable(id: &str) -> Result<(), StoreError> {
    if id.contains('\0') {
        let what = "A store in PostgreSQL accepts no document id with a NUL character.";
        return Err(StoreError::Unstorable(what.to_owned()));
    }
    if id.len() > ID_BYTES_MAX {
        return Err(StoreError::Unstorable(format!(
            "A store in PostgreSQL accepts document ids of at most {ID_BYTES_MAX} bytes."
        )));
    }
    Ok(())
}

/// Returns the ids to search for, without those that contain a NUL: no document has such an id.
fn known(ids: impl IntoIterator<Item = String>) -> Param {
    Param::Texts(ids.into_iter().filter(|id| !id.contains('\0')).collect())
}

fn first<T>(rows: &[Row], of: impl FnOnce(&Row) -> Result<T, Error>) -> Result<Option<T>, Error> {
    rows.first().map(of).transpose()
}

/// Unwraps a result of [`DocumentTables`], which cannot fail in a [`Batch`].
fn sure<T>(Ok(value): Result<T, std::convert::Infallible>) -> T {
    value
}

impl DocumentStore for PostgresStore {
    fn place(&self) -> &StorePlace {
        &self.thread.shared.place
    }

    fn open(&self) -> Answer<'_, ()> {
        let shared = Arc::clone(&self.thread.shared);
        Box::pin(self.thread.run(async move { shared.open().await }))
    }

    fn updates(&self) -> watch::Receiver<Option<u64>> {
        self.update_seq.clone()
    }

    fn uuid(&self) -> Answer<'_, String> {
        self.thread
            .read("SELECT server_uuid FROM settee.meta", vec![], |rows| {
                Ok(first(rows, |row| row.try_get(0))?.unwrap_or_default())
            })
    }

    fn documents(&self, ids: Vec<String>) -> Answer<'_, Vec<Option<Document>>> {
        let sql = format!("SELECT {COLUMNS} FROM settee.docs WHERE id = ANY($1)");
        self.thread
            .read(sql, vec![known(ids.clone())], move |rows| {
                let found: HashMap<&str, &Row> = rows
                    .iter()
                    .map(|row| Ok((row.try_get(0)?, row)))
                    .collect::<Result<_, Error>>()?;
                ids.iter()
                    .map(|id| found.get(&**id).copied().map(document).transpose())
                    .collect()
            })
    }

    fn changes(&self, since: u64, limit: usize) -> Answer<'_, Changes> {
        let sql = format!(
            "SELECT d.id, d.rev_number, d.rev_hash, d.deleted, d.seq, d.body, m.seq, {MARK} FROM settee.meta m \
             LEFT JOIN (SELECT * FROM settee.docs WHERE seq > $1 ORDER BY seq LIMIT $2) d ON true \
             ORDER BY d.seq"
        );
        let params = vec![Param::Number(since), Param::Number(limit as u64)];
        self.thread.read(sql, params, |rows| {
            let mut changes = Changes::default();
            for row in rows {
                changes.update_seq = count(row.try_get(6)?);
                changes.mark = mark_of(row.try_get(7)?);
                if row.try_get::<_, Option<&str>>(0)?.is_some() {
                    changes.documents.push(document(row)?);
                }
            }
            Ok(changes)
        })
    }

    fn last_changes(&self, limit: usize) -> Answer<'_, Vec<Document>> {
        let sql = format!("SELECT {COLUMNS} FROM settee.docs ORDER BY seq DESC LIMIT $1");
        self.thread
            .read(sql, vec![Param::Number(limit as u64)], |rows| {
                rows.iter().map(document).collect()
            })
    }

    fn pending(&self, since: u64) -> Answer<'_, u64> {
        self.thread.read(
            "SELECT count(*) FROM settee.docs WHERE seq > $1",
            vec![Param::Number(since)],
            |rows| Ok(first(rows, |row| row.try_get(0))?.map_or(0, count)),
        )
    }

    fn change(
        &self,
        owner: Option<Epoch>,
        id: &str,
        change: Change,
    ) -> Answer<'_, Option<Revision>> {
        let id = id.to_owned();
        self.write(vec![id.clone()], None, move |batch| {
            if owner.is_none_or(|epoch| batch.is_owner(epoch, &id)) {
                sure(batch.change(&id, change))
            } else {
                None
            }
        })
    }

    fn info(&self) -> Answer<'_, Info> {
        let sql = format!(
            "SELECT m.seq, {MARK}, d.* FROM settee.meta m, (SELECT count(*) FILTER (WHERE NOT deleted), \
             count(*) FILTER (WHERE deleted), coalesce(sum(octet_length(body)), 0)::bigint FROM settee.docs) d"
        );
        self.thread.read(sql, vec![], |rows| {
            let info = first(rows, |row| {
                Ok(Info {
                    update_seq: count(row.try_get(0)?),
                    mark: mark_of(row.try_get(1)?),
                    documents: count(row.try_get(2)?),
                    deleted: count(row.try_get(3)?),
                    bytes: count(row.try_get(4)?),
                })
            });
            Ok(info?.unwrap_or_default())
        })
    }

    fn edit(&self, edits: Vec<Edit>) -> Answer<'_, Vec<Result<Revision, Conflict>>> {
        self.write(
            edits.iter().map(|edit| edit.id.clone()).collect(),
            None,
            |batch| {
                edits
                    .into_iter()
                    .map(|edit| sure(batch.edit(edit)))
                    .collect()
            },
        )
    }

    fn import(&self, documents: Vec<Import>) -> Answer<'_, Vec<Imported>> {
        self.write(
            documents.iter().map(|one| one.id.clone()).collect(),
            None,
            |batch| {
                documents
                    .into_iter()
                    .map(|document| sure(batch.import(document)))
                    .collect()
            },
        )
    }

    fn snapshot(&self) -> Answer<'_, StoreSnapshot> {
        let shared = Arc::clone(&self.thread.shared);
        Box::pin(self.thread.run(async move {
            shared.open().await?;
            keep_again(&shared, None).await?;
            let StorePlace::Postgres(url) = &shared.place else {
                return Err(StoreError::Closed);
            };
            export::snapshot(url)
                .await
                .map_err(|problem| shared.failed(problem))
        }))
    }

    fn local(&self, id: &str) -> Answer<'_, Option<LocalDocument>> {
        self.thread.read(
            "SELECT number, body FROM settee.locals WHERE id = ANY($1)",
            vec![known([id.to_owned()])],
            |rows| {
                first(rows, |row| {
                    Ok(LocalDocument {
                        number: count(row.try_get(0)?),
                        body: row.try_get(1)?,
                    })
                })
            },
        )
    }

    fn edit_local(
        &self,
        id: &str,
        expected: Option<u64>,
        body: Option<String>,
    ) -> Answer<'_, Result<u64, Conflict>> {
        let id = id.to_owned();
        self.write(vec![], Some(id.clone()), move |batch| {
            batch.edit_local(&id, expected, body)
        })
    }

    fn kept_of(&self, ids: Vec<String>) -> Answer<'_, Vec<Option<String>>> {
        let sql = "SELECT doc_id, kept FROM settee.jobs WHERE doc_id = ANY($1)";
        self.thread.read_kept(sql, ids.clone(), move |rows| {
            let found = rows
                .iter()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
            let mut found: HashMap<&str, Option<String>> = found.collect::<Result<_, Error>>()?;
            Ok(ids.iter().map(|id| found.remove(&**id).flatten()).collect())
        })
    }

    fn change_kept(&self, id: &str, change: ChangeKept) -> Answer<'_, ()> {
        let (id, ids) = (id.to_owned(), vec![id.to_owned()]);
        Box::pin(async move {
            // It may have been acknowledged, and lost by a failover.
            self.thread.keep_again(ids.clone()).await?;
            let work = move |batch: &mut Batch<'_>| sure(batch.change_kept(&id, change));
            self.write(ids, None, work).await
        })
    }

    fn purge(&self, before: u64, seqs: RangeInclusive<u64>, limit: usize) -> Answer<'_, Purged> {
        let request = move |reply| WriteRequest::Purge {
            before,
            seqs,
            limit,
            reply,
        };
        Box::pin(ask(&self.writes, request))
    }

    /// Does nothing: PostgreSQL reclaims space itself.
    fn compact(&self) -> Answer<'_, u64> {
        Box::pin(async { Ok(0) })
    }

    fn fleet(&self) -> Option<Arc<dyn FleetStore>> {
        Some(Arc::new(self.thread.clone()))
    }
}
