//! Writes documents refused by the target to a file, one per line.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::cli::exit::CliError;
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
    pub(super) fn open(path: Option<&Path>) -> Result<Self, CliError> {
        let open = |path: &Path| {
            let shown = path.display().to_string();
            let made = File::create(path).map_err(|error| CliError::io(&shown, &error));
            made.map(|file| (BufWriter::new(file), shown))
        };
        let file = path.map(open).transpose()?;
        Ok(Self { file })
    }

    /// Writes a document.
    ///
    /// # Errors
    /// Writing failed.
    pub(super) fn note(&mut self, doc: &RefusedDoc) -> Result<(), CliError> {
        let line = serde_json::to_string(doc).expect("strings are JSON") + "\n";
        self.write(|file| file.write_all(line.as_bytes()))
    }

    /// Writes buffered documents.
    ///
    /// # Errors
    /// Writing failed.
    pub(super) fn flush(&mut self) -> Result<(), CliError> {
        self.write(BufWriter::flush)
    }

    fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), CliError> {
        let Some((file, shown)) = &mut self.file else {
            return Ok(());
        };
        write(file).map_err(|error| CliError::io(shown, &error))
    }

    /// Returns which file has the refused documents, or how to get one.
    pub(super) fn advice(&self) -> String {
        match &self.file {
            Some((_, shown)) => format!("what was refused, and why, is in {shown}\n"),
            None => "--refused FILE writes what is refused, and why\n".to_owned(),
        }
    }
}
