//! How the file of the store is opened.
//!
//! PROMISES  The file and the directories made for it can be read by their owner only: replications
//!           have passwords. What is not a store, or a damaged one, is left as it is: the checksums of all pages are
//!           verified when it is opened. A file is made whole or not at all, so that one of no bytes is a damaged one.
//! LIMITS    Of a file that was not closed, redb cannot tell damage to the last transaction from one that was being
//!           written: it goes back to the one before.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use redb::{Builder, Database, DatabaseError, backends::InMemoryBackend};

use super::unchanged::UnchangedFile;
use crate::error::OpenProblem;
use crate::place::StorePlace;
use crate::uuid_file::sync_folders;
use settee_config::new_file::NewFile;
use settee_config::own_folder;

/// What is kept in memory of the file, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// How long who opens a file waits for it. A process that was being started when a service ended has what the service
/// had open, for a moment more.
const FREE_WITHIN: Duration = Duration::from_secs(1);

/// How long it leaves the machine to others before it tries again.
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

/// Opens a store, and makes it where there is none.
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
                // A damaged one is not written to: redb would, before it has found out.
                drop(open_unchanged(path)?);
            }
            let opened = once_free(|| builder.create(path));
            // The file's name is safe once its folder is; so is a folder's own.
            sync_folders(path)?;
            opened
        }
    };
    opened.map_err(problem)
}

/// Opens a file that is there for reading, and verifies it: what is written is forgotten with it.
pub(crate) fn open_unchanged(path: &Path) -> Result<Database, OpenProblem> {
    refuse_empty(path)?;
    let mut builder = builder();
    // Without it redb panics at damaged pages, or reads what they say.
    builder.set_check_integrity_on_open(true);
    let open = || builder.create_with_backend(UnchangedFile::open(path)?);
    once_free(open).map_err(problem)
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

/// Refuses what would be taken for a new store.
fn refuse_empty(path: &Path) -> Result<(), OpenProblem> {
    match path.metadata()?.len() {
        0 => Err(OpenProblem::Damaged("it has 0 bytes".to_owned())),
        _ => Ok(()),
    }
}

/// Makes a new store.
fn make(path: &Path) -> Result<(), OpenProblem> {
    if let Some(directory) = path.parent().filter(|path| !path.as_os_str().is_empty()) {
        own_folder::make(directory)?;
    }
    // Another process may be faster: the lock decides.
    let or_there = |made: io::Result<()>| match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    let new = match NewFile::create(path) {
        Ok(new) => new,
        Err(error) => return Ok(or_there(Err(error))?),
    };
    let made = builder().create(new.part()).and_then(Database::close);
    made.map_err(problem)?;
    Ok(or_there(new.finish())?)
}
