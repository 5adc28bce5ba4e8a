//! Observers of what goes on between a store and its file or database.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use slog::{Logger, info, warn};
use strum::{IntoStaticStr, VariantArray};

use crate::error::StoreError;

/// What a database is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DatabaseRequest {
    /// To read rows.
    Read,
    /// To carry out one transaction of writes.
    Write,
    /// To renew a lease, to claim or to release documents.
    Lease,
}

/// Hears of refused writes, of requests to a database and of the connections to it, on the store's thread.
pub trait StoreObserver: Send + Sync + fmt::Debug {
    /// A request has ended, well or not.
    fn ended(&self, request: DatabaseRequest, took: Duration);
    /// A connection was made.
    fn connected(&self);
    /// A connection that was made is gone.
    fn disconnected(&self);
    /// The store is there and did not carry out this many writes: none of a transaction.
    fn refused(&self, writes: u64, error: &StoreError);
    /// It takes writes again.
    fn accepted(&self) {}
}

/// Ignores them.
impl StoreObserver for () {
    fn ended(&self, _: DatabaseRequest, _: Duration) {}

    fn connected(&self) {}

    fn disconnected(&self) {}

    fn refused(&self, _: u64, _: &StoreError) {}
}

/// Reports writes that the store refuses: the observer of each, the log when that begins and when it is over.
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

    /// Takes what came of a transaction of so many writes.
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
                info!(self.log, "the store takes writes again");
                self.observer.accepted();
                self.is_refusing = false;
            }
            _ => {}
        }
    }
}
