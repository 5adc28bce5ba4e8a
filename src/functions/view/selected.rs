//! Documents that match a selector, of all that come.
//!
//! SUMMARY   [`Selected`] is a [`DocumentReader`] that passes over documents which do not match;
//!           [`read_selected_in_thread`] does it beside the pool.
//! PROMISES  As [`super::read_in_thread`]. A document of which it cannot be said whether it matches is
//!           an error that names its line; the ones before it have been handed over by then.

use std::io::{self, Read};

use tokio::sync::mpsc;

use super::documents::{Document, InputError};
use super::reader::{BATCHES_AHEAD, Batches, DocumentReader};
use mango::Selector;

/// Reads documents, and keeps those that match.
pub struct Selected<'s, R> {
    reader: DocumentReader<R>,
    selector: &'s Selector,
    /// What is wrong with the document after the last batch.
    failed: Option<InputError>,
}

impl<'s, R: Read> Selected<'s, R> {
    /// Makes a reader of documents of at most `line_bytes_max` bytes each.
    pub fn new(input: R, line_bytes_max: usize, selector: &'s Selector) -> Self {
        Self {
            reader: DocumentReader::new(input, line_bytes_max),
            selector,
            failed: None,
        }
    }

    /// Reads some documents that match; none at the end of the input.
    ///
    /// # Errors
    /// See [`InputError`]. The documents before the bad line have been returned by then.
    pub fn next_batch(&mut self) -> Result<Vec<Document>, InputError> {
        loop {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            let batch = self.reader.next_batch()?;
            if batch.is_empty() {
                return Ok(batch);
            }
            let matching = self.matching(batch);
            if !matching.is_empty() {
                return Ok(matching);
            }
        }
    }

    /// Those of a batch that match, up to the first of which that cannot be said.
    fn matching(&mut self, batch: Vec<Document>) -> Vec<Document> {
        let mut matching = Vec::new();
        for document in batch {
            match self.selector.matches_checked(document.text()) {
                Ok(true) => matching.push(document),
                Ok(false) => {}
                Err(error) => {
                    let problem = format!("document {}: {error}", document.id_text());
                    let line = document.line;
                    self.failed = Some(InputError::Line { line, problem });
                    break;
                }
            }
        }
        matching
    }
}

/// Reads documents that match in a thread of its own until the end, an error, or nobody wants more.
///
/// # Errors
/// The system has no room for another thread.
pub fn read_selected_in_thread(
    input: impl Read + Send + 'static,
    line_bytes_max: usize,
    selector: Selector,
) -> io::Result<Batches> {
    let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
    std::thread::Builder::new()
        .name("documents".into())
        .spawn(move || {
            let mut reader = Selected::new(input, line_bytes_max, &selector);
            loop {
                let batch = reader.next_batch();
                let is_last = batch.is_err();
                let is_end = matches!(&batch, Ok(batch) if batch.is_empty());
                if is_end || sender.blocking_send(batch).is_err() || is_last {
                    return;
                }
            }
        })?;
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_documents_that_match_come_through_in_their_order() {
        let selector = Selector::parse(r#"{"n":{"$mod":[100,7]}}"#).unwrap();
        let lines: Vec<String> = (0..1000)
            .map(|number| format!("  {{\"_id\":\"d{number}\", \"n\":{number}}}\r\n\n"))
            .collect();
        let mut reader = Selected::new(io::Cursor::new(lines.concat()), 1000, &selector);
        let mut got = Vec::new();
        loop {
            let batch = reader.next_batch().unwrap();
            if batch.is_empty() {
                break;
            }
            got.extend(
                batch
                    .iter()
                    .map(|document| (document.line, document.text().to_owned())),
            );
        }
        let expected: Vec<_> = (0..10)
            .map(|hundred| hundred * 100 + 7)
            .map(|n| (n * 2 + 1, format!("{{\"_id\":\"d{n}\", \"n\":{n}}}")))
            .collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn a_document_that_cannot_be_decided_is_named_after_those_before_it() {
        let selector = Selector::parse(r#"{"a":{"$regex":"^(a|a?)+\\1$"}}"#).unwrap();
        let bad = format!("{}!", "a".repeat(2000));
        let text = format!("{{\"_id\":\"x\",\"a\":\"aa\"}}\n{{\"_id\":\"y\",\"a\":\"{bad}\"}}\n");
        let mut reader = Selected::new(text.as_bytes(), 10_000, &selector);
        assert_eq!(reader.next_batch().unwrap().len(), 1);
        let error = reader.next_batch().unwrap_err().to_string();
        assert!(
            error.starts_with("line 2: document \"y\": the regular expression"),
            "{error}"
        );
    }
}
