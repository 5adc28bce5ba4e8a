//! The other daemons of the fleet, as known to this one: their addresses, problems and jobs.
//!
//! SUMMARY   [`Fleet`] reads the daemons and the statuses that they write, and caches both. Their documents' statuses
//!           are passed to [`DocStates`], so that states, counts and pages cover the whole fleet.
//! PROMISES  A list is served from memory: it waits for a read at most [`LIST_WAIT`], and not at all while the
//!           database does not answer.
//! LIMITS    Statuses of documents are bounded by the documents, those of transient jobs by [`TRANSIENT_MAX`],
//!           daemons by [`DAEMONS_MAX`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use actix_rt::time::timeout;
use serde_json::{Value, json};
use settee_client::Health;
use tokio::sync::watch;

use crate::health::report::{self, Report};
use crate::lock;
use crate::metrics::FleetMetrics;
use crate::otp::system_time;
use crate::replicator::DocStates;
use crate::replicator::status::{JobBody, OtherStatus, StatusBody};
use policy::ownership::{Epoch, LEASE};
use policy::schedule::WallTime;
use store::StoreError;
use store::fleet::{Daemon, DaemonName, FleetStore, ReadStatus, StatusOf};

/// How often the others' statuses are read, and how old they may be in a list.
pub(crate) const READ_EVERY: Duration = Duration::from_secs(2);

/// How long a list waits for a read.
const LIST_WAIT: Duration = Duration::from_secs(1);

/// Statuses read at a time.
const STATUSES_MAX: usize = 500;

/// Maximum number of transient jobs of other daemons in memory.
const TRANSIENT_MAX: usize = 10_000;

/// Maximum number of daemons in memory, including those that are gone.
const DAEMONS_MAX: usize = 1000;

/// How much the computed time of one renewal may vary between reads.
const HEARD_JITTER: Duration = Duration::from_secs(2);

/// How long the status of a document that requests no replication is kept.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// This daemon's part in its fleet.
#[derive(Clone)]
pub(crate) struct FleetOptions {
    pub store: Arc<dyn FleetStore>,
    pub name: DaemonName,
    /// This daemon's epoch; `None` while it has no lease.
    pub epoch: watch::Receiver<Option<Epoch>>,
    pub metrics: Arc<FleetMetrics>,
}

/// A daemon as last read.
#[derive(Clone, Debug)]
struct DaemonRow {
    daemon: Daemon,
    claimed: usize,
    /// The latest known start or renewal of its lease.
    heard: Option<WallTime>,
    /// When it started, as far as known: its first `heard`.
    began: Option<WallTime>,
    is_there: bool,
    /// Whether a daemon with the same address has started since `heard`: then this is its former epoch.
    is_superseded: bool,
    /// The problems that it reported, and the age of the report when read.
    report: Option<(Report, Duration)>,
}

impl DaemonRow {
    /// Whether lists and counts include it.
    const fn is_shown(&self) -> bool {
        self.is_there && !self.is_superseded
    }

    /// Whether it is shown and has a lease.
    const fn is_alive(&self) -> bool {
        self.is_shown() && self.daemon.lease.is_some()
    }
}

#[derive(Default)]
struct Memory {
    daemons: BTreeMap<Epoch, DaemonRow>,
    /// The greatest status number read from each epoch.
    numbers: BTreeMap<Epoch, u64>,
    /// The number of failovers before `numbers` were read.
    renumberings: u64,
    transient: BTreeMap<Arc<str>, Arc<OtherStatus>>,
    /// This daemon's latest report.
    own_report: Option<Report>,
    /// When the last successful read began.
    read: Option<Instant>,
    has_failed: bool,
}

impl Memory {
    /// Finds former epochs of restarted daemons: since their last renewal a daemon with the same address has started.
    fn note_superseded(&mut self, own: Option<Epoch>) {
        let there = self.daemons.values().filter(|row| row.is_there);
        let superseded: Vec<Epoch> = there
            .clone()
            .filter(|row| {
                let is_later = |began: WallTime| row.heard.is_none_or(|heard| heard < began);
                let is_newer = there.clone().any(|other| {
                    other.daemon.name.address == row.daemon.name.address
                        && other.began.is_some_and(is_later)
                });
                Some(row.daemon.epoch) != own && is_newer
            })
            .map(|row| row.daemon.epoch)
            .collect();
        for row in self.daemons.values_mut() {
            row.is_superseded = superseded.contains(&row.daemon.epoch);
        }
    }
}

/// The other daemons, and their jobs.
pub(crate) struct Fleet {
    pub options: FleetOptions,
    states: Arc<DocStates>,
    memory: Mutex<Memory>,
    /// Allows one read at a time.
    turn: tokio::sync::Mutex<()>,
}

/// A document, or a transient job, of another daemon.
#[derive(Clone, Debug)]
pub(crate) struct OtherJob {
    pub status: Arc<OtherStatus>,
    /// The address of its daemon.
    pub daemon: Arc<str>,
    /// Why its state is no longer known, if its daemon's lease has expired.
    pub lost: Option<String>,
}

impl OtherJob {
    pub fn job(&self) -> Option<&JobBody> {
        self.status.body.job.as_ref()
    }

    /// Returns it as in `_scheduler/jobs`.
    pub fn shown_job(&self) -> Option<Value> {
        Some(self.shown(self.job()?.shown.get()))
    }

    /// Returns it as in `_active_tasks`, if it is known to run.
    pub fn shown_task(&self) -> Option<Value> {
        let task = self.job()?.task.as_ref()?;
        self.lost.is_none().then(|| self.shown(task.get()))
    }

    /// Returns it as in `_scheduler/docs`.
    pub fn shown_doc(&self) -> Option<Value> {
        Some(self.shown(self.status.body.doc.as_ref()?.get()))
    }

    fn shown(&self, text: &str) -> Value {
        let mut value: Value = serde_json::from_str(text).unwrap_or_default();
        value["daemon"] = (*self.daemon).into();
        value["age_s"] = self.status.age_s().into();
        if let Some(lost) = &self.lost {
            value["reason"] = lost.as_str().into();
        }
        value
    }
}

impl Fleet {
    /// Creates an empty view of the fleet, and makes `states` track changes.
    pub fn new(options: FleetOptions, states: Arc<DocStates>) -> Self {
        states.lock().track();
        Self {
            options,
            states,
            memory: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    pub fn address(&self) -> &Arc<str> {
        &self.options.name.address
    }

    pub fn epoch(&self) -> Option<Epoch> {
        *self.options.epoch.borrow()
    }

    /// Returns the age of the last read, in seconds; `None` before the first.
    pub fn age_s(&self) -> Option<u64> {
        Some(lock(&self.memory).read?.elapsed().as_secs())
    }

    /// Reads the daemons with their reports, and the statuses written since the last read.
    ///
    /// # Errors
    /// The database does not answer; earlier results stay.
    pub async fn read(&self) -> Result<(), StoreError> {
        self.read_if(|_| true).await
    }

    /// Reads if the last read is too old for a list.
    pub async fn freshen(&self) {
        let is_old = |memory: &Memory| {
            let read = memory.read.is_some_and(|at| at.elapsed() <= READ_EVERY);
            !read && !memory.has_failed
        };
        if is_old(&lock(&self.memory)) {
            // After a timeout the list shows what is known, with its age.
            drop(timeout(LIST_WAIT, self.read_if(is_old)).await);
        }
    }

    /// Reads in turn, unless another caller has read meanwhile so that it is not due.
    async fn read_if(&self, is_due: fn(&Memory) -> bool) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        if !is_due(&lock(&self.memory)) {
            return Ok(());
        }
        let read = self.read_alone().await;
        lock(&self.memory).has_failed = read.is_err();
        read
    }

    async fn read_alone(&self) -> Result<(), StoreError> {
        let (began, store) = (Instant::now(), &self.options.store);
        self.note_renumbering();
        self.note_daemons(store.daemons().await?);
        loop {
            let numbers = lock(&self.memory).numbers.clone();
            let statuses = store
                .statuses(self.epoch(), numbers.into_iter().collect(), STATUSES_MAX)
                .await?;
            let count = statuses.len();
            self.note_statuses(statuses);
            if count < STATUSES_MAX {
                break;
            }
        }
        if let Some(before) = Instant::now().checked_sub(FORGET_AFTER) {
            self.states.lock().forget_others(before);
        }
        lock(&self.memory).read = Some(began);
        Ok(())
    }

    /// After a failover all statuses are read again: their numbers may be lower.
    fn note_renumbering(&self) {
        let renumberings = self.states.lock().renumberings();
        let mut memory = lock(&self.memory);
        if std::mem::replace(&mut memory.renumberings, renumberings) != renumberings {
            memory.numbers.clear();
        }
    }

    fn note_daemons(&self, daemons: Vec<(Daemon, usize)>) {
        let (mut memory, now) = (lock(&self.memory), system_time());
        let memory = &mut *memory;
        for row in memory.daemons.values_mut() {
            (row.is_there, row.report) = (false, None);
        }
        let (mut owned, mut own, mut left) = (0, 0, Duration::ZERO);
        for (mut daemon, claimed) in daemons {
            let before = memory.daemons.get(&daemon.epoch);
            let heard = daemon.lease.map(|left| {
                let since = LEASE.saturating_sub(left).as_micros();
                WallTime::from_micros(now.as_micros().saturating_sub(since as u64))
            });
            if let Some(lease) = daemon.lease {
                owned += claimed;
                if Some(daemon.epoch) == self.epoch() {
                    (own, left) = (claimed, lease);
                }
            }
            let known = before.and_then(|row| row.heard);
            let new = heard.filter(|at| known.is_none_or(|known| *at > known + HEARD_JITTER));
            let report = daemon
                .report
                .take()
                .and_then(|told| Some((Report::read(&told.body)?, told.age)));
            let row = DaemonRow {
                heard: new.or(known),
                began: before.and_then(|row| row.began).or(heard),
                claimed,
                is_there: true,
                is_superseded: false,
                report,
                daemon,
            };
            memory.daemons.insert(row.daemon.epoch, row);
        }
        if memory.daemons.len() > DAEMONS_MAX {
            memory.daemons.retain(|_, row| row.is_there);
            let daemons = &memory.daemons;
            memory
                .numbers
                .retain(|epoch, _| daemons.contains_key(epoch));
        }
        memory.note_superseded(self.epoch());
        let daemons = &memory.daemons;
        let alive = daemons.values().filter(|row| row.is_alive()).count();
        memory.transient.retain(|_, status| {
            let row = daemons.get(&status.epoch);
            row.is_some_and(|row| row.is_there)
        });
        let metrics = &self.options.metrics;
        metrics.daemons.set(alive as u64);
        metrics.owned.set(own as u64);
        metrics.set_lease_left(left);
        metrics.set_unowned(self.states.lock().wanted().saturating_sub(owned));
    }

    fn note_statuses(&self, statuses: Vec<ReadStatus>) {
        let read = Instant::now();
        for one in statuses {
            let mut memory = lock(&self.memory);
            let number = memory.numbers.entry(one.epoch).or_default();
            *number = one.number.max(*number);
            let status = Arc::new(OtherStatus {
                epoch: one.epoch,
                of: one.status.of.clone(),
                age: one.age,
                read,
                body: one
                    .status
                    .body
                    .as_deref()
                    .map(StatusBody::read)
                    .unwrap_or_default(),
            });
            match &one.status.of {
                StatusOf::Document(doc) => {
                    drop(memory);
                    self.states.lock().set_other(doc, status);
                }
                StatusOf::Transient(id) => match one.status.body {
                    Some(_)
                        if memory.transient.len() < TRANSIENT_MAX
                            || memory.transient.contains_key(id) =>
                    {
                        memory.transient.insert(Arc::clone(id), status);
                    }
                    Some(_) => {}
                    None => {
                        let known = memory.transient.get(id);
                        // Another daemon may have one with this id.
                        if known.is_some_and(|known| known.epoch == one.epoch) {
                            memory.transient.remove(id);
                        }
                    }
                },
            }
        }
    }

    /// Returns the documents and transient jobs of other daemons, unordered.
    pub fn others(&self) -> Vec<OtherJob> {
        let mut all = self.states.lock().others();
        let memory = lock(&self.memory);
        let own = self.epoch();
        all.extend(
            memory
                .transient
                .values()
                .filter(|status| Some(status.epoch) != own)
                .cloned(),
        );
        all.into_iter()
            .map(|status| other_job(&memory, status))
            .collect()
    }

    /// Returns a document of another daemon, if known.
    pub fn other(&self, doc: &str) -> Option<OtherJob> {
        let status = self.states.lock().other(doc)?;
        Some(other_job(&lock(&self.memory), status))
    }

    /// Returns a job of another daemon by its id or its document's.
    pub fn other_job(&self, name: &str) -> Option<OtherJob> {
        let by_doc = self.other(name).filter(|other| other.job().is_some());
        by_doc.or_else(|| {
            self.others()
                .into_iter()
                .find(|other| other.job().is_some_and(|job| job.id == name))
        })
    }

    /// Returns the daemons as users see them, by address.
    pub fn daemons(&self) -> Vec<Value> {
        let memory = lock(&self.memory);
        let age = memory.read.map_or(Duration::ZERO, |at| at.elapsed());
        let own = self.epoch();
        let mut rows: Vec<&DaemonRow> = memory.daemons.values().collect();
        rows.retain(|row| row.is_shown());
        rows.sort_by_key(|row| (Arc::clone(&row.daemon.name.address), row.daemon.epoch));
        let shown = rows.into_iter().map(|row| {
            let daemon = &row.daemon;
            let left = daemon
                .lease
                .map_or(Duration::ZERO, |left| left.saturating_sub(age));
            json!({
                "address": &*daemon.name.address,
                "version": &*daemon.name.version,
                "epoch": format!("{:016x}", daemon.epoch.0),
                "lease_left_s": left.as_secs(),
                "last_renewal": row.heard.map(|at| at.to_string()),
                "documents": row.claimed,
                "leaving": daemon.is_leaving,
                "self": Some(daemon.epoch) == own,
            })
        });
        shown.collect()
    }

    /// Returns the health that the other daemons with a lease report, by address.
    pub fn healths(&self) -> Vec<Health> {
        let memory = lock(&self.memory);
        let since = memory.read.map_or(Duration::ZERO, |at| at.elapsed());
        let mut told: Vec<Health> = self
            .living(&memory)
            .map(|row| match &row.report {
                Some((report, age)) => report.health(*age + since),
                None => report::untold(&row.daemon.name.address, &row.daemon.name.version),
            })
            .collect();
        told.sort_by(|one, other| one.daemon.cmp(&other.daemon));
        told
    }

    pub fn note_report(&self, report: Report) {
        lock(&self.memory).own_report = Some(report);
    }

    /// Returns the latest reports of this daemon and of the others with a lease; `None` before this daemon's first.
    pub fn reports(&self) -> Option<(Report, Vec<Report>)> {
        let memory = lock(&self.memory);
        let own = memory.own_report.clone()?;
        let told = self
            .living(&memory)
            .filter_map(|row| Some(row.report.as_ref()?.0.clone()));
        Some((own, told.collect()))
    }

    /// Returns the other daemons that have a lease.
    fn living<'a>(&self, memory: &'a Memory) -> impl Iterator<Item = &'a DaemonRow> + use<'a> {
        let (own, address) = (self.epoch(), Arc::clone(self.address()));
        let is_own = move |row: &DaemonRow| match own {
            Some(own) => row.daemon.epoch == own,
            None => row.daemon.name.address == address,
        };
        memory
            .daemons
            .values()
            .filter(move |row| row.is_alive() && !is_own(row))
    }
}

fn other_job(memory: &Memory, status: Arc<OtherStatus>) -> OtherJob {
    let row = memory.daemons.get(&status.epoch);
    let daemon = row.map_or_else(
        || "unknown".into(),
        |row| Arc::clone(&row.daemon.name.address),
    );
    let is_alive = row.is_some_and(DaemonRow::is_alive);
    // Without a time, so that jobs lost together have the same reason.
    let lost = (!is_alive).then(|| format!("its daemon {daemon} has lost its lease"));
    OtherJob {
        status,
        daemon,
        lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::fleet_member::tests::fake_fleet::FakeFleet;
    use crate::actors::replicator_documents::tests::memory;
    use crate::otp::BootClock;
    use store::fleet::JobStatus;

    #[actix_rt::test]
    async fn a_listed_transient_job_is_updated_even_if_no_further_one_can_be_listed() {
        let (store, states) = memory();
        let options = FleetOptions {
            store: FakeFleet::new(store, BootClock::default()).connect(),
            name: DaemonName {
                address: "one".into(),
                version: "0".into(),
            },
            epoch: watch::channel(None).1,
            metrics: Arc::default(),
        };
        let fleet = Fleet::new(options, states);
        let status = |job: usize, age: Duration| ReadStatus {
            epoch: Epoch(2),
            number: 1,
            age,
            status: JobStatus {
                of: StatusOf::Transient(job.to_string().into()),
                body: Some("{}".to_owned()),
            },
        };
        let all = (0..=TRANSIENT_MAX).map(|job| status(job, Duration::ZERO));
        fleet.note_statuses(all.collect());
        fleet.note_statuses(vec![status(0, LEASE)]);
        let memory = lock(&fleet.memory);
        assert_eq!(memory.transient.len(), TRANSIENT_MAX);
        assert_eq!(memory.transient["0"].age, LEASE);
    }
}
