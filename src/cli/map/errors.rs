//! Reports errors of functions on standard error: the first of each kind, and how many documents have no rows.
//!
//! SUMMARY   [`Watched`] wraps a sink and shows each document's reports: errors by [`Errors`], logged lines by
//!           [`LogLines`].
//! PROMISES  Shows [`SHOWN_MAX`] errors of each kind, for at most [`KINDS_MAX`] kinds.
//! LIMITS    Errors that a query server does not log are not shown.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use super::logs::{LogLines, tell};
use crate::cli::exit::{CliError, CliResult, Exit};
use crate::functions::view::{MapSink, Mapped};
use crate::query_server::told::{Level, ReportedError, Told};

/// Maximum errors shown of a kind.
const SHOWN_MAX: u64 = 2;

/// Maximum kinds; errors of further kinds are only counted.
const KINDS_MAX: usize = 10;

/// Errors with one name at one place: a module, a line and a column.
type Kind = (String, Option<String>, Option<u32>, Option<u32>);

/// The errors of a run.
#[derive(Default)]
pub(super) struct Errors {
    /// How many of each kind were shown.
    kinds: RefCell<HashMap<Kind, u64>>,
    /// Documents for which the function threw.
    failed: Cell<u64>,
    /// Errors not shown.
    hidden: Cell<u64>,
    logs: LogLines,
}

impl Errors {
    /// Shows logged lines through `logs`.
    pub(super) fn new(logs: LogLines) -> Self {
        Self {
            logs,
            ..Self::default()
        }
    }

    /// Shows what a function logged and threw; `file` has the function.
    pub(super) fn show(&self, told: &Told, file: &str) {
        told.logs
            .iter()
            .filter(|line| line.level != Level::Error)
            .for_each(|line| self.logs.add(&line.message));
        told.errors.iter().for_each(|error| self.add(error, file));
        self.hidden.set(self.hidden.get() + told.errors_dropped);
    }

    fn add(&self, error: &ReportedError, file: &str) {
        let mut kinds = self.kinds.borrow_mut();
        let (name, module) = (error.name.clone(), error.module.clone());
        let kind = (name, module, error.line, error.column);
        let is_counted = kinds.len() < KINDS_MAX || kinds.contains_key(&kind);
        let shown = is_counted.then(|| kinds.entry(kind).or_default());
        match shown.filter(|shown| **shown < SHOWN_MAX) {
            Some(shown) => {
                *shown += 1;
                tell(&text(error, file))
            }
            None => self.hidden.set(self.hidden.get() + 1),
        }
    }

    /// Reports how many of `documents` have no rows.
    ///
    /// # Errors
    /// The function threw for all documents.
    pub(super) fn summarise(&self, file: &str, documents: u64) -> CliResult {
        let (failed, hidden) = (self.failed.get(), self.hidden.get());
        if hidden > 0 {
            tell(&format!("{hidden} more errors like these are not shown"));
        }
        if failed == 0 {
            return Ok(());
        }
        if failed < documents {
            tell(&format!(
                "{file}: the function threw for {failed} of {documents} documents, which have no rows"
            ));
            return Ok(());
        }
        Err(CliError::at(
            Exit::Data,
            file,
            format!("the function threw for every document ({documents})"),
            "correct the map function",
        ))
    }
}

/// Returns an error on one line: `map.js:3:9: TypeError: .. (document a)`.
fn text(error: &ReportedError, file: &str) -> String {
    let place = match &error.module {
        Some(module) => format!("{file}: {module}"),
        None => file.to_owned(),
    };
    let numbers: String = [error.line, error.column]
        .into_iter()
        .flatten()
        .map(|number| format!(":{number}"))
        .collect();
    let doc = error.doc.as_ref();
    let doc = doc.map_or_else(String::new, |doc| format!(" (document {doc})"));
    format!("{place}{numbers}: {}: {}{doc}", error.name, error.message)
}

/// A sink that shows each document's log lines and errors before it passes the document on.
pub(super) struct Watched<'a, S> {
    pub(super) sink: &'a S,
    pub(super) errors: &'a Errors,
    /// The file of the map function.
    pub(super) file: &'a str,
}

impl<S: MapSink> MapSink for Watched<'_, S> {
    fn mapped(&self, mapped: &Mapped<'_>) {
        if let Some(told) = mapped.told() {
            self.errors.show(told, self.file);
            let failed = u64::from(!told.errors.is_empty());
            self.errors.failed.set(self.errors.failed.get() + failed);
        }
        self.sink.mapped(mapped);
    }

    async fn ready(&self) -> bool {
        self.sink.ready().await
    }
}
