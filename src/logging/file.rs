//! A file of the log, which can be opened again while the service runs.
//!
//! SUMMARY   [`LogFile`] appends to a file. [`Reopener::reopen`] opens the file that has its name now, and the thread
//!           that writes goes on there.
//! PROMISES  No line is lost or divided: the writer changes files between two lines. Where the new file cannot be
//!           opened, the old one stays.
//! CALLED    `reopen` on HUP, on a thread of its own: opening a file may take long.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The permission bits of a new file, less those of the umask: its group may read it.
const MODE: u32 = 0o640;

/// A file that was opened and has not been written to yet, if there is one.
type NextFile = Arc<Mutex<Option<File>>>;

/// Where lines are written.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    next: NextFile,
    is_between_lines: bool,
}

/// Opens a file of the log again.
#[derive(Clone, Debug)]
pub(crate) struct Reopener {
    path: PathBuf,
    next: NextFile,
}

impl LogFile {
    /// Opens a file, which is made if it is not there, to write to its end.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Reopener)> {
        let next = NextFile::default();
        let reopener = Reopener {
            path: path.to_owned(),
            next: Arc::clone(&next),
        };
        let file = Self {
            file: reopener.open()?,
            next,
            is_between_lines: true,
        };
        Ok((file, reopener))
    }
}

impl Reopener {
    /// Opens the file that has the name now, and makes it if there is none. Records go there from the next one on.
    ///
    /// # Errors
    /// The file cannot be opened. Records go on to the old one.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let file = self.open()?;
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self) -> io::Result<File> {
        let mut options = File::options();
        options.create(true).append(true).mode(MODE);
        options.open(&self.path)
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_between_lines {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(next) = next.take() {
                self.file = next;
            }
        }
        let written = self.file.write(bytes)?;
        self.is_between_lines = bytes[..written].last().is_none_or(|last| *last == b'\n');
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
