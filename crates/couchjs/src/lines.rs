//! The two streams of the query server: whole lines in, coalesced lines out.
//!
//! PROMISES  Output is written once the input has no complete line left, before the read that waits for more, or
//!           earlier as [`super::output`] requires. An overlong line is read to its end but not held.
//! WHY       A line's maximum length is a part of the memory left when it arrives. So a long line is held only once: it
//!           is not copied, and its buffer grows only as needed.

use std::fs::File;
use std::io;
use std::mem;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::failure::Failure;
use super::memory::{LONG_BYTES, push_long};
use super::output::Output;

/// Bytes of one read: the capacity of a pipe.
const READ_BYTES: usize = 64 << 10;

/// Maximum growth of a long line's buffer at a time, in bytes.
const GROWTH_BYTES_MAX: usize = 1 << 20;

/// An input that reports whether a read would wait.
pub trait Input {
    /// Whether a read would return at once.
    fn readable(&self) -> bool;

    /// Appends the bytes of one read to a buffer with spare capacity, and returns their number: 0 at the end.
    ///
    /// # Errors
    /// The input fails.
    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize>;
}

impl Input for File {
    fn readable(&self) -> bool {
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        // An error counts as readable: the read reports it.
        !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }

    // Memory that no line has filled stays untouched.
    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        Ok(rustix::io::read(&*self, spare_capacity(buffer))?)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Line,
    /// A line of this many bytes, too long to hold.
    TooLong(usize),
    End,
}

/// What the caller of [`Lines::next`] decides.
pub(super) trait Reader {
    /// Does a piece of idle work while there is no input; returns `false` if none is left.
    fn prepare(&mut self) -> bool;

    /// Maximum length of a line, in bytes; called for long lines only.
    fn line_bytes_max(&mut self) -> usize;
}

pub(super) struct Lines {
    input: Box<dyn Input>,
    pub output: Output,
    /// Bytes read; those before `start` are consumed.
    read: Vec<u8>,
    start: usize,
    /// Below this index of `read` there is no newline after `start`.
    searched: usize,
    /// Skipped bytes of an overlong line.
    skipped: usize,
    ended: bool,
}

impl Lines {
    pub fn new(input: Box<dyn Input>, output: Output) -> Self {
        Lines {
            input,
            output,
            read: Vec::with_capacity(READ_BYTES),
            start: 0,
            searched: 0,
            skipped: 0,
            ended: false,
        }
    }

    /// Puts the next line, without its newline, in `line`. The last line may lack a newline.
    pub fn next(&mut self, line: &mut Vec<u8>, reader: &mut impl Reader) -> io::Result<Next> {
        line.clear();
        line.shrink_to(LONG_BYTES);
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.read[self.searched..]) {
                let next = self.take(self.searched + length, line);
                self.output.hold();
                return Ok(next);
            }
            self.searched = self.read.len();
            if self.ended {
                if self.start == self.read.len() && self.skipped == 0 {
                    return Ok(Next::End);
                }
                return Ok(self.take(self.read.len(), line));
            }
            let bytes = self.read.len() - self.start;
            if self.skipped > 0 || bytes > LONG_BYTES && bytes > reader.line_bytes_max() {
                self.skip();
            }
            if !self.input.readable() {
                self.output.pass_on()?;
                while reader.prepare() && !self.input.readable() {}
            }
            self.fill()?;
        }
    }

    /// Takes the line that ends before an index of `read`.
    fn take(&mut self, end: usize, line: &mut Vec<u8>) -> Next {
        let (start, after) = (self.start, self.read.len().min(end + 1));
        let next = match self.skipped {
            0 => Next::Line,
            bytes => Next::TooLong(bytes + end - start),
        };
        self.start = after;
        if next == Next::Line && end - start < LONG_BYTES {
            line.extend_from_slice(&self.read[start..end]);
        } else if next == Next::Line {
            // A copy would double the memory.
            let rest = self.read[after..].to_vec();
            *line = mem::replace(&mut self.read, rest);
            line.truncate(end);
            line.drain(..start);
            self.start = 0;
        }
        self.searched = self.start;
        self.skipped = 0;
        next
    }

    /// Drops the part of a line read so far.
    fn skip(&mut self) {
        self.skipped += self.read.len() - self.start;
        self.read = Vec::with_capacity(READ_BYTES);
        self.start = 0;
        self.searched = 0;
    }

    fn fill(&mut self) -> io::Result<()> {
        self.read.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        let room = READ_BYTES.max(self.read.len().min(GROWTH_BYTES_MAX));
        if self.read.capacity() - self.read.len() < READ_BYTES
            && self.read.try_reserve_exact(room).is_err()
        {
            self.skip();
        }
        loop {
            match self.input.read(&mut self.read) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                count => {
                    self.ended = count? == 0;
                    return Ok(());
                }
            }
        }
    }
}

/// Returns the text of a line, with invalid UTF-8 replaced as by `String::from_utf8_lossy`.
///
/// # Errors
/// The system has no memory for the replacements.
pub(super) fn into_text(line: Vec<u8>) -> Result<String, Failure> {
    // Validating first is many times faster than decoding byte by byte.
    let line = match String::from_utf8(line) {
        Ok(text) => return Ok(text),
        Err(error) => error.into_bytes(),
    };
    let mut text = String::new();
    for chunk in line.utf8_chunks() {
        let replaced = match chunk.invalid() {
            [] => "",
            _ => "\u{fffd}",
        };
        for part in [chunk.valid(), replaced] {
            push_long(&mut text, part).map_err(|_| Failure::out_of_memory())?;
        }
    }
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::output::Destination;

    /// Returns one piece for each read.
    struct Pieces(Vec<&'static [u8]>);

    impl Input for Pieces {
        fn readable(&self) -> bool {
            false
        }

        fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            buffer.extend_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[derive(Clone, Default)]
    struct Writes(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Destination for Writes {}

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().push(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(pieces: Vec<&'static [u8]>) -> (Lines, Writes) {
        let writes = Writes::default();
        let (output, _) = Output::new(Box::new(writes.clone())).unwrap();
        (Lines::new(Box::new(Pieces(pieces)), output), writes)
    }

    /// A reader with a maximum line length and this many pieces of idle work.
    struct Host {
        line_bytes_max: usize,
        steps: usize,
    }

    impl Reader for Host {
        fn prepare(&mut self) -> bool {
            self.steps = self.steps.saturating_sub(1);
            self.steps > 0
        }

        fn line_bytes_max(&mut self) -> usize {
            self.line_bytes_max
        }
    }

    fn idle() -> Host {
        Host {
            line_bytes_max: usize::MAX,
            steps: 0,
        }
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        let (mut lines, _) = lines(vec![b"on", b"e\ntwo\nthr", b"ee\n", b"rest"]);
        let mut line = Vec::new();
        for expected in ["one", "two", "three", "rest"] {
            assert_eq!(lines.next(&mut line, &mut idle()).unwrap(), Next::Line);
            assert_eq!(line, expected.as_bytes());
        }
        assert_eq!(lines.next(&mut line, &mut idle()).unwrap(), Next::End);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_one_is_read() {
        let long: &'static [u8] = vec![b'x'; READ_BYTES].leak();
        let pieces = |count: usize, last: &'static [u8]| {
            let mut pieces = vec![b"first\n".as_slice()];
            pieces.extend(vec![long; count]);
            pieces.push(last);
            lines(pieces).0
        };
        let mut host = Host {
            line_bytes_max: 2 * LONG_BYTES,
            ..idle()
        };
        let mut line = Vec::new();
        let (few, many) = (LONG_BYTES / READ_BYTES + 1, 100);
        for (count, expected) in [
            (few, Next::Line),
            (many, Next::TooLong(many * READ_BYTES + 1)),
        ] {
            let mut lines = pieces(count, b"y\nlast\n");
            assert_eq!(lines.next(&mut line, &mut host).unwrap(), Next::Line);
            assert_eq!(lines.next(&mut line, &mut host).unwrap(), expected);
            if expected == Next::Line {
                assert_eq!(line.len(), count * READ_BYTES + 1);
            }
            assert!(lines.read.capacity() < 2 * LONG_BYTES);
            assert_eq!(lines.next(&mut line, &mut host).unwrap(), Next::Line);
            assert_eq!(line, b"last");
            assert!(line.capacity() <= LONG_BYTES);
            assert_eq!(lines.next(&mut line, &mut host).unwrap(), Next::End);
        }
        let mut lines = pieces(many, b"y");
        lines.next(&mut line, &mut host).unwrap();
        let expected = Next::TooLong(many * READ_BYTES + 1);
        assert_eq!(lines.next(&mut line, &mut host).unwrap(), expected);
        assert_eq!(lines.next(&mut line, &mut host).unwrap(), Next::End);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        for line in [&b"a\xffb"[..], b"\xff\xfe", b"\xe4\xb8x", b"plain \xc3\xa9"] {
            let text = into_text(line.to_vec()).ok().unwrap();
            assert_eq!(text, String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn output_waits_until_no_complete_line_is_left() {
        let (mut lines, writes) = lines(vec![b"1\n2\n3\n4"]);
        let mut line = Vec::new();
        while lines.next(&mut line, &mut idle()).unwrap() == Next::Line {
            lines.output.put(&["answer"]);
        }
        let sizes: Vec<usize> = writes.0.lock().unwrap().iter().map(Vec::len).collect();
        assert_eq!(sizes, [21]);
        lines.output.flush().unwrap();
        assert_eq!(writes.0.lock().unwrap().len(), 2);
    }

    #[test]
    fn idle_work_runs_until_nothing_is_left_to_do() {
        let (mut lines, _) = lines(vec![b"line\n"]);
        let mut host = Host { steps: 3, ..idle() };
        let next = lines.next(&mut Vec::new(), &mut host).unwrap();
        assert_eq!((next, host.steps), (Next::Line, 0));
    }
}
