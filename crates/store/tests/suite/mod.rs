//! The tests that every store must pass.
//!
//! SUMMARY   The test kit makes a test of each case for one kind of place. A case opens handles on one [`TestPlace`];
//!           if stores of its kind are shared, each handle is like another daemon's.
//! CALLED    By the unit tests of the store; for PostgreSQL, by tests/external.
//! LIMITS    A failure is a panic.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests")]

mod basics;
pub mod counted;
mod export;
pub mod fake_fleet;
mod fleet;
mod outages;
mod shared;
mod tests_of;
mod upkeep;

pub use basics::*;
pub use export::*;
pub use fleet::*;
pub use outages::*;
pub use shared::*;
pub use upkeep::*;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slog::Logger;

use crate::document_store::Watcher;
use crate::documents::{Conflict, Edit};
use crate::place::StorePlace;
use crate::revision::Revision;
use crate::{Store, StoreError};

/// How long a test waits for an expected event.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A place for stores of one test.
#[derive(Debug)]
pub struct TestPlace {
    place: StorePlace,
    /// The handle of a store that only one process can open.
    only: Mutex<Option<Store>>,
}

impl TestPlace {
    /// Returns a place in memory.
    pub fn memory() -> Self {
        Self::of(StorePlace::Memory)
    }

    /// Returns a place in a file.
    pub fn file(path: &Path) -> Self {
        Self::of(StorePlace::File(path.into()))
    }

    /// Returns a place in the database of a URL.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn postgres(url: &str) -> Result<Self, String> {
        let url = settee_config::store_url::StoreUrl::parse(url)?;
        Ok(Self::of(StorePlace::Postgres(url)))
    }

    fn of(place: StorePlace) -> Self {
        Self {
            place,
            only: Mutex::default(),
        }
    }

    /// Returns a handle; handles of a shared store are independent of each other.
    pub fn handle(&self) -> Store {
        self.watched(Arc::new(()))
    }

    /// Returns a handle that reports documents to `watcher`. For a store that only one process can open, later calls
    /// return the first handle and ignore `watcher`.
    pub fn watched(&self, watcher: Arc<dyn Watcher>) -> Store {
        let mut only = self.only.lock().unwrap();
        if let Some(store) = &*only {
            return store.clone();
        }
        let store = started(self.place.clone(), watcher);
        match self.place {
            StorePlace::File(_) | StorePlace::Memory => only.insert(store).clone(),
            StorePlace::Postgres(_) => store,
        }
    }
}

pub(crate) fn started(place: StorePlace, watcher: Arc<dyn Watcher>) -> Store {
    let log = Logger::root(slog::Discard, slog::o!());
    Store::start(place, watcher, Arc::new(()), &log).unwrap()
}

pub(crate) fn edit(id: &str, expected: Option<Revision>, body: &str) -> Edit {
    Edit {
        id: id.to_owned(),
        expected,
        deleted: false,
        body: body.to_owned(),
    }
}

pub(crate) fn deletion(id: &str, expected: Option<Revision>) -> Edit {
    Edit {
        deleted: true,
        ..edit(id, expected, "{}")
    }
}

pub(crate) async fn one(store: &Store, wish: Edit) -> Result<Revision, Conflict> {
    try_one(store, wish).await.unwrap()
}

pub(crate) async fn try_one(
    store: &Store,
    wish: Edit,
) -> Result<Result<Revision, Conflict>, StoreError> {
    Ok(store.edit(vec![wish]).await?.remove(0))
}
