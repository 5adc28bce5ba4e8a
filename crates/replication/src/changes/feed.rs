//! Splits the text of a changes feed, arriving in pieces, into rows.
//!
//! SUMMARY   [`FeedParser::push`] takes a piece, [`FeedParser::next_text`] returns the next row's text, [`line`]
//!           parses it. Normal feeds (one object with `results`) and continuous ones (an object per line) may have
//!           any white space, or none, between rows.
//! PROMISES  Sequences keep their bytes. Only the incomplete row is held, at most [`ROW_MAX`] bytes. Anything that is
//!           not a feed is an error, never a shorter feed: [`FeedParser::finish`] checks the end.
//! SOURCE    CouchDB's `_changes`; PouchDB's, which separates rows differently and never ends a continuous feed; Sync
//!           Gateway's, with rows of users and roles, which have no revision, and channels in `removed`.

use bytes::{Buf, Bytes, BytesMut};
use json::object_end::ObjectEnd;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::seq::Seq;

/// Maximum length of a row, in bytes. Long rows list the revisions of a document in conflict.
pub(crate) const ROW_MAX: usize = 16 * 1024 * 1024;
/// Maximum bytes before the rows of a normal feed, and after them.
const FRAME_MAX: usize = 64 * 1024;

/// How a feed is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// One finite object: `{"results":[ROW,..],"last_seq":..}`.
    Normal,
    /// An object per line, until the server ends the feed with a `last_seq`.
    Continuous,
}

/// One object of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A document changed.
    Row(Row),
    /// The feed ends here for now: there is nothing else up to this sequence.
    LastSeq(Seq),
}

impl Change {
    pub fn seq(&self) -> &Seq {
        match self {
            Self::Row(row) => &row.seq,
            Self::LastSeq(seq) => seq,
        }
    }

    /// Returns the row, if it is one.
    pub fn into_row(self) -> Option<Row> {
        match self {
            Self::Row(row) => Some(row),
            Self::LastSeq(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its sequence.
    pub(crate) seq: Seq,
    pub(crate) id: String,
    /// The revisions to check; may be empty.
    pub(crate) revs: Vec<String>,
}

/// The data is not a changes feed: the fault of the source, or of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FeedError {
    /// A row is longer than [`ROW_MAX`], or the text before or after the rows is longer than [`FRAME_MAX`].
    #[error(
        "a row of the changes feed has more than {ROW_MAX} bytes, or the text around the rows {FRAME_MAX}"
    )]
    RowTooLong,
    /// The text is not the JSON of a feed.
    #[error("the changes feed is malformed: {why}: {text}")]
    Malformed {
        why: String,
        /// The beginning of the faulty text.
        text: String,
    },
    /// An error in the middle of the feed: CouchDB sends it after a successful status.
    #[error("the source ended the changes feed with an error: {0}")]
    Source(String),
    /// The feed ended prematurely.
    #[error("the changes feed ended in the middle")]
    Truncated,
}

#[derive(Deserialize)]
struct RawLine<'a> {
    #[serde(borrow)]
    seq: Option<&'a RawValue>,
    id: Option<String>,
    changes: Option<Vec<RawChange>>,
    /// `true` if the first revision was removed; Sync Gateway's arrays mean something else.
    #[serde(borrow)]
    removed: Option<&'a RawValue>,
    #[serde(borrow)]
    last_seq: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawChange {
    rev: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the rows of a normal feed.
    Head,
    /// Among rows.
    Rows,
    /// After the rows of a normal feed.
    Tail,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct FeedParser {
    framing: Framing,
    state: State,
    buffer: BytesMut,
    /// Finds the end of the row at the beginning of the buffer.
    row_end: ObjectEnd,
}

impl FeedParser {
    pub fn new(framing: Framing) -> Self {
        Self {
            framing,
            state: match framing {
                Framing::Normal => State::Head,
                Framing::Continuous => State::Rows,
            },
            buffer: BytesMut::new(),
            row_end: ObjectEnd::default(),
        }
    }

    /// Appends the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the text of the next row, for [`line`], or `None` if it needs another piece.
    ///
    /// # Errors
    /// [`FeedError`]; the feed is then unusable.
    pub fn next_text(&mut self) -> Result<Option<Bytes>, FeedError> {
        if self.state == State::Head && !self.head()? {
            return Ok(None);
        }
        if self.state == State::Tail || !self.between_rows()? {
            return self.bounded(FRAME_MAX).map(|()| None);
        }
        let Some(length) = self.row_end.find(&self.buffer) else {
            return self.bounded(ROW_MAX).map(|()| None);
        };
        self.row_end = ObjectEnd::default();
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Ends the stream. Returns the sequence up to which a normal feed is complete.
    ///
    /// # Errors
    /// The feed is incomplete, or the end of a normal feed is malformed. A continuous feed may end between any two
    /// rows.
    pub fn finish(self) -> Result<Option<Seq>, FeedError> {
        let left = self.buffer.trim_ascii();
        match (self.framing, self.state) {
            (Framing::Continuous, _) if left.is_empty() => Ok(None),
            (Framing::Normal, State::Tail) if left.ends_with(b"}") => {
                // Makes `,"last_seq":..,"pending":..}` an object again.
                let tail = left.strip_prefix(b",").unwrap_or(left);
                let last = line(&[b"{", tail].concat())?;
                Ok(Some(last.seq().clone()))
            }
            _ => Err(FeedError::Truncated),
        }
    }

    fn head(&mut self) -> Result<bool, FeedError> {
        const RESULTS: &[u8] = b"\"results\"";
        let Some(at) = memchr::memmem::find(&self.buffer, RESULTS) else {
            // A complete object without results is no feed, but for example an error.
            let start = memchr::memchr(b'{', &self.buffer).unwrap_or(self.buffer.len());
            if ObjectEnd::default().find(&self.buffer[start..]).is_some() {
                return Err(malformed("it has no results", &self.buffer));
            }
            return self.bounded(FRAME_MAX).map(|()| false);
        };
        let behind = &self.buffer[at + RESULTS.len()..];
        let Some(open) = memchr::memchr(b'[', behind) else {
            return self.bounded(FRAME_MAX).map(|()| false);
        };
        if behind[..open].trim_ascii() != b":" || !self.buffer.trim_ascii_start().starts_with(b"{")
        {
            return Err(malformed("its results are not an array", &self.buffer));
        }
        self.buffer.advance(at + RESULTS.len() + open + 1);
        self.state = State::Rows;
        Ok(true)
    }

    /// Skips separators. Returns whether a row begins.
    fn between_rows(&mut self) -> Result<bool, FeedError> {
        if self.row_end.has_begun() {
            return Ok(true);
        }
        let separates = |byte: &&u8| byte.is_ascii_whitespace() || **byte == b',';
        let count = self.buffer.iter().take_while(separates).count();
        self.buffer.advance(count);
        match (self.buffer.first(), self.framing) {
            (None, _) => Ok(false),
            (Some(b'{'), _) => Ok(true),
            (Some(b']'), Framing::Normal) => {
                self.buffer.advance(1);
                self.state = State::Tail;
                Ok(false)
            }
            _ => Err(malformed("a row is not an object", &self.buffer)),
        }
    }

    fn bounded(&self, max: usize) -> Result<(), FeedError> {
        if self.buffer.len() <= max {
            Ok(())
        } else {
            Err(FeedError::RowTooLong)
        }
    }
}

/// Parses the text of a row, or of a `last_seq` between rows.
///
/// # Errors
/// [`FeedError`]; the feed is then unusable.
pub(crate) fn line(text: &[u8]) -> Result<Change, FeedError> {
    let parsed: RawLine<'_> =
        serde_json::from_slice(text).map_err(|error| malformed(&error.to_string(), text))?;
    match parsed {
        RawLine {
            seq: Some(seq),
            id: Some(id),
            changes: Some(mut revs),
            removed,
            ..
        } => {
            if removed.is_some_and(|removed| removed.get() == "true") && !revs.is_empty() {
                revs.remove(0);
            }
            Ok(Change::Row(Row {
                seq: Seq::from_raw(seq),
                id,
                revs: revs.into_iter().map(|change| change.rev).collect(),
            }))
        }
        RawLine { error: Some(_), .. } => Err(FeedError::Source(beginning(text))),
        RawLine {
            last_seq: Some(seq),
            ..
        } => Ok(Change::LastSeq(Seq::from_raw(seq))),
        _ => Err(malformed("neither a row nor a last_seq", text)),
    }
}

fn malformed(why: &str, text: &[u8]) -> FeedError {
    FeedError::Malformed {
        why: why.to_owned(),
        text: beginning(text),
    }
}

/// Returns the beginning of a text, long enough to recognise it.
fn beginning(text: &[u8]) -> String {
    const SHOWN: usize = 200;
    String::from_utf8_lossy(&text[..text.len().min(SHOWN)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(parser: &mut FeedParser) -> Result<Option<Change>, FeedError> {
        let text = parser.next_text()?;
        text.map(|text| line(&text)).transpose()
    }

    fn read(framing: Framing, text: &str, size: usize) -> Result<Vec<Change>, FeedError> {
        let mut parser = FeedParser::new(framing);
        let mut lines = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            parser.push(piece);
            while let Some(line) = next(&mut parser)? {
                lines.push(line);
            }
        }
        parser.finish()?;
        Ok(lines)
    }

    fn row(seq: &str, id: &str, revs: &[&str]) -> Change {
        Change::Row(Row {
            seq: serde_json::from_str::<Seq>(seq).unwrap(),
            id: id.to_owned(),
            revs: revs.iter().map(|rev| (*rev).to_owned()).collect(),
        })
    }

    const NORMAL: &str = "{\"results\":[\n{\"seq\":\"1-g1AAAA\",\"id\":\"a\",\"changes\":[{\"rev\":\"1-x\"},\
        {\"rev\":\"1-y\"}]},\n{\"seq\":[5, \"q\\\"}\" ],\"id\":\"\\u00e9\\\\\",\"changes\":[{\"rev\":\"2-b\"}],\
        \"deleted\":true,\"doc\":{\"a\":[\"]}\"]}}\n],\n\"last_seq\":\"9-z\",\"pending\":0}\n";

    #[test]
    fn a_normal_feed_is_read_wherever_it_is_cut() {
        let rows = vec![
            row("\"1-g1AAAA\"", "a", &["1-x", "1-y"]),
            row("[5, \"q\\\"}\" ]", "\u{e9}\\", &["2-b"]),
        ];
        for size in 1..NORMAL.len() {
            let read = read(Framing::Normal, NORMAL, size).unwrap();
            assert_eq!(read, rows, "{size}");
        }
    }

    #[test]
    fn a_normal_feed_needs_no_line_ends() {
        let text = "{\"results\":[{\"seq\":1,\"id\":\"a\",\"changes\":[{\"rev\":\"1-x\"}]},{\"seq\":2,\"id\":\"b\",\
            \"changes\":[{\"rev\":\"1-y\"}]}],\"last_seq\":2}";
        let lines = read(Framing::Normal, text, 7).unwrap();
        assert_eq!(lines, [row("1", "a", &["1-x"]), row("2", "b", &["1-y"])]);
        let empty = read(Framing::Normal, "{\"results\":[],\"last_seq\":0}", 3);
        assert_eq!(empty, Ok(vec![]));
    }

    #[test]
    fn a_continuous_feed_has_blank_lines_and_ends_with_a_last_seq() {
        let text = "\n\n{\"seq\":12345678901234567890123,\"id\":\"a\",\"changes\":[{\"rev\":\"1-x\"}]}\n\n\
            {\"last_seq\":\"7-x\",\"pending\":3}\n";
        for size in 1..text.len() {
            let lines = read(Framing::Continuous, text, size).unwrap();
            let marker = Change::LastSeq(serde_json::from_str::<Seq>("\"7-x\"").unwrap());
            assert_eq!(
                lines,
                [row("12345678901234567890123", "a", &["1-x"]), marker]
            );
        }
    }

    #[test]
    fn the_first_revision_of_a_removed_row_is_dropped() {
        let text = "{\"seq\":1,\"id\":\"a\",\"changes\":[{\"rev\":\"2-x\"},{\"rev\":\"1-y\"}],\"removed\":true}\n";
        let lines = read(Framing::Continuous, text, 10).unwrap();
        assert_eq!(lines, [row("1", "a", &["1-y"])]);
    }

    #[test]
    fn a_feed_that_ends_in_the_middle_is_an_error() {
        for length in 0..NORMAL.len() - 2 {
            let cut = read(Framing::Normal, &NORMAL[..length], 9);
            assert_eq!(cut, Err(FeedError::Truncated), "{length}");
        }
        let cut = read(Framing::Continuous, "{\"seq\":1,", 9);
        assert_eq!(cut, Err(FeedError::Truncated));
    }

    #[test]
    fn an_invalid_feed_is_reported() {
        for text in ["{\"error\":\"x\"}", "{\"results\":{}[", "[1]{\"results\":["] {
            let read = read(Framing::Normal, text, 100);
            assert!(
                matches!(read, Err(FeedError::Malformed { .. })),
                "{text}: {read:?}"
            );
        }
        for text in ["<html>", "{\"seq\":1}\n", "{\"id\":\"a\",\"changes\":[]}"] {
            let read = read(Framing::Continuous, text, 100);
            assert!(
                matches!(read, Err(FeedError::Malformed { .. })),
                "{text}: {read:?}"
            );
        }
        let text = "{\"results\":[\n{\"error\":\"timeout\",\"reason\":\"x\"}";
        assert!(matches!(
            read(Framing::Normal, text, 100),
            Err(FeedError::Source(_))
        ));
    }

    #[test]
    fn a_row_without_end_is_refused() {
        let mut parser = FeedParser::new(Framing::Continuous);
        parser.push(b"{\"seq\":\"");
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..20).find_map(|_| {
            parser.push(&piece);
            next(&mut parser).err()
        });
        assert_eq!(refused, Some(FeedError::RowTooLong));
    }
}
