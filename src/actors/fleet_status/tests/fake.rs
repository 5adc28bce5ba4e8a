//! An in-memory `FleetStore` with only the methods that FleetStatus uses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;

use crate::replicator::identity::ServerIdentity;
use policy::ownership::{Claim, Claimed, Counts, DocId, Epoch, LEASE, ListedDoc, Reach};
use store::StoreError;
use store::document_store::Answer;
use store::fleet::{
    Daemon, DaemonName, FleetStore, IdsSet, JobRow, JobStatus, Order, Override, ReadStatus, Report,
    StatusOf, Topic,
};

#[derive(Debug, Default)]
struct Tables {
    daemons: BTreeMap<Epoch, Daemon>,
    statuses: BTreeMap<StatusOf, ReadStatus>,
    numbers: BTreeMap<Epoch, u64>,
    orders: Vec<(Epoch, Order)>,
    is_down: bool,
    largest_write: usize,
    reports_written: usize,
}

#[derive(Debug)]
pub(super) struct FakeFleet {
    /// Shared by all daemons, as with a shared store, so that they compute the same ids.
    pub identity: ServerIdentity,
    tables: Mutex<Tables>,
    orders: watch::Sender<u64>,
}

impl FakeFleet {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            identity: ServerIdentity::default(),
            tables: Mutex::default(),
            orders: watch::Sender::new(0),
        })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap()
    }

    pub fn enter(&self, name: DaemonName, epoch: Epoch) {
        let daemon = Daemon {
            epoch,
            name,
            lease: Some(LEASE),
            is_leaving: false,
            report: None,
        };
        self.tables().daemons.insert(epoch, daemon);
    }

    pub fn end_lease(&self, epoch: Epoch) {
        self.set_lease(epoch, None);
    }

    pub fn set_lease(&self, epoch: Epoch, left: Option<Duration>) {
        self.tables().daemons.get_mut(&epoch).unwrap().lease = left;
    }

    /// Loses all statuses, as a failover may.
    pub fn lose_statuses(&self) {
        let mut tables = self.tables();
        tables.statuses.clear();
        tables.numbers.clear();
    }

    pub fn set_down(&self, is_down: bool) {
        self.tables().is_down = is_down;
    }

    pub fn largest_write(&self) -> usize {
        self.tables().largest_write
    }

    pub fn reports_written(&self) -> usize {
        self.tables().reports_written
    }

    pub fn has(&self, of: &StatusOf) -> bool {
        self.tables().statuses.contains_key(of)
    }

    fn answer<T: Send + 'static>(&self, answer: impl FnOnce(&mut Tables) -> T) -> Answer<'_, T> {
        let mut tables = self.tables();
        let answer = if tables.is_down {
            Err(StoreError::Failed("it is down".to_owned()))
        } else {
            Ok(answer(&mut tables))
        };
        Box::pin(async { answer })
    }
}

/// For methods that FleetStatus does not call.
fn unused<T>() -> Answer<'static, T> {
    Box::pin(async { Err(StoreError::Closed) })
}

impl FleetStore for FakeFleet {
    fn told(&self, _: Topic) -> watch::Receiver<u64> {
        self.orders.subscribe()
    }

    fn write_statuses(&self, epoch: Epoch, statuses: Vec<JobStatus>) -> Answer<'_, ()> {
        self.answer(|tables| {
            tables.largest_write = tables.largest_write.max(statuses.len());
            for status in statuses {
                let number = tables.numbers.entry(epoch).or_default();
                *number += 1;
                let row = ReadStatus {
                    epoch,
                    number: *number,
                    age: Duration::from_secs(7),
                    status: status.clone(),
                };
                tables.statuses.insert(status.of, row);
            }
        })
    }

    fn statuses(
        &self,
        own: Option<Epoch>,
        known: Vec<(Epoch, u64)>,
        limit: usize,
    ) -> Answer<'_, Vec<ReadStatus>> {
        self.answer(|tables| {
            let known: BTreeMap<Epoch, u64> = known.into_iter().collect();
            let is_new = |row: &&ReadStatus| {
                let seen = known.get(&row.epoch).copied().unwrap_or(0);
                Some(row.epoch) != own && row.number > seen
            };
            let mut new: Vec<ReadStatus> =
                tables.statuses.values().filter(is_new).cloned().collect();
            new.sort_by_key(|row| row.number);
            new.truncate(limit);
            new
        })
    }

    fn write_report(&self, epoch: Epoch, body: String) -> Answer<'_, ()> {
        self.answer(|tables| {
            tables.reports_written += 1;
            if let Some(daemon) = tables.daemons.get_mut(&epoch) {
                let age = Duration::from_secs(7);
                daemon.report = Some(Report { body, age });
            }
        })
    }

    fn daemons(&self) -> Answer<'_, Vec<(Daemon, usize)>> {
        self.answer(|tables| {
            let claimed = |epoch: Epoch| {
                let rows = tables.statuses.values();
                rows.filter(|row| row.epoch == epoch).count()
            };
            let daemons = tables.daemons.values().cloned();
            daemons
                .map(|daemon| (daemon.clone(), claimed(daemon.epoch)))
                .collect()
        })
    }

    fn leave_orders(&self, orders: Vec<Order>) -> Answer<'_, Vec<bool>> {
        let left = self.answer(|tables| {
            let left = orders.into_iter().map(|order| {
                let owner = tables
                    .statuses
                    .get(&order.of)
                    .map(|row| row.epoch)
                    .filter(|epoch| tables.daemons[epoch].lease.is_some());
                tables.orders.extend(owner.map(|epoch| (epoch, order)));
                owner.is_some()
            });
            left.collect()
        });
        self.orders.send_modify(|count| *count += 1);
        left
    }

    fn take_orders(&self, epoch: Epoch) -> Answer<'_, Vec<Order>> {
        self.answer(|tables| {
            let (own, others) = std::mem::take(&mut tables.orders)
                .into_iter()
                .partition(|(of, _)| *of == epoch);
            tables.orders = others;
            own.into_iter().map(|(_, order)| order).collect()
        })
    }

    fn take_epoch(&self, _: DaemonName, _: Epoch, _: Vec<Epoch>) -> Answer<'_, Counts> {
        unused()
    }

    fn renew(&self, _: Epoch, _: bool, _: Reach) -> Answer<'_, Option<(Vec<ListedDoc>, Counts)>> {
        unused()
    }

    fn claim(&self, _: Epoch, _: Claim, _: usize) -> Answer<'_, Claimed> {
        unused()
    }

    fn release(&self, _: Epoch, _: Vec<(DocId, Claim)>) -> Answer<'_, ()> {
        unused()
    }

    fn depart(&self, _: Epoch) -> Answer<'_, ()> {
        unused()
    }

    fn job_rows(&self, _: Vec<DocId>) -> Answer<'_, Vec<JobRow>> {
        unused()
    }

    fn set_replication_ids(&self, _: Epoch, _: Vec<store::fleet::JobNote>) -> Answer<'_, IdsSet> {
        unused()
    }

    fn save_pasts(&self, _: Epoch, _: Vec<(DocId, String)>) -> Answer<'_, ()> {
        unused()
    }

    fn overrides(&self) -> Answer<'_, Vec<Override>> {
        unused()
    }

    fn set_overrides(&self, _: Vec<Override>) -> Answer<'_, ()> {
        unused()
    }

    fn secret(&self, _: &str, _: String) -> Answer<'_, String> {
        unused()
    }
}
