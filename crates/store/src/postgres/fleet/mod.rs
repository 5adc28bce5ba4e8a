//! State shared by the daemons of one database: [`FleetStore`] in PostgreSQL.
//!
//! SUMMARY   Each change is one atomic statement. Lease requests have their own connection; the others share that of
//!           the reads.
//! PROMISES  At most one epoch with a lease owns a document. Rows of jobs are locked in the order of their ids.

mod jobs;
mod ownership;
mod settings;
mod statuses;

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::connect::{no_answer, problem};
use super::shared::{Param, epoch_int};
use super::thread::StoreThread;
use crate::document_store::Answer;
use crate::fleet::{
    Daemon, DaemonName, FleetStore, IdsSet, JobNote, JobRow, JobStatus, Order, Override,
    ReadStatus, StatusOf, Topic,
};
use policy::ownership::{Claim, Claimed, Counts, DocId, Epoch, ListedDoc, REQUEST_MAX, Reach};
use policy::schedule::Server;

/// Notifies the daemons of free documents.
const TELL_CLAIMS: &str = "pg_notify('settee_fleet', 'claims')";

/// The fleet of a database. Cheap; closed with its store.
#[derive(Debug)]
pub(super) struct PostgresFleet {
    thread: StoreThread,
}

impl PostgresFleet {
    pub fn new(thread: StoreThread) -> Self {
        Self { thread }
    }

    /// Runs a writing statement; not repeated if its connection is lost.
    fn write<T: Send + 'static>(
        &self,
        sql: impl Into<String>,
        params: Vec<Param>,
        of: impl FnOnce(Vec<Row>) -> Result<T, tokio_postgres::Error> + Send + 'static,
    ) -> Answer<'_, T> {
        let (shared, sql) = (Arc::clone(&self.thread.shared), sql.into());
        Box::pin(self.thread.run(async move {
            shared.open().await?;
            let done = shared.write(&sql, &params).await?;
            let rows = done.map_err(|failed| failed.error).and_then(of);
            rows.map_err(|error| shared.failed(problem(&error)))
        }))
    }

    /// Runs a lease statement, within [`REQUEST_MAX`].
    fn lease<T: Send + 'static>(
        &self,
        sql: impl Into<String>,
        params: Vec<Param>,
        of: impl FnOnce(Vec<Row>) -> Result<T, tokio_postgres::Error> + Send + 'static,
    ) -> Answer<'_, T> {
        let (shared, sql) = (Arc::clone(&self.thread.shared), sql.into());
        let work = async move {
            shared.open().await?;
            let rows = shared.lease(&sql, &params).await?;
            of(rows).map_err(|error| shared.failed(problem(&error)))
        };
        Box::pin(async move {
            // The store may have to be opened first, which takes longer and is not abandoned.
            let done = timeout(REQUEST_MAX, self.thread.run_at_once(work)).await;
            done.unwrap_or_else(|_| Err(self.thread.shared.failed(no_answer(REQUEST_MAX))))
        })
    }
}

/// Returns the ids to search for, without those that contain a NUL: no document has such an id.
fn texts<'a>(ids: impl IntoIterator<Item = &'a DocId>) -> Param {
    let ids = ids.into_iter().filter(|id| !id.contains('\0'));
    Param::Texts(ids.map(|id| id.to_string()).collect())
}

fn servers(servers: Vec<Server>) -> Param {
    Param::Texts(servers.iter().map(|server| server.to_string()).collect())
}

fn epochs(epochs: impl IntoIterator<Item = Epoch>) -> Param {
    Param::Integers(epochs.into_iter().map(epoch_int).collect())
}

/// Returns keys, and for each whether it is of a transient job.
fn keys<'a>(of: impl IntoIterator<Item = &'a StatusOf>) -> (Param, Param) {
    let keys = of.into_iter().map(|of| match of {
        StatusOf::Document(id) => (id.to_string(), false),
        StatusOf::Transient(id) => (id.to_string(), true),
    });
    let (keys, transient): (Vec<_>, Vec<_>) = keys.unzip();
    (Param::Texts(keys), Param::Flags(transient))
}

fn of_key(key: &str, is_transient: bool) -> StatusOf {
    if is_transient {
        StatusOf::Transient(key.into())
    } else {
        StatusOf::Document(key.into())
    }
}

fn nothing(_: Vec<Row>) -> Result<(), tokio_postgres::Error> {
    Ok(())
}

impl FleetStore for PostgresFleet {
    fn told(&self, topic: Topic) -> watch::Receiver<u64> {
        self.thread.shared.news.of(topic)
    }

    fn take_epoch(&self, name: DaemonName, epoch: Epoch, former: Vec<Epoch>) -> Answer<'_, Counts> {
        let params = ownership::entry(&name, epoch, former);
        self.lease(ownership::take_epoch(), params, |rows| {
            ownership::counts(&rows)
        })
    }

    fn renew(
        &self,
        epoch: Epoch,
        leaving: bool,
        reach: Reach,
    ) -> Answer<'_, Option<(Vec<ListedDoc>, Counts)>> {
        let params = vec![
            Param::Epoch(epoch),
            Param::Flag(leaving),
            servers(reach.unreached),
            servers(reach.back),
        ];
        self.lease(ownership::renew(), params, |rows| match rows[..] {
            [] => Ok(None),
            _ => Ok(Some((ownership::listed(&rows)?, ownership::counts(&rows)?))),
        })
    }

    fn claim(&self, epoch: Epoch, claim: Claim, most: usize) -> Answer<'_, Claimed> {
        let params = vec![
            Param::Epoch(epoch),
            Param::Number(claim.0),
            Param::Number(most as u64),
        ];
        self.lease(ownership::claim(), params, |rows| ownership::claimed(&rows))
    }

    fn release(&self, epoch: Epoch, docs: Vec<(DocId, Claim)>) -> Answer<'_, ()> {
        let claims = docs.iter().map(|(_, claim)| claim.0.cast_signed());
        let params = vec![
            Param::Epoch(epoch),
            Param::Integers(claims.collect()),
            Param::Texts(docs.iter().map(|(id, _)| id.to_string()).collect()),
        ];
        self.lease(ownership::release(), params, nothing)
    }

    fn depart(&self, epoch: Epoch) -> Answer<'_, ()> {
        self.lease(ownership::depart(), vec![Param::Epoch(epoch)], nothing)
    }

    fn job_rows(&self, docs: Vec<DocId>) -> Answer<'_, Vec<JobRow>> {
        let ids = docs.iter().map(|id| id.to_string()).collect();
        self.thread
            .read_kept(jobs::ROWS, ids, move |rows| jobs::rows(&docs, &rows))
    }

    fn set_replication_ids(&self, epoch: Epoch, jobs: Vec<JobNote>) -> Answer<'_, IdsSet> {
        let shared = Arc::clone(&self.thread.shared);
        Box::pin(self.thread.run(async move {
            shared.open().await?;
            jobs::set_replication_ids(&shared, epoch, &jobs).await
        }))
    }

    fn save_pasts(&self, epoch: Epoch, pasts: Vec<(DocId, String)>) -> Answer<'_, ()> {
        let (ids, texts) = jobs::last_of_each(pasts).into_iter().unzip();
        let params = vec![Param::Epoch(epoch), Param::Texts(ids), Param::Texts(texts)];
        self.write(jobs::SAVE_PASTS, params, nothing)
    }

    fn write_statuses(&self, epoch: Epoch, statuses: Vec<JobStatus>) -> Answer<'_, ()> {
        let params = statuses::written(epoch, statuses);
        self.write(statuses::WRITE, params, nothing)
    }

    fn statuses(
        &self,
        own: Option<Epoch>,
        known: Vec<(Epoch, u64)>,
        limit: usize,
    ) -> Answer<'_, Vec<ReadStatus>> {
        let params = vec![
            epochs(own),
            epochs(known.iter().map(|(epoch, _)| *epoch)),
            Param::Integers(
                known
                    .iter()
                    .map(|(_, number)| number.cast_signed())
                    .collect(),
            ),
            Param::Number(limit as u64),
        ];
        self.thread.read(statuses::READ, params, |rows| {
            rows.iter().map(statuses::status).collect()
        })
    }

    fn write_report(&self, epoch: Epoch, body: String) -> Answer<'_, ()> {
        let params = vec![Param::Epoch(epoch), Param::Text(body)];
        self.write(ownership::WRITE_REPORT, params, nothing)
    }

    fn daemons(&self) -> Answer<'_, Vec<(Daemon, usize)>> {
        self.thread.read(ownership::DAEMONS, vec![], |rows| {
            rows.iter().map(ownership::daemon).collect()
        })
    }

    fn owners(&self, docs: Vec<DocId>) -> Answer<'_, Vec<Option<Epoch>>> {
        self.thread
            .read(jobs::OWNERS, vec![texts(&docs)], move |rows| {
                jobs::owners(&docs, &rows)
            })
    }

    fn leave_orders(&self, orders: Vec<Order>) -> Answer<'_, Vec<bool>> {
        let params = statuses::left(&orders);
        self.write(statuses::LEAVE, params, move |rows| {
            statuses::found(orders.len(), &rows)
        })
    }

    fn take_orders(&self, epoch: Epoch) -> Answer<'_, Vec<Order>> {
        self.write(statuses::TAKE, vec![Param::Epoch(epoch)], |rows| {
            rows.iter().map(statuses::order).collect()
        })
    }

    fn overrides(&self) -> Answer<'_, Vec<Override>> {
        self.thread.read(settings::OVERRIDES, vec![], |rows| {
            rows.iter().map(settings::setting).collect()
        })
    }

    fn set_overrides(&self, overrides: Vec<Override>) -> Answer<'_, ()> {
        self.write(settings::SET, settings::last_of_each(overrides), nothing)
    }

    fn secret(&self, name: &str, new: String) -> Answer<'_, String> {
        let params = vec![Param::Text(name.to_owned()), Param::Text(new)];
        self.write(settings::SECRET, params, |rows| {
            Ok(super::first(&rows, |row| row.try_get(0))?.unwrap_or_default())
        })
    }
}
