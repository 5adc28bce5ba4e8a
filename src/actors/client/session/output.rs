//! The output of a connection.
//!
//! PROMISES  Replies that are ready together are written together. A client that does not read its output is
//!           disconnected.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use actix_rt::time::Instant;
use bytes::{Buf, Bytes, BytesMut};
use rustix::net::SendFlags;

use super::{FREE_BYTES, Phase, Session};
use crate::aside::is_long;
use crate::messages::client_error::ErrorReply;

/// How long a client may take to read its last lines and to stop sending, so that it sees them rather than a broken
/// pipe.
const LINGER: Duration = Duration::from_secs(2);

/// Output that is not yet written: replies that are written together, and long values, which are not copied.
#[derive(Default)]
pub(super) struct Unsent {
    /// Written before the last bytes.
    pieces: VecDeque<Bytes>,
    last: BytesMut,
    length: usize,
}

impl Unsent {
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn add(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        self.last.extend_from_slice(bytes);
    }

    fn add_value(&mut self, value: &Bytes) {
        if !is_long(value.len()) {
            return self.add(value);
        }
        self.length += value.len();
        self.pieces.push_back(self.last.split().freeze());
        self.pieces.push_back(value.clone());
    }

    fn next(&self) -> &[u8] {
        self.pieces.front().map_or(&self.last, |piece| piece)
    }

    fn advance(&mut self, length: usize) {
        self.length -= length;
        let Some(piece) = self.pieces.front_mut() else {
            return self.last.advance(length);
        };
        piece.advance(length);
        if piece.is_empty() {
            self.pieces.pop_front();
        }
    }
}

impl Session {
    /// Queues a reply: a member with its value, and further members, each preceded by a comma. Over the memory limit,
    /// queues an error instead.
    pub fn push(&self, id: &str, member: &[u8], (value, others): (&Bytes, &[u8])) {
        if self.phase.get() == Phase::Over {
            return;
        }
        let length = value.len() + others.len();
        if length > FREE_BYTES && !self.count(self.bytes() + length) {
            return self.push_error(id, &ErrorReply::no_room());
        }
        let mut unsent = self.unsent.borrow_mut();
        let copied = if is_long(length) { 0 } else { length };
        unsent.last.reserve(id.len() + member.len() + copied + 10);
        for piece in [b"{\"id\":", id.as_bytes(), member] {
            unsent.add(piece);
        }
        unsent.add_value(value);
        unsent.add(others);
        unsent.add(b"}\n");
    }

    /// Queues an error reply.
    pub fn push_error(&self, id: &str, error: &ErrorReply) {
        self.push_error_with(id, error, b"");
    }

    /// As [`Self::push_error`], with further members, each preceded by a comma.
    pub fn push_error_with(&self, id: &str, error: &ErrorReply, others: &[u8]) {
        let json = serde_json::to_vec(error).expect("JSON: strings can always be written");
        self.push(id, b",\"error\":", (&json.into(), others));
    }

    /// Queues bytes unchanged. Cuts the connection if the memory limit is reached.
    pub fn push_raw(&self, bytes: &Bytes) {
        self.last_activity.set(Instant::now());
        if self.phase.get() == Phase::Over {
            return;
        }
        if bytes.len() > FREE_BYTES && !self.count(self.bytes() + bytes.len()) {
            return self.cut(ErrorReply::no_room());
        }
        self.unsent.borrow_mut().add_value(bytes);
    }

    /// Writes queued bytes as far as the socket accepts them; the rest once it is writable.
    pub fn flush(self: &Rc<Self>) {
        if !self.sending.get() && !self.write_now() {
            self.sending.set(true);
            // Ends when everything is written or the connection has ended.
            actix_rt::spawn(Rc::clone(self).write_all());
        }
    }

    async fn write_all(self: Rc<Self>) {
        while !self.write_now() {
            // A fast reader makes nobody else wait.
            tokio::task::yield_now().await;
            let writable = self.stream.writable();
            let Some(by) = self.take_by() else {
                // Fails only when the event loop ends, and this task with it.
                let _ = writable.await;
                continue;
            };
            match tokio::time::timeout_at(by, writable).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => break,
                Err(_) => {
                    // The system reports a socket as writable only when much space is free: try with less.
                    self.write_as(|bytes| {
                        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                        Ok(rustix::net::send(&self.stream, bytes, flags)?)
                    });
                    if self.take_by().is_some_and(|by| by <= Instant::now()) {
                        self.cut(ErrorReply::unread());
                    }
                }
            }
        }
        self.sending.set(false);
    }

    /// Returns the deadline by which the client must have read some of its output.
    fn take_by(&self) -> Option<Instant> {
        self.pace
            .waiting(self.unsent.borrow().len(), Instant::now())
    }

    /// Writes now, but not much longer than a turn; returns whether everything is written.
    pub(super) fn write_now(&self) -> bool {
        self.write_as(|bytes| self.stream.try_write(bytes))
    }

    fn write_as(&self, write: impl Fn(&[u8]) -> io::Result<usize>) -> bool {
        let mut unsent = self.unsent.borrow_mut();
        let mut turn_bytes = 0;
        while !unsent.is_empty() {
            if is_long(turn_bytes) {
                return false;
            }
            match write(unsent.next()) {
                Ok(length) => {
                    turn_bytes += length;
                    self.terms.metrics.sent_bytes.add(length as u64);
                    self.pace.took(length);
                    unsent.advance(length);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    drop(unsent);
                    self.give_up();
                    unsent = self.unsent.borrow_mut();
                }
            }
        }
        *unsent = Unsent::default();
        drop(unsent);
        self.pace.waiting(0, Instant::now());
        self.count_less();
        self.wake_reader();
        true
    }

    /// Drops the output, and disconnects the client.
    pub(super) fn give_up(&self) {
        self.unsent.take();
        self.set_phase(Phase::Over);
        // Fails only if the client is gone already. Also wakes a task that waits for the client's input.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both);
    }

    /// Ends the connection at once, and records the reason.
    pub fn cut(&self, why: impl Into<ErrorReply>) {
        self.end_tunnel(why);
        self.give_up();
    }

    /// Returns whether everything has been written.
    pub fn is_written(&self) -> bool {
        self.unsent.borrow().is_empty()
    }

    /// Ends the connection after its last output has been written and the client has stopped sending, or after
    /// [`LINGER`].
    pub async fn linger(self: Rc<Self>) {
        let closing = async {
            while !self.unsent.borrow().is_empty() {
                self.stream.writable().await?;
                self.write_now();
            }
            rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write)?;
            while !std::future::poll_fn(|cx| self.poll_read(cx))
                .await?
                .is_empty()
            {}
            io::Result::Ok(())
        };
        // The connection ends even if this fails.
        let _ = actix_rt::time::timeout(LINGER, closing).await;
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_written_between_short_replies_without_being_copied() {
        let long: Bytes = vec![b'x'; 1 << 20].into();
        let mut unsent = Unsent::default();
        unsent.add(b"before");
        unsent.add_value(&long);
        unsent.add(b"behind");
        unsent.add_value(&Bytes::from_static(b"!"));
        assert_eq!(unsent.len(), 12 + long.len() + 1);
        assert_eq!(unsent.next(), b"before");
        unsent.advance(6);
        assert_eq!(unsent.next().as_ptr(), long.as_ptr());
        unsent.advance(long.len() - 1);
        assert_eq!(unsent.next(), b"x");
        unsent.advance(1);
        assert_eq!(unsent.next(), b"behind!");
        unsent.advance(7);
        assert!(unsent.is_empty());
    }
}
