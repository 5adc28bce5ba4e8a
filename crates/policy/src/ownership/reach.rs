//! Which servers this daemon does not reach, as its renewals report.
//!
//! SUMMARY   Each renewal reports the servers found unreached lately, and those reached again until one is answered.

use std::collections::BTreeMap;
use std::time::Duration;

use super::SERVERS_MAX;
use super::event::{Reach, Request};
use crate::schedule::Server;

/// How long a server counts as unreached after the last report.
const TOLD_FOR: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default)]
pub(super) struct ToldServers {
    /// When a server was last reported unreached.
    unreached: BTreeMap<Server, Duration>,
    /// Those that are reached again, and the latest request that was sent before.
    back: BTreeMap<Server, Request>,
}

impl ToldServers {
    /// Notes that a server is not reached, or again. `last` is the latest request that was sent.
    pub(super) fn tell(&mut self, server: Server, answers: bool, now: Duration, last: Request) {
        if answers {
            self.unreached.remove(&server);
            self.back.insert(server, last);
        } else if self.unreached.len() < SERVERS_MAX || self.unreached.contains_key(&server) {
            self.back.remove(&server);
            self.unreached.insert(server, now);
        }
    }

    /// Returns what a renewal tells.
    pub(super) fn reach(&mut self, now: Duration) -> Reach {
        self.unreached.retain(|_, at| now < *at + TOLD_FOR);
        Reach {
            unreached: self.unreached.keys().cloned().collect(),
            back: self.back.keys().take(SERVERS_MAX).cloned().collect(),
        }
    }

    /// A renewal that reported this was answered.
    pub(super) fn answered(&mut self, request: Request, reach: &Reach) {
        self.back
            .retain(|server, sent| *sent >= request || !reach.back.contains(server));
    }

    #[cfg(test)]
    pub(super) fn has_unreached(&self) -> bool {
        !self.unreached.is_empty()
    }

    /// There is an epoch that has reported nothing.
    pub(super) fn begin_anew(&mut self) {
        self.back.clear();
    }
}
