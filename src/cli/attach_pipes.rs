//! The pipes that `settee attach` hands to the service, so that no line passes through it.
//!
//! SUMMARY   A pipe that is standard input or output is opened again, and that descriptor is handed
//!           over. For a terminal, a file or a socket it is a new pipe, which a thread copies to or from.
//! PROMISES  What is handed over shares no file status flags (`O_NONBLOCK`) with the program's own
//!           standard input and output, which others may use as well.
//! LIMITS    A pipe can be opened anew where `/proc` is mounted and the pipe is this user's; elsewhere
//!           it is copied.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::thread::{Builder, JoinHandle};

use crate::cli::exit::CliError;

/// The stack of a thread that copies, in bytes: it calls nothing deep.
const STACK_BYTES: usize = 64 * 1024;

/// What the service is handed, and what is left to be copied here.
pub(super) struct Pipes {
    /// Where the service reads lines.
    pub(super) input: OwnedFd,
    /// Where it writes answers.
    pub(super) output: OwnedFd,
    /// Where standard input is copied to, if it is no pipe.
    asked: Option<PipeWriter>,
    /// What is copied to standard output, if that is no pipe.
    answered: Option<PipeReader>,
}

/// Threads that copy.
pub(super) struct Copying {
    asked: Option<JoinHandle<io::Result<u64>>>,
    answered: Option<JoinHandle<io::Result<u64>>>,
}

impl Pipes {
    /// Opens the pipes for this program's standard input and output.
    ///
    /// # Errors
    /// The system has no room for another descriptor.
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

    /// Starts to copy. The copying ends when nobody has the ends that the service is handed.
    ///
    /// # Errors
    /// The system has no room for another thread.
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

/// Opens a pipe anew, with file status flags of its own.
fn reopen(stream: BorrowedFd<'_>, options: &mut OpenOptions) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
    let is_pipe = std::fs::metadata(&path).is_ok_and(|file| file.file_type().is_fifo());
    // Opening the end of a pipe waits for somebody at the other end.
    let file = is_pipe.then(|| options.custom_flags(libc::O_NONBLOCK).open(path));
    file?.ok().map(OwnedFd::from)
}

fn copy(
    stream: BorrowedFd<'_>,
    work: impl FnOnce(File) -> io::Result<u64> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<u64>>> {
    // The streams of the standard library buffer what must not wait.
    let stream = File::from(stream.try_clone_to_owned()?);
    Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || work(stream))
}

impl Copying {
    /// Waits until every answer is delivered. A reader that is gone is no error.
    ///
    /// # Errors
    /// Reading standard input or writing standard output failed.
    pub(super) fn finish(self) -> Result<(), CliError> {
        let delivered = self.answered.map_or(Ok(0), joined);
        match delivered {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                return Err(CliError::io("standard output", &error));
            }
            _ => {}
        }
        // It may wait for input that is no longer needed.
        match self.asked.filter(JoinHandle::is_finished).map(joined) {
            Some(Err(error)) if error.kind() != ErrorKind::BrokenPipe => {
                Err(CliError::io("standard input", &error))
            }
            _ => Ok(()),
        }
    }
}

fn joined(thread: JoinHandle<io::Result<u64>>) -> io::Result<u64> {
    let panicked = |_| Err(io::Error::other("the thread that copies it ended"));
    thread.join().unwrap_or_else(panicked)
}
