//! Metrics of the running service.
//!
//! SUMMARY   [`Metrics`] is one handle for all metrics. Those of a pool or a language are looked up once, when the
//!           pool is made or the process starts, and then counted directly. [`Metrics::snapshot`] reads everything;
//!           [`stats_json`] and [`prometheus_text`] format it. A metric is declared by [`metrics!`] next to the code
//!           that counts it; the table in `docs/metrics.md` is generated from the declarations.
//! PROMISES  Counting takes no lock, does not allocate (except for a pool's first count) and looks nothing up, except
//!           for refused system calls and jobs that start or stop failing, which are rare. Labels are bounded: pools,
//!           languages, groups of jobs, reasons, calls; never a database or a document.
//! CALLED    By the actors, to count; by HTTP and the tests, to read.
//! SOURCE    couch_stats: the metrics under `couchdb.query_server` and their names.
//! DIFFERS   Histograms count since the start rather than the last ten seconds. A prompt's time starts when it is the
//!           oldest unanswered one, so that pipelined prompts do not count the same time repeatedly. Counts are by pool
//!           and by language.

mod cells;
mod definition;
pub(crate) mod fleet;
pub(crate) mod function_costs;
mod gather;
pub(crate) mod history;
mod job_groups;
mod language;
mod names;
mod pool;
mod process;
mod prometheus;
mod replication;
mod service;
mod service_state;
mod snapshot;
mod stats;
mod store;
pub(crate) mod tenant_costs;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

pub(crate) use cells::{Counter, Gauge, Histogram};
pub use cells::{Range, Times};
pub use definition::{Definition, Kind};
pub(crate) use fleet::FleetMetrics;
pub(crate) use job_groups::GroupMember;
pub(crate) use language::{KillReason, LanguageMetrics};
pub use pool::Refused;
pub(crate) use pool::{IsolateEvent, OpenFailure, PoolMetrics};
pub(crate) use prometheus::PROMETHEUS_CONTENT_TYPE;
pub use prometheus::prometheus_text;
pub(crate) use replication::ReplicationMetrics;
pub(crate) use service::{LendEnd, ServiceMetrics};
pub(crate) use service_state::{Closed, ServicePlace, ServiceState};
pub use snapshot::{Snapshot, Value};
pub use stats::{stats_at, stats_json};
pub(crate) use store::StoreMetrics;

use crate::health::HealthBoard;
use crate::lock;
use crate::logging::Losses;
use crate::otp::Restarts;
use crate::query_server::status::DaemonStatus;
use cells::Created;
use definition::metrics;
use names::Names;
use policy::invariants::Invariant;

/// HTTP methods counted separately, as in CouchDB.
const METHODS: [&str; 7] = ["COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];

/// The status codes of HTTP, each counted separately.
const CODES: std::ops::Range<u16> = 100..600;

/// All metrics. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    started: Created,
    pools: Names<PoolMetrics>,
    languages: Names<LanguageMetrics>,
    clients: Arc<ClientMetrics>,
    services: Names<ServiceMetrics>,
    /// The existing services; the entry of a service expires with its actor.
    service_states: Mutex<Vec<Weak<ServiceState>>>,
    http: HttpMetrics,
    replication: Arc<ReplicationMetrics>,
    store: Arc<StoreMetrics>,
    fleet: Arc<FleetMetrics>,
    health: HealthBoard,
    restarts: Restarts,
    invariants: [Counter; Invariant::ALL.len()],
    logs: OnceLock<Vec<(&'static str, Arc<Losses>)>>,
    /// Why the costs of databases were not saved, if the last attempt failed.
    costs_unsaved: Mutex<Option<String>>,
}

/// The metrics of a process: its pool's and its language's.
#[derive(Clone, Debug)]
pub struct ProcessMetrics {
    /// The metrics of its pool.
    pub pool: Arc<PoolMetrics>,
    /// The metrics of its language.
    pub language: Arc<LanguageMetrics>,
}

metrics! {
    /// Metrics of connections to the client socket, or to a service's socket.
    #[derive(Debug, Default)]
    pub struct ClientMetrics {
        /// Connections on the client socket
        Gauge("settee.clients", "settee_clients")
            => pub connected: Gauge;
        /// Accepted connections
        Counter("settee.clients_accepted", "settee_clients_accepted_total")
            => pub accepted: Counter;
        /// Received from clients on the client socket
        Counter("settee.client_received_bytes", "settee_client_received_bytes_total")
            => pub received_bytes: Counter;
        /// Sent to clients on the client socket
        Counter("settee.client_sent_bytes", "settee_client_sent_bytes_total")
            => pub sent_bytes: Counter;
    }
}

#[derive(Debug)]
struct HttpMetrics {
    time: Histogram,
    methods: [Counter; METHODS.len()],
    codes: Box<[Counter]>,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        Self {
            time: Histogram::default(),
            methods: Default::default(),
            codes: CODES.map(|_| Counter::default()).collect(),
        }
    }
}

impl Metrics {
    /// Creates metrics with all counts 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Finds or creates a pool's metrics. Takes a lock: call it once and keep the result.
    pub fn pool(&self, name: &str) -> Arc<PoolMetrics> {
        self.0.pools.find(name)
    }

    /// Finds or creates a language's metrics. Takes a lock: call it once and keep the result.
    pub fn language(&self, name: &str) -> Arc<LanguageMetrics> {
        self.0.languages.find(name)
    }

    /// Returns the metrics of the client socket.
    pub fn clients(&self) -> Arc<ClientMetrics> {
        Arc::clone(&self.0.clients)
    }

    /// Finds or creates a service's metrics. Takes a lock: call it once and keep the result.
    pub fn service(&self, name: &str) -> Arc<ServiceMetrics> {
        self.0.services.find(name)
    }

    /// Lists a service while the returned value is kept.
    pub(crate) fn show_service(&self, name: &str, place: ServicePlace) -> Arc<ServiceState> {
        let state = Arc::new(ServiceState::new(name, self.service(name), place));
        let mut states = lock(&self.0.service_states);
        states.retain(|known| known.strong_count() > 0);
        states.push(Arc::downgrade(&state));
        state
    }

    /// Returns the existing services, ordered by name.
    pub(crate) fn service_states(&self) -> Vec<Arc<ServiceState>> {
        let mut states: Vec<_> = lock(&self.0.service_states)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        states.sort_by(|one, other| one.name().cmp(other.name()));
        states
    }

    /// Returns the metrics of replications.
    pub fn replication(&self) -> Arc<ReplicationMetrics> {
        Arc::clone(&self.0.replication)
    }

    /// Returns the metrics of the store's database.
    pub(crate) fn store(&self) -> Arc<StoreMetrics> {
        Arc::clone(&self.0.store)
    }

    /// Returns the metrics of the daemons that share the store.
    pub(crate) fn fleet(&self) -> Arc<FleetMetrics> {
        Arc::clone(&self.0.fleet)
    }

    /// Returns the board of problems.
    pub(crate) fn health(&self) -> HealthBoard {
        self.0.health.clone()
    }

    /// Returns the restarts of the daemon's own actors.
    pub(crate) fn restarts(&self) -> Restarts {
        self.0.restarts.clone()
    }

    /// Counts an HTTP request: its method, the status code, and the time from the end of its head to the head of the
    /// answer.
    pub fn http_request(&self, method: &str, code: u16, time: Duration) {
        let http = &self.0.http;
        http.time.observe(time);
        if let Some(at) = METHODS.iter().position(|known| *known == method) {
            http.methods[at].one();
        }
        if let Some(counter) = http.codes.get(usize::from(code.wrapping_sub(CODES.start))) {
            counter.one();
        }
    }

    /// Counts a violated invariant.
    pub(crate) fn invariant_violated(&self, id: Invariant) {
        self.0.invariants[id as usize].one();
    }

    /// Shows the losses of these logs by name; only the first call has an effect.
    pub(crate) fn watch_logs(&self, logs: Vec<(&'static str, Arc<Losses>)>) {
        let _ = self.0.logs.set(logs);
    }

    /// Returns why the costs of databases were not saved, if the last attempt failed.
    pub(crate) fn costs_unsaved(&self) -> MutexGuard<'_, Option<String>> {
        lock(&self.0.costs_unsaved)
    }

    /// Returns the losses of the watched logs, by name.
    pub(crate) fn logs(&self) -> &[(&'static str, Arc<Losses>)] {
        self.0.logs.get().map_or(&[], Vec::as_slice)
    }

    /// Reads everything. Gauges of existing objects come from the manager: `status` is its answer to
    /// [`GetStatus`](crate::actors::proc_manager::GetStatus) for all pools, or the default without a manager. It
    /// reads files of `/proc`, so do not call it on an event loop.
    pub fn snapshot(&self, status: &DaemonStatus) -> Snapshot {
        gather::gather(&self.0, status)
    }
}

#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod tests;
