//! Where the store is, and how its file is opened.
//!
//! PROMISES  The file and the directories made for it can be read by their owner only: replications
//!           have passwords. What is not a store, or a broken one, is left as it is.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use redb::{Database, DatabaseError, StorageError, backends::InMemoryBackend};

/// The name of the file in a directory that was named for it.
const FILE_NAME: &str = "settee.redb";

/// What is kept in memory of the file, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// In a file.
    File(PathBuf),
    /// In memory: it ends with the process.
    Memory,
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Memory => f.write_str("memory"),
        }
    }
}

/// The file of the store cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store {place} {}", .problem.describe())]
pub struct OpenError {
    /// Where it was looked for.
    pub place: String,
    /// Why.
    pub problem: OpenProblem,
}

/// Why the file of the store cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenProblem {
    /// Another process has it.
    InUse,
    /// The system refuses it.
    Io(io::ErrorKind, String),
    /// It is no store, or a damaged one.
    Broken(String),
    /// A later program wrote it.
    Format(String),
}

impl OpenError {
    /// Returns whether a later try may succeed without anybody looking at the file.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(
            self.problem,
            OpenProblem::Broken(_) | OpenProblem::Format(_)
        )
    }

    /// Returns what to do about it.
    pub fn remedy(&self) -> &'static str {
        match &self.problem {
            OpenProblem::InUse => "stop that one, or name another file in [store] path",
            OpenProblem::Io(..) => "let this user at it, or name another file in [store] path",
            OpenProblem::Broken(_) => {
                "move it away to begin with an empty one, and import what was exported"
            }
            OpenProblem::Format(_) => "start the program that wrote it, or a later one",
        }
    }
}

impl From<io::Error> for OpenProblem {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind(), error.to_string())
    }
}

impl From<redb::Error> for OpenProblem {
    fn from(error: redb::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl OpenProblem {
    /// Says of which store it is.
    pub(super) fn of(self, place: &StorePlace) -> OpenError {
        OpenError {
            place: place.to_string(),
            problem: self,
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::InUse => "is in use by another process".to_owned(),
            Self::Io(_, error) => format!("cannot be opened ({error})"),
            Self::Broken(error) => format!("cannot be read ({error})"),
            Self::Format(error) => format!("is of another program ({error})"),
        }
    }
}

impl StorePlace {
    /// Returns the place that a configuration names; a directory stands for a file in it.
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
        }
    }

    /// Returns the size of the file, in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        match self {
            Self::File(path) => path.metadata().map_or(0, |metadata| metadata.len()),
            Self::Memory => 0,
        }
    }

    pub(super) fn open(&self) -> Result<Database, OpenProblem> {
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let opened = match self {
            Self::Memory => builder.create_with_backend(InMemoryBackend::new()),
            Self::File(path) => {
                make(path)?;
                let opened = builder.create(path);
                // The file's name is safe once its folder is; so is a folder's own.
                sync_folders(path)?;
                opened
            }
        };
        opened.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => OpenProblem::InUse,
            DatabaseError::Storage(StorageError::Io(error))
                if error.kind() != io::ErrorKind::InvalidData =>
            {
                error.into()
            }
            error => OpenProblem::Broken(error.to_string()),
        })
    }
}

/// Writes the entries of a file's folder, and of the folder above it, to the disk.
pub(super) fn sync_folders(path: &Path) -> io::Result<()> {
    let parents = path.ancestors().skip(1).take(2);
    for folder in parents {
        let folder = match folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => folder,
        };
        // A folder that this user may enter and not read is another user's, who has synced it.
        match File::open(folder) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            folder => folder?.sync_all()?,
        }
    }
    Ok(())
}

/// Makes an empty file that only its owner can read, unless there is one.
fn make(path: &Path) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    if let Some(directory) = path.parent().filter(|path| !path.as_os_str().is_empty()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
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
