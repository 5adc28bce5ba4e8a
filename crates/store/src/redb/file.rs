//! How the file of the store is opened.
//!
//! PROMISES  The file and the directories made for it can be read by their owner only: replications
//!           have passwords. What is not a store, or a broken one, is left as it is.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use redb::{Builder, Database, DatabaseError, StorageError, backends::InMemoryBackend};

use super::unchanged::UnchangedFile;
use crate::error::OpenProblem;
use crate::place::StorePlace;
use crate::uuid_file::sync_folders;
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
        Self::Broken(error.to_string())
    }
}

pub(crate) fn open(place: &StorePlace) -> Result<Database, OpenProblem> {
    if let StorePlace::Postgres(_) = place {
        let without = "this program was built without PostgreSQL";
        return Err(OpenProblem::Refused(without.to_owned()));
    }
    let builder = builder();
    let opened = match place {
        StorePlace::Memory | StorePlace::Postgres(_) => {
            builder.create_with_backend(InMemoryBackend::new())
        }
        StorePlace::File(path) => {
            make(path)?;
            let opened = once_free(|| builder.create(path));
            // The file's name is safe once its folder is; so is a folder's own.
            sync_folders(path)?;
            opened
        }
    };
    opened.map_err(problem)
}

/// Opens a file that is there for reading: what is written is forgotten with it.
pub(crate) fn open_unchanged(path: &Path) -> Result<Database, OpenProblem> {
    let open = || builder().create_with_backend(UnchangedFile::open(path)?);
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

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn problem(error: DatabaseError) -> OpenProblem {
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenProblem::InUse,
        DatabaseError::Storage(StorageError::Io(error))
            if error.kind() != io::ErrorKind::InvalidData =>
        {
            error.into()
        }
        error => OpenProblem::Broken(error.to_string()),
    }
}

/// Makes an empty file that only its owner can read, unless there is one.
fn make(path: &Path) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    if let Some(directory) = path.parent().filter(|path| !path.as_os_str().is_empty()) {
        own_folder::make(directory)?;
    }
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        // Another process was faster: the lock decides.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}
