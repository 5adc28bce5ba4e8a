//! Fair share: the recent usage of each key, and the resulting penalty of its jobs.
//!
//! SUMMARY   Running time is charged to a job's key: its replicator database, or its user if there is no database.
//!           Charges become usage, and usage becomes a penalty of each running job of the key. Both decay. The
//!           smaller the penalty, the earlier the job's turn.
//! PROMISES  The same integers and truncations as the reference. A key takes memory only while it has jobs or
//!           remembered usage.
//! CALLED    By [`super::Scheduler`], which keeps the penalties.
//! SOURCE    couch_replicator_share and its RFC, which call the penalty "priority" and run the lowest first. The idea
//!           is the fair share scheduler of Kay and Lauder.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::{Coefficient, Shares};

/// The account of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// The number of its jobs.
    pub jobs: u64,
    /// Their decayed use, in microseconds.
    pub usage: u64,
    /// Their use since the latest cycle, in microseconds.
    pub charges: u64,
}

impl Account {
    const fn is_used(&self) -> bool {
        self.jobs > 0 || self.usage > 0 || self.charges > 0
    }
}

/// The accounts of all keys, by key.
#[derive(Clone, Debug, Default)]
pub(super) struct FairShare(pub FxHashMap<Arc<str>, Account>);

impl FairShare {
    /// Adds a job of a key.
    pub fn job_added(&mut self, key: &Arc<str>) {
        self.0.entry(Arc::clone(key)).or_default().jobs += 1;
    }

    /// Removes a job. Its usage stays on the account, so that adding the job again gains nothing.
    pub fn job_removed(&mut self, key: &str) {
        if let Some(account) = self.0.get_mut(key) {
            account.jobs -= 1;
            if !account.is_used() {
                self.0.remove(key);
            }
        }
    }

    /// Charges running time to a key that has jobs.
    pub fn charge(&mut self, key: &str, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if let Some(account) = self.0.get_mut(key) {
            account.charges = account.charges.saturating_add(micros);
        }
    }

    /// Decays usage and adds the charges since the last call. Called once a cycle.
    pub fn update_usage(&mut self, coefficient: Coefficient) {
        self.0.retain(|_, account| {
            let charges = std::mem::take(&mut account.charges);
            account.usage = coefficient.of(account.usage).saturating_add(charges);
            account.is_used()
        });
    }

    /// Returns what one cycle adds to the penalty of a running job of this key.
    pub fn raise(&self, key: &str, shares: &Shares) -> u64 {
        let used = self.0.get(key).map_or(0, |account| {
            u128::from(account.usage) * u128::from(account.jobs)
        });
        let shares = f64::from(shares.get(key));
        // As in the reference: a division in floating point, rounded towards zero.
        (used as f64 / (shares * shares)) as u64
    }
}
