//! The results of several functions, put together as one JSON array.
//!
//! All functions of a command run, and log, before a result that cannot be written ends it: CouchDB
//! writes the answer as a whole, when all of them are done.

use rquickjs::{Array, Ctx, Function, Persistent, Value};

use super::failure::Failure;
use super::writing::write_list;

/// A JSON array that grows by one element a function.
pub(super) struct Results {
    text: String,
    /// The answer of the first result that could not be written.
    unwritable: Option<Failure>,
}

impl Results {
    pub(super) fn new() -> Self {
        Results {
            text: "[".to_owned(),
            unwritable: None,
        }
    }

    /// Adds a list, which `written` writes where [`write_list`] does not.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(super) fn add_list<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        list: &Array<'js>,
        written: &Persistent<Function<'static>>,
    ) -> rquickjs::Result<()> {
        let start = self.text.len();
        if start > 1 {
            self.text.push(',');
        }
        if write_list(list, &mut self.text) {
            return Ok(());
        }
        self.text.truncate(start);
        let answer = written.clone().restore(ctx)?.call((list.clone(),))?;
        self.add(ctx, &answer, 0)
    }

    /// Adds what a runner answered without its first and last `brackets` bytes: JSON text, or a
    /// list with the exception that writing it raised.
    ///
    /// # Errors
    /// An exception that ends the server is raised again at once.
    pub(super) fn add<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        answer: &Value<'js>,
        brackets: usize,
    ) -> rquickjs::Result<()> {
        if let Some(text) = answer.as_string() {
            let text = text.clone().to_cstring()?;
            let text = text.as_str();
            if self.text.len() > 1 {
                self.text.push(',');
            }
            self.text.push_str(&text[brackets..text.len() - brackets]);
            return Ok(());
        }
        let error: Value<'js> = answer.get::<rquickjs::Object<'js>>()?.get(0)?;
        let failure = Failure::thrown(ctx, &error);
        if failure.fatal {
            return Err(ctx.throw(error));
        }
        self.unwritable.get_or_insert(failure);
        Ok(())
    }

    /// The array, once all functions have run.
    pub(super) fn finish(mut self) -> Result<String, Failure> {
        self.text.push(']');
        self.unwritable.map_or(Ok(self.text), Err)
    }
}
