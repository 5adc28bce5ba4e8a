//! The pipes that `settee attach` passes to the service, so that lines bypass this program.
//!
//! SUMMARY   If standard input or output is a pipe, it is reopened and the new descriptor passed. For a terminal, a
//!           file or a socket, a thread copies through a new pipe.
//! PROMISES  Passed descriptors share no file status flags (`O_NONBLOCK`) with the program's own standard input and
//!           output, which other processes may use.
//! LIMITS    A pipe can be reopened only if `/proc` is mounted and the pipe is this user's; otherwise it is copied.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::thread::{Builder, JoinHandle};

use crate::cli::exit::{CliResult, IoAt};

/// Stack of a copying thread, in bytes: its calls are shallow.
const STACK_BYTES: usize = 64 * 1024;

/// The pipe ends to pass to the service, and those that this program copies.
pub(super) struct Pipes {
    /// The service reads lines from it.
    pub(super) input: OwnedFd,
    /// The service writes answers to it.
    pub(super) output: OwnedFd,
    /// Copies of standard input go here, unless it is a pipe.
    asked: Option<PipeWriter>,
    /// Copied to standard output, unless that is a pipe.
    answered: Option<PipeReader>,
}

/// Copying threads.
pub(super) struct Copying {
    asked: Option<JoinHandle<io::Result<u64>>>,
    answered: Option<JoinHandle<io::Result<u64>>>,
}

impl Pipes {
    /// Opens the pipes for this program's standard input and output.
    ///
    /// # Errors
    /// The system cannot create another descriptor.
    pub(super) fn open() -> io::Result<Self> {
        let (input, asked) = match reopen(io::stdin().as_fd(), OpenOptions::new().read(true)) {
            Some(input) => (input, None),
            None => io::pipe().map(|(reader, writer)| (reader.into(), Some(writer)))?,
        };
        let (output, answered) = match reopen(io::stdout().as_fd(), OpenOptions::new().write(true))
        {
            Some(output) => (output, None),
            None => io::pipe().map(|(reader, writer)| (writer.into(), Some(reader)))?,
        };
        Ok(Self {
            input,
            output,
            asked,
            answered,
        })
    }

    /// Starts the copying, which ends when the ends passed to the service are closed.
    ///
    /// # Errors
    /// The system cannot create another thread.
    pub(super) fn start(&mut self) -> io::Result<Copying> {
        let asked = self.asked.take().map(|to| {
            copy(io::stdin().as_fd(), move |mut from| {
                io::copy(&mut from, &mut { to })
            })
        });
        let answered = self.answered.take().map(|from| {
            copy(io::stdout().as_fd(), move |mut to| {
                io::copy(&mut { from }, &mut to)
            })
        });
        Ok(Copying {
            asked: asked.transpose()?,
            answered: answered.transpose()?,
        })
    }
}

/// Reopens a pipe, with its own file status flags.
fn reopen(stream: BorrowedFd<'_>, options: &mut OpenOptions) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
    let is_pipe = std::fs::metadata(&path).is_ok_and(|file| file.file_type().is_fifo());
    // Opening one end of a pipe blocks until the other end is open.
    let file = is_pipe.then(|| options.custom_flags(libc::O_NONBLOCK).open(path));
    file?.ok().map(OwnedFd::from)
}

fn copy(
    stream: BorrowedFd<'_>,
    work: impl FnOnce(File) -> io::Result<u64> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<u64>>> {
    // The standard library's streams buffer data that must be passed on immediately.
    let stream = File::from(stream.try_clone_to_owned()?);
    Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || work(stream))
}

impl Copying {
    /// Waits until every answer is delivered. A closed reader is not an error.
    ///
    /// # Errors
    /// Reading standard input or writing standard output failed.
    pub(super) fn finish(self) -> CliResult {
        self.answered
            .map_or(Ok(()), joined)
            .io_at("standard output")?;
        // The thread may be blocked on input that is no longer needed.
        self.asked
            .filter(JoinHandle::is_finished)
            .map_or(Ok(()), joined)
            .io_at("standard input")
    }
}

/// Returns the error of a thread; a closed pipe is none.
fn joined(thread: JoinHandle<io::Result<u64>>) -> io::Result<()> {
    let panicked = |_| Err(io::Error::other("the thread that copies it ended"));
    match thread.join().unwrap_or_else(panicked) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}
