//! What is known of the services that are there: where each listens, before which pool, and why it
//! does not accept connections while it does not.
//!
//! SUMMARY   A service makes its [`ServiceState`] when it starts and keeps it up to date; it is gone with the
//!           service. [`ServiceState::status`] joins it with what its pool is like.
//! PROMISES  The one source of what `status`, HTTP, the metrics and tests report of a service.

use std::sync::{Arc, Mutex, PoisonError};

use strum::IntoStaticStr;

use super::ServiceMetrics;
use crate::query_server::status::{PoolStatus, ServiceStatus};

/// Why a service accepts no connection: they wait in the system's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Closed {
    /// There is no pool of the name that it is to lend from.
    NoPool,
    /// All processes that there may be are lent.
    AtLimit,
    /// None is free, and none is started for a while, because a start failed.
    Throttled,
    /// The system refused to accept one, for lack of descriptors or memory.
    AcceptFailed,
    /// The daemon is drained.
    Draining,
    /// It is being taken out of operation.
    Stopping,
}

/// Where a service listens, and for which pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServicePlace {
    /// Where it listens, with the port that it has got.
    pub listen: String,
    /// The pool that it lends from.
    pub pool: String,
    /// Whether only this user or machine can reach it.
    pub local_only: bool,
}

/// One service that is there.
#[derive(Debug)]
pub(crate) struct ServiceState {
    metrics: Arc<ServiceMetrics>,
    name: String,
    now: Mutex<(ServicePlace, Option<Closed>)>,
}

impl ServiceState {
    pub(super) fn new(name: &str, metrics: Arc<ServiceMetrics>, place: ServicePlace) -> Self {
        Self {
            metrics,
            name: name.to_owned(),
            now: Mutex::new((place, Some(Closed::NoPool))),
        }
    }

    /// Tells where it is now, and before which pool.
    pub(crate) fn set_place(&self, place: ServicePlace) {
        self.with(|now| now.0 = place);
    }

    /// Tells whether it accepts connections, and if not, why.
    pub(crate) fn set_closed(&self, closed: Option<Closed>) {
        let before = self.with(|now| std::mem::replace(&mut now.1, closed));
        match (before, closed) {
            (Some(_), None) => self.metrics.listening.up(),
            (None, Some(_)) => self.metrics.listening.down(),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    /// Returns its numbers.
    pub(crate) fn metrics(&self) -> &Arc<ServiceMetrics> {
        &self.metrics
    }

    /// Returns what is shown of it; `find` finds its pool. What throttles the pool, what puts it under
    /// stress and what limits it does so to the service.
    pub fn status<'a>(&self, find: impl FnOnce(&str) -> Option<&'a PoolStatus>) -> ServiceStatus {
        let (place, closed) = self.with(|now| now.clone());
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
        self.with(|now| now.0.pool.clone())
    }

    fn with<T>(&self, what: impl FnOnce(&mut (ServicePlace, Option<Closed>)) -> T) -> T {
        // Nothing panics while it holds the lock, and what it guards is whole at any time.
        what(&mut self.now.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for ServiceState {
    fn drop(&mut self) {
        self.set_closed(Some(Closed::Stopping));
    }
}
