//! Counts of what a call's map functions emitted, and hints for their author.
//!
//! SUMMARY   [`Tally`] counts for a report; [`Tally::hints`] are sentences about functions without any effect or
//!           error, and about those that returned a promise.
//! LIMITS    A function that threw has an error, and no hint about missing rows.

use serde::Deserialize;

use super::told::{FunctionName, Told};

/// Maximum number of functions of a call that get hints.
const HINTS_MAX: usize = 10;

/// The query server's name for the value that async functions return.
const PROMISE: &str = "a promise";

/// The unused value that a map function returned. A query server sends it if the function has emitted nothing so far,
/// or has returned a promise.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Returned {
    /// The index in the call's list of functions, from 0.
    pub(crate) function: usize,
    /// Its description, for example `a number`.
    pub(crate) returned: String,
    /// The id of the document.
    pub(crate) doc: Option<String>,
}

impl Returned {
    /// Returns its size, in bytes of text.
    pub(crate) fn bytes(&self) -> usize {
        self.returned.len() + self.doc.as_ref().map_or(0, String::len)
    }

    fn text(&self) -> String {
        let doc = self.doc.as_ref();
        let over = doc.map_or_else(String::new, |doc| format!(" over document {doc}"));
        format!("returned {}{over}", self.returned)
    }
}

/// What one function did with the documents so far.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    has_rows: bool,
    has_failed: bool,
}

/// The counts of a call's functions.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    documents: u64,
    functions: Vec<Done>,
}

impl Tally {
    /// Counts a document, given the number of functions, the indexes of those with rows, and their reports.
    pub(crate) fn count(
        &mut self,
        functions: usize,
        with_rows: impl Iterator<Item = usize>,
        told: Option<&Told>,
    ) {
        self.documents += 1;
        self.functions.resize(functions, Done::default());
        for function in with_rows {
            if let Some(done) = self.functions.get_mut(function) {
                done.has_rows = true;
            }
        }
        for error in told.into_iter().flat_map(|told| &told.errors) {
            if let Some(FunctionName::Index(index)) = error.function
                && let Some(done) = self.functions.get_mut(index)
            {
                done.has_failed = true;
            }
        }
    }

    /// Returns a sentence for each function that returned a promise or, as far as known, had no effect.
    pub(crate) fn hints(&self, returned: &[Returned]) -> Vec<String> {
        let numbered = self.functions.iter().enumerate();
        let hints = numbered.filter_map(|(index, done)| {
            let name = match self.functions.len() {
                1 => "the map function".to_owned(),
                all => format!("map function {} of {all}", index + 1),
            };
            let mut returned = returned.iter().filter(|of| of.function == index);
            let promise = returned.clone().find(|of| of.returned == PROMISE);
            if let Some(promise) = promise {
                return Some(format!(
                    "{name} {}, as async functions do: nothing waits for it, and what it emits later is lost; \
                     emit before the function returns",
                    promise.text()
                ));
            }
            if done.has_rows || done.has_failed {
                return None;
            }
            let documents = match self.documents {
                1 => "the one document".to_owned(),
                many => format!("any of {many} documents"),
            };
            Some(match returned.next() {
                Some(value) => format!(
                    "{name} {}, and emitted nothing over {documents}: what it returns is not used; rows are what \
                     it passes to emit(KEY, VALUE)",
                    value.text()
                ),
                None => format!(
                    "{name} emitted nothing over {documents}: see whether its conditions hold for them; rows are \
                     what it passes to emit(KEY, VALUE)"
                ),
            })
        });
        hints.take(HINTS_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_server::told::ReportedError;

    fn returned(function: usize, returned: &str) -> Returned {
        Returned {
            function,
            returned: returned.into(),
            doc: Some("a".into()),
        }
    }

    #[test]
    fn only_functions_that_had_no_effect_or_returned_a_promise_have_hints() {
        let mut tally = Tally::default();
        let mut told = Told::default();
        told.error(ReportedError {
            function: Some(FunctionName::Index(3)),
            ..ReportedError::default()
        });
        tally.count(5, [1, 4].into_iter(), None);
        tally.count(5, [4].into_iter(), Some(&told));
        let values = [
            returned(1, "a boolean"),
            returned(2, "a number"),
            returned(4, PROMISE),
            returned(9, PROMISE),
        ];
        let hints = tally.hints(&values);
        let beginnings = [
            "map function 1 of 5 emitted nothing over any of 2 documents: ",
            "map function 3 of 5 returned a number over document a, and emitted nothing over any of 2 documents: ",
            "map function 5 of 5 returned a promise over document a, as async functions do: ",
        ];
        assert_eq!(hints.len(), beginnings.len(), "{hints:?}");
        for (hint, beginning) in hints.iter().zip(beginnings) {
            assert!(hint.starts_with(beginning), "{hint}");
        }
    }

    #[test]
    fn a_call_without_documents_has_no_hints() {
        assert!(Tally::default().hints(&[]).is_empty());
    }

    #[test]
    fn a_hint_does_not_number_the_only_function_or_document() {
        let mut tally = Tally::default();
        tally.count(1, std::iter::empty(), None);
        let hints = tally.hints(&[]);
        let beginning = "the map function emitted nothing over the one document: ";
        assert!(hints[0].starts_with(beginning), "{hints:?}");
    }
}
