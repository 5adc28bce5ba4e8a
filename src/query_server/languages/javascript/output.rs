//! What the server prints: lines that are written together, and soon.
//!
//! SUMMARY   Lines are collected and written in one piece. Whoever reads the input says when.
//! PROMISES  A line that waits while a later command runs is written within [`HELD_MAX`], whatever
//!           that command does, also in native code that nothing interrupts: a thread of its own
//!           does it. So the parent always knows which command takes long, and has every answer
//!           from before it.
//! LIMITS    The thread begins with the first line that has to wait, and sleeps while none does.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// Lines are written at the latest when they have this many bytes. A peer that writes everything
/// before it reads anything stops for ever once its answers outgrow this and a pipe.
pub(super) const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// How long a line may wait behind a command that runs.
const HELD_MAX: Duration = Duration::from_millis(5);

/// Lines on their way out.
pub(super) struct Output {
    held: Arc<Mutex<Held>>,
    /// Writes what waits for too long; none before anything had to wait.
    writer: Option<Thread>,
}

/// What is not written yet.
struct Held {
    lines: Vec<u8>,
    output: Box<dyn Write + Send>,
    /// The first error of the output. Lines are added from inside user code too.
    broken: Option<io::Error>,
    /// Whether the other thread will look at it.
    is_watched: bool,
}

impl Held {
    fn write(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        self.send(&lines);
        lines.clear();
        self.lines = lines;
    }

    fn send(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() && self.broken.is_none() {
            let written = self.output.write_all(bytes);
            self.broken = written.and_then(|()| self.output.flush()).err();
        }
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Output {
    pub(super) fn new(output: Box<dyn Write + Send>) -> Self {
        let held = Held {
            lines: Vec::new(),
            output,
            broken: None,
            is_watched: false,
        };
        Output {
            held: Arc::new(Mutex::new(held)),
            writer: None,
        }
    }

    /// Adds one line.
    pub(super) fn put(&mut self, line: &str) {
        let mut held = lock(&self.held);
        if line.len() >= OUTPUT_BYTES_MAX {
            // A copy of a long line would be as much memory again.
            held.write();
            held.send(line.as_bytes());
            held.send(b"\n");
            return;
        }
        held.lines.extend_from_slice(line.as_bytes());
        held.lines.push(b'\n');
        if held.lines.len() >= OUTPUT_BYTES_MAX {
            held.write();
        }
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let mut held = lock(&self.held);
        held.write();
        held.broken.take().map_or(Ok(()), Err)
    }

    /// Says that a command is about to run: what waits is written soon, however long that takes.
    pub(super) fn hold(&mut self) {
        let mut held = lock(&self.held);
        if held.lines.is_empty() || held.is_watched {
            return;
        }
        if self.writer.is_none() {
            self.writer = start_writer(&self.held);
        }
        match &self.writer {
            Some(writer) => {
                held.is_watched = true;
                writer.unpark();
            }
            // The system has no room for a thread.
            None => held.write(),
        }
    }
}

fn start_writer(held: &Arc<Mutex<Held>>) -> Option<Thread> {
    let held = Arc::clone(held);
    let writer = thread::Builder::new().name("output".to_owned());
    // It ends with the process.
    let started = writer.spawn(move || {
        loop {
            if !lock(&held).is_watched {
                thread::park();
                continue;
            }
            thread::sleep(HELD_MAX);
            let mut held = lock(&held);
            held.is_watched = !held.lines.is_empty();
            held.write();
        }
    });
    started.ok().map(|writer| writer.thread().clone())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Written(mpsc::Sender<Vec<u8>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            drop(self.0.send(bytes.to_vec()));
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_waits_behind_a_command_is_written_while_that_runs() {
        let (sender, written) = mpsc::channel();
        let mut output = Output::new(Box::new(Written(sender)));
        let deadline = Duration::from_secs(20);
        for _ in 0..3 {
            output.put("answer");
            // The command runs from here on, and nobody says anything more.
            output.hold();
            assert_eq!(written.recv_timeout(deadline).unwrap(), b"answer\n");
        }
        assert!(written.try_recv().is_err());
    }

    #[test]
    fn lines_are_written_together_and_are_bounded() {
        let (sender, written) = mpsc::channel();
        let mut output = Output::new(Box::new(Written(sender)));
        output.put("1");
        output.put("2");
        output.flush().unwrap();
        assert_eq!(written.try_recv().unwrap(), b"1\n2\n");
        output.put(&"x".repeat(OUTPUT_BYTES_MAX / 2));
        output.put(&"x".repeat(OUTPUT_BYTES_MAX / 2));
        assert_eq!(written.try_recv().unwrap().len(), OUTPUT_BYTES_MAX + 2);
        output.put("before");
        output.put(&"x".repeat(OUTPUT_BYTES_MAX));
        let all: Vec<u8> = written.try_iter().flatten().collect();
        assert_eq!(all.len(), "before\n".len() + OUTPUT_BYTES_MAX + 1);
        assert!(all.starts_with(b"before\nx") && all.ends_with(b"x\n"));
    }
}
