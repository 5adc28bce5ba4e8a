//! Documents from newline-delimited JSON, one per line.
//!
//! SUMMARY   [`DocumentCutter`] cuts text chunks of any size into batches of [`Document`]s; [`DocumentReader`] reads
//!           the chunks from an input, and [`read_in_thread`] does so in a separate thread, so that slow input does
//!           not block the pool.
//! PROMISES  Memory is bounded by the size of a batch, the number of waiting batches, and the length of a line. Blank
//!           lines and documents that do not match are skipped.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::check::Members;
use super::documents::{Batch, Document, InputError, MissingId};
use crate::lock;
use child::line_buffer::{LineBuffer, LineTooLong};
use child::pipe::read_chunk;
use mango::Selector;

/// Maximum batches waiting for a process.
pub const BATCHES_AHEAD: usize = 16;

/// Documents on their way to processes; an error is the last. Create the channel with capacity for
/// [`BATCHES_AHEAD`].
pub type Batches = mpsc::Receiver<Result<Vec<Document>, InputError>>;

/// Bad lines kept for display.
const BAD_LINES_SHOWN: usize = 3;

/// Skipped lines that are not documents, up to a maximum.
#[derive(Debug)]
pub(crate) struct BadLines {
    max: u64,
    /// Their number, and the first ones.
    seen: Mutex<(u64, Vec<String>)>,
}

impl BadLines {
    /// Allows this many.
    pub fn at_most(max: u64) -> Arc<Self> {
        Arc::new(Self {
            max,
            seen: Mutex::default(),
        })
    }

    /// Counts a line and returns `true`; returns `false` if the maximum is reached.
    fn skip(&self, line: u64, problem: &str) -> bool {
        let mut seen = lock(&self.seen);
        let (count, first) = &mut *seen;
        let is_skipped = *count < self.max;
        *count += u64::from(is_skipped);
        if is_skipped && first.len() < BAD_LINES_SHOWN {
            first.push(format!("line {line}: {problem}"));
        }
        is_skipped
    }

    /// Reports the number of skipped lines and the first ones; `None`: there were none.
    pub fn summary(&self) -> Option<String> {
        let seen = lock(&self.seen);
        let (count, first) = &*seen;
        let first = first.join("; ");
        (*count > 0).then(|| format!("{count} bad lines were skipped. {first}"))
    }
}

/// Which documents are sent, and which of their members.
#[derive(Default)]
pub(crate) struct DocumentRules {
    /// How documents without an id are handled.
    pub missing_id: MissingId,
    /// Skips lines that are not documents, as many as this allows. An overlong line is still an error: where it ends is
    /// unknown.
    pub bad_lines: Option<Arc<BadLines>>,
    /// The members that are sent.
    pub members: Members,
    /// Selects the documents to keep; `None` keeps all. An error in matching names the line.
    pub selector: Option<Selector>,
}

/// Cuts text into documents.
pub(crate) struct DocumentCutter {
    rules: DocumentRules,
    lines: LineBuffer,
    /// Lines cut so far, and those before the text.
    pub line: u64,
    ended: bool,
    /// Size of the last batch in bytes, an estimate for the next.
    batch_bytes: usize,
    /// The problem of the line after the last batch.
    failed: Option<InputError>,
}

impl DocumentCutter {
    /// Makes a cutter of documents of at most `line_bytes_max` bytes each.
    pub fn new(line_bytes_max: usize, rules: DocumentRules) -> Self {
        Self {
            rules,
            lines: LineBuffer::new(line_bytes_max),
            line: 0,
            ended: false,
            batch_bytes: 0,
            failed: None,
        }
    }

    /// Appends text. Take all batches before appending more.
    pub fn add(&mut self, text: Bytes) {
        self.lines.add(text);
    }

    /// Ends the text: the last line may lack a line feed.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Takes the documents of some complete lines; none if there is no such line left.
    ///
    /// # Errors
    /// [`InputError::Line`]. The documents before the bad line have been returned by then.
    pub fn next_batch(&mut self) -> Result<Vec<Document>, InputError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut batch = Batch::with_room(self.batch_bytes);
        while batch.has_room() {
            match self.take_line(&mut batch) {
                Ok(true) => {}
                Ok(false) => break,
                Err(problem) => {
                    let line = self.line;
                    self.failed = Some(InputError::Line { line, problem });
                    break;
                }
            }
        }
        self.batch_bytes = batch.bytes();
        match self.failed.take_if(|_| batch.is_empty()) {
            Some(error) => Err(error),
            None => Ok(batch.into_documents()),
        }
    }

    /// Adds the next line's document to the batch, if it has one. Returns false if there is no line.
    fn take_line(&mut self, batch: &mut Batch) -> Result<bool, String> {
        let line = self.lines.next_line();
        self.line += 1;
        let line = line.map_err(|LineTooLong { limit }| {
            format!("the document is longer than {limit} bytes ([server] line_max)")
        })?;
        let Some(line) = line.or_else(|| self.take_last()) else {
            self.line -= 1;
            return Ok(false);
        };
        let added = batch.add(self.line, &line, &self.rules);
        match (added, &self.rules.bad_lines) {
            (Err(problem), Some(bad)) if bad.skip(self.line, &problem) => Ok(true),
            (added, _) => added.map(|_| true),
        }
    }

    /// Takes the last line, which lacks a line feed.
    fn take_last(&mut self) -> Option<Bytes> {
        let rest = self.ended.then(|| self.lines.take_rest());
        rest.filter(|rest| !rest.is_empty())
    }
}

/// Cuts an input into documents.
pub(crate) struct DocumentReader<R> {
    input: R,
    cutter: DocumentCutter,
}

impl<R: Read> DocumentReader<R> {
    /// Makes a reader.
    pub fn new(input: R, cutter: DocumentCutter) -> Self {
        Self { input, cutter }
    }

    /// Reads some documents; none at the end of the input. Returns available documents before it waits for more.
    ///
    /// # Errors
    /// See [`InputError`]. The documents before the bad line have been returned by then.
    pub fn next_batch(&mut self) -> Result<Vec<Document>, InputError> {
        loop {
            let batch = self.cutter.next_batch()?;
            if !batch.is_empty() || self.cutter.ended {
                return Ok(batch);
            }
            match read_chunk(|buffer| self.input.read(buffer)) {
                Ok(end) if end.is_empty() => self.cutter.end(),
                Ok(chunk) => self.cutter.add(chunk),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(InputError::Read(error)),
            }
        }
    }
}

/// Reads documents in a separate thread until the input ends, an error occurs, or the receiver is dropped.
///
/// # Errors
/// The system cannot create another thread.
pub(crate) fn read_in_thread(
    input: impl Read + Send + 'static,
    cutter: DocumentCutter,
) -> io::Result<Batches> {
    let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
    std::thread::Builder::new()
        .name("documents".into())
        .spawn(move || {
            let mut reader = DocumentReader::new(input, cutter);
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

    /// Yields one byte at a time: every line is cut at every place.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.0.len().min(1).min(buffer.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn cutter(line_bytes_max: usize) -> DocumentCutter {
        DocumentCutter::new(line_bytes_max, DocumentRules::default())
    }

    fn keeping(members: Members) -> DocumentCutter {
        let rules = DocumentRules {
            members,
            ..DocumentRules::default()
        };
        DocumentCutter::new(1000, rules)
    }

    fn matching(line_bytes_max: usize, selector: Selector) -> DocumentCutter {
        let rules = DocumentRules {
            selector: Some(selector),
            ..DocumentRules::default()
        };
        DocumentCutter::new(line_bytes_max, rules)
    }

    fn read(text: &[u8], line_bytes_max: usize) -> (Vec<(u64, String, String)>, Option<String>) {
        let mut reader = DocumentReader::new(Slow(text), cutter(line_bytes_max));
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

    /// The document as sent to a function that reads `a` and `b`.
    fn kept(line: &str) -> String {
        let names = ["a", "b"].map(str::to_owned).into();
        let mut reader = DocumentReader::new(line.as_bytes(), keeping(Members::Named(names)));
        let document = reader.next_batch().unwrap().remove(0);
        let text = document.text();
        let place = document.id.as_ptr() as usize - text.as_ptr() as usize;
        assert_eq!(
            text[place..].split_at(document.id.len()).0,
            document.id_text()
        );
        text.to_owned()
    }

    #[test]
    fn only_the_members_that_are_wanted_and_the_id_are_sent() {
        for (line, sent) in [
            (
                r#"{"_id":"x","a":1,"b":[{"c":2}],"c":3}"#,
                r#"{"_id":"x","a":1,"b":[{"c":2}]}"#,
            ),
            (
                r#" { "c" : {"a":1,"_id":7} , "b" : "}" , "_id" : "x" } "#,
                r#"{"b" : "}","_id" : "x"}"#,
            ),
            (r#"{"c":"d","_id":"x"}"#, r#"{"_id":"x"}"#),
            // The last member counts.
            (
                r#"{"a":1,"_id":"y","c":0,"a":2,"c":1,"_id":"x"}"#,
                r#"{"a":1,"_id":"y","a":2,"_id":"x"}"#,
            ),
            // An escaped name matches like a plain one.
            (
                r#"{"_i\u0064":"x","\u0061":1,"c":2}"#,
                r#"{"_i\u0064":"x","\u0061":1}"#,
            ),
            (r#"{"_id":"x","\u0063":1,"\ud800":2}"#, r#"{"_id":"x"}"#),
        ] {
            assert_eq!(kept(line), sent);
        }
    }

    #[test]
    fn members_that_are_not_sent_are_checked_like_the_others() {
        let names = Members::Named(["a".to_owned()].into());
        for line in [
            r#"{"_id":"x","c":[1,]}"#,
            r#"{"_id":"x","c":"\x"}"#,
            r#"{"_id":"x","c":1"#,
            r#"{"_id":"x","c":1}}"#,
            r#"{"_id":"x","c":1},{"_id":"y"}"#,
            r#"{"c":{"_id":"x"}}"#,
        ] {
            let error = DocumentReader::new(line.as_bytes(), keeping(names.clone()))
                .next_batch()
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("line 1: "), "{line}: {error}");
        }
    }

    #[test]
    fn text_that_comes_in_pieces_is_cut_as_if_it_came_at_once() {
        let text = b"{\"_id\":\"a\"}\n\n{\"_id\":\"b\"}\n{\"_id\":\"c\"}";
        for size in 1..=text.len() {
            let mut cutter = cutter(100);
            let mut lines = Vec::new();
            for piece in text.chunks(size) {
                cutter.add(Bytes::copy_from_slice(piece));
                lines.extend(cutter.next_batch().unwrap());
            }
            assert_eq!(lines.len(), 2, "the third has no line feed");
            cutter.end();
            lines.extend(cutter.next_batch().unwrap());
            let lines: Vec<u64> = lines.iter().map(|document| document.line).collect();
            assert_eq!(lines, [1, 3, 4]);
            assert!(cutter.next_batch().unwrap().is_empty());
        }
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
    fn an_overlong_line_is_refused_with_or_without_its_line_feed() {
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
    fn the_last_of_several_ids_counts() {
        let (documents, _) = read(b"{\"_id\":\"a\",\"_id\":\"b\"}", 100);
        assert_eq!(documents[0].1, "\"b\"");
    }

    #[test]
    fn only_documents_that_match_come_through_in_their_order() {
        let selector = Selector::parse(r#"{"n":{"$mod":[100,7]}}"#).unwrap();
        let lines: Vec<String> = (0..1000)
            .map(|number| format!("  {{\"_id\":\"d{number}\", \"n\":{number}}}\r\n\n"))
            .collect();
        let cutter = matching(1000, selector);
        let mut reader = DocumentReader::new(io::Cursor::new(lines.concat()), cutter);
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
    fn a_match_that_cannot_be_decided_is_an_error_after_the_documents_before_it() {
        let selector = Selector::parse(r#"{"a":{"$regex":"^(a|a?)+\\1$"}}"#).unwrap();
        let bad = format!("{}!", "a".repeat(2000));
        let text = format!("{{\"_id\":\"x\",\"a\":\"aa\"}}\n{{\"_id\":\"y\",\"a\":\"{bad}\"}}\n");
        let cutter = matching(10_000, selector);
        let mut reader = DocumentReader::new(text.as_bytes(), cutter);
        assert_eq!(reader.next_batch().unwrap().len(), 1);
        let error = reader.next_batch().unwrap_err().to_string();
        assert!(
            error.starts_with("line 2: document \"y\": the regular expression"),
            "{error}"
        );
    }
}
