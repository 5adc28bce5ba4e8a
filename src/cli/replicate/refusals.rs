//! Writes documents refused by the target to a file, one per line.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::cli::exit::{CliError, CliResult, IoAt};
use replication::refused::RefusedDoc;

/// The destination, if any.
pub(super) struct Refusals {
    file: Option<(BufWriter<File>, String)>,
}

impl Refusals {
    /// Creates the file, empty.
    ///
    /// # Errors
    /// Creating it failed.
    pub(super) fn open(path: Option<&Path>) -> CliResult<Self> {
        let open = |path: &Path| {
            let shown = path.display().to_string();
            let file = File::create(path).io_at(&shown)?;
            Ok::<_, CliError>((BufWriter::new(file), shown))
        };
        let file = path.map(open).transpose()?;
        Ok(Self { file })
    }

    /// Writes a document.
    ///
    /// # Errors
    /// Writing failed.
    pub(super) fn note(&mut self, doc: &RefusedDoc) -> CliResult {
        let line = serde_json::to_string(doc).expect("strings are JSON") + "\n";
        self.write(|file| file.write_all(line.as_bytes()))
    }

    /// Writes buffered documents.
    ///
    /// # Errors
    /// Writing failed.
    pub(super) fn flush(&mut self) -> CliResult {
        self.write(BufWriter::flush)
    }

    fn write(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> CliResult {
        let Some((file, shown)) = &mut self.file else {
            return Ok(());
        };
        write(file).io_at(shown)
    }

    /// Returns which file has the refused documents, or how to get one.
    pub(super) fn advice(&self) -> String {
        match &self.file {
            Some((_, shown)) => format!("what was refused, and why, is in {shown}\n"),
            None => "--refused FILE writes what is refused, and why\n".to_owned(),
        }
    }
}
