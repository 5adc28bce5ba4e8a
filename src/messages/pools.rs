//! Messages about named pools: adding, removing, changing them while the service runs.
//!
//! SUMMARY   What an operator says of a pool, whichever way it comes in, and the changes that are
//!           the answer.
//! PROMISES  None of them carries a command: a pool names a language, whose command is in the
//!           configuration.
//! SOURCE    pidq: add_pool/1, remove_pool/2; pooler: pool_reconfigure/2.
//! LIMITS    What is added or changed so lives until the service is restarted.

use std::time::Duration;

use actix::{Message, Recipient};
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::config::Fault;
use crate::otp::pid::Pid;
use policy::admission::Snapshot;
use policy::pool::{ProcId, RemoveMode, Token};
use policy::pressure::Level;

pub use settee_client::PoolChange;

/// A pool and settings of it.
#[derive(Clone, Debug)]
pub struct PoolOrder {
    /// Its name.
    pub name: String,
    /// Keys of a section `[pools.NAME]`; `null` takes a setting back to its default.
    pub settings: Map<String, Value>,
    /// Whether only to tell what would change.
    pub dry_run: bool,
}

/// Adds a pool.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Vec<PoolChange>, PoolError>")]
pub struct AddPool(pub PoolOrder);

/// Changes settings of a pool; those that are not named stay.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Vec<PoolChange>, PoolError>")]
pub struct ReconfigurePool(pub PoolOrder);

/// Removes a pool.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Vec<PoolChange>, PoolError>")]
pub struct RemovePool {
    /// Its name.
    pub name: String,
    /// How.
    pub mode: RemoveMode,
    /// Whether only to tell what would change.
    pub dry_run: bool,
}

/// Starts processes of a pool again, before the time of its throttle is up. Returns whether it was
/// throttled.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<bool, PoolError>")]
pub struct UnthrottlePool {
    /// Its name.
    pub name: String,
}

/// Stops the idle processes of one pool that were started before the last reload.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), PoolError>")]
pub(crate) struct TerminateStaleOf {
    /// The pool's name.
    pub name: String,
}

/// Says where a client is notified that a process it holds is taken from it. Holds until it ends.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct SubscribeRevocation {
    /// The client.
    pub client: Pid,
    /// Where.
    pub down: Recipient<ProcRevoked>,
}

/// A process that a client holds is taken from it.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct ProcRevoked {
    /// The process.
    pub proc: ProcId,
    /// The assignment, which is over.
    pub token: Token,
    /// Why, for programs: `pool_removed`, `memory_exceeded`.
    pub name: &'static str,
    /// Why, for people.
    pub reason: String,
}

/// Why nothing changed. The caller's fault; not worth a retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// There is no pool of this name.
    #[error("there is no pool named '{0}'")]
    NotFound(String),
    /// There is one already.
    #[error("there is a pool named '{0}' already: change that one, or take another name")]
    Exists(String),
    /// A setting is wrong, or cannot change.
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

/// How much of what lies between soft and hard limits may be used from now on.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct SetLevel {
    /// How much.
    pub level: Level,
    /// Why, for the log.
    pub because: String,
}

// Watching a pool: what those who serve others with its processes have to know of it at any time.

/// How long to wait before a pool that is not there is searched for again.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What there is of a pool, kept up to date by the manager in the turn in which it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Its processes; claims are the requests that wait in its queue.
    pub pool: Snapshot,
    /// Whether processes are started with stress on.
    pub stress: bool,
}

impl PoolState {
    /// Returns what admission decides by, with those who were let in and have no process yet.
    pub(crate) fn with_claims(&self, claims: u32) -> Snapshot {
        Snapshot {
            // Those of ours who wait in the pool's queue are among those who wait there.
            claims: claims.max(self.pool.claims),
            ..self.pool
        }
    }
}

/// Asks to watch a pool. `None`: there is no such pool. The end of the channel is the pool's, or
/// the manager's.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Option<watch::Receiver<PoolState>>")]
pub struct WatchPool {
    /// Its name.
    pub pool: String,
}
