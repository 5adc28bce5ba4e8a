//! What is counted of one service: its connections, how they ended, and how often it was full.

use std::sync::Arc;

use strum::{IntoStaticStr, VariantArray};

use super::ClientMetrics;
use super::cells::{Counter, CountersBy, Gauge};
use super::names::Absorb;
use crate::messages::client_error::ErrorReply;
use crate::messages::process::Fault;

/// Why a connection of a service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LendEnd {
    /// Its client ended it.
    Client,
    /// Its client went away with something in hand.
    Gone,
    /// There was no process for it.
    Refused,
    /// The process ended.
    Exit,
    /// The process broke the protocol.
    Protocol,
    /// The process did not answer in time.
    Timeout,
    /// Its client held the process for too long without asking it anything.
    Idle,
    /// Its client did not take what it was answered.
    Unread,
    /// It lasted as long as it may.
    Session,
    /// Its client sent too much.
    TooMuch,
    /// The service ended.
    Shutdown,
}

impl LendEnd {
    /// Returns what the error of a connection's last line says.
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

/// The numbers of one service.
#[derive(Debug, Default)]
pub struct ServiceMetrics {
    connections: Arc<ClientMetrics>,
    pub(super) ends: CountersBy<LendEnd>,
    /// How often it stopped accepting at its limit.
    pub limit_reached: Counter,
    /// 1 while it accepts.
    pub listening: Gauge,
}

/// One that is gone has no connections and does not listen.
impl Absorb for ServiceMetrics {
    fn absorb(&self, gone: &Self) {
        let (to, from) = (&self.connections, &gone.connections);
        to.accepted.absorb(&from.accepted);
        to.received_bytes.absorb(&from.received_bytes);
        to.sent_bytes.absorb(&from.sent_bytes);
        self.ends.absorb(&gone.ends);
        self.limit_reached.absorb(&gone.limit_reached);
    }
}

impl ServiceMetrics {
    /// Returns the numbers of its connections.
    pub fn connections(&self) -> Arc<ClientMetrics> {
        Arc::clone(&self.connections)
    }

    /// Counts the end of a connection.
    pub fn ended(&self, why: LendEnd) {
        self.ends.one(why);
    }
}
