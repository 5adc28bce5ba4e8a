//! The place of a store.

use std::fmt;
use std::path::PathBuf;

use super::document_store::Watcher;
use super::error::{OpenError, OpenProblem};
use super::export::{ExportHead, ExportRow, StoreSnapshot};
use super::postgres;
use super::redb;
use settee_config::Store;
use settee_config::store_url::StoreUrl;

/// The place of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// In a file.
    File(PathBuf),
    /// In memory, for the process's lifetime.
    Memory,
    /// In a PostgreSQL database, which several services may share.
    Postgres(StoreUrl),
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Memory => f.write_str("memory"),
            Self::Postgres(url) => write!(f, "{url}"),
        }
    }
}

impl StorePlace {
    /// Returns the configured place.
    pub fn of_config(store: &Store) -> Self {
        match (&store.url, store.file()) {
            (Some(url), _) => Self::Postgres(url.clone()),
            (None, Some(path)) => Self::File(path.to_owned()),
            (None, None) => Self::Memory,
        }
    }

    /// Returns whether the store exists; always `true` for PostgreSQL.
    pub fn exists(&self) -> bool {
        match self {
            Self::File(path) => path.symlink_metadata().is_ok(),
            Self::Memory => false,
            Self::Postgres(_) => true,
        }
    }

    /// Returns the name of the storage engine.
    pub const fn engine(&self) -> &'static str {
        match self {
            Self::File(_) | Self::Memory => "redb",
            Self::Postgres(_) => "postgresql",
        }
    }

    /// Returns a snapshot of the store. If the store is a file, no service may be using it, and the call blocks.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn snapshot(&self) -> Result<StoreSnapshot, OpenError> {
        let opened = match self {
            Self::File(path) => redb::export::snapshot(path),
            Self::Postgres(url) => postgres::export::snapshot(url).await,
            Self::Memory => Err(in_memory()),
        };
        opened.map_err(|problem| self.cannot_open(problem))
    }

    /// Replaces the whole content with the rows of an export, atomically. No service may use the store
    /// meanwhile. `watcher` decides which documents request replications. Blocks if the store is a file.
    ///
    /// # Errors
    /// An error of the rows, or an [`OpenError`]. Nothing has changed then.
    pub async fn replace<E: From<OpenError>>(
        &self,
        head: &ExportHead,
        rows: impl Iterator<Item = Result<ExportRow, E>>,
        watcher: &dyn Watcher,
    ) -> Result<(), E> {
        let is_of = (&*head.uuid, head.seq);
        let replaced = match self {
            Self::File(path) => redb::export::replace(path, is_of, rows),
            Self::Postgres(url) => postgres::export::replace(url, is_of, rows, watcher).await,
            Self::Memory => Err(in_memory()),
        };
        replaced.map_err(|problem| self.cannot_open(problem))?
    }

    /// Converts a problem to an error of this store.
    pub(super) fn cannot_open(&self, problem: OpenProblem) -> OpenError {
        OpenError {
            place: self.to_string(),
            problem,
        }
    }
}

fn in_memory() -> OpenProblem {
    OpenProblem::Refused("a store in memory ends with the service".to_owned())
}
