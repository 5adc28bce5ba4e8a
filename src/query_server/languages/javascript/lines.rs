//! The two streams of the query server: whole lines in, coalesced lines out.
//!
//! PROMISES  Output is written when no complete line is left in the input, never later than the read
//!           that waits for more; earlier as [`super::output`] says.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::output::Output;

/// How much is read at once, in bytes: what a pipe holds.
const READ_BYTES: usize = 64 << 10;

/// An input that can tell whether a read would wait.
pub trait Input: Read {
    /// Whether a read would give something (or the end) at once.
    fn readable(&self) -> bool;
}

impl Input for File {
    fn readable(&self) -> bool {
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // An error counts as readable: the read will tell.
        !matches!(poll(&mut fds, Some(&now)), Ok(0))
    }
}

/// Lines in, lines out.
pub(super) struct Lines {
    input: Box<dyn Input>,
    output: Output,
    /// Bytes read; those before `start` are used up.
    read: Vec<u8>,
    start: usize,
    /// Bytes before this index (of `read`) hold no newline after `start`.
    searched: usize,
    ended: bool,
}

impl Lines {
    pub(super) fn new(input: Box<dyn Input>, output: Box<dyn Write + Send>) -> Self {
        Lines {
            input,
            output: Output::new(output),
            read: Vec::with_capacity(READ_BYTES),
            start: 0,
            searched: 0,
            ended: false,
        }
    }

    /// Puts the next line, without its newline, in `line`; false at the end of the input. What
    /// stands before the end without a newline is a line too.
    ///
    /// While nothing can be read, `idle` is called until it answers that it has nothing left to do.
    pub(super) fn next(
        &mut self,
        line: &mut Vec<u8>,
        mut idle: impl FnMut() -> bool,
    ) -> io::Result<bool> {
        line.clear();
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.read[self.searched..]) {
                let end = self.searched + length;
                line.extend_from_slice(&self.read[self.start..end]);
                self.start = end + 1;
                self.searched = self.start;
                self.output.hold();
                return Ok(true);
            }
            self.searched = self.read.len();
            if self.ended {
                line.extend_from_slice(&self.read[self.start..]);
                self.start = self.read.len();
                return Ok(!line.is_empty());
            }
            if !self.input.readable() {
                self.flush()?;
                while idle() && !self.input.readable() {}
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.read.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        let used = self.read.len();
        // A long line doubles what is read at once, so that it costs linear time.
        self.read.resize(used + READ_BYTES.max(used), 0);
        let count = loop {
            match self.input.read(&mut self.read[used..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.read.truncate(used + *count.as_ref().unwrap_or(&0));
        self.ended = count? == 0;
        Ok(())
    }

    /// Adds one line to the output.
    pub(super) fn put(&mut self, line: &str) {
        self.output.put(line);
    }

    /// Writes what is waiting.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Cursor;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Gives its pieces one a read.
    struct Pieces(Vec<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            Cursor::new(self.0.remove(0)).read(buffer)
        }
    }

    impl Input for Pieces {
        fn readable(&self) -> bool {
            false
        }
    }

    #[derive(Clone, Default)]
    struct Writes(Arc<Mutex<Vec<Vec<u8>>>>);

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
        (
            Lines::new(Box::new(Pieces(pieces)), Box::new(writes.clone())),
            writes,
        )
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        let (mut lines, _) = lines(vec![b"on", b"e\ntwo\nthr", b"ee\n", b"rest"]);
        let mut line = Vec::new();
        for expected in ["one", "two", "three", "rest"] {
            assert!(lines.next(&mut line, || false).unwrap());
            assert_eq!(line, expected.as_bytes());
        }
        assert!(!lines.next(&mut line, || false).unwrap());
    }

    #[test]
    fn output_waits_until_no_complete_line_is_left() {
        let (mut lines, writes) = lines(vec![b"1\n2\n3\n4"]);
        let mut line = Vec::new();
        while lines.next(&mut line, || false).unwrap() {
            lines.put("answer");
        }
        let sizes: Vec<usize> = writes.0.lock().unwrap().iter().map(Vec::len).collect();
        assert_eq!(sizes, [21]);
        lines.flush().unwrap();
        assert_eq!(writes.0.lock().unwrap().len(), 2);
    }

    #[test]
    fn idle_work_runs_until_nothing_is_left_to_do() {
        let (mut lines, _) = lines(vec![b"line\n"]);
        let mut steps = 0;
        let idle = || {
            steps += 1;
            steps < 3
        };
        assert!(lines.next(&mut Vec::new(), idle).unwrap());
        assert_eq!(steps, 3);
    }
}
