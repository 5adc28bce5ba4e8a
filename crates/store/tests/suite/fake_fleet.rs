//! A fleet store in memory, for tests: daemons, settings and secrets. All other requests fail.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::document_store::Answer;
use crate::error::StoreError;
use crate::fleet::{
    Daemon, DaemonName, FleetStore, IdsSet, JobNote, JobRow, JobStatus, Order, Override,
    ReadStatus, Topic,
};
use policy::ownership::{Claim, Claimed, Counts, DocId, Epoch, ListedDoc, Reach};

/// Holds the number of daemons, and shared settings and secrets.
#[derive(Debug, Default)]
pub struct FakeFleet {
    overrides: Mutex<BTreeMap<(String, String), String>>,
    secrets: Mutex<BTreeMap<String, String>>,
    running: Mutex<u64>,
    is_gone: AtomicBool,
    told: watch::Sender<u64>,
}

impl FakeFleet {
    /// Sets the number of daemons with a lease.
    pub fn set_running(&self, running: u64) {
        *self.running.lock().unwrap() = running;
    }

    /// Makes requests fail, or succeed again.
    pub fn set_gone(&self, is_gone: bool) {
        self.is_gone.store(is_gone, Ordering::SeqCst);
    }

    fn ready<'a, T: Send + 'a>(&self, value: impl FnOnce() -> T) -> Answer<'a, T> {
        if self.is_gone.load(Ordering::SeqCst) {
            return unavailable();
        }
        let value = value();
        Box::pin(async { Ok(value) })
    }
}

fn unavailable<'a, T: Send + 'a>() -> Answer<'a, T> {
    Box::pin(async { Err(StoreError::Closed) })
}

impl FleetStore for FakeFleet {
    fn told(&self, _: Topic) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    fn daemons(&self) -> Answer<'_, Vec<(Daemon, usize)>> {
        let daemon = |number: u64| Daemon {
            epoch: Epoch(number),
            name: DaemonName {
                address: "localhost".into(),
                version: "1".into(),
            },
            lease: Some(Duration::from_secs(30)),
            is_leaving: false,
            report: None,
        };
        let running = 0..*self.running.lock().unwrap();
        self.ready(|| running.map(|number| (daemon(number), 0)).collect())
    }

    fn overrides(&self) -> Answer<'_, Vec<Override>> {
        let overrides = self.overrides.lock().unwrap().clone().into_iter();
        let read = overrides.map(|((section, key), value)| Override {
            section,
            key,
            value: Some(value),
        });
        self.ready(|| read.collect())
    }

    fn set_overrides(&self, made: Vec<Override>) -> Answer<'_, ()> {
        self.ready(|| {
            let mut overrides = self.overrides.lock().unwrap();
            for one in made {
                let place = (one.section, one.key);
                match one.value {
                    Some(value) => drop(overrides.insert(place, value)),
                    None => drop(overrides.remove(&place)),
                }
            }
            self.told.send_modify(|told| *told += 1);
        })
    }

    fn secret(&self, name: &str, new: String) -> Answer<'_, String> {
        let mut secrets = self.secrets.lock().unwrap();
        self.ready(|| secrets.entry(name.to_owned()).or_insert(new).clone())
    }

    fn take_epoch(&self, _: DaemonName, _: Epoch, _: Vec<Epoch>) -> Answer<'_, Counts> {
        unavailable()
    }

    fn renew(&self, _: Epoch, _: bool, _: Reach) -> Answer<'_, Option<(Vec<ListedDoc>, Counts)>> {
        unavailable()
    }

    fn claim(&self, _: Epoch, _: Claim, _: usize) -> Answer<'_, Claimed> {
        unavailable()
    }

    fn release(&self, _: Epoch, _: Vec<(DocId, Claim)>) -> Answer<'_, ()> {
        unavailable()
    }

    fn depart(&self, _: Epoch) -> Answer<'_, ()> {
        unavailable()
    }

    fn job_rows(&self, _: Vec<DocId>) -> Answer<'_, Vec<JobRow>> {
        unavailable()
    }

    fn set_replication_ids(&self, _: Epoch, _: Vec<JobNote>) -> Answer<'_, IdsSet> {
        unavailable()
    }

    fn save_pasts(&self, _: Epoch, _: Vec<(DocId, String)>) -> Answer<'_, ()> {
        unavailable()
    }

    fn write_statuses(&self, _: Epoch, _: Vec<JobStatus>) -> Answer<'_, ()> {
        unavailable()
    }

    fn statuses(
        &self,
        _: Option<Epoch>,
        _: Vec<(Epoch, u64)>,
        _: usize,
    ) -> Answer<'_, Vec<ReadStatus>> {
        unavailable()
    }

    fn write_report(&self, _: Epoch, _: String) -> Answer<'_, ()> {
        unavailable()
    }

    fn leave_orders(&self, _: Vec<Order>) -> Answer<'_, Vec<bool>> {
        unavailable()
    }

    fn take_orders(&self, _: Epoch) -> Answer<'_, Vec<Order>> {
        unavailable()
    }
}
