//! The processes that a connection holds.

use std::rc::Rc;

use actix::Recipient;
use serde_json::json;

use super::super::holding::Holding;
use super::Session;
use crate::messages::client::ProcToken;
use crate::messages::pools::{ProcRevoked, SubscribeRevocation};
use crate::messages::proc_manager::GetProcError;
use crate::otp::Tell;

/// Number of processes held by a connection, including dead ones, at which dead ones are first dropped.
pub(super) const HELD_SWEEP_MIN: usize = 256;

impl Session {
    pub fn hold(&self, holding: Rc<Holding>) {
        let mut held = self.held.borrow_mut();
        held.insert(holding.name.token, holding);
        if held.len() >= self.sweep_at.get() {
            held.retain(|_, holding| holding.is_alive());
            self.sweep_at.set(HELD_SWEEP_MIN.max(held.len() * 2));
        }
    }

    /// Subscribes `down` to revocations. Repeated with each request, since a restarted manager has no subscriptions.
    pub fn subscribe_revocation(&self, down: Recipient<ProcRevoked>) {
        let client = self.query_servers.caller().client().clone();
        self.services
            .manager
            .tell(SubscribeRevocation { client, down });
    }

    /// Returns whether the client holds a process.
    pub fn holds(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    /// Notifies the client, for each process that it holds, that the service is shutting down.
    pub fn tell_of_shutdown(&self) {
        let held = self.held.borrow();
        for holding in held.values().filter(|holding| holding.is_alive()) {
            let error = GetProcError::ShuttingDown;
            self.push_down(holding.name, error.class().name, &error.to_string());
        }
        self.write_now();
    }

    /// Notifies the client that a process was revoked.
    pub fn take_away(self: &Rc<Self>, down: &ProcRevoked) {
        let name = ProcToken {
            proc: down.proc,
            token: down.token,
        };
        // The process may have been returned meanwhile.
        if self.release(Some(name)).is_none() {
            return;
        }
        self.push_down(name, down.name, &down.reason);
        self.flush();
    }

    /// Queues the line that reports a lost process.
    fn push_down(&self, proc: ProcToken, name: &str, reason: &str) {
        let notice = json!({"down": proc.to_string(), "name": name, "reason": reason});
        self.push_raw(&format!("{notice}\n").into());
    }

    /// Finds the client's process by its name.
    pub fn holding(&self, name: Option<ProcToken>) -> Option<Rc<Holding>> {
        let name = name?;
        let held = self.held.borrow();
        held.get(&name.token)
            .filter(|holding| holding.name == name)
            .cloned()
    }

    /// Removes and returns the client's process with this name.
    pub fn release(&self, name: Option<ProcToken>) -> Option<Rc<Holding>> {
        let holding = self.holding(name)?;
        self.held.borrow_mut().remove(&holding.name.token)
    }
}
