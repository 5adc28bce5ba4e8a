//! The results of several functions, put together as one JSON array.
//!
//! All functions of a command run, and log, before a result that cannot be written ends it: CouchDB
//! writes the answer as a whole, when all of them are done.

use rquickjs::{Array, Ctx, Function, Object, Persistent, Value};

use super::failure::Failure;
use super::realm::Shared;
use super::writing::write_rows;

/// A JSON array that grows by one element a function.
pub(super) struct Results<'s> {
    text: String,
    /// The answer of the first result that could not be written.
    unwritable: Option<Failure>,
    shared: &'s Shared,
}

impl<'s> Results<'s> {
    pub(super) fn new(shared: &'s Shared) -> Self {
        Results {
            text: "[".to_owned(),
            unwritable: None,
            shared,
        }
    }

    /// How long the text may get, in bytes. It is no memory of the engine's, and counts as half of
    /// what that may take.
    fn bytes_max(&self) -> usize {
        self.shared.options.memory_bytes / 2
    }

    /// Adds the rows of a function: a list of `columns` values a row, or an object with the `parts`
    /// of many rows, texts and such lists. `written` writes what [`write_rows`] does not.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(super) fn add_rows<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        rows: &Object<'js>,
        columns: usize,
        written: &Persistent<Function<'static>>,
    ) -> rquickjs::Result<()> {
        self.separate();
        self.text.push('[');
        match rows.as_array() {
            Some(values) => self.add_part(ctx, values.as_value(), columns, written)?,
            None => {
                for part in rows.get::<_, Array<'js>>("parts")?.iter() {
                    self.add_part(ctx, &part?, columns, written)?;
                }
            }
        }
        self.text.push(']');
        Ok(())
    }

    fn add_part<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        part: &Value<'js>,
        columns: usize,
        written: &Persistent<Function<'static>>,
    ) -> rquickjs::Result<()> {
        if part.as_array().is_some_and(Array::is_empty) {
            return Ok(());
        }
        self.separate();
        let Some(values) = part.as_array() else {
            return self.add_text(ctx, part, 0);
        };
        if write_rows(values, columns, &mut self.text) {
            return self.check();
        }
        let answer = written.clone().restore(ctx)?.call((values.clone(),))?;
        self.add_text(ctx, &answer, 1)
    }

    /// Puts a comma where something stands before.
    fn separate(&mut self) {
        if !self.text.ends_with('[') {
            self.text.push(',');
        }
    }

    /// Adds the result of a function, which comes as [`Self::add_text`] takes it.
    ///
    /// # Errors
    /// An exception that ends the server is raised again at once.
    pub(super) fn add<'js>(&mut self, ctx: &Ctx<'js>, answer: &Value<'js>) -> rquickjs::Result<()> {
        self.separate();
        self.add_text(ctx, answer, 1)
    }

    /// Adds JSON text without its first and last `brackets` bytes, or takes the exception that
    /// writing it raised, in a list.
    fn add_text<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        answer: &Value<'js>,
        brackets: usize,
    ) -> rquickjs::Result<()> {
        if let Some(text) = answer.as_string() {
            let text = text.clone().to_cstring()?;
            let text = text.as_str();
            self.text.push_str(&text[brackets..text.len() - brackets]);
            return self.check();
        }
        let error: Value<'js> = answer.get::<Object<'js>>()?.get(0)?;
        let failure = Failure::thrown(ctx, &error);
        if failure.is_fatal(self.shared) {
            return Err(ctx.throw(error));
        }
        self.unwritable.get_or_insert(failure);
        Ok(())
    }

    fn check(&self) -> rquickjs::Result<()> {
        match self.text.len() <= self.bytes_max() {
            true => Ok(()),
            false => Err(rquickjs::Error::Allocation),
        }
    }

    /// The array, once all functions have run.
    pub(super) fn finish(mut self) -> Result<String, Failure> {
        self.text.push(']');
        self.unwritable.map_or(Ok(self.text), Err)
    }
}
