//! An actor's accepted connections.

use std::collections::BTreeMap;

use actix::Recipient;

use crate::actors::client::ClientHandle;
use crate::otp::{ActorId, Down};

/// Maximum connections searched for an idle one, oldest first.
const SEARCH_MAX: usize = 256;

/// Open connections, oldest first. They end with their actor, since a successor would not know them.
#[derive(Default)]
pub(crate) struct Connections(BTreeMap<ActorId, ClientHandle>);

impl Connections {
    /// Adds one; `down` is notified of its end.
    pub fn add(&mut self, client: ClientHandle, down: Recipient<Down>) {
        client.pid.monitor(down);
        self.0.insert(client.pid.id(), client);
    }

    /// Removes one that has ended.
    pub fn remove(&mut self, ended: &Down) {
        self.0.remove(&ended.actor);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends the oldest idle one. Returns false if there is none.
    pub fn end_an_idle_one(&mut self) -> bool {
        self.0
            .values()
            .take(SEARCH_MAX)
            .any(ClientHandle::end_if_idle)
    }

    /// Ends all of them, at once or after their open requests.
    pub fn stop(&self, now: bool) {
        self.0.values().for_each(|client| client.stop(now));
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.stop(true);
    }
}
