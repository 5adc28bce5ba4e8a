//! Documents as prompts for a query server.
//!
//! SUMMARY   [`Document`] is one that was checked; [`documents`] makes them of the members of an
//!           array, [`super::reader`] of lines.
//! PROMISES  Each document is checked to be one JSON object with a usable `_id`, and copied once. Members
//!           that no function reads are not sent ([`Members`]).

use std::io;
use std::ops::Range;

use bytes::Bytes;

use super::check::{Checked, Members, check};
use mango::Selector;

/// What stands before and after a document in its prompt.
const PROMPT: (&[u8], &[u8]) = (b"[\"map_doc\",", b"]");

/// One document, ready to be mapped.
#[derive(Clone, Debug)]
pub struct Document {
    /// The line it stands on, or its place in an array, from 1.
    pub line: u64,
    /// Its `_id`: a JSON string as it stands in the document.
    pub id: Bytes,
    /// The command that maps it.
    pub prompt: Bytes,
}

impl Document {
    /// Returns its id as text: a JSON string.
    pub fn id_text(&self) -> &str {
        std::str::from_utf8(&self.id).expect("VW-8: a document was checked to be UTF-8")
    }

    /// Returns the document as it came, without white space around it. If it was read with
    /// [`Members::Named`], returns what is sent.
    pub fn text(&self) -> &str {
        let end = self.prompt.len() - PROMPT.1.len();
        std::str::from_utf8(&self.prompt[PROMPT.0.len()..end])
            .expect("VW-8: a document was checked to be UTF-8")
    }
}

/// Why the input cannot be read on. The fault is the input's, except for [`InputError::Read`].
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
        /// What is wrong with it, and what to do.
        problem: String,
    },
}

/// Makes documents of JSON texts, for example the elements of an array. They may contain line feeds.
///
/// # Errors
/// [`InputError::Line`], for the first text that is not a document.
pub fn documents<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Document>, InputError> {
    let mut batch = Batch::default();
    for (line, text) in (1..).zip(texts) {
        let added = batch.add(line, text.as_bytes(), &Members::All, None);
        let problem = match added {
            Ok(true) => continue,
            Ok(false) => "an empty text is no document".to_owned(),
            Err(problem) => problem,
        };
        return Err(InputError::Line { line, problem });
    }
    Ok(batch.into_documents())
}

/// Documents in one piece of memory.
#[derive(Default)]
pub(super) struct Batch {
    prompts: Vec<u8>,
    /// Line, and where in the piece the id and the prompt are.
    places: Vec<(u64, Range<usize>, Range<usize>)>,
    /// What is sent of the document that is added, when it is not all.
    kept: Vec<Range<usize>>,
}

impl Batch {
    pub(super) fn with_room(bytes: usize) -> Self {
        Self {
            prompts: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns how many documents there are, and how many bytes of prompts.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.places.len(), self.prompts.len())
    }

    /// Adds the document of a line, if there is one on it and it matches.
    ///
    /// # Errors
    /// What is wrong with the line, and what to do.
    pub(super) fn add(
        &mut self,
        number: u64,
        line: &[u8],
        members: &Members,
        selector: Option<&Selector>,
    ) -> Result<bool, String> {
        let Some(checked) = check(line, members, &mut self.kept)? else {
            return Ok(false);
        };
        let matches = selector.map_or(Ok(true), |selector| selector.matches_checked(checked.text));
        if !matches.map_err(|error| format!("document {}: {error}", checked.id))? {
            return Ok(false);
        }
        let start = self.prompts.len();
        self.prompts.extend_from_slice(PROMPT.0);
        let copied = self.prompts.len();
        let id_start = if *members == Members::All {
            self.prompts.extend_from_slice(checked.text.as_bytes());
            copied + checked.id_start()
        } else {
            self.copy_kept(&checked)
        };
        // A prompt is one line. In JSON text a line feed can only be white space.
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

    /// Copies the members that are sent as an object of their own; returns where its id is.
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

    pub(super) fn into_documents(self) -> Vec<Document> {
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
    fn the_members_of_an_array_become_prompts_of_one_line() {
        let texts = ["{\"_id\":\n\"a\"}", " {\"n\":\"\\n\",\r\n\"_id\":\"b\"}\n"];
        let documents = documents(texts).unwrap();
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
    fn a_member_that_is_no_document_is_named_by_its_place() {
        for text in ["", "7", "{}", "{\"_id\":1}", "{\"_id\":\"a\"} {}"] {
            let error = documents(["{\"_id\":\"ok\"}", text]).unwrap_err();
            assert!(error.to_string().starts_with("line 2: "), "{error}");
        }
    }
}
