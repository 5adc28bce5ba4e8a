//! State shared by all client connections.

use std::rc::Rc;
use std::sync::Arc;

use slog::Logger;
use tokio::sync::watch;

use super::held_max::AllHeld;
use super::peer::UserNames;
use crate::ConfigWatch;
use crate::actors::proc_manager::ProcManager;
use crate::auth::Authority;
use crate::drain::Drain;
use crate::functions::records::CallRecords;
use crate::in_flight::InFlight;
use crate::messages::proc_manager::GetProcError;
use crate::metrics::Metrics;
use crate::otp::RegisteredName;
use crate::query_server::known_ddocs::KnownDdocs;

pub(crate) struct ClientContext {
    pub manager: RegisteredName<ProcManager>,
    /// The current configuration.
    pub config: ConfigWatch,
    /// The service's metrics.
    pub metrics: Metrics,
    /// Records of finished function calls.
    pub records: Rc<CallRecords>,
    /// The memory shared by requests and replies.
    pub in_flight: Arc<InFlight>,
    /// Design documents that calls may name by digest.
    pub ddocs: Arc<KnownDdocs>,
    /// Whether the daemon is drained.
    pub drain: Drain,
    /// Authenticates users; unused if no login is required.
    pub authority: Arc<Authority>,
    /// The processes held by connections.
    pub held: AllHeld,
    /// The users of this machine.
    pub user_names: Arc<UserNames>,
    /// Whether waiters for a process are refused.
    pub stopping: watch::Sender<bool>,
    pub log: Logger,
}

impl ClientContext {
    /// Refuses current and later waiters for a process: they could no longer use one.
    pub fn refuse_waiters(&self) {
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
