//! Splits a stream of bytes into lines of bounded length.

use bytes::{Bytes, BytesMut};

/// A line was longer than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {limit} bytes")]
pub struct LineTooLong {
    /// The maximum, in bytes.
    pub limit: usize,
}

/// Splits a stream of chunks into lines, without copying a line that lies within one chunk.
#[derive(Debug)]
pub struct LineBuffer {
    partial: BytesMut,
    chunk: Bytes,
    line_bytes_max: usize,
}

impl LineBuffer {
    /// Creates an empty buffer for lines of at most `line_bytes_max` bytes without the line feed.
    pub fn new(line_bytes_max: usize) -> Self {
        Self {
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
        let end = memchr::memchr(b'\n', &self.chunk);
        let piece_bytes = end.unwrap_or(self.chunk.len());
        if self.partial.len() + piece_bytes > self.line_bytes_max {
            return Err(LineTooLong {
                limit: self.line_bytes_max,
            });
        }
        if end.is_none() {
            self.partial.extend_from_slice(&self.chunk);
            self.chunk = Bytes::new();
            return Ok(None);
        }
        let mut line = self.chunk.split_to(piece_bytes + 1);
        line.truncate(piece_bytes);
        if self.partial.is_empty() {
            return Ok(Some(line));
        }
        self.partial.extend_from_slice(&line);
        Ok(Some(self.partial.split().freeze()))
    }

    /// Takes the bytes after the last line feed.
    pub fn take_rest(&mut self) -> Bytes {
        self.partial.extend_from_slice(&self.chunk);
        self.chunk = Bytes::new();
        self.partial.split().freeze()
    }

    /// Returns the length of the held incomplete line, in bytes.
    pub fn partial_bytes(&self) -> usize {
        self.partial.len() + self.chunk.len()
    }

    /// Returns whether an incomplete line is held.
    pub fn has_partial(&self) -> bool {
        !self.partial.is_empty() || !self.chunk.is_empty()
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
    fn a_line_over_the_maximum_is_refused_even_if_incomplete() {
        let mut buffer = LineBuffer::new(4);
        buffer.add(Bytes::from_static(b"1234\n12345"));
        assert_eq!(buffer.next_line().unwrap().unwrap(), "1234");
        assert_eq!(buffer.next_line(), Err(LineTooLong { limit: 4 }));
    }
}
