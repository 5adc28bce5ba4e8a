//! Watching a pool: what those who serve others with its processes have to know of it at any time.

use std::time::Duration;

use actix::Message;
use tokio::sync::watch;

use policy::admission::Snapshot;

/// How long to wait before a pool that is not there is looked for again.
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
