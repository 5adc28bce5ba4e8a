//! What is counted of the database that keeps replications.

use std::time::Duration;

use strum::VariantArray;

use super::cells::{Counted, Counter, Gauge, Histogram};
use super::definition::metrics;
use super::names::Absorb;
use super::snapshot::Value;
use store::{DatabaseObserver, DatabaseRequest};

metrics! {
    /// The numbers of the store's database; they stay 0 where the store is a file.
    #[derive(Debug, Default)]
    pub(crate) struct StoreMetrics {
        /// Time of requests to the database of the store, failed ones included: read, write (a transaction of all
        /// writes that waited, or what daemons tell each other), or lease (renew it, claim or release documents)
        histogram("settee.store_request_time", "settee_store_request_seconds").unit("s").labels(&["request"])
            => requests: RequestTimes;
        /// Connections to the database of the store that are up
        gauge("settee.store_connections", "settee_store_connections")
            => connections: Gauge;
        /// Connections to the database of the store that were made: four when all is well, each further one in
        /// place of a lost one
        counter("settee.store_connects", "settee_store_connects_total")
            => connects: Counter;
    }
}

/// The times of each kind of request.
#[derive(Debug, Default)]
struct RequestTimes([Histogram; DatabaseRequest::VARIANTS.len()]);

impl Counted for RequestTimes {
    fn samples(&self, each: &mut dyn FnMut(&[&str], Value)) {
        for (kind, times) in DatabaseRequest::VARIANTS.iter().zip(&self.0) {
            each(&[kind.into()], times.get().into());
        }
    }
}

impl Absorb for RequestTimes {
    fn absorb(&self, gone: &Self) {
        let requests = self.0.iter().zip(&gone.0);
        requests.for_each(|(times, gone)| times.absorb(gone));
    }
}

impl DatabaseObserver for StoreMetrics {
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
}
