//! What all connections are served with.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::watch;

use super::held_max::AllHeld;
use super::peer::UserNames;
use crate::actors::config_listener::ConfigListener;
use crate::actors::proc_manager::ProcManager;
use crate::actors::replicator_api::ReplicatorApi;
use crate::auth::Authority;
use crate::drain::Drain;
use crate::functions::records::CallRecords;
use crate::in_flight::InFlight;
use crate::messages::proc_manager::GetProcError;
use crate::metrics::Metrics;
use crate::otp::registered_name::RegisteredName;
use crate::query_server::known_ddocs::KnownDdocs;

/// What all connections share.
pub(crate) struct ClientContext {
    /// The pools.
    pub(crate) manager: RegisteredName<ProcManager>,
    /// The configuration.
    pub(crate) config: RegisteredName<ConfigListener>,
    /// What the service counts.
    pub(crate) metrics: Metrics,
    /// Where function calls that are over are kept.
    pub(crate) records: Rc<CallRecords>,
    /// The replications.
    pub(crate) replications: ReplicatorApi,
    /// The memory that requests and replies share.
    pub(crate) in_flight: Arc<InFlight>,
    /// The design documents that calls may name by their digests.
    pub(crate) ddocs: Arc<KnownDdocs>,
    /// Whether the daemon is drained.
    pub(crate) drain: Drain,
    /// Who may log in; unused where no login is required.
    pub(crate) authority: Arc<Authority>,
    /// The processes that connections hold.
    pub(crate) held: AllHeld,
    /// The users of this machine.
    pub(crate) user_names: Arc<UserNames>,
    /// Whether those who wait for a process are refused.
    pub(crate) stopping: watch::Sender<bool>,
}

impl ClientContext {
    /// Refuses those who wait for a process, now and later: they could no longer use it.
    pub(crate) fn refuse_waiters(&self) {
        self.stopping.send_replace(true);
    }

    /// Returns whether waiters are refused.
    pub(super) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits for a process, or until waiters are refused.
    pub(super) async fn unless_stopping<T, E: From<GetProcError>>(
        &self,
        proc: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            result = proc => result,
            _ = stopping.wait_for(|stopping| *stopping) => Err(GetProcError::ShuttingDown.into()),
        }
    }
}
