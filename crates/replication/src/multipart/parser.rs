//! Finds the parts of a multipart body that arrives in pieces.
//!
//! SUMMARY   [`Parser::push`] takes a piece, [`Parser::next`] returns its elements: the headers of a part, its
//!           bytes, its end, the end of the body.
//! PROMISES  It never waits and never holds more than a piece, a delimiter and [`HEADERS_MAX`]. The bytes of a part
//!           are slices of the pieces, except where a delimiter is split.
//! SOURCE    RFC 2046, 5.1.1: text before the first delimiter and after the last is ignored. As in CouchDB, lines end
//!           with CRLF: CouchDB writes the name of an attachment unchanged into a header, line feeds included.

use bytes::{Buf, Bytes};
use memchr::memmem::{self, Finder};

/// Maximum number of bytes of one part's headers.
pub(crate) const HEADERS_MAX: usize = 16 * 1024;
/// Maximum number of bytes of a boundary: RFC 2046 allows 70.
const BOUNDARY_MAX: usize = 256;
/// Maximum number of bytes between a delimiter and the end of its line.
const PADDING_MAX: usize = 256;

/// The next element of a multipart body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A part begins.
    Headers(Headers),
    /// Bytes of the part, at least one.
    Data(Bytes),
    /// The part has ended.
    PartEnd,
    /// The body has ended.
    End,
}

/// The body is malformed; the sender is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultipartError {
    /// The content type is not multipart, or has no valid boundary.
    #[error("the content type '{0}' is not multipart with a valid boundary")]
    NoBoundary(String),
    /// The headers of a part exceed [`HEADERS_MAX`], or the white space after a delimiter exceeds `PADDING_MAX`.
    #[error(
        "a part has over {HEADERS_MAX} bytes of headers, or a delimiter over {PADDING_MAX} of white space"
    )]
    HeadersTooLong,
    /// A line among the headers is not a header.
    #[error("the headers of a part are malformed")]
    BadHeaders,
    /// The body ended before its last delimiter.
    #[error("the body ended within a part")]
    Truncated,
}

/// The headers of a part, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Returns the value of a header, ignoring the case of its name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    fn parse(block: &[u8]) -> Result<Self, MultipartError> {
        let block = str::from_utf8(block).map_err(|_| MultipartError::BadHeaders)?;
        let mut headers = Vec::new();
        for line in block.split("\r\n").filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or(MultipartError::BadHeaders)?;
            headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        Ok(Self(headers))
    }
}

/// A content type with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentType<'a> {
    /// The type as written, for example `application/json`.
    pub essence: &'a str,
    parameters: &'a str,
}

impl<'a> ContentType<'a> {
    /// Parses a header's value.
    pub fn parse(value: &'a str) -> Self {
        let (essence, parameters) = value.split_once(';').unwrap_or((value, ""));
        Self {
            essence: essence.trim(),
            parameters,
        }
    }

    /// Returns whether it is this type.
    pub fn is(&self, essence: &str) -> bool {
        self.essence.eq_ignore_ascii_case(essence)
    }

    /// Returns whether it is any multipart type.
    pub fn is_multipart(&self) -> bool {
        self.essence
            .split('/')
            .next()
            .is_some_and(|kind| kind.eq_ignore_ascii_case("multipart"))
    }

    /// Returns a parameter without its quotes.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        // No relevant parameter has a semicolon in its quotes.
        self.parameters.split(';').find_map(|parameter| {
            let (known, value) = parameter.split_once('=')?;
            known
                .trim()
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().trim_matches('"'))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first delimiter.
    Preamble,
    /// Right after a delimiter.
    Delimiter,
    /// In the headers of a part.
    Headers,
    /// In the bytes of a part.
    Body,
    /// After the last delimiter.
    End,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Parser {
    /// A line end and the delimiter.
    delimiter: Vec<u8>,
    finder: Finder<'static>,
    buffer: Bytes,
    state: State,
    /// The end of the part was found; [`Piece::PartEnd`] is next.
    part_ends: bool,
}

impl Parser {
    /// Makes a parser for a body of this content type.
    ///
    /// # Errors
    /// [`MultipartError::NoBoundary`].
    pub fn new(content_type: &str) -> Result<Self, MultipartError> {
        let parsed = ContentType::parse(content_type);
        let boundary = parsed.parameter("boundary").unwrap_or_default();
        if !parsed.is_multipart() || boundary.is_empty() || boundary.len() > BOUNDARY_MAX {
            return Err(MultipartError::NoBoundary(content_type.to_owned()));
        }
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        Ok(Self {
            finder: Finder::new(&delimiter).into_owned(),
            delimiter,
            // The first delimiter may be at the very beginning, without a line end.
            buffer: Bytes::from_static(b"\r\n"),
            state: State::Preamble,
            part_ends: false,
        })
    }

    /// Takes the next piece of the body.
    pub fn push(&mut self, piece: Bytes) {
        if self.buffer.is_empty() {
            self.buffer = piece;
        } else {
            self.buffer = [&*self.buffer, &piece].concat().into();
        }
    }

    /// Returns the next element, or `None` if that needs another piece.
    ///
    /// # Errors
    /// [`MultipartError`]; the body is unusable then.
    #[allow(
        clippy::should_implement_trait,
        reason = "None is not the end of an iterator"
    )]
    pub fn next(&mut self) -> Result<Option<Piece>, MultipartError> {
        loop {
            if std::mem::take(&mut self.part_ends) {
                return Ok(Some(Piece::PartEnd));
            }
            let found = match self.state {
                State::Preamble => self.preamble(),
                State::Delimiter => self.behind_delimiter()?,
                State::Headers => return self.headers(),
                State::Body => return Ok(self.body()),
                State::End => {
                    self.buffer.clear();
                    return Ok(Some(Piece::End));
                }
            };
            if !found {
                return Ok(None);
            }
        }
    }

    fn preamble(&mut self) -> bool {
        let Some(at) = self.finder.find(&self.buffer) else {
            self.keep_what_may_be_a_delimiter();
            return false;
        };
        self.buffer.advance(at + self.delimiter.len());
        self.state = State::Delimiter;
        true
    }

    /// Reads what follows a delimiter: white space and a line end begin a part, two dashes end the body. Returns
    /// `false` if more bytes are needed.
    fn behind_delimiter(&mut self) -> Result<bool, MultipartError> {
        if self.buffer.len() < 2 {
            return Ok(false);
        }
        if self.buffer.starts_with(b"--") {
            self.state = State::End;
            return Ok(true);
        }
        match memmem::find(&self.buffer, b"\r\n") {
            Some(at) if at < PADDING_MAX => {
                // The line end is kept: a part without headers begins with an empty line.
                self.buffer.advance(at);
                self.state = State::Headers;
                Ok(true)
            }
            None if self.buffer.len() <= PADDING_MAX => Ok(false),
            _ => Err(MultipartError::HeadersTooLong),
        }
    }

    fn headers(&mut self) -> Result<Option<Piece>, MultipartError> {
        const END: &[u8] = b"\r\n\r\n";
        let end = memmem::find(&self.buffer, END);
        if end.unwrap_or(self.buffer.len()) > HEADERS_MAX {
            return Err(MultipartError::HeadersTooLong);
        }
        let Some(at) = end else {
            return Ok(None);
        };
        let headers = Headers::parse(&self.buffer[..at])?;
        self.buffer.advance(at + END.len());
        self.state = State::Body;
        Ok(Some(Piece::Headers(headers)))
    }

    fn body(&mut self) -> Option<Piece> {
        let Some(at) = self.finder.find(&self.buffer) else {
            let data = self.keep_what_may_be_a_delimiter();
            return (!data.is_empty()).then_some(Piece::Data(data));
        };
        let data = self.buffer.split_to(at);
        self.buffer.advance(self.delimiter.len());
        self.state = State::Delimiter;
        if data.is_empty() {
            return Some(Piece::PartEnd);
        }
        self.part_ends = true;
        Some(Piece::Data(data))
    }

    /// Removes and returns the bytes that cannot belong to a delimiter.
    fn keep_what_may_be_a_delimiter(&mut self) -> Bytes {
        let longest = self.buffer.len().min(self.delimiter.len() - 1);
        let tail = &self.buffer[self.buffer.len() - longest..];
        let kept = memchr::memchr_iter(b'\r', tail)
            .find(|at| self.delimiter.starts_with(&tail[*at..]))
            .map_or(0, |at| tail.len() - at);
        self.buffer.split_to(self.buffer.len() - kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "nobody reads this\r\n--xyz  \r\nContent-Type: application/json\r\n\
        x-y:z\r\n\r\n{\"a\":1}\r\n--xy\r\n-\r\n--xyz\r\n\r\n\r\n--xyz\r\nA: b\r\n\r\n\r\n\r\n\
        --xyz--\r\nnor this\r\n--xyz";

    /// Returns the parts of a body that arrives in pieces of these sizes, used in turn.
    fn parts(body: &[u8], sizes: &[usize]) -> Result<Vec<(Headers, Vec<u8>)>, MultipartError> {
        let mut parser = Parser::new("multipart/mixed; boundary=\"xyz\"")?;
        let (mut rest, mut parts, mut open) = (body, Vec::new(), None);
        let mut sizes = sizes.iter().cycle();
        loop {
            match parser.next()? {
                Some(Piece::Headers(headers)) => open = Some((headers, Vec::new())),
                Some(Piece::Data(data)) => open.as_mut().unwrap().1.extend_from_slice(&data),
                Some(Piece::PartEnd) => parts.push(open.take().unwrap()),
                Some(Piece::End) => return Ok(parts),
                None if rest.is_empty() => return Err(MultipartError::Truncated),
                None => {
                    let size = rest.len().min(*sizes.next().unwrap());
                    parser.push(Bytes::copy_from_slice(&rest[..size]));
                    rest = &rest[size..];
                }
            }
        }
    }

    #[test]
    fn parts_are_found_wherever_the_pieces_are_cut() {
        let whole = parts(BODY.as_bytes(), &[BODY.len()]).unwrap();
        assert_eq!(whole.len(), 3);
        assert_eq!(whole[0].1, b"{\"a\":1}\r\n--xy\r\n-");
        assert_eq!(whole[0].0.get("CONTENT-type"), Some("application/json"));
        assert_eq!(whole[0].0.get("x-y"), Some("z"));
        assert_eq!(
            (whole[1].0.clone(), whole[1].1.len()),
            (Headers::default(), 0)
        );
        assert_eq!(whole[2].1, b"\r\n");
        for first in 1..40 {
            for second in 1..40 {
                let cut = parts(BODY.as_bytes(), &[first, second]);
                assert_eq!(cut.as_ref(), Ok(&whole), "pieces of {first} and {second}");
            }
        }
    }

    #[test]
    fn a_truncated_body_has_no_end_piece() {
        let end = BODY.find("--xyz--").unwrap();
        for length in 0..end {
            let cut = parts(&BODY.as_bytes()[..length], &[7]);
            assert_eq!(cut, Err(MultipartError::Truncated), "{length}");
        }
    }

    #[test]
    fn headers_without_end_are_refused() {
        let body = format!("--xyz\r\n{}", "a: b\r\n".repeat(HEADERS_MAX));
        let refused = Err(MultipartError::HeadersTooLong);
        assert_eq!(parts(body.as_bytes(), &[1000]), refused);
        let body = format!("--xyz{}", " ".repeat(HEADERS_MAX));
        assert_eq!(parts(body.as_bytes(), &[1000]), refused);
        let refused = Err(MultipartError::BadHeaders);
        assert_eq!(
            parts(b"--xyz\r\nno header\r\n\r\n--xyz--", &[1000]),
            refused
        );
    }

    #[test]
    fn the_name_of_an_attachment_may_have_line_feeds() {
        for name in ["a\nb", "a\n\nb"] {
            let header = format!("attachment; filename=\"{name}\"");
            let body = format!("--xyz\r\nContent-Disposition: {header}\r\n\r\nx\r\n--xyz--");
            let parts = parts(body.as_bytes(), &[7]).unwrap();
            assert_eq!(parts[0].0.get("content-disposition"), Some(&*header));
            assert_eq!(parts[0].1, b"x");
        }
    }

    #[test]
    fn binary_data_passes_unchanged() {
        let data: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let mut body = b"--xyz\r\n\r\n".to_vec();
        body.extend_from_slice(&data);
        body.extend_from_slice(b"\r\n--xyz--");
        for size in [1, 3, 64, 4096, 10_000] {
            assert_eq!(parts(&body, &[size]).unwrap()[0].1, data);
        }
    }

    #[test]
    fn content_types_are_split_into_type_and_parameters() {
        let value = "multipart/Related; type=\"a\" ; BOUNDARY=\"a b\"";
        let parsed = ContentType::parse(value);
        assert!(parsed.is("multipart/related") && parsed.is_multipart());
        assert_eq!(parsed.parameter("boundary"), Some("a b"));
        assert_eq!(ContentType::parse("text/plain").parameter("boundary"), None);
        assert!(Parser::new("multipart/mixed").is_err());
        assert!(Parser::new("application/json; boundary=x").is_err());
    }
}
