//! Servers that this daemon cannot reach, as reported by its renewals.
//!
//! SUMMARY   Each renewal reports recently unreachable servers, and recovered ones until a renewal that reports them is
//!           answered.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Reach, Request, SERVERS_MAX};
use crate::schedule::Server;

/// How long a server counts as unreachable after the last report.
const TOLD_FOR: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default)]
pub(super) struct ToldServers {
    /// When a server was last reported unreachable.
    pub unreached: BTreeMap<Server, Duration>,
    /// Servers reachable again, each with the latest request sent before this became known.
    pub back: BTreeMap<Server, Request>,
}

impl ToldServers {
    /// Records that a server is unreachable, or reachable again. `last` is the latest request that was sent.
    pub fn tell(&mut self, server: Server, answers: bool, now: Duration, last: Request) {
        if answers {
            self.unreached.remove(&server);
            self.back.insert(server, last);
        } else if self.unreached.len() < SERVERS_MAX || self.unreached.contains_key(&server) {
            self.back.remove(&server);
            self.unreached.insert(server, now);
        }
    }

    /// Returns the report of a renewal.
    pub fn reach(&mut self, now: Duration) -> Reach {
        self.unreached.retain(|_, at| now < *at + TOLD_FOR);
        Reach {
            unreached: self.unreached.keys().cloned().collect(),
            back: self.back.keys().take(SERVERS_MAX).cloned().collect(),
        }
    }

    /// A renewal with this report was answered.
    pub fn answered(&mut self, request: Request, reach: &Reach) {
        self.back
            .retain(|server, sent| *sent >= request || !reach.back.contains(server));
    }
}
