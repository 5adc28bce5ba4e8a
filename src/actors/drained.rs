//! Drains the daemon, and reports its remaining work; for HTTP and for clients of the socket.

use serde_json::json;
use settee_client::DrainState;

use super::proc_manager::{GetStatus, ProcManager};
use super::replicator_api::ReplicatorApi;
use crate::audit::Done;
use crate::drain::Drain;
use crate::otp::registered_name::RegisteredName;

/// Drains the daemon, or undrains it. Returns the effect.
pub(crate) fn set_drained(drain: &Drain, is_drained: bool) -> Done {
    let changes = drain.set(is_drained);
    Done::after(
        usize::from(changes),
        json!({"draining": changes != is_drained}),
    )
}

/// Returns the remaining work. A manager or scheduler that is restarting counts as without work.
pub(crate) async fn drain_state(
    drain: &Drain,
    manager: &RegisteredName<ProcManager>,
    replications: &ReplicatorApi,
) -> DrainState {
    let since = drain.since();
    let snapshot = manager.call(GetStatus { pool: None }).await;
    let pools = snapshot
        .map(|snapshot| snapshot.summary())
        .unwrap_or_default()
        .pools;
    DrainState {
        draining: since.is_some(),
        since: since.map(|since| since.to_string()),
        waiting: pools.iter().map(|pool| u64::from(pool.waiting)).sum(),
        lent: pools.iter().map(|pool| u64::from(pool.used)).sum(),
        running: replications.running_here().await,
    }
}
