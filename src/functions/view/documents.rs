//! Documents as prompts for a query server.
//!
//! SUMMARY   [`Document`] is a checked document; [`Documents`] makes them from array elements, [`super::reader`] from
//!           lines.
//! PROMISES  Each document is verified to be one JSON object with a usable `_id`, and copied once. Members that no
//!           function reads are not sent ([`Members`]).

use std::io;
use std::ops::Range;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::check::{Checked, Members, check};
use super::reader::DocumentRules;

/// Maximum documents of a batch. Batches save wake-ups: waking another thread costs as much as one document.
const BATCH_DOCUMENTS_MAX: usize = 256;

/// Size of a batch's prompts from which no further document is added, in bytes.
const BATCH_BYTES_MAX: usize = 128 * 1024;

/// Prefix and suffix of a document's prompt.
const PROMPT: (&[u8], &[u8]) = (b"[\"map_doc\",", b"]");

/// How a document without an `_id` is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MissingId {
    /// The document is refused with an error.
    #[default]
    Refused,
    /// The document gets its line number as id.
    Numbered,
    /// The document is unchanged, with an empty id.
    Left,
}

/// One document, ready for mapping.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its line, or its place in an array, from 1.
    pub line: u64,
    /// Its `_id`: the JSON string from the document.
    pub id: Bytes,
    /// The command that maps it.
    pub prompt: Bytes,
}

impl Document {
    /// Returns its id as text: a JSON string.
    pub fn id_text(&self) -> &str {
        std::str::from_utf8(&self.id).expect("VW-8: a document was checked to be UTF-8")
    }

    /// Returns the document as it is sent: without surrounding white space, with a space for each line feed, and with
    /// [`Members::Named`] only the members to send.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.prompt[PROMPT.0.len()..self.prompt.len() - PROMPT.1.len()])
            .expect("VW-8: a document was checked to be UTF-8")
    }
}

/// Why the input cannot be read further. The input's fault, except for [`InputError::Read`].
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The system could not read it.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// A line, or an element of an array, is not a document.
    #[error("line {line}: {problem}")]
    Line {
        /// The line or the place in the array, from 1.
        line: u64,
        /// The problem and its remedy.
        problem: String,
    },
}

/// Makes documents from JSON texts such as array elements, a batch at a time. The texts may contain line feeds.
pub struct Documents<I> {
    texts: I,
    taken: u64,
}

impl<'a, I: Iterator<Item = &'a str>> Documents<I> {
    /// Makes documents of these texts.
    pub fn of(texts: impl IntoIterator<Item = &'a str, IntoIter = I>) -> Self {
        Self {
            texts: texts.into_iter(),
            taken: 0,
        }
    }

    /// Makes the next documents; none at the end.
    ///
    /// # Errors
    /// [`InputError::Line`], for the first text that is not a document.
    pub fn next_batch(&mut self) -> Result<Vec<Document>, InputError> {
        let mut batch = Batch::default();
        while batch.has_room()
            && let Some(text) = self.texts.next()
        {
            self.taken += 1;
            let line = self.taken;
            let problem = match batch.add(line, text.as_bytes(), &DocumentRules::default()) {
                Ok(true) => continue,
                Ok(false) => "an empty text is no document".to_owned(),
                Err(problem) => problem,
            };
            return Err(InputError::Line { line, problem });
        }
        Ok(batch.into_documents())
    }

    /// Sends a first batch and all others, waiting for capacity.
    pub(crate) async fn send(
        mut self,
        first: Vec<Document>,
        to: mpsc::Sender<Result<Vec<Document>, InputError>>,
    ) {
        let mut batch = Ok(first);
        while !batch.as_ref().is_ok_and(Vec::is_empty) {
            let is_last = batch.is_err();
            // The receiver is gone once the work ended, which reports its own error.
            if to.send(batch).await.is_err() || is_last {
                return;
            }
            batch = self.next_batch();
        }
    }
}

/// Documents in one buffer.
#[derive(Default)]
pub(super) struct Batch {
    prompts: Vec<u8>,
    /// Line, and positions of id and prompt in the buffer.
    places: Vec<(u64, Range<usize>, Range<usize>)>,
    /// Parts of the current document that are sent, if not all.
    kept: Vec<Range<usize>>,
}

impl Batch {
    pub fn with_room(bytes: usize) -> Self {
        Self {
            prompts: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the number of prompt bytes.
    pub fn bytes(&self) -> usize {
        self.prompts.len()
    }

    /// Returns whether the batch takes another document.
    pub fn has_room(&self) -> bool {
        self.places.len() < BATCH_DOCUMENTS_MAX && self.prompts.len() < BATCH_BYTES_MAX
    }

    /// Adds a line's document, if the line has one that matches. Returns whether it was added.
    ///
    /// # Errors
    /// The problem with the line, and its remedy.
    pub fn add(&mut self, number: u64, line: &[u8], rules: &DocumentRules) -> Result<bool, String> {
        let Some(checked) = check(line, &rules.members, &mut self.kept)? else {
            return Ok(false);
        };
        match rules.missing_id {
            _ if !checked.id.is_empty() => {}
            MissingId::Left => {}
            MissingId::Refused => {
                return Err("the document has no '_id'; every document needs one".into());
            }
            MissingId::Numbered => {
                let rest = checked.text[1..].trim_start();
                let comma = if rest.starts_with('}') { "" } else { "," };
                let line = format!("{{\"_id\":\"{number}\"{comma}{rest}");
                return self.add(number, line.as_bytes(), rules);
            }
        }
        let matches = rules.selector.as_ref();
        let matches = matches.map_or(Ok(true), |selector| selector.matches_checked(checked.text));
        if !matches.map_err(|error| format!("document {}: {error}", checked.id))? {
            return Ok(false);
        }
        let start = self.prompts.len();
        self.prompts.extend_from_slice(PROMPT.0);
        let copied = self.prompts.len();
        let id_start = if rules.members == Members::All {
            self.prompts.extend_from_slice(checked.text.as_bytes());
            copied + checked.id_start()
        } else {
            self.copy_kept(&checked)
        };
        // A prompt is one line. In JSON text a line feed is always white space.
        if memchr::memchr(b'\n', &self.prompts[copied..]).is_some() {
            let copied = self.prompts[copied..].iter_mut();
            copied
                .filter(|byte| **byte == b'\n')
                .for_each(|byte| *byte = b' ');
        }
        self.prompts.extend_from_slice(PROMPT.1);
        let prompt = start..self.prompts.len();
        let id = id_start..id_start + checked.id.len();
        self.places.push((number, id, prompt));
        Ok(true)
    }

    /// Copies the members to send into an object; returns the position of its id.
    fn copy_kept(&mut self, checked: &Checked<'_>) -> usize {
        let id_before = checked.id_start();
        let mut id = 0;
        for (index, part) in self.kept.iter().enumerate() {
            self.prompts.push(if index == 0 { b'{' } else { b',' });
            if part.contains(&id_before) {
                id = self.prompts.len() + id_before - part.start;
            }
            let part = &checked.text.as_bytes()[part.clone()];
            self.prompts.extend_from_slice(part);
        }
        self.prompts.push(b'}');
        id
    }

    pub fn into_documents(self) -> Vec<Document> {
        let prompts = Bytes::from(self.prompts);
        let document = |(line, id, prompt)| Document {
            line,
            id: prompts.slice(id),
            prompt: prompts.slice(prompt),
        };
        self.places.into_iter().map(document).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_elements_of_an_array_become_prompts_of_one_line() {
        let texts = ["{\"_id\":\n\"a\"}", " {\"n\":\"\\n\",\r\n\"_id\":\"b\"}\n"];
        let documents = Documents::of(texts).next_batch().unwrap();
        assert_eq!(documents[0].prompt, "[\"map_doc\",{\"_id\": \"a\"}]");
        assert_eq!(
            documents[1].prompt,
            "[\"map_doc\",{\"n\":\"\\n\",\r \"_id\":\"b\"}]"
        );
        assert_eq!(
            (documents[1].line, &documents[1].id[..]),
            (2, &b"\"b\""[..])
        );
    }

    #[test]
    fn an_element_that_is_not_a_document_is_named_by_its_position() {
        for text in ["", "7", "{}", "{\"_id\":1}", "{\"_id\":\"a\"} {}"] {
            let texts = ["{\"_id\":\"ok\"}", text];
            let error = Documents::of(texts).next_batch().unwrap_err();
            assert!(error.to_string().starts_with("line 2: "), "{error}");
        }
    }
}
