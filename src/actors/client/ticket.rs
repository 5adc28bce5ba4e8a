//! An open request, from reading it to its answer.
//!
//! SUMMARY   The task that works on a request owns its [`Ticket`] and answers with it.
//! PROMISES  Every request is answered once, even if its task panicked. It counts against its connection's limits
//!           exactly while it is open.

use std::rc::Rc;

use bytes::Bytes;
use serde::Serialize;

use super::session::Session;
use crate::messages::client_error::ErrorReply;

/// Maximum number of a connection's requests that wait for a process; more are refused. Waiting requests do not pause
/// reading, since the next line may return the process that they wait for.
const WAITING_MAX: usize = 4096;

/// Maximum total size of a connection's waiting requests, in bytes. A single request of any size is accepted.
const WAITING_BYTES_MAX: usize = 16 << 20;

impl Session {
    /// Opens a request. `id` is the JSON text of its id; `None` for a line of a tunnel, whose answer is written
    /// unchanged.
    pub fn ticket(self: &Rc<Self>, id: Option<Box<str>>, bytes: usize) -> Ticket {
        self.in_hand.add(bytes);
        Ticket {
            session: Rc::clone(self),
            id,
            bytes,
            waits: false,
            answered: false,
        }
    }
}

/// An open request, answered once: by [`Ticket::ok`] or [`Ticket::error`], or when dropped, as after a panic of its
/// task.
pub(super) struct Ticket {
    session: Rc<Session>,
    /// The JSON text of the request's `id`; `None` for a line of a tunnel.
    id: Option<Box<str>>,
    bytes: usize,
    waits: bool,
    answered: bool,
}

impl Ticket {
    pub fn session(&self) -> &Rc<Session> {
        &self.session
    }

    /// Returns the JSON text of the request's id.
    pub fn id(&self) -> &str {
        self.id.as_deref().unwrap_or("null")
    }

    pub fn is_tunnel(&self) -> bool {
        self.id.is_none()
    }

    /// Counts the request as waiting for a process; `None` if it was refused because too many are waiting.
    pub fn wait_for_process(mut self) -> Option<Self> {
        let session = &self.session;
        let waiting = &session.waiting;
        if waiting.is_over(WAITING_MAX, WAITING_BYTES_MAX) {
            self.error(&ErrorReply::too_many_requests(WAITING_MAX));
            return None;
        }
        session.in_hand.remove(self.bytes);
        waiting.add(self.bytes);
        self.waits = true;
        Some(self)
    }

    /// Answers with a value, JSON text, without flushing.
    pub fn ok_later(self, json: impl Into<Bytes>) {
        self.ok_with(&json.into(), b"");
    }

    /// As [`Self::ok_later`], with further members, each preceded by a comma.
    pub fn ok_with(mut self, json: &Bytes, members: &[u8]) {
        self.answered = true;
        match &self.id {
            Some(id) => {
                let value = json.slice_ref(json.trim_ascii());
                self.session.push(id, b",\"ok\":", (&value, members));
            }
            None => self.session.push_raw(json),
        }
    }

    /// Answers with a value.
    pub fn ok(self, value: &impl Serialize) {
        let json = serde_json::to_vec(value).expect("JSON: plain values can be written");
        let session = Rc::clone(&self.session);
        self.ok_later(json);
        session.flush();
    }

    /// Answers with an error and further members, each preceded by a comma, without flushing.
    pub fn error_with(mut self, error: &ErrorReply, members: &[u8]) {
        self.answered = true;
        if let Some(id) = &self.id {
            self.session.push_error_with(id, error, members);
        }
    }

    /// Answers with an error.
    pub fn error(self, error: &ErrorReply) {
        let session = Rc::clone(&self.session);
        self.error_with(error, b"");
        session.flush();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let (false, Some(id)) = (self.answered, &self.id) {
            self.session.push_error(id, &ErrorReply::internal());
            self.session.flush();
        }
        let load = if self.waits {
            &self.session.waiting
        } else {
            &self.session.in_hand
        };
        load.remove(self.bytes);
        self.session.count_less();
        self.session.wake_reader();
    }
}
