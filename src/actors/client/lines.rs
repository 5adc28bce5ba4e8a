//! A client's lines, read as fast as the connection's limits allow.
//!
//! SUMMARY   A stream over the connection's socket. Reading pauses while the connection has too many open requests,
//!           so a client that sends too fast has to wait.
//! PROMISES  A client that has closed both directions is noticed at once, even while reading is paused; one that only
//!           closed its sending side still gets its replies.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;

use super::session::{Phase, Session};
use super::stream::HangUp;
use child::line_buffer::{LineBuffer, PiecedLine};

/// Input from the client.
pub(super) enum Input {
    /// A line without its line feed.
    Line(PiecedLine),
    /// A line exceeded the maximum: line boundaries after it are unknown.
    TooLong,
    /// There is no memory for a line of this length: handled like one that is too long.
    NoRoom,
}

/// A stream of the lines of one connection, which ends with the connection.
pub(super) struct Lines {
    session: Rc<Session>,
    buffer: LineBuffer,
    /// Notifies when the client has closed both directions; present only while reading is paused.
    hang_up: Option<HangUp>,
}

impl Lines {
    pub fn new(session: Rc<Session>) -> Self {
        Self {
            buffer: LineBuffer::new(session.line_bytes_max()),
            session,
            hang_up: None,
        }
    }

    /// Waits until reading may continue, the connection ends, or the client disconnects.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Option<Input>> {
        self.session.wake_reader_later(cx.waker());
        if self.hang_up.is_none() {
            self.hang_up = self.session.hang_up().ok();
        }
        let Some(hang_up) = &self.hang_up else {
            return Poll::Pending;
        };
        ready!(hang_up.poll(cx));
        self.session.set_phase(Phase::Over);
        Poll::Ready(None)
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Input>> {
        match ready!(self.session.poll_read(cx)) {
            Ok(chunk) if !chunk.is_empty() => {
                self.buffer.add(chunk);
                Poll::Ready(None)
            }
            Ok(_) => {
                self.session.set_phase(Phase::Closing);
                let rest = self.buffer.take_rest();
                Poll::Ready((!rest.is_empty()).then(|| Input::Line(rest.into())))
            }
            Err(_) => {
                self.session.set_phase(Phase::Over);
                Poll::Ready(None)
            }
        }
    }
}

impl Stream for Lines {
    type Item = Input;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Input>> {
        loop {
            match self.session.phase() {
                Phase::Over => return Poll::Ready(None),
                Phase::Closing if self.session.is_quiet() => return Poll::Ready(None),
                Phase::Closing => return self.wait(cx),
                Phase::Open | Phase::Last if !self.session.has_room() => return self.wait(cx),
                Phase::Open | Phase::Last => self.hang_up = None,
            }
            // A login raises the maximum.
            let line_bytes_max = self.session.line_bytes_max();
            self.buffer.set_line_bytes_max(line_bytes_max);
            match self.buffer.next_pieced_line() {
                Ok(Some(line)) => {
                    self.session.line_taken();
                    return Poll::Ready(Some(Input::Line(line)));
                }
                Ok(None) if !self.session.count_partial(self.buffer.partial_bytes()) => {
                    return Poll::Ready(Some(Input::NoRoom));
                }
                Ok(None) => {}
                Err(_) => return Poll::Ready(Some(Input::TooLong)),
            }
            match self.read(cx) {
                Poll::Ready(Some(input)) => return Poll::Ready(Some(input)),
                Poll::Ready(None) => {}
                Poll::Pending => match self.session.phase() {
                    Phase::Last if !self.session.is_to_speak() => self.session.shut_down(),
                    _ => {
                        // The actor's timer may set a later phase after this poll, which has to wake the stream.
                        self.session.wake_reader_later(cx.waker());
                        return Poll::Pending;
                    }
                },
            }
        }
    }
}
