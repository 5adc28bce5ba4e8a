//! The state of current services: where each listens, its pool, and, if it accepts no connections, why.
//!
//! SUMMARY   A service makes its [`ServiceState`] when it starts, updates it, and drops it when it ends.
//!           [`ServiceState::status`] joins it with the state of its pool.
//! PROMISES  `status`, HTTP, the metrics and tests read the state of a service only here.

use std::sync::{Arc, Mutex};

use strum::IntoStaticStr;

use super::ServiceMetrics;
use crate::lock;
use crate::query_server::status::{PoolStatus, ServiceStatus};

/// Why a service accepts no connections: they wait in the system's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Closed {
    /// Its pool does not exist.
    NoPool,
    /// The limit is reached and all processes are lent.
    AtLimit,
    /// No process is free, and starts are throttled.
    Throttled,
    /// The system refused to accept a connection, for lack of descriptors or memory.
    AcceptFailed,
    /// The daemon is drained.
    Draining,
    /// It is stopping.
    Stopping,
}

/// Where a service listens, and its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServicePlace {
    /// The address, with the actual port.
    pub listen: String,
    /// The pool that it lends from.
    pub pool: String,
    /// Whether it is only for the daemon's user or this machine, as configured or by its address.
    pub local_only: bool,
}

/// A current service.
#[derive(Debug)]
pub(crate) struct ServiceState {
    metrics: Arc<ServiceMetrics>,
    name: String,
    now: Mutex<(ServicePlace, Option<Closed>)>,
}

impl ServiceState {
    pub fn new(name: &str, metrics: Arc<ServiceMetrics>, place: ServicePlace) -> Self {
        Self {
            metrics,
            name: name.to_owned(),
            now: Mutex::new((place, Some(Closed::NoPool))),
        }
    }

    /// Sets its address and pool.
    pub fn set_place(&self, place: ServicePlace) {
        lock(&self.now).0 = place;
    }

    /// Sets whether it accepts connections, and if not, why.
    pub fn set_closed(&self, closed: Option<Closed>) {
        let before = std::mem::replace(&mut lock(&self.now).1, closed);
        match (before, closed) {
            (Some(_), None) => self.metrics.listening.up(),
            (None, Some(_)) => self.metrics.listening.down(),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    /// Returns its counts.
    pub fn metrics(&self) -> &Arc<ServiceMetrics> {
        &self.metrics
    }

    /// Returns its state for display; `find` finds its pool. The service is shown with the throttle, stress and limit
    /// of its pool.
    pub fn status<'a>(&self, find: impl FnOnce(&str) -> Option<&'a PoolStatus>) -> ServiceStatus {
        let (place, closed) = lock(&self.now).clone();
        let pool = find(&place.pool);
        let connections = self.metrics.connections();
        ServiceStatus {
            name: self.name.clone(),
            listening: closed.is_none(),
            closed: closed.map(|closed| <&str>::from(closed).to_owned()),
            throttled_ms: pool.and_then(|pool| pool.throttled_ms),
            failure: pool.and_then(|pool| pool.failure.clone()),
            stressed_ms: pool.and_then(|pool| pool.stressed_ms),
            limit: pool.map(|pool| pool.hard_limit),
            connections: connections.connected.get(),
            accepted: connections.accepted.get(),
            limit_reached: self.metrics.limit_reached.get(),
            listen: place.listen,
            pool: place.pool,
            local_only: place.local_only,
        }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the pool that it lends from.
    pub fn pool(&self) -> String {
        lock(&self.now).0.pool.clone()
    }
}

impl Drop for ServiceState {
    fn drop(&mut self) {
        self.set_closed(Some(Closed::Stopping));
    }
}
