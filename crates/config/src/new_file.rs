//! A file that is either complete or missing.
//!
//! SUMMARY   [`NewFile`] is written under another name in the same folder, ending with `.part`, and is renamed at the
//!           end. Only its owner can read it.
//! PROMISES  An existing file of that name stays unchanged, unless [`NewFile::replace`] replaces it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use crate::password::random;

/// A file that is being written.
pub struct NewFile {
    path: PathBuf,
    part: PathBuf,
    file: File,
}

impl NewFile {
    /// Begins a file.
    ///
    /// # Errors
    /// The name is taken, or the system refuses.
    pub fn create(path: &Path) -> io::Result<Self> {
        match path.symlink_metadata() {
            Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            Err(_) => Self::begin(path),
        }
    }

    /// Begins a file that may [replace](Self::replace) another one.
    ///
    /// # Errors
    /// The system refuses.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let mut part = path.to_owned().into_os_string();
        // Another program may write a file of the same name at the same time.
        part.push(format!(".{}.part", HEXLOWER.encode(&random::<8>())));
        let part = PathBuf::from(part);
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&part)?;
        let path = path.to_owned();
        Ok(Self { path, part, file })
    }

    /// Returns its temporary path, for code that writes files itself.
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// Returns the file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The system refuses.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives the file its name once it is on disk, and syncs its folder.
    ///
    /// # Errors
    /// The name is taken by now, or the system refuses.
    pub fn finish(self) -> io::Result<()> {
        self.file.sync_all()?;
        // Unlike a rename, this fails if a file of this name exists.
        fs::hard_link(&self.part, &self.path)?;
        sync_folders(&self.path, 1)
    }

    /// Like [`Self::finish`], but replaces an existing file.
    ///
    /// # Errors
    /// The system refuses.
    pub fn replace(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.part, &self.path)?;
        sync_folders(&self.path, 1)
    }
}

/// Syncs the nearest `count` folders above a path to disk.
///
/// # Errors
/// The system refuses.
pub fn sync_folders(path: &Path, count: usize) -> io::Result<()> {
    for folder in path.ancestors().skip(1).take(count) {
        match File::open(Path::new(".").join(folder)) {
            // A folder that this user may write or enter, but not read.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            folder => folder?.sync_all()?,
        }
    }
    Ok(())
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // If the file cannot be removed, its name shows that it is temporary.
        drop(fs::remove_file(&self.part));
    }
}
