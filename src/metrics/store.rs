//! Metrics of the store that keeps replications.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use strum::VariantArray;

use super::cells::{Counted, Counter, Each, Gauge, Histogram};
use super::definition::metrics;
use crate::lock;
use store::{DatabaseRequest, StoreError, StoreObserver};

metrics! {
    /// The metrics of the store; those of its database stay 0 if the store is a file.
    #[derive(Debug, Default)]
    pub(crate) struct StoreMetrics {
        /// Time of requests to the store's database, including failed ones: read, write (including messages between
        /// daemons), lease (including claims and releases)
        Histogram("settee.store_request_time", "settee_store_request_seconds").labels("request")
            => requests: RequestTimes;
        /// Open connections to the store's database
        Gauge("settee.store_connections", "settee_store_connections")
            => connections: Gauge;
        /// Connections made to the store's database: four, and one more for each lost connection
        Counter("settee.store_connects", "settee_store_connects_total")
            => connects: Counter;
        /// Writes of documents and job state that the store refused; unanswered ones are not counted
        Counter("settee.store_writes_refused", "settee_store_writes_refused_total")
            => pub refused: Counter;
    }
    beside {
        /// Why the store refused the last write, with the remedy; `None` once it accepts one.
        refused_last: Mutex<Option<(String, &'static str)>>;
    }
}

impl StoreMetrics {
    /// Returns why the last write was refused, if it was, and the remedy.
    pub fn refused_last(&self) -> Option<(String, &'static str)> {
        lock(&self.refused_last).clone()
    }

    /// Returns the number of requests of each kind, including failed ones, and their total time in milliseconds.
    pub fn requests(&self) -> BTreeMap<&'static str, (u64, u64)> {
        DatabaseRequest::VARIANTS
            .iter()
            .zip(&self.requests.0)
            .map(|(kind, times)| {
                let times = times.get();
                let milliseconds = u64::try_from(times.sum().as_millis()).unwrap_or(u64::MAX);
                (kind.into(), (times.count(), milliseconds))
            })
            .collect()
    }
}

/// The times of each kind of request.
#[derive(Debug, Default)]
struct RequestTimes([Histogram; DatabaseRequest::VARIANTS.len()]);

impl Counted for RequestTimes {
    fn samples(&self, each: Each<'_>) {
        for (kind, times) in DatabaseRequest::VARIANTS.iter().zip(&self.0) {
            each(&[kind.into()], times.get().into());
        }
    }

    fn absorb(&self, _gone: &Self) {}
}

impl StoreObserver for StoreMetrics {
    fn ended(&self, request: DatabaseRequest, took: Duration) {
        self.requests.0[request as usize].observe(took);
    }

    fn connected(&self) {
        self.connects.one();
        self.connections.up();
    }

    fn disconnected(&self) {
        self.connections.down();
    }

    fn refused(&self, writes: u64, error: &StoreError) {
        self.refused.add(writes);
        *lock(&self.refused_last) = Some(error.cause_and_remedy());
    }

    fn accepted(&self) {
        *lock(&self.refused_last) = None;
    }
}
