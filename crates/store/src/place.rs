//! Where a store is.

use std::fmt;
use std::path::{Path, PathBuf};

use super::error::{OpenError, OpenProblem};
use settee_config::Store;
use settee_config::store_url::StoreUrl;

/// The name of the file in a directory that was named for it.
const FILE_NAME: &str = "settee.redb";

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// In a file.
    File(PathBuf),
    /// In memory: it ends with the process.
    Memory,
    /// In a PostgreSQL database, which several services share.
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
    /// Returns the place that a configuration names.
    pub fn of_config(store: &Store) -> Self {
        match &store.url {
            Some(url) => Self::Postgres(url.clone()),
            None => Self::of(store.file()),
        }
    }

    /// Returns the place of a file, in memory without one; a directory stands for a file in it.
    pub fn of(file: Option<&Path>) -> Self {
        match file {
            None => Self::Memory,
            Some(path) if path.is_dir() => Self::File(path.join(FILE_NAME)),
            Some(path) => Self::File(path.to_owned()),
        }
    }

    /// Returns whether there is a store already.
    pub fn exists(&self) -> bool {
        match self {
            Self::File(path) => path.symlink_metadata().is_ok(),
            Self::Memory => false,
            Self::Postgres(_) => true,
        }
    }

    /// Returns the name of what keeps the documents.
    pub const fn engine(&self) -> &'static str {
        match self {
            Self::File(_) | Self::Memory => "redb",
            Self::Postgres(_) => "postgresql",
        }
    }

    /// Says that a problem is one of this store.
    pub(super) fn cannot_open(&self, problem: OpenProblem) -> OpenError {
        OpenError {
            place: self.to_string(),
            problem,
        }
    }
}
