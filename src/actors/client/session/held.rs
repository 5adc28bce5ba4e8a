//! The processes that a connection holds.

use std::rc::Rc;

use serde::Serialize;

use super::super::holding::Holding;
use super::Session;
use crate::messages::client::ProcToken;
use crate::messages::pools::ProcRevoked;
use crate::messages::proc_manager::GetProcError;

/// How many processes a connection may hold, dead ones included, before dead ones are forgotten.
pub(super) const HELD_SWEEP_MIN: usize = 256;

impl Session {
    pub(in crate::actors::client) fn hold(&self, holding: Rc<Holding>) {
        let mut held = self.held.borrow_mut();
        held.insert(holding.name.token, holding);
        if held.len() >= self.sweep_at.get() {
            held.retain(|_, holding| holding.is_alive());
            self.sweep_at.set(HELD_SWEEP_MIN.max(held.len() * 2));
        }
    }

    /// Returns whether the manager has still to be told where to say that a process is taken away.
    pub(in crate::actors::client) fn begin_to_be_told(&self) -> bool {
        !self.is_told.replace(true)
    }

    /// The manager is gone: a successor does not know it.
    pub(in crate::actors::client) fn end_to_be_told(&self) {
        self.is_told.set(false);
    }

    /// Returns whether the client holds a process.
    pub(in crate::actors::client) fn holds(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    /// Tells the client of each process that it holds that the service ends. Returns whether everything
    /// is written.
    pub(in crate::actors::client) fn tell_of_shutdown(&self) -> bool {
        let held = self.held.borrow();
        for holding in held.values().filter(|holding| holding.is_alive()) {
            let error = GetProcError::ShuttingDown;
            self.push_down(holding.name, error.class().name, &error.to_string());
        }
        self.write_now()
    }

    /// Tells the client that a process which it holds is taken from it.
    pub(in crate::actors::client) fn take_away(self: &Rc<Self>, down: &ProcRevoked) {
        let name = ProcToken {
            proc: down.proc,
            token: down.token,
        };
        // It may have been given back meanwhile.
        if self.release(Some(name)).is_none() {
            return;
        }
        self.push_down(name, down.name, &down.reason);
        self.flush();
    }

    /// Queues the line that says that a process is held no more.
    fn push_down(&self, proc: ProcToken, name: &str, reason: &str) {
        #[derive(Serialize)]
        struct Notice<'a> {
            down: String,
            name: &'a str,
            reason: &'a str,
        }
        let notice = Notice {
            down: proc.to_string(),
            name,
            reason,
        };
        let mut line = serde_json::to_vec(&notice).expect("config: texts can always be written");
        line.push(b'\n');
        self.push_raw(&line);
    }

    /// Finds what the client holds under this name.
    pub(in crate::actors::client) fn holding(
        &self,
        name: Option<ProcToken>,
    ) -> Option<Rc<Holding>> {
        let name = name?;
        let held = self.held.borrow();
        held.get(&name.token)
            .filter(|holding| holding.name == name)
            .cloned()
    }

    /// Takes what the client holds under this name away from it.
    pub(in crate::actors::client) fn release(
        &self,
        name: Option<ProcToken>,
    ) -> Option<Rc<Holding>> {
        let holding = self.holding(name)?;
        self.held.borrow_mut().remove(&holding.name.token)
    }
}
