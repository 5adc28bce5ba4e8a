//! The scheduler's settings, and values derived from them.
//!
//! SOURCE    couch_replicator_scheduler 004 and HEAD: max_jobs, max_churn, max_history, interval,
//!           health_threshold, backoff_micros; couch_replicator_share: shares and coefficients.
//! DIFFERS   The back-off is configurable. A free slot is filled at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::VariantNames;

use super::{History, WallTime};

/// The version of the reference that determines which jobs run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RuleSet {
    /// As in current CouchDB: a cycle fills free slots and rotates, and trimmed jobs count as churn; shares are fair.
    /// But a free slot is filled at once, including when a back-off ends.
    #[default]
    Current,
    /// As in the first version, of 2017: a cycle trims, or fills, or rotates; only the oldest start determines the
    /// order. After a crash, a slot is filled at once if there are fewer jobs than `max_jobs`, otherwise in the next
    /// cycle, because finding a job walks over all jobs.
    #[serde(rename = "2017")]
    #[strum(serialize = "2017")]
    First,
}

/// How long a job waits after crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first crash; doubled by each consecutive one.
    pub base: Duration,
    /// Maximum delay.
    pub ceiling: Duration,
}

impl Backoff {
    /// Maximum doublings of the delay.
    pub(crate) const DOUBLINGS_MAX: u32 = 10;

    /// Returns the delay after this many consecutive crashes; zero without any.
    pub fn after(&self, crashes: u32) -> Duration {
        let Some(doublings) = crashes.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 1 << doublings.min(Self::DOUBLINGS_MAX);
        self.base.saturating_mul(factor).min(self.ceiling)
    }
}

/// 30 s, doubling to 30720 s.
impl Default for Backoff {
    fn default() -> Self {
        let base = Duration::from_secs(30);
        Self {
            base,
            ceiling: base * (1 << Self::DOUBLINGS_MAX),
        }
    }
}

/// A decay factor, applied in each cycle, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficient(f64);

impl Coefficient {
    /// Creates a coefficient, clamped to 0 .. 1. NaN becomes 0.
    pub fn new(factor: f64) -> Self {
        Self(if factor > 0.0 { factor.min(1.0) } else { 0.0 })
    }

    /// Multiplies, and drops the fraction.
    pub fn of(self, number: u64) -> u64 {
        // As in the reference: in floating point, rounded towards zero.
        (number as f64 * self.0) as u64
    }
}

/// Each replicator database's share of the slots, and each user's for jobs without a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares(BTreeMap<Arc<str>, u16>);

impl Shares {
    /// The default share of a key.
    pub const DEFAULT: u16 = 100;
    /// The smallest share.
    pub(crate) const MIN: u16 = 1;
    /// The largest share.
    pub const MAX: u16 = 1000;

    /// Sets the share of a key, clamped to [`Shares::MIN`] .. [`Shares::MAX`].
    pub fn set(&mut self, key: &str, share: i64) {
        let share = share.clamp(i64::from(Self::MIN), i64::from(Self::MAX));
        self.0.insert(key.into(), share as u16);
    }

    pub fn get(&self, key: &str) -> u16 {
        self.0.get(key).copied().unwrap_or(Self::DEFAULT)
    }
}

/// Minimum time between two starts of a crashing job, even if its crashes do not count: prevents a tight loop.
pub(crate) const RESTART_MIN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The version of the reference that determines which jobs run.
    pub rules: RuleSet,
    /// Maximum running jobs. 0 runs nothing.
    pub max_jobs: usize,
    /// Maximum jobs stopped in a cycle to let others run. 0 rotates nothing.
    pub max_churn: usize,
    /// Maximum events kept for each job; 0 counts as 1. A lower number takes effect with each job's next event.
    pub max_history: usize,
    /// The time between cycles, which is also the maximum charge of a job in one cycle.
    pub interval: Duration,
    /// A job that ran longer counts as healthy, however it ends.
    pub health_threshold: Duration,
    pub backoff: Backoff,
    /// How fast usage decays.
    pub usage_coeff: Coefficient,
    /// How fast penalties decay.
    pub priority_coeff: Coefficient,
    pub shares: Shares,
}

impl Settings {
    /// Returns when a job with this history may run again (`not_recently_crashed`); in the past unless its newest
    /// event is a crash.
    pub(crate) fn rested_at(&self, history: &History) -> WallTime {
        if history.fresh_crash().is_none() {
            return WallTime::ZERO;
        }
        let crashes = history.consecutive_crashes(self.health_threshold);
        let mut wait = self.backoff.after(crashes);
        if history.last_run() < RESTART_MIN {
            wait = wait.max(RESTART_MIN);
        }
        history.latest_crash() + wait
    }
}

/// CouchDB's defaults.
impl Default for Settings {
    fn default() -> Self {
        Self {
            rules: RuleSet::default(),
            max_jobs: 500,
            max_churn: 20,
            max_history: 20,
            interval: Duration::from_secs(60),
            health_threshold: Duration::from_secs(120),
            backoff: Backoff::default(),
            usage_coeff: Coefficient(0.5),
            priority_coeff: Coefficient(0.98),
            shares: Shares::default(),
        }
    }
}
