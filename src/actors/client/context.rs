//! What all connections are served with.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

use super::held_max::AllHeld;
use super::peer::UserNames;
use crate::actors::config_listener::ConfigListener;
use crate::actors::proc_manager::ProcManager;
use crate::actors::replicator_api::ReplicatorApi;
use crate::auth::Authority;
use crate::in_flight::InFlight;
use crate::metrics::Metrics;
use crate::otp::registered_name::RegisteredName;
use crate::query_server::reduce::OverflowLog;

/// What all connections share.
pub struct ClientContext {
    /// The pools.
    pub manager: RegisteredName<ProcManager>,
    /// The configuration.
    pub config: RegisteredName<ConfigListener>,
    /// What the service counts.
    pub metrics: Metrics,
    /// Where built-in sums that are too long are told.
    pub(super) sums: Option<Rc<OverflowLog>>,
    /// ReplicatorApi, where there are any.
    pub(super) replications: Option<ReplicatorApi>,
    /// The memory that requests and replies share, where it is bounded.
    pub(super) in_flight: Option<Arc<InFlight>>,
    /// Who is let in, where that is asked.
    pub authority: Arc<Authority>,
    /// Where HTTP listens, if it does.
    pub(super) http: Option<SocketAddr>,
    /// The processes that connections hold.
    pub(super) held: AllHeld,
    /// The users of this machine.
    pub(super) user_names: UserNames,
    stopping: Cell<bool>,
    stop: Notify,
}

impl ClientContext {
    /// Names the actors that serve connections. Waits for a small file of this machine.
    pub fn new(
        manager: RegisteredName<ProcManager>,
        config: RegisteredName<ConfigListener>,
        authority: Arc<Authority>,
    ) -> Self {
        Self {
            manager,
            config,
            authority,
            metrics: Metrics::new(),
            sums: None,
            replications: None,
            http: None,
            in_flight: None,
            held: AllHeld::default(),
            user_names: UserNames::read(),
            stopping: Cell::new(false),
            stop: Notify::new(),
        }
    }

    /// Uses the shared metrics instead of a private set.
    #[must_use]
    pub(crate) fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Tells of built-in sums that are too long.
    #[must_use]
    pub(crate) fn telling_sums(mut self, sums: Rc<OverflowLog>) -> Self {
        self.sums = Some(sums);
        self
    }

    /// Answers calls about jobs, too.
    #[must_use]
    pub(crate) fn with_replications(mut self, replications: ReplicatorApi) -> Self {
        self.replications = Some(replications);
        self
    }

    /// Tells where HTTP listens.
    #[must_use]
    pub(crate) fn with_http(mut self, http: Option<SocketAddr>) -> Self {
        self.http = http;
        self
    }

    /// Bounds the memory of requests and replies.
    #[must_use]
    pub(crate) fn with_in_flight(mut self, in_flight: Arc<InFlight>) -> Self {
        self.in_flight = Some(in_flight);
        self
    }

    /// Refuses whoever waits for a process, now and from now on: what they get could not be used
    /// any more.
    pub(crate) fn refuse_waiters(&self) {
        self.stopping.set(true);
        self.stop.notify_waiters();
    }

    /// Returns whether waiters are refused.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Returns once waiters are refused.
    pub(super) async fn refusal(&self) {
        if !self.is_stopping() {
            self.stop.notified().await;
        }
    }
}
