//! Numbers kept by name, of pools, languages, services and groups of jobs: so many names, and one row for all others.
//!
//! SUMMARY   A name has its own row as long as fewer than [`NAMES_MAX`] others have one. All further names
//!           count in the row [`REST`]. When the row of a name is no longer used and another name
//!           wants one, what was counted in it is added to the rest.
//! PROMISES  A sum over all rows never falls.
//! LIMITS    A name that came when there was no room counts in the rest for as long as it is there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many pools, languages, services and groups of jobs have a row each: names come from the
/// configuration, from requests and from documents, which may change without an end.
pub(crate) const NAMES_MAX: usize = 256;

/// What the row of all others is called: no pool, language, service or group can have this name.
pub(crate) const REST: &str = "_other";

/// What another one counted can be added to.
pub(super) trait Absorb: Default {
    /// Adds what `gone` has counted.
    fn absorb(&self, gone: &Self);
}

/// The rows of one kind of name.
#[derive(Debug)]
pub(super) struct Names<T>(Mutex<Rows<T>>);

#[derive(Debug)]
struct Rows<T> {
    named: BTreeMap<Arc<str>, Arc<T>>,
    /// There from the first name that has no row.
    rest: Option<Arc<T>>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self(Mutex::new(Rows {
            named: BTreeMap::new(),
            rest: None,
        }))
    }
}

impl<T: Absorb> Names<T> {
    /// Finds where a name counts, or begins a row.
    pub(super) fn find(&self, name: &str) -> Arc<T> {
        let mut rows = self.lock();
        if let Some(found) = rows.named.get(name) {
            return Arc::clone(found);
        }
        if rows.named.len() >= NAMES_MAX && !rows.make_room() {
            return Arc::clone(rows.rest.get_or_insert_default());
        }
        Arc::clone(rows.named.entry(name.into()).or_default())
    }
}

impl<T: Default> Names<T> {
    /// Returns where all others count.
    pub(super) fn rest(&self) -> Arc<T> {
        Arc::clone(self.lock().rest.get_or_insert_default())
    }
}

impl<T> Names<T> {
    /// Ends the rows that nobody uses.
    pub(super) fn forget_unused(&self) {
        let mut rows = self.lock();
        rows.named.retain(|_, row| Arc::strong_count(row) > 1);
        rows.rest.take_if(|row| Arc::strong_count(row) == 1);
    }

    /// Returns all rows with what they are called, in the order of the names.
    pub(super) fn all(&self) -> Vec<(Arc<str>, Arc<T>)> {
        let rows = self.lock();
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

    /// Nothing panics while it holds the lock, and what it guards is whole at any time.
    fn lock(&self) -> MutexGuard<'_, Rows<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Absorb> Rows<T> {
    /// Ends the row of a name that is no longer used. Returns false if all are in use.
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
