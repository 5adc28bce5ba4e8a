//! The output of the server: lines are batched, but written soon.
//!
//! SUMMARY   Lines are collected and written in one piece when [`super::lines`] has no more input.
//! PROMISES  If a line waits while a command runs, another thread, the [`Writer`]'s, writes it within
//!           [`HELD_MAX`], even if that command hangs. So the parent always has all earlier answers, and knows which
//!           command is slow. A parent that does not read delays neither commands nor input until the lines have
//!           [`OUTPUT_BYTES_MAX`] bytes.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Lines are written immediately once they have this many bytes. A parent that writes everything before it reads
/// anything deadlocks once its answers exceed this and a pipe's capacity.
pub(super) const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// How long a line may wait for a running command.
const HELD_MAX: Duration = Duration::from_millis(5);

/// The shortest time to an alarm: zero would cancel it.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// Maximum bytes of a write that a writable pipe takes at once (`PIPE_BUF`).
const PIPE_BYTES: usize = 4096;

/// An output that tells whether a write would wait for its reader.
pub trait Destination: Write {
    /// Whether it takes this many bytes at once.
    fn takes(&self, _bytes: usize) -> bool {
        true
    }
}

impl Destination for File {
    fn takes(&self, bytes: usize) -> bool {
        let mut fds = [PollFd::new(self, PollFlags::OUT)];
        // After an error the write returns at once, and reports it.
        bytes <= PIPE_BYTES && !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }
}

/// Output lines.
pub(super) struct Output(Arc<Shared>);

/// Writes lines that have waited too long.
pub(super) struct Writer(Arc<Shared>);

/// Ends the writer when it is dropped.
pub(super) struct WriterEnd(Arc<Shared>);

/// State of both threads. Lock order: `pipe` first.
struct Shared {
    /// Locked while lines are written, however slowly the parent reads: lines keep their order, and the other thread
    /// can collect more.
    pipe: Mutex<Pipe>,
    held: Mutex<Held>,
    alarm: Alarm,
}

/// Wakes the writer. Setting and cancelling a timer costs a tenth of waking a thread, which nearly no command needs.
struct Alarm(OwnedFd);

impl Alarm {
    fn new() -> io::Result<Self> {
        Ok(Self(timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC,
        )?))
    }

    /// Sets the alarm; zero cancels it.
    fn set(&self, time: Duration) {
        let timer = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(time).expect("output: milliseconds are a time"),
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &timer).expect("a timer can be set");
    }

    /// Waits for the alarm.
    fn wait(&self) {
        let mut times = [0; 8];
        while rustix::io::read(&self.0, &mut times) == Err(rustix::io::Errno::INTR) {}
    }
}

struct Pipe {
    output: Box<dyn Destination + Send>,
    /// The first error, for [`Output::flush`]: lines are also added from inside user code, which cannot return it.
    broken: Option<io::Error>,
}

impl Pipe {
    fn send(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() && self.broken.is_none() {
            let written = self.output.write_all(bytes);
            self.broken = written.and_then(|()| self.output.flush()).err();
        }
    }
}

/// Lines not written yet.
#[derive(Default)]
struct Held {
    lines: Vec<u8>,
    /// Whether the alarm is set.
    is_watched: bool,
    has_ended: bool,
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Held> {
        lock(&self.held)
    }

    /// Writes the pending lines; an error is kept for the next [`Output::flush`].
    fn write(&self) -> MutexGuard<'_, Pipe> {
        let mut pipe = lock(&self.pipe);
        let mut held = self.held();
        let lines = mem::take(&mut held.lines);
        if mem::take(&mut held.is_watched) {
            self.alarm.set(Duration::ZERO);
        }
        drop(held);
        pipe.send(&lines);
        let mut held = self.held();
        if held.lines.is_empty() && lines.capacity() > held.lines.capacity() {
            // Reuses the buffer.
            held.lines = lines;
            held.lines.clear();
        }
        drop(held);
        pipe
    }
}

/// Continues after a panic of the other thread: lines are whole between two calls.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Output {
    /// Makes an output, and its writer, which has to [run](Writer::run) in another thread.
    ///
    /// # Errors
    /// The system provides no timer.
    pub fn new(output: Box<dyn Destination + Send>) -> io::Result<(Self, Writer)> {
        let pipe = Pipe {
            output,
            broken: None,
        };
        let shared = Arc::new(Shared {
            pipe: Mutex::new(pipe),
            held: Mutex::default(),
            alarm: Alarm::new()?,
        });
        Ok((Output(Arc::clone(&shared)), Writer(shared)))
    }

    /// Adds one line, given in parts.
    pub fn put(&mut self, line: &[&str]) {
        if line.iter().map(|part| part.len()).sum::<usize>() >= OUTPUT_BYTES_MAX {
            // Copying a long line would double its memory.
            let mut pipe = self.0.write();
            for part in line {
                pipe.send(part.as_bytes());
            }
            return pipe.send(b"\n");
        }
        let mut held = self.0.held();
        for part in line {
            held.lines.extend_from_slice(part.as_bytes());
        }
        held.lines.push(b'\n');
        let is_full = held.lines.len() >= OUTPUT_BYTES_MAX;
        drop(held);
        if is_full {
            drop(self.0.write());
        }
    }

    /// Writes the pending lines.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut pipe = self.0.write();
        pipe.broken.take().map_or(Ok(()), Err)
    }

    /// Before the input is awaited: writes the pending lines, unless that would wait for the parent, which may itself
    /// wait until the input is read. Then the writer does.
    pub fn pass_on(&mut self) -> io::Result<()> {
        let pipe = self.0.pipe.try_lock();
        let bytes = self.0.held().lines.len();
        if pipe.is_ok_and(|pipe| bytes == 0 || pipe.output.takes(bytes)) {
            return self.flush();
        }
        if bytes > 0 {
            self.0.held().is_watched = true;
            self.0.alarm.set(AT_ONCE);
        }
        Ok(())
    }

    /// Before a command runs or goes on: sets the alarm for pending lines.
    pub fn hold(&mut self) {
        let mut held = self.0.held();
        if !held.lines.is_empty() && !held.is_watched {
            held.is_watched = true;
            self.0.alarm.set(HELD_MAX);
        }
    }
}

impl Writer {
    /// Writes lines that have waited for [`HELD_MAX`], until [`WriterEnd`] is dropped.
    pub fn run(&self) {
        let Writer(shared) = self;
        while !shared.held().has_ended {
            shared.alarm.wait();
            let has_lines = !shared.held().lines.is_empty();
            if has_lines {
                drop(shared.write());
            }
        }
    }

    pub fn end(&self) -> WriterEnd {
        WriterEnd(Arc::clone(&self.0))
    }
}

impl Drop for WriterEnd {
    fn drop(&mut self) {
        let mut held = self.0.held();
        held.has_ended = true;
        self.0.alarm.set(AT_ONCE);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    struct Written(mpsc::Sender<Vec<u8>>);

    impl Destination for Written {}

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
        let (mut output, writer) = Output::new(Box::new(Written(sender))).unwrap();
        let deadline = Duration::from_secs(20);
        thread::scope(|scope| {
            let end = writer.end();
            scope.spawn(|| writer.run());
            for _ in 0..3 {
                output.put(&["answer"]);
                // From here a command runs without further output.
                output.hold();
                assert_eq!(written.recv_timeout(deadline).unwrap(), b"answer\n");
            }
            drop(end);
        });
        assert!(written.try_recv().is_err());
    }

    #[test]
    fn lines_are_written_together_and_are_bounded() {
        let (sender, written) = mpsc::channel();
        let (mut output, _) = Output::new(Box::new(Written(sender))).unwrap();
        output.put(&["1"]);
        output.put(&["2"]);
        output.flush().unwrap();
        assert_eq!(written.try_recv().unwrap(), b"1\n2\n");
        output.put(&[&"x".repeat(OUTPUT_BYTES_MAX / 2)]);
        output.put(&[&"x".repeat(OUTPUT_BYTES_MAX / 2)]);
        assert_eq!(written.try_recv().unwrap().len(), OUTPUT_BYTES_MAX + 2);
        output.put(&["be", "fore"]);
        output.put(&[&"x".repeat(OUTPUT_BYTES_MAX)]);
        let all: Vec<u8> = written.try_iter().flatten().collect();
        assert_eq!(all.len(), "before\n".len() + OUTPUT_BYTES_MAX + 1);
        assert!(all.starts_with(b"before\nx") && all.ends_with(b"x\n"));
    }
}
