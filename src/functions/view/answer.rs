//! A query server's answer to `map_doc`: a list of `[key, value]` pairs for each function.
//!
//! SUMMARY   [`MapAnswer`] finds an answer's rows in one pass; [`Mapped`] passes them to a sink.
//! PROMISES  An answer of another shape is an error that quotes it; one for another number of functions is an error
//!           with both numbers. Keys and values keep their text.

use std::ops::Range;

use bytes::Bytes;

use super::documents::Document;
use super::rows::Row;
use crate::functions::decode::not_expected;
use crate::query_server::told::Told;
use json::cursor::Cursor;

/// An answer and the positions of its rows.
#[derive(Clone, Debug, Default)]
pub(super) struct MapAnswer {
    text: Bytes,
    rows: Vec<RowPlace>,
    /// What the process reported before this answer, if requested and not empty.
    pub told: Option<Box<Told>>,
}

/// The position of a row in its answer.
#[derive(Clone, Debug)]
struct RowPlace {
    function: usize,
    key: Range<usize>,
    value: Range<usize>,
}

/// One document and its emitted rows.
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'a> {
    /// The document.
    pub document: &'a Document,
    answer: &'a MapAnswer,
}

impl<'a> Mapped<'a> {
    pub(super) fn new(document: &'a Document, answer: &'a MapAnswer) -> Self {
        Self { document, answer }
    }

    /// Returns what the process reported before the answer, if requested and not empty.
    pub(crate) fn told(&self) -> Option<&'a Told> {
        self.answer.told.as_deref()
    }

    /// Returns the query server's whole answer: a JSON array with a list of `[key, value]` pairs for each function.
    pub fn answer(&self) -> &'a Bytes {
        &self.answer.text
    }

    /// Returns the rows, function by function, in the order of emission.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'a>> + use<'a> {
        let Self { document, answer } = *self;
        let id = document.id_text();
        // Answers are validated as UTF-8 on arrival.
        let text = std::str::from_utf8(&answer.text).unwrap_or_default();
        let part = |range: &Range<usize>| text.get(range.clone()).unwrap_or_default();
        answer.rows.iter().map(move |place| Row {
            line: document.line,
            function: place.function,
            id,
            key: part(&place.key),
            value: part(&place.value),
        })
    }
}

impl MapAnswer {
    /// Parses an answer, replacing the previous one.
    ///
    /// # Errors
    /// A description of the unexpected answer.
    pub fn read(&mut self, answer: Bytes, functions: usize) -> Result<(), String> {
        self.rows.clear();
        self.text = answer;
        match find_rows(&self.text, &mut self.rows) {
            Some(count) if count == functions => Ok(()),
            Some(count) => Err(format!(
                "the query server answered for {count} functions, not for {functions}"
            )),
            None => Err(not_expected(&self.text, "rows")),
        }
    }

    pub fn text_bytes(&self) -> usize {
        self.text.len() + self.told.as_ref().map_or(0, |told| told.bytes())
    }

    /// Returns the function of each row.
    pub fn functions_with_rows(&self) -> impl ExactSizeIterator<Item = usize> {
        self.rows.iter().map(|place| place.function)
    }
}

/// Finds the rows of all functions. Returns the number of functions; `None` if the text is not a list of rows for
/// each function.
fn find_rows(text: &[u8], rows: &mut Vec<RowPlace>) -> Option<usize> {
    let mut scan = Cursor::of(text);
    let mut functions = 0;
    let mut has_column = scan.open(b'[')?;
    while has_column {
        let mut has_row = scan.open(b'[')?;
        while has_row {
            scan.take(b'[')?;
            let key = scan.value()?;
            scan.take(b',')?;
            let value = scan.value()?;
            scan.take(b']')?;
            rows.push(RowPlace {
                function: functions,
                key,
                value,
            });
            has_row = scan.goes_on(b'[')?;
        }
        functions += 1;
        has_column = scan.goes_on(b'[')?;
    }
    scan.is_at_end().then_some(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, functions: usize) -> Result<Vec<(usize, String, String)>, String> {
        let mut answer = MapAnswer::default();
        answer.read(Bytes::copy_from_slice(text.as_bytes()), functions)?;
        let document = Document {
            line: 3,
            id: Bytes::from_static(b"\"a\""),
            prompt: Bytes::new(),
        };
        let rows = Mapped::new(&document, &answer).rows().map(|row| {
            assert_eq!((row.line, row.id), (3, "\"a\""));
            (row.function, row.key.to_owned(), row.value.to_owned())
        });
        Ok(rows.collect())
    }

    #[test]
    fn rows_are_found_with_their_function_as_they_were_written() {
        let row = |function, key: &str, value: &str| (function, key.to_owned(), value.to_owned());
        assert_eq!(
            read(
                r#" [ [[1 , 2.50e1],["]\"\\",{"a":[ {} ,[]],"}":null}]] , [],[[[],""]]] "#,
                3
            ),
            Ok(vec![
                row(0, "1", "2.50e1"),
                row(0, r#""]\"\\""#, r#"{"a":[ {} ,[]],"}":null}"#),
                row(2, "[]", "\"\""),
            ])
        );
        assert_eq!(read("[[]]", 1), Ok(vec![]));
        assert_eq!(read("[]", 0), Ok(vec![]));
    }

    #[test]
    fn an_answer_of_another_shape_is_quoted_in_the_error() {
        for text in [
            "true",
            "{\"x\":1}",
            "[1]",
            "[[1]]",
            "[[[]]]",
            "[[[1]]]",
            "[[[1,2,3]]]",
            "[[{\"a\":1}]]",
            "[{}]",
            "\"x\"",
        ] {
            let said = read(text, 1).unwrap_err();
            assert_eq!(
                said,
                format!("the query server answered {text} instead of rows")
            );
        }
        for (text, count) in [("[]", 0), ("[[],[]]", 2)] {
            let said = read(text, 1).unwrap_err();
            let wanted = format!("the query server answered for {count} functions, not for 1");
            assert_eq!(said, wanted);
        }
    }

    #[test]
    fn a_truncated_answer_is_an_error() {
        let text = r#"[[["k\"",{"a":[1,true]}],[null,-1]]]"#;
        for end in 0..text.len() {
            assert!(read(&text[..end], 1).is_err(), "{}", &text[..end]);
        }
        assert!(read(&format!("{text}]"), 1).is_err());
    }

    #[test]
    fn a_value_may_be_nested_deeply() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let rows = read(&format!("[[[{deep},1]]]"), 1).unwrap();
        assert_eq!(rows[0].1, deep);
    }
}
