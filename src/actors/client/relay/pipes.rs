//! The two pipes of an attached client: its lines and the answers.
//!
//! PROMISES  Nothing here blocks or grows beyond a limit that its owner checks. A write without a reader fails.
//! LIMITS    The descriptors are made non-blocking, which affects every process that shares them: so the client
//!           reopens the pipes before it passes them.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::Stream;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::metrics::ClientMetrics;
use child::line_buffer::LineBuffer;
use child::pipe::{Chunks, PipeReader};
use child::watch;

/// Input from a client.
pub(super) enum PipeInput {
    /// A line without its line feed.
    Line(Bytes),
    /// A line beyond the maximum length.
    TooLong,
    /// The end of the input.
    End,
}

/// The client's lines.
pub(super) struct InputPipe {
    chunks: Chunks,
    buffer: LineBuffer,
    metrics: Arc<ClientMetrics>,
}

impl InputPipe {
    pub fn new(
        pipe: OwnedFd,
        line_bytes_max: usize,
        metrics: Arc<ClientMetrics>,
    ) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(pipe.as_fd(), true)?;
        Ok(Self {
            chunks: Chunks::new(PipeReader::new(pipe)?),
            buffer: LineBuffer::new(line_bytes_max),
            metrics,
        })
    }

    /// Sets the first input: unanswered data read by another service.
    pub fn begin_with(&mut self, unread: Bytes) {
        self.buffer.add(unread);
    }

    /// Moves the remaining input to `unread`, including an incomplete line; `None` if a line is too long.
    pub fn take_unread(&mut self, unread: &mut Vec<u8>) -> Option<()> {
        while let Some(line) = self.buffer.next_line().ok()? {
            unread.extend_from_slice(&line);
            unread.push(b'\n');
        }
        unread.extend_from_slice(&self.buffer.take_rest());
        Some(())
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<PipeInput> {
        loop {
            match self.buffer.next_line() {
                Ok(Some(line)) => return Poll::Ready(PipeInput::Line(line)),
                Ok(None) => {}
                Err(_) => return Poll::Ready(PipeInput::TooLong),
            }
            let Some(chunk) = ready!(Pin::new(&mut self.chunks).poll_next(cx)) else {
                let rest = self.buffer.take_rest();
                return Poll::Ready(if rest.is_empty() {
                    PipeInput::End
                } else {
                    PipeInput::Line(rest)
                });
            };
            self.metrics.received_bytes.add(chunk.len() as u64);
            self.buffer.add(chunk);
        }
    }
}

/// The client's answers.
pub(super) struct OutputPipe {
    pipe: AsyncFd<File>,
    unsent: BytesMut,
    metrics: Arc<ClientMetrics>,
}

impl OutputPipe {
    pub fn new(pipe: OwnedFd, metrics: Arc<ClientMetrics>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(pipe.as_fd(), true)?;
        Ok(Self {
            pipe: watch(File::from(pipe), Interest::WRITABLE)?,
            unsent: BytesMut::new(),
            metrics,
        })
    }

    pub fn unsent_bytes(&self) -> usize {
        self.unsent.len()
    }

    /// Queues bytes, which the next [`Self::poll_flush`] writes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Writes queued bytes.
    ///
    /// # Errors
    /// The reader is gone.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let mut guard = ready!(self.pipe.poll_write_ready(cx))?;
            match guard.try_io(|pipe| pipe.get_ref().write(&self.unsent)) {
                Ok(Ok(length)) => {
                    self.metrics.sent_bytes.add(length as u64);
                    self.unsent.advance(length);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}
