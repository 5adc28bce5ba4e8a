//! The counts of one service: its connections, their ends, and how often it was full.

use std::sync::Arc;

use strum::{IntoStaticStr, VariantArray};

use super::ClientMetrics;
use super::cells::{Counter, CountersBy, Gauge};
use super::definition::metrics;
use super::names::Absorb;
use crate::messages::client_error::ErrorReply;
use crate::messages::process::Fault;

/// Why a connection of a service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LendEnd {
    /// Its client closed it.
    Client,
    /// Its client left during a call.
    Gone,
    /// There was no process for it.
    Refused,
    /// The process ended.
    Exit,
    /// The process broke the protocol.
    Protocol,
    /// The process did not answer in time.
    Timeout,
    /// Its client held the process for too long without a prompt.
    Idle,
    /// Its client did not read its answers.
    Unread,
    /// Its session timed out.
    Session,
    /// Its client sent too much.
    TooMuch,
    /// The service ended.
    Shutdown,
}

impl LendEnd {
    /// Returns why a connection ended, from the error in its last line.
    pub fn of(error: &ErrorReply) -> Self {
        match (error.name.as_str(), error.phase) {
            ("shutting_down", _) => Self::Shutdown,
            (_, "exit") => Self::Exit,
            ("timeout", "write") => Self::Unread,
            ("timeout", "session") => Self::Session,
            ("timeout", "prompt") if error.fault == Fault::Client => Self::Idle,
            ("timeout", "prompt") => Self::Timeout,
            ("os_process_error", "prompt") => Self::Protocol,
            ("pool_removed" | "memory_exceeded", "prompt") => Self::Exit,
            ("line_too_long" | "too_many_requests", _) => Self::TooMuch,
            _ => Self::Refused,
        }
    }
}

metrics! {
    /// The rows of [`ClientMetrics`] of a service, in the order of its fields.
    pub(super) const CONNECTIONS;

    /// Open connections of a service
    Gauge("settee.service_connections", "settee_service_connections").labels("service");
    /// Accepted connections of a service
    Counter("settee.service_accepted", "settee_service_accepted_total").labels("service");
    /// Received from a service's clients
    Counter("settee.service_received_bytes", "settee_service_received_bytes_total").labels("service");
    /// Sent to a service's clients
    Counter("settee.service_sent_bytes", "settee_service_sent_bytes_total").labels("service");
}

metrics! {
    /// The counts of one service.
    #[derive(Debug, Default)]
    pub struct ServiceMetrics {
        /// 1 while a service accepts connections, 0 while they wait in the system's queue
        Gauge("settee.service_listening", "settee_service_listening").labels("service")
            => pub listening: Gauge;
        /// Times that a service stopped accepting because all its processes were lent
        Counter("settee.service_limit_reached", "settee_service_limit_reached_total").labels("service")
            => pub limit_reached: Counter;
        /// Ends of a service's connections: client (closed in order), gone (its client left during work), refused (no
        /// process), exit (the process ended), protocol (the process broke it), timeout (no answer in time), idle
        /// (nothing sent for too long), unread (answers not read), session (session_timeout), too_much (too much sent),
        /// shutdown
        Counter("settee.service_ends", "settee_service_ends_total").labels("service", "reason")
            => pub ends: CountersBy<LendEnd>;
    }
    beside {
        connections: Arc<ClientMetrics>;
    }
}

/// The gauges of a former service are 0: it has no connections and does not listen.
impl Absorb for ServiceMetrics {
    fn absorb(&self, gone: &Self) {
        self.absorb_fields(gone);
        self.connections.absorb_fields(&gone.connections);
    }
}

impl ServiceMetrics {
    /// Returns the counts of its connections.
    pub fn connections(&self) -> Arc<ClientMetrics> {
        Arc::clone(&self.connections)
    }
}
