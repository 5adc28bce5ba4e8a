//! The problems, as `/_health` reports them, and the progress of a drain: one value for the command, HTTP and tests.

use serde::{Deserialize, Serialize};

/// How well a daemon is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok`, `warning` or `critical`: as its worst problem.
    pub status: String,
    /// The daemon that says so, as others of a fleet know it.
    pub daemon: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
    /// What is wrong, the worst first.
    pub problems: Vec<Problem>,
    /// Number of less severe problems of another daemon that were left out; that daemon lists them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub omitted: u64,
    /// The age in seconds of what another daemon of a fleet has reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_none(count: &u64) -> bool {
    *count == 0
}

/// How well the daemons of a fleet are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetHealth {
    /// `ok`, `warning` or `critical`: as the worst problem of all.
    pub status: String,
    /// What each daemon says of itself, that which was asked first. The status of one that has said nothing yet is
    /// `unknown`.
    pub daemons: Vec<Health>,
}

/// Something that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What kind of trouble it is.
    pub kind: String,
    /// `warning` or `critical`.
    pub severity: String,
    /// What it concerns: a pool, a service, a daemon, a reason.
    pub subject: String,
    /// How many of these: layers, jobs, requests.
    pub count: u64,
    /// Since when, as `2026-11-26T10:00:00Z`.
    pub since: String,
    /// For how many seconds.
    pub lasted_s: u64,
    /// Why, in words.
    pub cause: String,
    /// What to do: a command, a key, a page.
    pub remedy: String,
}

/// Whether a daemon takes new work, and what is left of what it had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainState {
    /// Whether it is drained.
    pub draining: bool,
    /// Since when, as `2026-11-26T10:00:00Z`; none if it is not.
    pub since: Option<String>,
    /// Requests that wait for a process.
    pub waiting: u64,
    /// Processes that are lent.
    pub lent: u64,
    /// Replications that run, or stop, in this daemon.
    pub running: u64,
}

impl DrainState {
    /// Returns whether the daemon takes no work, and has none left.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.draining && self.waiting == 0 && self.lent == 0 && self.running == 0
    }
}
