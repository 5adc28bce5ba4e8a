//! The problems, as reported by `/_health`, and the progress of a drain: shared by the command, HTTP and tests.

use serde::{Deserialize, Serialize};

use super::jobs::is_zero;

/// A daemon's health.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok`, `warning` or `critical`: that of its worst problem. `unknown` before another daemon's first report.
    pub status: String,
    /// The daemon's name in its fleet.
    pub daemon: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
    /// Its problems, worst first.
    pub problems: Vec<Problem>,
    /// Number of another daemon's less severe problems that are omitted here; that daemon lists them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
    /// The age of another daemon's report, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
}

/// The health of a fleet's daemons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetHealth {
    /// `ok`, `warning` or `critical`: that of the worst problem of all.
    pub status: String,
    /// Each daemon's own report, starting with the queried daemon. The status of a daemon that has not reported yet is
    /// `unknown`.
    pub daemons: Vec<Health>,
}

/// A current problem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The kind of problem.
    pub kind: String,
    /// `warning` or `critical`.
    pub severity: String,
    /// Its subject: a pool, a service, a daemon, a reason.
    pub subject: String,
    /// The number of affected layers, jobs or requests.
    pub count: u64,
    /// When it began, as `2026-11-26T10:00:00Z`.
    pub since: String,
    /// Its duration in seconds.
    pub lasted_s: u64,
    /// A description of the cause.
    pub cause: String,
    /// The remedy: a command, a key, a page.
    pub remedy: String,
}

/// Whether a daemon takes new work, and its remaining work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainState {
    /// Whether it is draining: it takes no new work.
    pub draining: bool,
    /// When the drain began, as `2026-11-26T10:00:00Z`; `None` if the daemon is not draining.
    pub since: Option<String>,
    /// Requests that wait for a process.
    pub waiting: u64,
    /// Lent processes.
    pub lent: u64,
    /// Replications running or stopping in this daemon.
    pub running: u64,
}

impl DrainState {
    /// Returns whether the daemon takes no work and has none left.
    pub const fn is_idle(&self) -> bool {
        self.draining && self.waiting == 0 && self.lent == 0 && self.running == 0
    }
}
