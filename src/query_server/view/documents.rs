//! Documents from newline-delimited JSON, one a line, as prompts for a query server.
//!
//! SUMMARY   [`DocumentReader`] cuts any input into batches of [`Document`]s; [`read_in_thread`]
//!           does it
//!           beside the pool, so that a slow input stops nobody.
//! PROMISES  Each document is checked to be one JSON object with a usable `_id`; nothing of it is
//!           copied but once, nothing but `_id` is looked at. Memory is bounded: a batch is small,
//!           few of them wait, and a line has a longest length. Lines of white space are passed
//!           over.

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;

use bytes::Bytes;
use serde::Deserializer;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

/// How many documents are handed over at a time.
const BATCH_DOCUMENTS_MAX: usize = 64;

/// How many bytes of documents are handed over at a time, if it is more than one.
const BATCH_BYTES_MAX: usize = 64 * 1024;

/// How many batches wait for a process.
const BATCHES_AHEAD: usize = 32;

/// How much is read at a time, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// What stands before and after a document in its prompt.
const PROMPT: (&[u8], &[u8]) = (b"[\"map_doc\",", b"]");

/// One document, ready to be mapped.
#[derive(Clone, Debug)]
pub struct Document {
    /// The line it stands on, from 1.
    pub line: u64,
    /// Its `_id`: a JSON string as it stands in the document.
    pub id: Bytes,
    /// The command that maps it.
    pub prompt: Bytes,
}

/// Why the input cannot be read on. The fault is the input's, except for [`InputError::Read`].
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The system could not read it.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// A line is no document.
    #[error("line {line}: {problem}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it, and what to do.
        problem: String,
    },
}

/// Cuts an input into documents.
pub struct DocumentReader<R> {
    input: R,
    line_bytes_max: usize,
    /// What was read and not yet cut into lines.
    buffer: Vec<u8>,
    /// Where the next line begins in it.
    next: usize,
    /// How far after `next` there is no line feed.
    searched: usize,
    line: u64,
    ended: bool,
    /// What is wrong with the line after the last batch.
    failed: Option<InputError>,
}

impl<R: Read> DocumentReader<R> {
    /// Makes a reader of documents of at most `line_bytes_max` bytes each.
    pub fn new(input: R, line_bytes_max: usize) -> Self {
        Self {
            input,
            line_bytes_max,
            buffer: Vec::new(),
            next: 0,
            searched: 0,
            line: 0,
            ended: false,
            failed: None,
        }
    }

    /// Reads some documents; none at the end of the input.
    ///
    /// # Errors
    /// See [`InputError`]. The documents before the bad line have been returned by then.
    pub fn next_batch(&mut self) -> Result<Vec<Document>, InputError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut batch = Batch::default();
        while batch.has_room() {
            // What is there already goes out before anything is waited for.
            if !batch.places.is_empty() && self.find_line_end().is_none() && !self.ended {
                break;
            }
            match self
                .next_line()
                .and_then(|place| self.take_line(place, &mut batch))
            {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if batch.places.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        Ok(batch.into_documents())
    }

    /// Adds a line's document to the batch. `false`: there was no line any more.
    fn take_line(
        &self,
        place: Option<Range<usize>>,
        batch: &mut Batch,
    ) -> Result<bool, InputError> {
        let Some(place) = place else {
            return Ok(false);
        };
        let line = self.line;
        let document =
            document(&self.buffer[place]).map_err(|problem| InputError::Line { line, problem })?;
        if let Some((text, id)) = document {
            batch.push(line, text, id);
        }
        Ok(true)
    }

    /// Returns the next line's place in the buffer, without its line feed.
    fn next_line(&mut self) -> Result<Option<Range<usize>>, InputError> {
        loop {
            if let Some(end) = self.find_line_end() {
                let start = std::mem::replace(&mut self.next, end + 1);
                self.searched = 0;
                self.line += 1;
                self.check_length(self.line, end - start)?;
                return Ok(Some(start..end));
            }
            self.check_length(self.line + 1, self.buffer.len() - self.next)?;
            if self.ended {
                let start = std::mem::replace(&mut self.next, self.buffer.len());
                self.line += 1;
                return Ok((start < self.buffer.len()).then_some(start..self.buffer.len()));
            }
            self.fill()?;
        }
    }

    fn find_line_end(&mut self) -> Option<usize> {
        let from = self.next + self.searched;
        let rest = self.buffer.get(from..).unwrap_or_default();
        let found = memchr::memchr(b'\n', rest).map(|end| from + end);
        self.searched = found.map_or(self.searched + rest.len(), |end| end - self.next);
        found
    }

    fn check_length(&self, line: u64, length: usize) -> Result<(), InputError> {
        let limit = self.line_bytes_max;
        if length <= limit {
            return Ok(());
        }
        let problem = format!("the document is longer than {limit} bytes ([server] line_max)");
        Err(InputError::Line { line, problem })
    }

    fn fill(&mut self) -> Result<(), InputError> {
        self.buffer.drain(..self.next);
        self.next = 0;
        let filled = self.buffer.len();
        self.buffer.resize(filled + READ_BYTES, 0);
        let length = loop {
            match self.input.read(&mut self.buffer[filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => break done,
            }
        };
        self.buffer
            .truncate(filled + *length.as_ref().unwrap_or(&0));
        self.ended = length.map_err(InputError::Read)? == 0;
        Ok(())
    }
}

/// Documents on their way into one piece of memory.
#[derive(Default)]
struct Batch {
    prompts: Vec<u8>,
    /// Line, and where in the piece the id and the prompt are.
    places: Vec<(u64, Range<usize>, Range<usize>)>,
}

impl Batch {
    fn has_room(&self) -> bool {
        self.places.len() < BATCH_DOCUMENTS_MAX && self.prompts.len() < BATCH_BYTES_MAX
    }

    /// Adds a document; `id` is a part of `text`.
    fn push(&mut self, line: u64, text: &str, id: &str) {
        let start = self.prompts.len();
        let before_id = id.as_ptr() as usize - text.as_ptr() as usize;
        self.prompts.extend_from_slice(PROMPT.0);
        let id_start = self.prompts.len() + before_id;
        self.prompts.extend_from_slice(text.as_bytes());
        self.prompts.extend_from_slice(PROMPT.1);
        let prompt = start..self.prompts.len();
        self.places
            .push((line, id_start..id_start + id.len(), prompt));
    }

    fn into_documents(self) -> Vec<Document> {
        let prompts = Bytes::from(self.prompts);
        let document = |(line, id, prompt)| Document {
            line,
            id: prompts.slice(id),
            prompt: prompts.slice(prompt),
        };
        self.places.into_iter().map(document).collect()
    }
}

/// Checks a line; returns the document and its id, both as JSON text. `None` is an empty line.
fn document(line: &[u8]) -> Result<Option<(&str, &str)>, String> {
    let text = std::str::from_utf8(line).map_err(|error| {
        format!(
            "not UTF-8 at byte {}; convert the input",
            error.valid_up_to() + 1
        )
    })?;
    let text = text.trim_matches([' ', '\t', '\r']);
    if text.is_empty() {
        return Ok(None);
    }
    if !text.starts_with('{') {
        let valid = serde_json::from_str::<IgnoredAny>(text);
        return Err(valid.map_or_else(
            |error| not_json(&error),
            |_| "not a JSON object; a document is one object on one line".to_owned(),
        ));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let id = json
        .deserialize_map(IdOnly)
        .and_then(|id| json.end().map(|()| id));
    let id = id.map_err(|error| not_json(&error))?;
    let id = id
        .ok_or("the document has no '_id'; every document needs one")?
        .get();
    match serde_json::from_str::<&str>(id) {
        Ok("") => return Err("the document's '_id' is empty".into()),
        Ok(_) => {}
        // With escapes, or not a string at all.
        Err(_) if serde_json::from_str::<String>(id).is_ok() => {}
        Err(_) => return Err(format!("the document's '_id' is {id}; it must be a string")),
    }
    Ok(Some((text, id)))
}

fn not_json(error: &serde_json::Error) -> String {
    // The line in the error's own text is always the first.
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    format!("not JSON: {what} at column {}", error.column())
}

/// Finds `_id` in an object and skips the rest; of several the last counts, as in JavaScript.
struct IdOnly;

impl<'de> Visitor<'de> for IdOnly {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Self::Value, M::Error> {
        let mut id = None;
        while let Some(IsId(is_id)) = members.next_key()? {
            if is_id {
                id = Some(members.next_value::<&RawValue>()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(id)
    }
}

/// Whether a member's name is `_id`, without a copy of it.
struct IsId(bool);

impl<'de> serde::Deserialize<'de> for IsId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = IsId;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<IsId, E> {
                Ok(IsId(name == "_id"))
            }
        }
        from.deserialize_str(Name)
    }
}

/// What [`read_in_thread`] hands over: documents, at last perhaps an error.
pub type Batches = mpsc::Receiver<Result<Vec<Document>, InputError>>;

/// Reads documents in a thread of its own until the end, an error, or nobody wants more.
///
/// # Errors
/// The system has no room for another thread.
pub fn read_in_thread(
    input: impl Read + Send + 'static,
    line_bytes_max: usize,
) -> io::Result<Batches> {
    let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
    std::thread::Builder::new()
        .name("documents".into())
        .spawn(move || {
            let mut reader = DocumentReader::new(input, line_bytes_max);
            loop {
                let batch = reader.next_batch();
                let last = batch.as_ref().map_or(true, Vec::is_empty);
                let is_end = matches!(&batch, Ok(batch) if batch.is_empty());
                if is_end || sender.blocking_send(batch).is_err() || last {
                    return;
                }
            }
        })?;
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time: every line is cut at every place.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.0.len().min(1).min(buffer.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn read(text: &[u8], line_bytes_max: usize) -> (Vec<(u64, String, String)>, Option<String>) {
        let mut reader = DocumentReader::new(Slow(text), line_bytes_max);
        let mut documents = Vec::new();
        loop {
            match reader.next_batch() {
                Ok(batch) if batch.is_empty() => return (documents, None),
                Ok(batch) => documents.extend(batch.into_iter().map(|document| {
                    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
                    (document.line, text(document.id), text(document.prompt))
                })),
                Err(error) => return (documents, Some(error.to_string())),
            }
        }
    }

    #[test]
    fn each_line_becomes_a_prompt_with_the_documents_own_bytes() {
        let text = b"{\"_id\":\"a\", \"n\":1.0}\r\n\n  \n {\"x\":{\"_id\":1},\"_id\":\"\\u0062\"}";
        let (documents, error) = read(text, 1000);
        assert_eq!(error, None);
        assert_eq!(
            documents,
            [
                (
                    1,
                    "\"a\"".into(),
                    "[\"map_doc\",{\"_id\":\"a\", \"n\":1.0}]".into()
                ),
                (
                    4,
                    "\"\\u0062\"".into(),
                    "[\"map_doc\",{\"x\":{\"_id\":1},\"_id\":\"\\u0062\"}]".into()
                ),
            ]
        );
    }

    #[test]
    fn an_empty_input_has_no_documents() {
        assert_eq!(read(b"", 10), (vec![], None));
        assert_eq!(read(b"\n\n", 10), (vec![], None));
    }

    #[test]
    fn a_bad_line_is_named_with_its_problem() {
        for (line, problem) in [
            (&b"{\"_id\":\"a\""[..], "not JSON"),
            (
                b"{\"_id\":\"a\"} x",
                "not JSON: trailing characters at column 13",
            ),
            (b"garbage", "not JSON: expected value at column 1"),
            (b"[1]", "not a JSON object"),
            (b"7", "not a JSON object"),
            (b"{}", "no '_id'"),
            (b"{\"_id\":7}", "'_id' is 7; it must be a string"),
            (b"{\"_id\":null}", "'_id' is null"),
            (b"{\"_id\":\"\"}", "'_id' is empty"),
            (b"{\"_id\":\"\\ud800\"}", "it must be a string"),
            (b"{\"_id\":\"\xff\"}", "not UTF-8 at byte 9"),
            (b"\xef\xbb\xbf{\"_id\":\"a\"}", "not JSON"),
        ] {
            let text = [b"{\"_id\":\"ok\"}\n\n", line, b"\n"].concat();
            let (documents, error) = read(&text, 1000);
            let error = error.unwrap_or_else(|| panic!("{} is bad", line.escape_ascii()));
            assert_eq!(documents.len(), 1);
            assert!(
                error.starts_with("line 3: ") && error.contains(problem),
                "{error}"
            );
        }
    }

    #[test]
    fn a_line_over_the_bound_is_refused_finished_or_not() {
        let fits = b"{\"_id\":\"abcdefghi\"}";
        assert_eq!(read(fits, fits.len()).1, None);
        for end in ["\n", ""] {
            let text = format!("{{\"_id\":\"a\"}}\n{}{end}", String::from_utf8_lossy(fits));
            let (documents, error) = read(text.as_bytes(), fits.len() - 1);
            let error = error.expect("the line is too long");
            assert_eq!(documents.len(), 1);
            assert!(
                error.starts_with("line 2: the document is longer than"),
                "{error}"
            );
        }
    }

    #[test]
    fn of_several_ids_the_last_counts() {
        let (documents, _) = read(b"{\"_id\":\"a\",\"_id\":\"b\"}", 100);
        assert_eq!(documents[0].1, "\"b\"");
    }
}
