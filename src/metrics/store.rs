//! What is counted of the database that keeps replications.

use std::time::Duration;

use strum::VariantArray;

use super::cells::{Counter, Gauge, Histogram, Times};
use store::{DatabaseObserver, DatabaseRequest};

/// The numbers of the store's database; they stay 0 where the store is a file.
#[derive(Debug, Default)]
pub(crate) struct StoreMetrics {
    requests: [Histogram; DatabaseRequest::VARIANTS.len()],
    /// Connections that are up.
    pub(super) connections: Gauge,
    /// Connections that were made.
    pub(super) connects: Counter,
}

impl StoreMetrics {
    /// Returns the times of each kind of request.
    pub(super) fn times(&self) -> impl Iterator<Item = (&'static str, Times)> {
        let kinds = DatabaseRequest::VARIANTS.iter().map(|kind| kind.into());
        kinds.zip(self.requests.iter().map(Histogram::get))
    }
}

impl DatabaseObserver for StoreMetrics {
    fn ended(&self, request: DatabaseRequest, took: Duration) {
        self.requests[request as usize].observe(took);
    }

    fn connected(&self) {
        self.connects.one();
        self.connections.up();
    }

    fn disconnected(&self) {
        self.connections.down();
    }
}
