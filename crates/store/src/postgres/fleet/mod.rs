//! State shared by the daemons of one database: [`FleetStore`] in PostgreSQL.
//!
//! SUMMARY   Each change is one atomic statement. Lease requests have their own connection; the others share that of
//!           the reads.
//! PROMISES  At most one epoch with a lease owns a document. Rows of jobs are locked in the order of their ids.

mod jobs;
mod ownership;
mod settings;
mod statuses;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::{Error, Row};

use super::connect::no_answer;
use super::shared::{Param, epoch_int};
use super::thread::StoreThread;
use super::{ID_BYTES_MAX, first};
use crate::document_store::Answer;
use crate::fleet::{
    Daemon, DaemonName, FleetStore, IdsSet, JobNote, JobRow, JobStatus, Order, Override,
    ReadStatus, StatusOf, Topic,
};
use policy::ownership::{Claim, Claimed, Counts, DocId, Epoch, ListedDoc, REQUEST_MAX, Reach};
use policy::schedule::Server;

/// Notifies the daemons of free documents.
const TELL_CLAIMS: &str = "pg_notify('settee_fleet', 'claims')";

impl StoreThread {
    /// Runs a lease statement, within [`REQUEST_MAX`].
    fn lease<T: Send + 'static>(
        &self,
        sql: String,
        params: Vec<Param>,
        of: impl FnOnce(&[Row]) -> Result<T, Error> + Send + 'static,
    ) -> Answer<'_, T> {
        let shared = Arc::clone(&self.shared);
        let work = async move {
            shared.open().await?;
            let rows = shared.lease(&sql, &params).await?;
            of(&rows).map_err(|error| shared.failed(error))
        };
        Box::pin(async move {
            // The store may have to be opened first, which takes longer and is not abandoned.
            timeout(REQUEST_MAX, self.run_at_once(work))
                .await
                .unwrap_or_else(|_| Err(self.shared.failed(no_answer(REQUEST_MAX))))
        })
    }
}

/// Returns the names of servers, except those too long for an index, which no host has: they would fail the renewal.
fn servers(servers: Vec<Server>) -> Param {
    let names = servers.iter().map(|server| server.to_string());
    Param::Texts(names.filter(|name| name.len() <= ID_BYTES_MAX).collect())
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

fn nothing(_: &[Row]) -> Result<(), Error> {
    Ok(())
}

/// The fleet of a database is closed with its store.
impl FleetStore for StoreThread {
    fn told(&self, topic: Topic) -> watch::Receiver<u64> {
        self.shared.news.of(topic)
    }

    fn take_epoch(&self, name: DaemonName, epoch: Epoch, former: Vec<Epoch>) -> Answer<'_, Counts> {
        self.lease(
            ownership::take_epoch(),
            vec![
                Param::Epoch(epoch),
                Param::Text(name.address.to_string()),
                Param::Text(name.version.to_string()),
                epochs(former),
            ],
            ownership::counts,
        )
    }

    fn renew(
        &self,
        epoch: Epoch,
        leaving: bool,
        reach: Reach,
    ) -> Answer<'_, Option<(Vec<ListedDoc>, Counts)>> {
        self.lease(
            ownership::renew(),
            vec![
                Param::Epoch(epoch),
                Param::Flag(leaving),
                servers(reach.unreached),
                servers(reach.back),
            ],
            |rows| match rows {
                [] => Ok(None),
                _ => Ok(Some((ownership::listed(rows)?, ownership::counts(rows)?))),
            },
        )
    }

    fn claim(&self, epoch: Epoch, claim: Claim, most: usize) -> Answer<'_, Claimed> {
        self.lease(
            ownership::claim(),
            vec![
                Param::Epoch(epoch),
                Param::Number(claim.0),
                Param::Number(most as u64),
            ],
            ownership::claimed,
        )
    }

    fn release(&self, epoch: Epoch, docs: Vec<(DocId, Claim)>) -> Answer<'_, ()> {
        let claims = docs.iter().map(|(_, claim)| claim.0.cast_signed());
        self.lease(
            ownership::release(),
            vec![
                Param::Epoch(epoch),
                Param::Integers(claims.collect()),
                Param::Texts(docs.iter().map(|(id, _)| id.to_string()).collect()),
            ],
            nothing,
        )
    }

    fn depart(&self, epoch: Epoch) -> Answer<'_, ()> {
        self.lease(ownership::depart(), vec![Param::Epoch(epoch)], nothing)
    }

    fn job_rows(&self, docs: Vec<DocId>) -> Answer<'_, Vec<JobRow>> {
        let ids = docs.iter().map(|id| id.to_string()).collect();
        self.read_kept(jobs::ROWS, ids, move |rows| jobs::rows(&docs, rows))
    }

    fn set_replication_ids(&self, epoch: Epoch, jobs: Vec<JobNote>) -> Answer<'_, IdsSet> {
        let shared = Arc::clone(&self.shared);
        Box::pin(self.run(async move {
            shared.open().await?;
            jobs::set_replication_ids(&shared, epoch, &jobs).await
        }))
    }

    fn save_pasts(&self, epoch: Epoch, pasts: Vec<(DocId, String)>) -> Answer<'_, ()> {
        let last_of_each: BTreeMap<_, _> = pasts
            .into_iter()
            .map(|(id, past)| (id.to_string(), past))
            .collect();
        let (ids, texts) = last_of_each.into_iter().unzip();
        let params = vec![Param::Epoch(epoch), Param::Texts(ids), Param::Texts(texts)];
        self.write(jobs::SAVE_PASTS, params, nothing)
    }

    fn write_statuses(&self, epoch: Epoch, statuses: Vec<JobStatus>) -> Answer<'_, ()> {
        self.write(statuses::WRITE, statuses::written(epoch, statuses), nothing)
    }

    fn statuses(
        &self,
        own: Option<Epoch>,
        known: Vec<(Epoch, u64)>,
        limit: usize,
    ) -> Answer<'_, Vec<ReadStatus>> {
        let numbers = known.iter().map(|(_, number)| number.cast_signed());
        self.read(
            statuses::READ,
            vec![
                epochs(own),
                epochs(known.iter().map(|(epoch, _)| *epoch)),
                Param::Integers(numbers.collect()),
                Param::Number(limit as u64),
            ],
            |rows| rows.iter().map(statuses::status).collect(),
        )
    }

    fn write_report(&self, epoch: Epoch, body: String) -> Answer<'_, ()> {
        self.write(
            ownership::WRITE_REPORT,
            vec![Param::Epoch(epoch), Param::Text(body)],
            nothing,
        )
    }

    fn daemons(&self) -> Answer<'_, Vec<(Daemon, usize)>> {
        self.read(ownership::DAEMONS, vec![], |rows| {
            rows.iter().map(ownership::daemon).collect()
        })
    }

    fn leave_orders(&self, orders: Vec<Order>) -> Answer<'_, Vec<bool>> {
        self.write(statuses::LEAVE, statuses::left(&orders), move |rows| {
            statuses::found(orders.len(), rows)
        })
    }

    fn take_orders(&self, epoch: Epoch) -> Answer<'_, Vec<Order>> {
        self.write(statuses::TAKE, vec![Param::Epoch(epoch)], |rows| {
            rows.iter().map(statuses::order).collect()
        })
    }

    fn overrides(&self) -> Answer<'_, Vec<Override>> {
        self.read(settings::OVERRIDES, vec![], |rows| {
            rows.iter().map(settings::setting).collect()
        })
    }

    fn set_overrides(&self, overrides: Vec<Override>) -> Answer<'_, ()> {
        self.write(settings::SET, settings::last_of_each(overrides), nothing)
    }

    fn secret(&self, name: &str, new: String) -> Answer<'_, String> {
        self.write(
            settings::SECRET,
            vec![Param::Text(name.to_owned()), Param::Text(new)],
            |rows| Ok(first(rows, |row| row.try_get(0))?.unwrap_or_default()),
        )
    }
}
