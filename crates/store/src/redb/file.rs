//! Opens the store's file.
//!
//! PROMISES  Only their owner can read the file and the directories made for it: replications have passwords. A
//!           damaged file, or one that is not a store, is not modified: the checksums of all pages are verified on
//!           opening. Files are created atomically, so an empty one is damaged.
//! LIMITS    In a file that was not closed, redb cannot distinguish a damaged last transaction from an interrupted
//!           one: it returns to the previous transaction.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use redb::{Builder, Database, DatabaseError, backends::InMemoryBackend};

use super::records::is_store;
use super::unchanged::UnchangedFile;
use crate::error::OpenProblem;
use crate::place::StorePlace;
use settee_config::new_file::{NewFile, sync_folders};
use settee_config::own_folder;

/// Size of the file cache, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// How long an opener waits for the file. A process that was being started when a service ended holds the service's
/// open files for a moment.
const FREE_WITHIN: Duration = Duration::from_secs(1);

/// Delay before the next attempt.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Returns the size of the file, in bytes.
pub(super) fn file_bytes(place: &StorePlace) -> u64 {
    match place {
        StorePlace::File(path) => path.metadata().map_or(0, |metadata| metadata.len()),
        StorePlace::Memory | StorePlace::Postgres(_) => 0,
    }
}

impl From<redb::Error> for OpenProblem {
    fn from(error: redb::Error) -> Self {
        use redb::Error;
        let text = error.to_string();
        match error {
            Error::DatabaseAlreadyOpen | Error::LockProtocolMismatch => Self::InUse,
            Error::Io(error) => error.into(),
            Error::Corrupted(_) => Self::Damaged(text),
            Error::UpgradeRequired(_)
            | Error::TableTypeMismatch { .. }
            | Error::TypeDefinitionChanged { .. }
            | Error::TableIsMultimap(_) => Self::Format(text),
            _ => Self::Failed(text),
        }
    }
}

/// Opens a store, creating a missing one.
pub(crate) fn open(place: &StorePlace) -> Result<Database, OpenProblem> {
    let builder = builder();
    let opened = match place {
        StorePlace::Memory => builder.create_with_backend(InMemoryBackend::new()),
        StorePlace::Postgres(_) => {
            return Err(OpenProblem::Refused("it is a database".to_owned()));
        }
        StorePlace::File(path) => {
            if path.symlink_metadata().is_err() {
                make(path)?;
            } else {
                // Verifies the file first: redb would write to a damaged one before it notices the damage.
                drop(open_unchanged(path, true)?);
            }
            let opened = once_free(|| builder.create(path));
            // A file's name is durable once its folder is synced, and the folder's name once its parent is.
            sync_folders(path, 2)?;
            opened
        }
    };
    opened.map_err(problem)
}

/// Opens an existing file for reading, and verifies it; writes to it are discarded. With `may_be_new`, one without
/// tables is a store, too.
pub(crate) fn open_unchanged(path: &Path, may_be_new: bool) -> Result<Database, OpenProblem> {
    if path.metadata()?.len() == 0 {
        // redb would mistake it for a new store.
        return Err(OpenProblem::Damaged("it has 0 bytes".to_owned()));
    }
    let mut builder = builder();
    // Without this check redb panics on damaged pages, or trusts their content.
    builder.set_check_integrity_on_open(true);
    let open = || builder.create_with_backend(UnchangedFile::open(path)?);
    let database = once_free(open).map_err(problem)?;
    if !is_store(&database, may_be_new)? {
        return Err(OpenProblem::NoStore("it has no format".to_owned()));
    }
    Ok(database)
}

fn once_free(
    mut open: impl FnMut() -> Result<Database, DatabaseError>,
) -> Result<Database, DatabaseError> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(DatabaseError::DatabaseAlreadyOpen) if begun.elapsed() < FREE_WITHIN => {
                thread::sleep(TRY_AGAIN);
            }
            opened => return opened,
        }
    }
}

pub(super) fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn problem(error: DatabaseError) -> OpenProblem {
    redb::Error::from(error).into()
}

/// Creates a new store.
fn make(path: &Path) -> Result<(), OpenProblem> {
    if let Some(directory) = path.parent() {
        own_folder::make(directory)?;
    }
    // Another process may be first: the lock decides.
    let or_there = |made: io::Result<()>| match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    let new = match NewFile::create(path) {
        Ok(new) => new,
        Err(error) => return Ok(or_there(Err(error))?),
    };
    builder()
        .create(new.part())
        .and_then(Database::close)
        .map_err(problem)?;
    Ok(or_there(new.finish())?)
}
