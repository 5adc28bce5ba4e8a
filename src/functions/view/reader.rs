//! Documents from newline-delimited JSON, one a line.
//!
//! SUMMARY   [`DocumentCutter`] cuts what comes, in pieces of any size, into batches of
//!           [`Document`]s; [`DocumentReader`] does it for an input that is read, and
//!           [`read_in_thread`] beside the pool, so that a slow input stops nobody.
//! PROMISES  Memory is bounded: a batch is small, few of them wait, and a line has a longest
//!           length. Lines of white space are passed over. A line is copied once on its way.

use std::io::{self, Read};
use std::ops::Range;

use tokio::sync::mpsc;

use super::check::Members;
use super::documents::{Batch, Document, InputError};

/// How many documents are handed over at a time: waking another thread costs as much as a document.
const BATCH_DOCUMENTS_MAX: usize = 256;

/// How many bytes of documents are handed over at a time, if it is more than one.
const BATCH_BYTES_MAX: usize = 128 * 1024;

/// How many batches wait for a process.
pub const BATCHES_AHEAD: usize = 16;

/// How much is read at a time, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// Documents on their way to processes, at last perhaps an error. To be made with room for
/// [`BATCHES_AHEAD`].
pub type Batches = mpsc::Receiver<Result<Vec<Document>, InputError>>;

/// Hands over documents that are all there.
pub fn batches_of(documents: Vec<Document>) -> Batches {
    let (sender, batches) = mpsc::channel(1);
    // There is room for one.
    drop(sender.try_send(Ok(documents)));
    batches
}

/// Cuts text into documents, wherever it comes from.
pub struct DocumentCutter {
    line_bytes_max: usize,
    members: Members,
    /// What came and is not yet cut into lines, and room for more.
    buffer: Vec<u8>,
    /// How much of it came.
    filled: usize,
    /// Where the next line begins in it.
    next: usize,
    /// How far after `next` there is no line feed.
    searched: usize,
    line: u64,
    ended: bool,
    /// How many bytes the last batch had: the next will need about as many.
    batch_bytes: usize,
    /// What is wrong with the line after the last batch.
    failed: Option<InputError>,
}

impl DocumentCutter {
    /// Makes a cutter of documents of at most `line_bytes_max` bytes each.
    pub fn new(line_bytes_max: usize) -> Self {
        Self {
            line_bytes_max,
            members: Members::All,
            buffer: Vec::new(),
            filled: 0,
            next: 0,
            searched: 0,
            line: 0,
            ended: false,
            batch_bytes: 0,
            failed: None,
        }
    }

    /// Has no more of the documents sent than these members.
    #[must_use]
    pub fn keeping(mut self, members: Members) -> Self {
        self.members = members;
        self
    }

    /// Adds what came. Take all batches before adding more: what is not taken is kept.
    pub fn add(&mut self, text: &[u8]) {
        self.make_room();
        self.buffer.truncate(self.filled);
        self.buffer.extend_from_slice(text);
        self.filled = self.buffer.len();
    }

    /// Says that nothing more comes: the last line needs no line feed.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Takes the documents of some lines that are there; none when more has to be added first.
    ///
    /// # Errors
    /// [`InputError::Line`]. The documents before the bad line have been returned by then.
    pub fn next_batch(&mut self) -> Result<Vec<Document>, InputError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut batch = Batch::with_room(self.batch_bytes);
        while has_room(&batch) {
            match self
                .next_line()
                .and_then(|place| self.take_line(place, &mut batch))
            {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if batch.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        self.batch_bytes = batch.size().1;
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
        batch
            .add(line, &self.buffer[place], &self.members)
            .map_err(|problem| InputError::Line { line, problem })?;
        Ok(true)
    }

    /// Returns the next line's place in the buffer, without its line feed.
    fn next_line(&mut self) -> Result<Option<Range<usize>>, InputError> {
        if let Some(end) = self.find_line_end() {
            let start = std::mem::replace(&mut self.next, end + 1);
            self.searched = 0;
            self.line += 1;
            self.check_length(self.line, end - start)?;
            return Ok(Some(start..end));
        }
        self.check_length(self.line + 1, self.filled - self.next)?;
        if !self.ended {
            return Ok(None);
        }
        let start = std::mem::replace(&mut self.next, self.filled);
        self.line += 1;
        Ok((start < self.filled).then_some(start..self.filled))
    }

    fn find_line_end(&mut self) -> Option<usize> {
        let from = self.next + self.searched;
        let rest = self.buffer.get(from..self.filled).unwrap_or_default();
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

    /// Forgets what is cut already.
    fn make_room(&mut self) {
        if self.next == 0 {
            return;
        }
        self.buffer.copy_within(self.next..self.filled, 0);
        self.filled -= self.next;
        self.next = 0;
    }

    fn fill(&mut self, input: &mut impl Read) -> Result<(), InputError> {
        self.make_room();
        if self.buffer.len() < self.filled + READ_BYTES {
            self.buffer.resize(self.filled + READ_BYTES, 0);
        }
        let length = loop {
            match input.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => break done.map_err(InputError::Read)?,
            }
        };
        self.filled += length;
        self.ended = length == 0;
        Ok(())
    }
}

fn has_room(batch: &Batch) -> bool {
    let (documents, bytes) = batch.size();
    documents < BATCH_DOCUMENTS_MAX && bytes < BATCH_BYTES_MAX
}

/// Cuts an input into documents.
pub struct DocumentReader<R> {
    input: R,
    cutter: DocumentCutter,
}

impl<R: Read> DocumentReader<R> {
    /// Makes a reader of documents of at most `line_bytes_max` bytes each.
    pub fn new(input: R, line_bytes_max: usize) -> Self {
        Self {
            input,
            cutter: DocumentCutter::new(line_bytes_max),
        }
    }

    /// Has no more of the documents sent than these members.
    #[must_use]
    pub fn keeping(mut self, members: Members) -> Self {
        self.cutter = self.cutter.keeping(members);
        self
    }

    /// Reads some documents; none at the end of the input. What is there already goes out before
    /// anything is waited for.
    ///
    /// # Errors
    /// See [`InputError`]. The documents before the bad line have been returned by then.
    pub fn next_batch(&mut self) -> Result<Vec<Document>, InputError> {
        loop {
            let batch = self.cutter.next_batch()?;
            if !batch.is_empty() || self.cutter.ended {
                return Ok(batch);
            }
            self.cutter.fill(&mut self.input)?;
        }
    }
}

/// Reads documents in a thread of its own until the end, an error, or nobody wants more. No more of
/// them is sent than `members`.
///
/// # Errors
/// The system has no room for another thread.
pub fn read_in_thread(
    input: impl Read + Send + 'static,
    line_bytes_max: usize,
    members: Members,
) -> io::Result<Batches> {
    let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
    std::thread::Builder::new()
        .name("documents".into())
        .spawn(move || {
            let mut reader = DocumentReader::new(input, line_bytes_max).keeping(members);
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
    use bytes::Bytes;

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

    /// What a function gets that reads `a` and `b`.
    fn kept(line: &str) -> String {
        let names = ["a", "b"].map(str::to_owned).into();
        let reader = DocumentReader::new(line.as_bytes(), 1000).keeping(Members::Named(names));
        let document = { reader }.next_batch().unwrap().remove(0);
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
            // The last counts.
            (
                r#"{"a":1,"_id":"y","c":0,"a":2,"c":1,"_id":"x"}"#,
                r#"{"a":1,"_id":"y","a":2,"_id":"x"}"#,
            ),
            // Names with escapes are names as well.
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
            let reader = DocumentReader::new(line.as_bytes(), 1000).keeping(names.clone());
            let error = { reader }.next_batch().unwrap_err().to_string();
            assert!(error.starts_with("line 1: "), "{line}: {error}");
        }
    }

    #[test]
    fn text_that_comes_in_pieces_is_cut_as_if_it_came_at_once() {
        let text = b"{\"_id\":\"a\"}\n\n{\"_id\":\"b\"}\n{\"_id\":\"c\"}";
        for size in 1..=text.len() {
            let mut cutter = DocumentCutter::new(100);
            let mut lines = Vec::new();
            for piece in text.chunks(size) {
                cutter.add(piece);
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
