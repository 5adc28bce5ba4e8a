//! An in-memory [`FleetStore`] shared by several daemons, for tests of a fleet's actors.
//!
//! SUMMARY   A [`FakeFleet`] is the database: it follows the model of `policy::ownership`, with a clock that tests
//!           advance. Each daemon has a [`FakeConnection`], which can be cut.
//! LIMITS    Has ownership and ids of replications, but no statuses, orders or settings.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use crate::otp::BootClock;
use crate::replicator::document::members;
use crate::replicator::state::is_over;
use policy::ownership::{Claim, Claimed, Counts, DocId, Epoch, LEASE, ListedDoc, Reach, Standing};
use policy::schedule::Server;
use store::fleet::{
    Daemon, DaemonName, FleetStore, IdsSet, JobNote, JobRow, JobStatus, Order, Override,
    ReadStatus, Topic,
};
use store::{Answer, Store, StoreError};

/// Maximum documents of a test.
const DOCUMENTS_MAX: usize = 10_000;

#[derive(Debug)]
struct EpochRow {
    until: Duration,
    is_live: bool,
}

#[derive(Debug, Default)]
struct Tables {
    epochs: BTreeMap<Epoch, EpochRow>,
    owners: BTreeMap<DocId, (Epoch, Claim)>,
    ids: BTreeMap<Arc<str>, DocId>,
    servers: BTreeMap<DocId, [Server; 2]>,
    /// Servers reported as unreachable, with the reporting daemons.
    unreached: Vec<(Epoch, Server)>,
}

impl Tables {
    fn holds(&self, epoch: Epoch, now: Duration) -> bool {
        self.epochs.get(&epoch).is_some_and(|row| row.until > now)
    }

    fn owns(&self, epoch: Epoch, doc: &str) -> bool {
        let owner = self.owners.get(doc);
        owner.is_some_and(|(owner, _)| *owner == epoch)
    }

    fn set_id(&mut self, epoch: Epoch, doc: DocId, id: Arc<str>) -> Option<Result<(), DocId>> {
        if !self.owns(epoch, &doc) {
            return None;
        }
        if let Some(by) = self.ids.get(&id).filter(|by| **by != doc) {
            return Some(Err(Arc::clone(by)));
        }
        self.ids.retain(|_, by| *by != doc);
        self.ids.insert(id, doc);
        Some(Ok(()))
    }

    /// Returns which epochs may claim a document, for one of them: not those that cannot reach its servers, unless
    /// none can.
    fn standing(&self, doc: &str, epoch: Epoch) -> Standing {
        let servers = self.servers.get(doc).into_iter().flatten();
        let avoids = |one: Epoch| {
            let mut servers = servers.clone();
            servers.find(|server| self.unreached.contains(&(one, Server::clone(server))))
        };
        if self.epochs.keys().all(|one| avoids(*one).is_some()) {
            return Standing::Shared;
        }
        match avoids(epoch) {
            Some(server) => Standing::Avoided(Server::clone(server)),
            None if self.epochs.keys().any(|one| avoids(*one).is_some()) => Standing::Extra,
            None => Standing::Shared,
        }
    }

    fn counts(&self, wanted: &[DocId], now: Duration) -> Counts {
        let live = self.epochs.values();
        Counts {
            wanted: wanted.len(),
            live: live.filter(|row| row.is_live && row.until > now).count(),
        }
    }
}

/// The database of a fleet.
#[derive(Clone, Debug)]
pub(crate) struct FakeFleet {
    store: Store,
    clock: BootClock,
    tables: Arc<Mutex<Tables>>,
    told: Arc<watch::Sender<u64>>,
}

/// A daemon's connection to the database.
#[derive(Debug)]
pub(crate) struct FakeConnection {
    fleet: FakeFleet,
    is_cut: AtomicBool,
    loses_claims: AtomicBool,
    epochs_lost: AtomicUsize,
    noted: Mutex<Vec<usize>>,
    holds_notes: watch::Sender<bool>,
}

impl FakeFleet {
    /// Makes a database for the documents of a store.
    pub fn new(store: Store, clock: BootClock) -> Self {
        Self {
            store,
            clock,
            tables: Arc::default(),
            told: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Connects a daemon.
    pub fn connect(&self) -> Arc<FakeConnection> {
        Arc::new(FakeConnection {
            fleet: self.clone(),
            is_cut: AtomicBool::new(false),
            loses_claims: AtomicBool::new(false),
            epochs_lost: AtomicUsize::new(0),
            noted: Mutex::default(),
            holds_notes: watch::Sender::default(),
        })
    }

    /// Returns the epochs with a valid lease.
    pub fn live(&self) -> Vec<Epoch> {
        let now = self.clock.now();
        let tables = self.tables.lock().unwrap();
        let live = tables.epochs.iter().filter(|(_, row)| row.until > now);
        live.map(|(epoch, _)| *epoch).collect()
    }

    /// Returns the number of each epoch's documents.
    pub fn owned(&self) -> BTreeMap<Epoch, usize> {
        let mut owned = BTreeMap::new();
        for (epoch, _) in self.tables.lock().unwrap().owners.values() {
            *owned.entry(*epoch).or_default() += 1;
        }
        owned
    }

    /// Returns the remaining time of an epoch's lease.
    pub fn lease_left(&self, epoch: Epoch) -> Duration {
        let tables = self.tables.lock().unwrap();
        let until = tables.epochs.get(&epoch).map(|row| row.until);
        until.unwrap_or_default().saturating_sub(self.clock.now())
    }

    /// Records a replication's document.
    pub fn note_id(&self, id: &str, doc: &str) {
        let mut tables = self.tables.lock().unwrap();
        tables.ids.insert(id.into(), doc.into());
    }

    /// Returns the documents that request replications.
    async fn wanted(&self) -> Result<Vec<DocId>, StoreError> {
        let changes = self.store.changes(0, DOCUMENTS_MAX).await?;
        let asking = changes.documents.iter().filter(|document| {
            let is_over = is_over(&members(document));
            !document.deleted && !is_over && !document.id.starts_with("_design/")
        });
        Ok(asking.map(|document| document.id.as_str().into()).collect())
    }
}

impl FakeConnection {
    /// Cuts the connection.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    /// Sets whether claims succeed but their answers are lost.
    pub fn lose_claims(&self, loses: bool) {
        self.loses_claims.store(loses, Ordering::SeqCst);
    }

    /// Lets the next `count` epochs be taken, but loses the answers.
    pub fn lose_epochs(&self, count: usize) {
        self.epochs_lost.store(count, Ordering::SeqCst);
    }

    /// Returns the number of documents of each request that noted replications.
    pub fn noted(&self) -> Vec<usize> {
        self.noted.lock().unwrap().clone()
    }

    /// Sets whether requests that note replications wait; clearing it answers the waiting ones.
    pub fn hold_notes(&self, holds: bool) {
        self.holds_notes.send_replace(holds);
    }

    fn ask<'a, T: Send + 'a>(
        &'a self,
        work: impl FnOnce(&mut Tables, Vec<DocId>, Duration) -> T + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            if self.is_cut.load(Ordering::SeqCst) {
                return Err(lost());
            }
            let wanted = self.fleet.wanted().await?;
            let now = self.fleet.clock.now();
            Ok(work(&mut self.fleet.tables.lock().unwrap(), wanted, now))
        })
    }

    fn notify(&self) {
        self.fleet.told.send_modify(|told| *told += 1);
    }
}

fn lost() -> StoreError {
    StoreError::Failed("the connection is cut".to_owned())
}

impl FleetStore for FakeConnection {
    fn told(&self, _: Topic) -> watch::Receiver<u64> {
        self.fleet.told.subscribe()
    }

    fn take_epoch(&self, _: DaemonName, epoch: Epoch, former: Vec<Epoch>) -> Answer<'_, Counts> {
        let taking = self.ask(move |tables, wanted, now| {
            for former in former {
                tables.epochs.remove(&former);
            }
            let row = EpochRow {
                until: now + LEASE,
                is_live: false,
            };
            tables.epochs.insert(epoch, row);
            self.notify();
            tables.counts(&wanted, now)
        });
        Box::pin(async move {
            let counts = taking.await?;
            let is_lost = |left: usize| left.checked_sub(1);
            match self
                .epochs_lost
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_lost)
            {
                Ok(_) => Err(lost()),
                Err(_) => Ok(counts),
            }
        })
    }

    fn renew(
        &self,
        epoch: Epoch,
        leaving: bool,
        reach: Reach,
    ) -> Answer<'_, Option<(Vec<ListedDoc>, Counts)>> {
        self.ask(move |tables, wanted, now| {
            if !tables.holds(epoch, now) {
                return None;
            }
            let row = tables.epochs.get_mut(&epoch)?;
            row.until = now + LEASE;
            row.is_live &= !leaving;
            tables.unreached.retain(|row| row.0 != epoch);
            let unreached = reach.unreached.into_iter();
            tables
                .unreached
                .extend(unreached.map(|server| (epoch, server)));
            let own = tables.owners.iter().filter(|(_, owner)| owner.0 == epoch);
            let listed = own.map(|(doc, (_, claim))| ListedDoc {
                doc: Arc::clone(doc),
                claim: *claim,
                wanted: wanted.contains(doc),
                standing: tables.standing(doc, epoch),
            });
            Some((listed.collect(), tables.counts(&wanted, now)))
        })
    }

    fn claim(&self, epoch: Epoch, claim: Claim, max: usize) -> Answer<'_, Claimed> {
        let claiming = self.ask(move |tables, wanted, now| {
            if !tables.holds(epoch, now) {
                return Claimed {
                    counts: tables.counts(&wanted, now),
                    ..Claimed::default()
                };
            }
            if let Some(row) = tables.epochs.get_mut(&epoch) {
                row.is_live = true;
            }
            let owner_of = |doc: &DocId| tables.owners.get(doc);
            let is_free =
                |doc: &&DocId| owner_of(doc).is_none_or(|(owner, _)| !tables.holds(*owner, now));
            let free = wanted.iter().filter(is_free);
            let of = |is: fn(&Standing) -> bool| {
                let free = free.clone().filter(|doc| is(&tables.standing(doc, epoch)));
                free.cloned().collect::<Vec<DocId>>()
            };
            let mut docs = of(|standing| *standing == Standing::Shared);
            let extra = of(|standing| *standing == Standing::Extra);
            docs.truncate(max);
            for doc in docs.iter().chain(&extra) {
                tables.owners.insert(Arc::clone(doc), (epoch, claim));
            }
            let counts = tables.counts(&wanted, now);
            Claimed {
                docs,
                extra,
                counts,
            }
        });
        Box::pin(async move {
            let claimed = claiming.await?;
            match self.loses_claims.load(Ordering::SeqCst) {
                true => Err(lost()),
                false => Ok(claimed),
            }
        })
    }

    fn release(&self, epoch: Epoch, docs: Vec<(DocId, Claim)>) -> Answer<'_, ()> {
        self.ask(move |tables, _, _| {
            for (doc, claim) in docs {
                if tables.owners.get(&doc) == Some(&(epoch, claim)) {
                    tables.owners.remove(&doc);
                }
            }
            self.notify();
        })
    }

    fn depart(&self, epoch: Epoch) -> Answer<'_, ()> {
        self.ask(move |tables, _, _| {
            tables.epochs.remove(&epoch);
            tables.owners.retain(|_, (owner, _)| *owner != epoch);
            self.notify();
        })
    }

    fn job_rows(&self, docs: Vec<DocId>) -> Answer<'_, Vec<JobRow>> {
        Box::pin(async move {
            let mut rows = Vec::new();
            for doc in docs {
                let kept = self.fleet.store.kept(&doc).await?;
                rows.push(JobRow { kept, past: None });
            }
            Ok(rows)
        })
    }

    fn set_replication_ids(&self, epoch: Epoch, jobs: Vec<JobNote>) -> Answer<'_, IdsSet> {
        self.noted.lock().unwrap().push(jobs.len());
        let mut holds = self.holds_notes.subscribe();
        let noting = self.ask(move |tables, _, _| {
            let jobs = jobs.into_iter();
            let set = jobs.map(|job| {
                tables.servers.insert(Arc::clone(&job.doc), job.servers);
                tables.set_id(epoch, job.doc, job.id)
            });
            set.collect()
        });
        Box::pin(async move {
            // Its sender is alive.
            drop(holds.wait_for(|holds| !holds).await);
            noting.await
        })
    }

    fn save_pasts(&self, _: Epoch, _: Vec<(DocId, String)>) -> Answer<'_, ()> {
        self.ask(|_, _, _| ())
    }

    fn write_statuses(&self, _: Epoch, _: Vec<JobStatus>) -> Answer<'_, ()> {
        self.ask(|_, _, _| ())
    }

    fn statuses(
        &self,
        _: Option<Epoch>,
        _: Vec<(Epoch, u64)>,
        _: usize,
    ) -> Answer<'_, Vec<ReadStatus>> {
        self.ask(|_, _, _| Vec::new())
    }

    fn write_report(&self, _: Epoch, _: String) -> Answer<'_, ()> {
        self.ask(|_, _, _| ())
    }

    fn daemons(&self) -> Answer<'_, Vec<(Daemon, usize)>> {
        self.ask(|_, _, _| Vec::new())
    }

    fn leave_orders(&self, orders: Vec<Order>) -> Answer<'_, Vec<bool>> {
        self.ask(move |_, _, _| vec![false; orders.len()])
    }

    fn take_orders(&self, _: Epoch) -> Answer<'_, Vec<Order>> {
        self.ask(|_, _, _| Vec::new())
    }

    fn overrides(&self) -> Answer<'_, Vec<Override>> {
        self.ask(|_, _, _| Vec::new())
    }

    fn set_overrides(&self, _: Vec<Override>) -> Answer<'_, ()> {
        self.ask(|_, _, _| ())
    }

    fn secret(&self, _: &str, new: String) -> Answer<'_, String> {
        self.ask(|_, _, _| new)
    }
}
