//! Non-blocking pipes to a child.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt, Stream};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::watch;

/// Maximum bytes of a read: a pipe's capacity.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    /// A shared buffer for all reads of a thread, so that an idle process needs none.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads a chunk through the thread's buffer; an empty one is the end.
///
/// # Errors
/// Those of `read`.
pub fn read_chunk(read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Bytes> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(READ_BYTES, 0);
        let length = read(scratch)?;
        Ok(Bytes::copy_from_slice(&scratch[..length]))
    })
}

/// The reading end: a stream of chunks, which can also be read without waiting.
pub struct PipeReader {
    pipe: AsyncFd<File>,
}

impl PipeReader {
    /// Watches a non-blocking descriptor.
    ///
    /// # Errors
    /// The event loop cannot register it.
    pub fn new(pipe: OwnedFd) -> io::Result<Rc<Self>> {
        let pipe = watch(File::from(pipe), Interest::READABLE)?;
        Ok(Rc::new(Self { pipe }))
    }

    /// Reads without waiting; returns an empty chunk at the end.
    ///
    /// Queries the system, since the event loop may not know yet.
    ///
    /// # Errors
    /// There is nothing now.
    pub fn read(&self) -> io::Result<Bytes> {
        read_chunk(|scratch| self.pipe.get_ref().read(scratch))
    }

    fn poll_chunk(&self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        loop {
            let mut guard = ready!(self.pipe.poll_read_ready(cx))?;
            if let Ok(result) = guard.try_io(|_| self.read()) {
                if result.as_ref().is_ok_and(|chunk| chunk.len() < READ_BYTES) {
                    // A short read has emptied the pipe. This saves a system call without a result.
                    guard.clear_ready();
                }
                return Poll::Ready(result);
            }
        }
    }
}

/// The chunks of a pipe until its end. Any error counts as the end.
///
/// A child that writes as fast as it can must not starve others: after as much output as a pipe holds, the event loop
/// runs once. Waking the reader immediately is not enough: the loop polls timers and other pipes only after a whole
/// round of such tasks.
pub struct Chunks {
    pipe: Rc<PipeReader>,
    /// Bytes read since the event loop last ran.
    unshared_bytes: usize,
    turn_of_others: Option<LocalBoxFuture<'static, ()>>,
}

impl Chunks {
    /// Reads from the pipe.
    pub fn new(pipe: Rc<PipeReader>) -> Self {
        Self {
            pipe,
            unshared_bytes: 0,
            turn_of_others: None,
        }
    }

    fn poll_turn_of_others(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.unshared_bytes >= READ_BYTES {
            self.unshared_bytes = 0;
            self.turn_of_others = Some(tokio::task::yield_now().boxed_local());
        }
        if let Some(turn) = &mut self.turn_of_others {
            ready!(turn.poll_unpin(cx));
            self.turn_of_others = None;
        }
        Poll::Ready(())
    }
}

impl Stream for Chunks {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        ready!(self.poll_turn_of_others(cx));
        let Poll::Ready(result) = self.pipe.poll_chunk(cx) else {
            self.unshared_bytes = 0;
            return Poll::Pending;
        };
        Poll::Ready(
            result
                .ok()
                .filter(|chunk| !chunk.is_empty())
                .inspect(|chunk| {
                    self.unshared_bytes += chunk.len();
                }),
        )
    }
}

/// Maximum pieces of one write.
const PIECES_MAX: usize = 64;

/// Pieces that an idle pipe keeps capacity for.
const PIECES_KEPT: usize = 8;

/// The writing end: writes as much as fits into the pipe immediately, and the rest once it is writable. Copies
/// nothing.
pub struct PipeWriter(Rc<Writer>);

struct Writer {
    pipe: AsyncFd<File>,
    unsent: RefCell<VecDeque<Bytes>>,
    unsent_bytes: Cell<usize>,
    sending: Cell<bool>,
}

impl PipeWriter {
    /// Watches a non-blocking descriptor.
    ///
    /// # Errors
    /// The event loop cannot register it.
    pub fn new(pipe: OwnedFd) -> io::Result<Self> {
        let pipe = watch(File::from(pipe), Interest::WRITABLE | Interest::ERROR)?;
        Ok(Self(Rc::new(Writer {
            pipe,
            unsent: RefCell::default(),
            unsent_bytes: Cell::default(),
            sending: Cell::new(false),
        })))
    }

    /// Returns a future that ends when the pipe has no reader left. It keeps the pipe open meanwhile.
    pub fn unreadable(&self) -> impl Future<Output = ()> + use<> {
        let writer = Rc::clone(&self.0);
        async move {
            // A pipe that can no longer be watched counts as closed.
            let _ = writer.pipe.ready(Interest::ERROR).await;
        }
    }

    /// Returns the number of bytes that do not fit into the pipe yet.
    pub fn unsent_bytes(&self) -> usize {
        self.0.unsent_bytes.get()
    }

    /// Writes lines, each with a line feed; those that do not fit are sent later.
    pub fn write_lines(&self, lines: impl IntoIterator<Item = Bytes>) {
        let is_first = self.unsent_bytes() == 0;
        lines.into_iter().for_each(|line| self.0.add_line(line));
        if is_first {
            // An error recurs at the next attempt.
            let _ = self.0.write();
        }
        self.send_rest();
    }

    /// Queues a line, to be written together with others once the current turn is over.
    pub fn queue_line(&self, line: Bytes) {
        self.0.add_line(line);
        self.send_rest();
    }

    /// Queues bytes unchanged, with or without a line feed.
    pub(crate) fn queue_bytes(&self, bytes: Bytes) {
        self.0.add(bytes);
        self.send_rest();
    }

    fn send_rest(&self) {
        if self.unsent_bytes() > 0 && !self.0.sending.replace(true) {
            // Ends when everything is sent or the child has closed its end; holds the pipe open until then.
            tokio::task::spawn_local(Rc::clone(&self.0).send_all());
        }
    }
}

impl Writer {
    fn add_line(&self, line: Bytes) {
        self.add(line);
        self.add(Bytes::from_static(b"\n"));
    }

    fn add(&self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.unsent_bytes.set(self.unsent_bytes.get() + bytes.len());
            self.unsent.borrow_mut().push_back(bytes);
        }
    }

    /// Writes as much as fits into the pipe now.
    fn write(&self) -> io::Result<()> {
        let mut unsent = self.unsent.borrow_mut();
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let count = unsent.len().min(PIECES_MAX);
        for (piece, bytes) in pieces.iter_mut().zip(unsent.iter()) {
            *piece = IoSlice::new(bytes);
        }
        let mut written = self.pipe.get_ref().write_vectored(&pieces[..count])?;
        self.unsent_bytes.set(self.unsent_bytes.get() - written);
        while let Some(first) = unsent.front_mut() {
            if first.len() > written {
                first.advance(written);
                break;
            }
            written -= first.len();
            unsent.pop_front();
        }
        Ok(())
    }

    async fn send_all(self: Rc<Self>) {
        while self.unsent_bytes.get() > 0 {
            let Ok(mut guard) = self.pipe.writable().await else {
                break;
            };
            if let Ok(Err(error)) = guard.try_io(|_| self.write())
                && error.kind() != io::ErrorKind::Interrupted
            {
                // The child has closed its input; its exit is reported elsewhere.
                self.unsent.borrow_mut().clear();
                self.unsent_bytes.set(0);
            }
        }
        self.unsent.borrow_mut().shrink_to(PIECES_KEPT);
        self.sending.set(false);
    }
}
