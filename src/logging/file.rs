//! A log file that can be reopened while the service runs.
//!
//! SUMMARY   [`Lines`] writes whole lines. [`LogFile`] appends them to a file. [`Reopener::reopen`] opens the file
//!           that has the name now, and the writing thread switches to it.
//! PROMISES  No line is split: the writer switches files between lines, and if a full disk took only part of a line,
//!           a line feed ends it before the next. If the new file cannot be opened, the old one stays in use.
//! CALLED    `reopen` on HUP, on a thread of its own, because it may take long.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::lock;

/// The mode of a new file before the umask: its group may read it.
const MODE: u32 = 0o640;

/// A reopened file that has not been written to yet, if any.
type NextFile = Arc<Mutex<Option<File>>>;

/// Where lines are written.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    next: NextFile,
    is_between_lines: bool,
    /// Whether the last line is incomplete.
    is_torn: bool,
}

/// Passes on whole lines: the formats write a record in a dozen pieces. A line that cannot be written is dropped.
pub(super) struct Lines<W> {
    sink: W,
    line: Vec<u8>,
}

impl<W> Lines<W> {
    pub(super) const fn new(sink: W) -> Self {
        Self {
            sink,
            line: Vec::new(),
        }
    }
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if bytes.ends_with(b"\n") {
            let written = self.sink.write_all(&self.line);
            self.line.clear();
            written?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Reopens a file of the log.
#[derive(Clone, Debug)]
pub(crate) struct Reopener {
    path: PathBuf,
    next: NextFile,
}

impl LogFile {
    /// Opens a file for appending; creates it if it is missing.
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
            is_torn: false,
        };
        Ok((file, reopener))
    }
}

impl Reopener {
    /// Opens the file that now has the name, or creates it. The next record goes to it.
    ///
    /// # Errors
    /// The file cannot be opened. Records still go to the old one.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let file = self.open()?;
        *lock(&self.next) = Some(file);
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
            let mut next = lock(&self.next);
            if let Some(next) = next.take() {
                self.file = next;
                self.is_torn = false;
            }
            if self.is_torn {
                self.file.write_all(b"\n")?;
                self.is_torn = false;
            }
        }
        let written = self.file.write(bytes);
        match &written {
            Ok(written) => self.is_between_lines = bytes[..*written].ends_with(b"\n"),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => {
                self.is_torn |= !self.is_between_lines;
                self.is_between_lines = true;
            }
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
