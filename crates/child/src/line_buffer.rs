//! Splits a stream of bytes into lines of bounded length.

use std::mem;

use bytes::{Buf, Bytes, BytesMut};

/// A line was longer than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {limit} bytes")]
pub struct LineTooLong {
    /// The maximum, in bytes.
    pub limit: usize,
}

/// Minimum length of a chunk that is a piece of a line as it is, in bytes. Shorter ones are gathered.
const PIECE_MIN: usize = 16 << 10;

/// Maximum length of gathered chunks, in bytes.
const GATHERED_MAX: usize = 256 << 10;

/// A line without its line feed. A long one is in pieces: joining them takes long enough to be done on another thread.
#[derive(Clone, Debug)]
pub struct PiecedLine {
    pieces: Vec<Bytes>,
    last: Bytes,
}

impl From<Bytes> for PiecedLine {
    fn from(last: Bytes) -> Self {
        let pieces = Vec::new();
        Self { pieces, last }
    }
}

impl PiecedLine {
    /// Returns the length in bytes.
    pub fn length(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum::<usize>() + self.last.len()
    }

    /// Returns the line in one piece.
    pub fn join(mut self) -> Bytes {
        if self.pieces.is_empty() {
            return self.last;
        }
        self.pieces.push(self.last);
        self.pieces.concat().into()
    }
}

/// Splits a stream of chunks into lines, without copying a line that lies within one chunk.
#[derive(Debug)]
pub struct LineBuffer {
    /// The pieces of the incomplete line before `partial`.
    pieces: Vec<Bytes>,
    pieces_bytes: usize,
    partial: BytesMut,
    chunk: Bytes,
    line_bytes_max: usize,
}

impl LineBuffer {
    /// Creates an empty buffer for lines of at most `line_bytes_max` bytes without the line feed.
    pub fn new(line_bytes_max: usize) -> Self {
        Self {
            pieces: Vec::new(),
            pieces_bytes: 0,
            partial: BytesMut::new(),
            chunk: Bytes::new(),
            line_bytes_max,
        }
    }

    /// Changes the maximum for later lines.
    pub fn set_line_bytes_max(&mut self, line_bytes_max: usize) {
        self.line_bytes_max = line_bytes_max;
    }

    /// Appends a chunk. Call [`Self::next_line`] until it has no more before appending again.
    pub fn add(&mut self, chunk: Bytes) {
        debug_assert!(
            self.chunk.is_empty(),
            "lines are taken before more is added"
        );
        self.chunk = chunk;
    }

    /// Takes the next whole line, without its line feed.
    ///
    /// # Errors
    /// [`LineTooLong`]: the line, complete or not, exceeds the maximum. The stream is lost.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        Ok(self.next_pieced_line()?.map(PiecedLine::join))
    }

    /// As [`Self::next_line`], without joining the pieces of a long line.
    ///
    /// # Errors
    /// As [`Self::next_line`].
    pub fn next_pieced_line(&mut self) -> Result<Option<PiecedLine>, LineTooLong> {
        let end = memchr::memchr(b'\n', &self.chunk);
        let rest_bytes = end.unwrap_or(self.chunk.len());
        if self.held_bytes() + rest_bytes > self.line_bytes_max {
            return Err(LineTooLong {
                limit: self.line_bytes_max,
            });
        }
        let rest = self.chunk.split_to(rest_bytes);
        if end.is_none() {
            self.hold(rest);
            return Ok(None);
        }
        self.chunk.advance(1);
        if self.held_bytes() == 0 {
            return Ok(Some(rest.into()));
        }
        self.hold(rest);
        Ok(Some(self.take_held()))
    }

    /// Takes the bytes after the last line feed.
    pub fn take_rest(&mut self) -> Bytes {
        let chunk = mem::take(&mut self.chunk);
        self.hold(chunk);
        self.take_held().join()
    }

    fn hold(&mut self, chunk: Bytes) {
        let is_piece = chunk.len() >= PIECE_MIN;
        if is_piece && !self.partial.is_empty() || self.partial.len() >= GATHERED_MAX {
            self.pieces_bytes += self.partial.len();
            self.pieces.push(self.partial.split().freeze());
        }
        if is_piece {
            self.pieces_bytes += chunk.len();
            self.pieces.push(chunk);
        } else {
            self.partial.extend_from_slice(&chunk);
        }
    }

    fn take_held(&mut self) -> PiecedLine {
        self.pieces_bytes = 0;
        PiecedLine {
            pieces: mem::take(&mut self.pieces),
            last: self.partial.split().freeze(),
        }
    }

    fn held_bytes(&self) -> usize {
        self.pieces_bytes + self.partial.len()
    }

    /// Returns the length of the held incomplete line, in bytes.
    pub fn partial_bytes(&self) -> usize {
        self.held_bytes() + self.chunk.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_only_at_line_feeds_in_chunks_of_any_size() {
        let text = "one\ntwo \u{2028}\u{0}\r\n\nfour".as_bytes();
        for size in 1..=text.len() {
            let mut buffer = LineBuffer::new(100);
            let mut lines = Vec::new();
            for chunk in text.chunks(size) {
                buffer.add(Bytes::copy_from_slice(chunk));
                while let Some(line) = buffer.next_line().unwrap() {
                    lines.push(line);
                }
            }
            assert_eq!(
                lines,
                ["one".as_bytes(), "two \u{2028}\u{0}\r".as_bytes(), b""]
            );
            assert_eq!(&buffer.take_rest()[..], b"four");
        }
    }

    #[test]
    fn a_long_line_grows_without_being_copied_and_is_whole_once_joined() {
        let long = Bytes::from(vec![b'l'; 100_000]);
        let short = Bytes::from(vec![b's'; 1_000]);
        let mut buffer = LineBuffer::new(usize::MAX);
        let mut expected = Vec::new();
        for turn in 0..1_000 {
            let chunk = if turn % 300 < 10 { &long } else { &short };
            expected.extend_from_slice(chunk);
            buffer.add(chunk.clone());
            assert!(buffer.next_pieced_line().unwrap().is_none());
            assert_eq!(buffer.partial_bytes(), expected.len());
        }
        buffer.add(Bytes::from_static(b"end\nnext\n"));
        expected.extend_from_slice(b"end");
        let line = buffer.next_pieced_line().unwrap().unwrap();
        let kept = line
            .pieces
            .iter()
            .filter(|piece| piece.as_ptr() == long.as_ptr());
        assert_eq!(kept.count(), 40);
        let longest = line.pieces.iter().map(Bytes::len).max();
        assert!(longest.unwrap() < GATHERED_MAX + short.len());
        assert_eq!(line.length(), expected.len());
        assert!(line.join() == expected);
        assert_eq!(buffer.next_line().unwrap().unwrap(), "next");
        assert_eq!(buffer.partial_bytes(), 0);
    }

    #[test]
    fn a_line_over_the_maximum_is_refused_even_if_incomplete() {
        let mut buffer = LineBuffer::new(4);
        buffer.add(Bytes::from_static(b"1234\n12345"));
        assert_eq!(buffer.next_line().unwrap().unwrap(), "1234");
        assert_eq!(buffer.next_line(), Err(LineTooLong { limit: 4 }));
    }
}
