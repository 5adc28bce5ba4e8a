//! Fair share: who used how much of late, and what that costs whose jobs.
//!
//! SUMMARY   Running time is charged to a job's key: its replicator database, or the user without
//!           one. Charges become usage, and usage becomes a penalty of each job of the key that
//!           runs. Both decay. The smaller the penalty, the sooner a job's turn.
//! PROMISES  The reference's integers, truncation for truncation. A key costs memory while it has
//!           jobs or is owed for what it used, no longer.
//! CALLED    By [`super::Scheduler`], which keeps the penalties.
//! SOURCE    couch_replicator_share and its RFC; what is called penalty here is a priority there,
//!           of which the lower one runs first. The idea is the fair share scheduler of Kay and
//!           Lauder.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::settings::{Coefficient, Shares};

/// A key while it is known; reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyId(u32);

/// What is kept of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Key {
    name: Arc<str>,
    shares: u16,
    /// How many jobs it has.
    jobs: u64,
    /// What it used, decayed; in microseconds.
    usage: u64,
    /// What it used since the latest cycle, in microseconds.
    charges: u64,
}

impl Key {
    const fn is_unused(&self) -> bool {
        self.jobs == 0 && self.usage == 0 && self.charges == 0
    }
}

/// The accounts of all keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct FairShare {
    shares: Shares,
    /// Key number -> its account; rows that are not in use are in `free`.
    keys: Vec<Key>,
    free: Vec<KeyId>,
    /// Name -> its key number.
    by_name: FxHashMap<Arc<str>, KeyId>,
}

impl FairShare {
    /// Opens the accounts.
    pub fn new(shares: Shares) -> Self {
        Self {
            shares,
            ..Self::default()
        }
    }

    /// Divides anew from now on.
    pub(crate) fn set_shares(&mut self, shares: Shares) {
        for key in &mut self.keys {
            key.shares = shares.get(&key.name);
        }
        self.shares = shares;
    }

    /// One more job of a key.
    pub(crate) fn job_added(&mut self, name: &Arc<str>) -> KeyId {
        let id = match self.by_name.get(name) {
            Some(id) => *id,
            None => self.open(name),
        };
        self.keys[id.0 as usize].jobs += 1;
        id
    }

    /// One job fewer. What it used stays, so that a key gains nothing by adding a job anew.
    pub(crate) fn job_removed(&mut self, id: KeyId) {
        let key = &mut self.keys[id.0 as usize];
        key.jobs -= 1;
        self.close_unused(id);
    }

    /// Charges running time to a key.
    pub(crate) fn charge(&mut self, id: KeyId, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let key = &mut self.keys[id.0 as usize];
        key.charges = key.charges.saturating_add(micros);
    }

    /// Decays usage and adds what was charged since the last time. Once a cycle.
    pub(crate) fn update_usage(&mut self, coefficient: Coefficient) {
        for number in 0..self.keys.len() as u32 {
            let key = &mut self.keys[number as usize];
            let charges = std::mem::take(&mut key.charges);
            let was_used = key.usage > 0 || charges > 0;
            key.usage = coefficient.of(key.usage).saturating_add(charges);
            if was_used {
                self.close_unused(KeyId(number));
            }
        }
    }

    /// Returns what a cycle adds to the penalty of a running job of this key.
    pub fn raise(&self, id: KeyId) -> u64 {
        let key = &self.keys[id.0 as usize];
        let used = u128::from(key.usage) * u128::from(key.jobs);
        let shares = f64::from(key.shares);
        // As in the reference: a division in floating point, rounded towards zero.
        (used as f64 / (shares * shares)) as u64
    }

    fn open(&mut self, name: &Arc<str>) -> KeyId {
        let key = Key {
            name: Arc::clone(name),
            shares: self.shares.get(name),
            ..Key::default()
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.keys[id.0 as usize] = key;
                id
            }
            None => {
                self.keys.push(key);
                KeyId(self.keys.len() as u32 - 1)
            }
        };
        self.by_name.insert(Arc::clone(name), id);
        id
    }

    fn close_unused(&mut self, id: KeyId) {
        let key = &mut self.keys[id.0 as usize];
        if key.is_unused() {
            self.by_name.remove(&key.name);
            *key = Key::default();
            self.free.push(id);
        }
    }
}

/// What the tests look at.
#[cfg(test)]
impl FairShare {
    fn key(&self, name: &str) -> Option<&Key> {
        let id = self.by_name.get(name)?;
        self.keys.get(id.0 as usize)
    }

    pub(super) fn share_of(&self, name: &str) -> u16 {
        self.key(name)
            .map_or_else(|| self.shares.get(name), |key| key.shares)
    }

    pub(super) fn jobs_of(&self, name: &str) -> Option<u64> {
        self.key(name).map(|key| key.jobs).filter(|jobs| *jobs > 0)
    }

    pub(super) fn charges_of(&self, name: &str) -> Option<u64> {
        self.key(name)
            .map(|key| key.charges)
            .filter(|charges| *charges > 0)
    }

    pub(super) fn usage_of(&self, name: &str) -> Option<u64> {
        self.key(name)
            .map(|key| key.usage)
            .filter(|usage| *usage > 0)
    }

    pub(super) fn keys(&self) -> usize {
        self.by_name.len()
    }
}
