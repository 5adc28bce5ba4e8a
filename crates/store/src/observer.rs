//! Observers of the traffic between a store and its file or database.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use slog::{Logger, info, warn};
use strum::{IntoStaticStr, VariantArray};

use crate::error::StoreError;

/// A request to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DatabaseRequest {
    /// Reads rows.
    Read,
    /// One transaction of writes.
    Write,
    /// Renews a lease, or claims or releases documents.
    Lease,
}

/// Notified of refused writes, of requests to a database and of its connections, on the store's thread.
pub trait StoreObserver: Send + Sync + fmt::Debug {
    /// A request ended, successfully or not.
    fn ended(&self, request: DatabaseRequest, took: Duration);
    /// A connection was made.
    fn connected(&self) {}
    /// An open connection was lost.
    fn disconnected(&self) {}
    /// The store is available but refused this many writes, all of one transaction.
    fn refused(&self, writes: u64, error: &StoreError);
    /// The store accepts writes again.
    fn accepted(&self) {}
}

/// Ignores all notifications.
impl StoreObserver for () {
    fn ended(&self, _: DatabaseRequest, _: Duration) {}

    fn refused(&self, _: u64, _: &StoreError) {}
}

/// Reports refused writes: each to the observer, their start and end to the log.
pub(crate) struct Refusals {
    observer: Arc<dyn StoreObserver>,
    log: Logger,
    is_refusing: bool,
}

impl Refusals {
    pub fn new(observer: Arc<dyn StoreObserver>, log: Logger) -> Self {
        Self {
            observer,
            log,
            is_refusing: false,
        }
    }

    /// Records the result of a transaction of `writes` writes.
    pub fn note(&mut self, writes: usize, written: &Result<(), StoreError>) {
        match written {
            Err(error) if error.is_refusal() => {
                self.observer.refused(writes as u64, error);
                if !self.is_refusing {
                    warn!(self.log, "the store refuses writes"; "error" => %error,
                        "effect" => "documents and outcomes of replications are not saved");
                }
                self.is_refusing = true;
            }
            Ok(()) if self.is_refusing => {
                info!(self.log, "the store accepts writes again");
                self.observer.accepted();
                self.is_refusing = false;
            }
            _ => {}
        }
    }
}
