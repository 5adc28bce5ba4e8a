//! Messages about named pools: adding, removing and changing them at run time.
//!
//! SUMMARY   An operator's orders for a pool, from any interface, and the changes that answer them.
//! PROMISES  No order carries a command: a pool names a language, whose command is in the configuration.
//! SOURCE    pidq: add_pool/1, remove_pool/2; pooler: pool_reconfigure/2.
//! LIMITS    Additions and changes last until the service is restarted.

use std::time::Duration;

use actix::{Message, Recipient};
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::config::Fault;
use crate::otp::Pid;
use policy::admission::Snapshot;
use policy::pool::{ProcId, RemoveMode, Token};
use policy::pressure::Level;

pub use settee_client::PoolChange;

/// A pool and some of its settings.
#[derive(Clone, Debug)]
pub struct PoolOrder {
    /// Its name.
    pub name: String,
    /// Keys of a section `[pools.NAME]`; `null` resets a setting to its default.
    pub settings: Map<String, Value>,
    /// Whether to return only the changes that would be made.
    pub dry_run: bool,
}

/// Adds a pool.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Vec<PoolChange>, PoolError>")]
pub struct AddPool(pub PoolOrder);

/// Changes settings of a pool; others are kept.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Vec<PoolChange>, PoolError>")]
pub struct ReconfigurePool(pub PoolOrder);

/// Removes a pool.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Vec<PoolChange>, PoolError>")]
pub struct RemovePool {
    /// Its name.
    pub name: String,
    /// How to remove it.
    pub mode: RemoveMode,
    /// Whether to return only the changes that would be made.
    pub dry_run: bool,
}

/// Lifts the throttle of a pool. Returns whether it was throttled.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<bool, PoolError>")]
pub struct UnthrottlePool {
    /// Its name.
    pub name: String,
}

/// Subscribes a client to revocations of its processes, until the client ends.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct SubscribeRevocation {
    /// The client.
    pub client: Pid,
    /// The recipient of notices.
    pub down: Recipient<ProcRevoked>,
}

/// A process that a client holds is revoked.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct ProcRevoked {
    /// The process.
    pub proc: ProcId,
    /// The ended loan.
    pub token: Token,
    /// Why, for programs: `pool_removed`, `memory_exceeded` or `shutting_down`.
    pub name: &'static str,
    /// The reason, for display.
    pub reason: String,
}

/// Why nothing changed. The caller's fault and not worth a retry, except for [`PoolError::ShuttingDown`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// There is no pool of this name.
    #[error("there is no pool named '{0}'")]
    NotFound(String),
    /// The pool already exists.
    #[error("there is a pool named '{0}' already: change that one, or take another name")]
    Exists(String),
    /// A setting is invalid, or cannot change.
    #[error("{0}")]
    BadSettings(String),
    /// The service is shutting down, or its manager is being restarted.
    #[error("the service is shutting down")]
    ShuttingDown,
}

impl From<Fault> for PoolError {
    fn from(fault: Fault) -> Self {
        Self::BadSettings(fault.to_string())
    }
}

/// Sets the usable part of the range between soft and hard limits.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct SetLevel {
    /// The part.
    pub level: Level,
    /// The reason, for the log.
    pub because: String,
}

// Watching a pool: its state, always available to services that lend its processes.

/// The wait before searching for a missing pool again.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The state of a pool, updated by the manager in the same turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Its processes; claims are the requests in its queue.
    pub pool: Snapshot,
    /// Whether processes are started with stress on.
    pub stress: bool,
}

impl PoolState {
    /// Returns the input of admission, including accepted clients without a process.
    pub(crate) fn with_claims(&self, claims: u32) -> Snapshot {
        Snapshot {
            // Our clients that wait in the pool's queue are already among its claims.
            claims: claims.max(self.pool.claims),
            ..self.pool
        }
    }
}

/// Watches a pool. `None`: there is no such pool. The channel ends with the pool or the manager.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Option<watch::Receiver<PoolState>>")]
pub struct WatchPool {
    /// Its name.
    pub pool: String,
}
