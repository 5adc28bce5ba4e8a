//! The results of several functions as one JSON array.
//!
//! All functions of a command run, and log, before an unwritable result ends the command: CouchDB writes the answer
//! after all of them.

use rquickjs::{
    Array, Context, Error, Object, Persistent, Result as JsResult, String as JsString, Value,
};

use super::engine::SavedFunction;
use super::failure::Failure;
use super::memory::{Held, LONG_BYTES, push_long};
use super::realm::Shared;
use super::writing::write_rows;

/// The answer to a command; its memory counts until it is written.
pub(super) enum Answer {
    True,
    /// A line in parts.
    Text([&'static str; 2], String, Held),
    /// A line in an engine's memory. The handle is freed before the context.
    Kept(Persistent<JsString<'static>>, Context),
}

impl Answer {
    /// Writes the line.
    ///
    /// # Errors
    /// It is too long for the parent, or there is no memory for its UTF-8. Nothing was written.
    pub fn put(self, shared: &Shared) -> Result<(), Failure> {
        let put = |line: &[&str]| {
            shared.check_length(line.iter().map(|part| part.len()).sum())?;
            shared.process.lines.borrow_mut().output.put(line);
            Ok(())
        };
        match self {
            Answer::True => put(&["true"]),
            Answer::Text([before, after], text, _held) => put(&[before, &text, after]),
            Answer::Kept(text, context) => context.with(|ctx| {
                let text = text.restore(&ctx).and_then(JsString::to_cstring);
                put(&[&text.map_err(|error| Failure::of(&ctx, &error))?])
            }),
        }
    }
}

/// A JSON array that grows by one element for each function.
pub(super) struct Results<'s> {
    text: String,
    held: Held,
    /// The failure of the first unwritable result.
    unwritable: Option<Failure>,
    shared: &'s Shared,
}

impl<'s> Results<'s> {
    pub fn new(shared: &'s Shared) -> Self {
        Results {
            text: "[".to_owned(),
            held: shared.memory.count(0),
            unwritable: None,
            shared,
        }
    }

    /// Whether the results take so much memory that the engine's limit has to be updated.
    pub fn are_long(&self) -> bool {
        self.text.len() >= LONG_BYTES
    }

    /// Adds a function's rows: a list of `columns` values for each row, or an object with the `parts` of many rows,
    /// which are strings of JSON text and such lists. `written` writes rows that [`write_rows`] cannot.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_rows(
        &mut self,
        rows: &Object<'_>,
        columns: usize,
        written: &SavedFunction,
    ) -> JsResult<()> {
        self.separate()?;
        self.push("[")?;
        match rows.as_array() {
            Some(values) => self.add_part(values.as_value(), columns, written)?,
            None => {
                for part in rows.get::<_, Array<'_>>("parts")?.iter() {
                    self.add_part(&part?, columns, written)?;
                }
            }
        }
        self.push("]")
    }

    fn add_part(
        &mut self,
        part: &Value<'_>,
        columns: usize,
        written: &SavedFunction,
    ) -> JsResult<()> {
        if part.as_array().is_some_and(Array::is_empty) {
            return Ok(());
        }
        self.separate()?;
        let Some(values) = part.as_array() else {
            return self.add_text(part, 0);
        };
        let is_written = if self.are_long() {
            let mut rows = String::new();
            let is_written = write_rows(values, columns, &mut rows);
            self.push(&rows)?;
            is_written
        } else {
            write_rows(values, columns, &mut self.text)
        };
        if is_written {
            return self.check();
        }
        let answer = written
            .clone()
            .restore(part.ctx())?
            .call((values.clone(),))?;
        self.add_text(&answer, 1)
    }

    /// Appends a comma after an earlier element.
    fn separate(&mut self) -> JsResult<()> {
        if self.text.ends_with('[') {
            Ok(())
        } else {
            self.push(",")
        }
    }

    fn push(&mut self, text: &str) -> JsResult<()> {
        push_long(&mut self.text, text)
    }

    /// Adds a function's result, in the form of [`Self::add_text`].
    ///
    /// # Errors
    /// The results are too long, or there is no memory. Re-raises an exception that ends the server.
    pub fn add(&mut self, answer: &Value<'_>) -> JsResult<()> {
        self.separate()?;
        self.add_text(answer, 1)
    }

    /// Adds JSON text without its first and last `brackets` bytes. An answer that is not a string is a list with the
    /// exception that writing raised.
    fn add_text(&mut self, answer: &Value<'_>, brackets: usize) -> JsResult<()> {
        if let Some(text) = answer.as_string() {
            let text = text.clone().to_cstring()?;
            let text = text.as_str();
            let text = &text[brackets..text.len() - brackets];
            if self.text.len() + text.len() > self.bytes_max() {
                return Err(Error::Allocation);
            }
            self.push(text)?;
            return self.check();
        }
        let error: Value<'_> = answer.get::<Object<'_>>()?.get(0)?;
        let failure = Failure::thrown(&error);
        if failure.is_fatal(self.shared) {
            return Err(answer.ctx().throw(error));
        }
        if self.unwritable.is_none() {
            self.shared.note_raised(&error, &failure, None);
            self.unwritable = Some(failure);
        }
        Ok(())
    }

    /// Returns the maximum length of the text, in bytes.
    fn bytes_max(&self) -> usize {
        self.shared.options().memory_bytes / 2
    }

    /// Counts the memory of the text; an error if it is too long, or if there is no memory for it.
    fn check(&mut self) -> JsResult<()> {
        let bytes = self.text.len();
        if bytes <= self.bytes_max() && self.held.try_set(bytes) {
            Ok(())
        } else {
            Err(Error::Allocation)
        }
    }

    /// Returns the array, after all functions have run, or the failure of the first unwritable result.
    pub fn finish(mut self) -> Result<(String, Held), Failure> {
        self.push("]").map_err(|_| Failure::out_of_memory())?;
        self.unwritable.map_or(Ok((self.text, self.held)), Err)
    }
}
