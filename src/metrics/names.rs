//! Metrics by name, for pools, languages, services and groups of jobs: a bounded number of rows, and one for all
//! others.
//!
//! SUMMARY   A name gets its own row while fewer than [`NAMES_MAX`] names have one. All other names count in the row
//!           [`REST`]. If a row is unused and another name needs a row, the unused row's counts are added to the rest.
//! PROMISES  A row that makes room adds its counts to the rest, so a sum of counters over all rows never falls.
//! LIMITS    A name that first occurs when all rows are in use counts in the rest as long as it is in use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::lock;

/// Maximum number of named rows of each kind, besides [`REST`]: the names of pools, languages, services and groups of
/// jobs are in configurations, requests and documents, which may change without limit.
pub(crate) const NAMES_MAX: usize = 256;

/// The name of the row of all others: no pool, language, service or group can have this name.
pub(crate) const REST: &str = "_other";

/// Metrics that can absorb those of a former row.
pub(super) trait Absorb: Default {
    /// Adds the counts of `gone`.
    fn absorb(&self, gone: &Self);
}

/// The rows of one kind of name.
#[derive(Debug, Default)]
pub(super) struct Names<T>(Mutex<Rows<T>>);

#[derive(Debug, Default)]
struct Rows<T> {
    named: BTreeMap<Arc<str>, Arc<T>>,
    /// `None` until a name has to be counted without its own row.
    rest: Option<Arc<T>>,
}

impl<T: Absorb> Names<T> {
    /// Returns the row that a name counts in; creates one if possible.
    pub fn find(&self, name: &str) -> Arc<T> {
        let mut rows = lock(&self.0);
        if let Some(found) = rows.named.get(name) {
            return Arc::clone(found);
        }
        if rows.named.len() >= NAMES_MAX && !rows.make_room() {
            return Arc::clone(rows.rest.get_or_insert_default());
        }
        Arc::clone(rows.named.entry(name.into()).or_default())
    }

    /// Returns the row of all others.
    pub fn rest(&self) -> Arc<T> {
        Arc::clone(lock(&self.0).rest.get_or_insert_default())
    }

    /// Removes unused rows with their counts: only for metrics whose unused rows are zero.
    pub fn forget_unused(&self) {
        let mut rows = lock(&self.0);
        rows.named.retain(|_, row| Arc::strong_count(row) > 1);
        rows.rest.take_if(|row| Arc::strong_count(row) == 1);
    }

    /// Returns all rows with their names, in the order of names.
    pub fn all(&self) -> Vec<(Arc<str>, Arc<T>)> {
        let rows = lock(&self.0);
        let named = rows
            .named
            .iter()
            .map(|(name, row)| (Arc::clone(name), Arc::clone(row)));
        let rest = rows
            .rest
            .as_ref()
            .map(|rest| (REST.into(), Arc::clone(rest)));
        named.chain(rest).collect()
    }
}

impl<T: Absorb> Rows<T> {
    /// Removes an unused row. Returns `false` if all are in use.
    fn make_room(&mut self) -> bool {
        let mut rows = self.named.iter();
        let unused = rows
            .find(|(_, row)| Arc::strong_count(row) == 1)
            .map(|(name, _)| Arc::clone(name));
        let Some(gone) = unused.and_then(|name| self.named.remove(&name)) else {
            return false;
        };
        self.rest.get_or_insert_default().absorb(&gone);
        true
    }
}
