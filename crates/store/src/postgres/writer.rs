//! Writes: concurrent ones share a transaction.
//!
//! SUMMARY   [`Writer`] locks the row of `meta`, reads the documents of a batch's writes, applies the writes in
//!           memory, and saves the outcome: two round trips for any number of writes.
//! PROMISES  Writers of all services are serialized. A write is answered after its commit and, unless that takes longer
//!           than [`REQUEST_MAX`], after the watcher was notified. A failed transaction writes nothing, unless the
//!           connection was lost during the commit: then the outcome is unknown.

use std::ops::RangeInclusive;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_postgres::{Client, Error, Row};

use super::batch::{Batch, Before, COLUMNS};
use super::connect::{REQUEST_MAX, is_lost, no_answer};
use super::kept::Kept;
use super::shared::{Param, Shared, count, query};
use crate::documents::Purged;
use crate::error::StoreResult;
use crate::observer::{DatabaseRequest, Refusals};
use policy::counted::Class;

/// Maximum number of writes in one transaction.
const BATCH_MAX: usize = 256;

const LOCK: &str = "SELECT seq FROM settee.meta FOR UPDATE";

const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

const PURGE: &str = "WITH looked AS (SELECT id, seq, deleted_at FROM settee.docs WHERE deleted \
     AND seq BETWEEN $1 AND $4 ORDER BY seq LIMIT $2), \
     gone AS (DELETE FROM settee.docs d USING looked l WHERE d.id = l.id AND d.seq = l.seq AND l.deleted_at < $3 \
     RETURNING d.id, d.seq), \
     jobs AS (DELETE FROM settee.jobs j USING gone g WHERE j.doc_id = g.id), \
     noted AS (UPDATE settee.meta SET purged_seq = greatest(purged_seq, (SELECT max(seq) FROM gone))) \
     SELECT (SELECT count(*) FROM gone), count(*), max(seq) FROM looked";

/// A queued write.
pub(super) struct Write {
    /// The documents that it reads.
    pub documents: Vec<String>,
    /// The `_local/` document that it reads.
    pub local: Option<String>,
    pub work: Box<dyn FnOnce(&mut Batch<'_>) + Send>,
    /// Notified when it is committed or has failed.
    pub reply: oneshot::Sender<StoreResult<()>>,
}

/// A request to the writer.
pub(super) enum WriteRequest {
    Write(Write),
    /// As [`DocumentStore::purge`](crate::DocumentStore::purge).
    Purge {
        before: u64,
        seqs: RangeInclusive<u64>,
        limit: usize,
        reply: oneshot::Sender<StoreResult<Purged>>,
    },
}

/// Carries out writes, batch by batch.
pub(super) struct Writer {
    shared: Arc<Shared>,
    requests: mpsc::Receiver<WriteRequest>,
    client: Option<Client>,
    refusals: Refusals,
}

/// The result of a batch.
struct Written {
    /// The number of the last update before it, and with it.
    seqs: (u64, u64),
    news: Vec<(String, Option<Class>)>,
    kept: Vec<Kept>,
}

impl Writer {
    pub fn new(shared: Arc<Shared>, requests: mpsc::Receiver<WriteRequest>) -> Self {
        Self {
            refusals: Refusals::new(Arc::clone(&shared.observer), shared.log.clone()),
            shared,
            requests,
            client: None,
        }
    }

    /// Runs until the last caller is gone.
    pub async fn run(mut self) {
        let mut next = None;
        loop {
            let request = match next.take() {
                None => self.requests.recv().await,
                request => request,
            };
            match request {
                None => return,
                Some(WriteRequest::Write(write)) => {
                    let mut batch = vec![write];
                    while batch.len() < BATCH_MAX && next.is_none() {
                        match self.requests.try_recv() {
                            Ok(WriteRequest::Write(write)) => batch.push(write),
                            Ok(other) => next = Some(other),
                            Err(_) => break,
                        }
                    }
                    self.write(batch).await;
                }
                Some(WriteRequest::Purge {
                    before,
                    seqs,
                    limit,
                    reply,
                }) => {
                    let params = [*seqs.start(), limit as u64, before, *seqs.end()];
                    let params = params.map(Param::Number);
                    // The caller may be gone: then the reply is dropped.
                    drop(reply.send(self.purge(&params, limit).await));
                }
            }
        }
    }

    async fn write(&mut self, batch: Vec<Write>) {
        let (mut works, mut replies) = (Vec::new(), Vec::new());
        let (mut documents, mut locals) = (Vec::new(), Vec::new());
        // Writes of callers that are gone are dropped: they may have been retried.
        for write in batch.into_iter().filter(|write| !write.reply.is_closed()) {
            documents.extend(write.documents);
            locals.extend(write.local);
            works.push(write.work);
            replies.push(write.reply);
        }
        let params = (Param::Texts(documents), Param::Texts(locals));
        let shared = Arc::clone(&self.shared);
        let written = self
            .transaction(async |client| {
                let before = begin(client, &params).await?;
                let mut batch = Batch::of(&shared, &before)?;
                for work in works {
                    work(&mut batch);
                }
                batch.commit(client).await?;
                Ok(Written {
                    seqs: (before.seq, batch.seq),
                    news: batch.news(),
                    kept: batch.acknowledged(),
                })
            })
            .await;
        let answer = match written {
            Ok(written) => {
                self.tell(written).await;
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.refusals.note(replies.len(), &answer);
        for reply in replies {
            drop(reply.send(answer.clone()));
        }
    }

    /// Notifies the watcher of a batch; if other services wrote before it, the follower does so, in order.
    async fn tell(
        &self,
        Written {
            seqs: (before, last),
            news,
            kept,
        }: Written,
    ) {
        self.shared.acknowledged.note(kept);
        if before == last {
            return;
        }
        let mut is_told = false;
        self.shared.update_seq.send_if_modified(|known| {
            is_told = *known == Some(before);
            if is_told {
                self.shared.watcher.written(news);
                *known = Some(last);
            }
            is_told
        });
        if !is_told {
            self.shared.nudge.notify_one();
            let mut updates = self.shared.update_seq.subscribe();
            let heard = updates.wait_for(|known| known.is_some_and(|known| known >= last));
            // After a timeout the watcher is notified later.
            drop(timeout(REQUEST_MAX, heard).await);
        }
    }

    async fn purge(&mut self, params: &[Param], limit: usize) -> StoreResult<Purged> {
        self.transaction(async |client| {
            let none = (Param::Texts(Vec::new()), Param::Texts(Vec::new()));
            begin(client, &none).await?;
            let rows = query(client, PURGE, params).await?;
            let mut purged = Purged::default();
            for row in &rows {
                let (removed, looked): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
                purged.removed = usize::try_from(removed).unwrap_or(0);
                let last: Option<i64> = row.try_get(2)?;
                let is_end = usize::try_from(looked).unwrap_or(0) < limit;
                purged.last = last.map(count).filter(|_| !is_end);
            }
            query(client, "COMMIT", &[]).await?;
            Ok(purged)
        })
        .await
    }

    /// Runs a transaction with a timeout. An error closes its connection, which rolls the transaction back.
    async fn transaction<T>(
        &mut self,
        work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> StoreResult<T> {
        self.shared.open().await?;
        let client = self.client().await?;
        let done = self
            .shared
            .ended(REQUEST_MAX, DatabaseRequest::Write, work(&client))
            .await?
            .map_err(|error| self.shared.failed(error))?;
        self.client = Some(client);
        Ok(done)
    }

    /// Returns the connection, reopened if it was lost.
    async fn client(&mut self) -> StoreResult<Client> {
        if let Some(client) = self.client.take() {
            // A connection lost while idle is not an error for the next writer.
            match timeout(REQUEST_MAX, client.batch_execute("")).await {
                Ok(Ok(())) => return Ok(client),
                Ok(Err(error)) if is_lost(&client, &error) => {}
                Ok(Err(error)) => return Err(self.shared.failed(error)),
                Err(_) => return Err(self.shared.failed(no_answer(REQUEST_MAX))),
            }
        }
        self.shared.connect().await
    }
}

/// Begins a transaction during which no other service writes documents, or claims or releases the given ones. Returns
/// the current state of the given documents and `_local/` documents.
async fn begin(client: &Client, (documents, locals): &(Param, Param)) -> Result<Before, Error> {
    let sql_documents = format!("SELECT {COLUMNS} FROM settee.docs WHERE id = ANY($1)");
    // Locks the rows in the order that all transactions use.
    let sql_jobs = "SELECT doc_id, wanted, owner, kept FROM settee.jobs WHERE doc_id = ANY($1) \
                    ORDER BY doc_id FOR UPDATE";
    let sql_locals = "SELECT id, number, body FROM settee.locals WHERE id = ANY($1)";
    // Pipelined; each sees everything committed before the lock was acquired.
    let ids = std::slice::from_ref(documents);
    let (begun, seq, at, documents, jobs, locals) = tokio::join!(
        biased;
        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED"),
        query(client, LOCK, &[]),
        query(client, NOW, &[]),
        query(client, &sql_documents, ids),
        query(client, sql_jobs, ids),
        query(client, sql_locals, std::slice::from_ref(locals)),
    );
    begun?;
    let number = |rows: Vec<Row>| rows.first().map_or(Ok(0), |row| row.try_get(0));
    Ok(Before {
        seq: count(number(seq?)?),
        at: number(at?)?,
        documents: documents?,
        locals: locals?,
        jobs: jobs?,
    })
}
