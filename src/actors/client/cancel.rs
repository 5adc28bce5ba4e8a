//! Function calls that their connection may cancel.
//!
//! SUMMARY   A [`Cancellable`] is a call in progress, registered in its [`Session`] by its request's id.
//! PROMISES  A cancelled call is dropped, like those of a closed connection: its process is ended if it was working,
//!           and its place in a queue is given up. It is answered with `cancelled`. Calls with equal ids are
//!           cancelled together.

use std::rc::Rc;

use tokio::sync::oneshot;

use super::session::Session;
use super::ticket::Ticket;

/// A call that may be cancelled while this exists.
pub(super) struct Cancellable {
    session: Rc<Session>,
    id: Box<str>,
    cancelled: oneshot::Receiver<()>,
}

impl Cancellable {
    pub fn of(ticket: &Ticket) -> Self {
        let (cancel, cancelled) = oneshot::channel();
        let session = Rc::clone(ticket.session());
        let id: Box<str> = ticket.id().into();
        let mut cancels = session.cancels.borrow_mut();
        cancels.entry(id.clone()).or_default().push(cancel);
        drop(cancels);
        Self {
            session,
            id,
            cancelled,
        }
    }

    /// Performs the call; `None` if it is cancelled before its end.
    pub async fn perform<T>(mut self, call: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            value = call => Some(value),
            Ok(()) = &mut self.cancelled => None,
        }
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        self.cancelled.close();
        let mut cancels = self.session.cancels.borrow_mut();
        let Some(calls) = cancels.get_mut(&self.id) else {
            return;
        };
        calls.retain(|call| !call.is_closed());
        if calls.is_empty() {
            cancels.remove(&self.id);
        }
    }
}

impl Session {
    /// Cancels calls by the JSON text of their request id. Returns false if none is in progress.
    pub fn cancel(&self, id: &str) -> bool {
        let calls = self.cancels.borrow_mut().remove(id);
        calls
            .into_iter()
            .flatten()
            .map(|call| call.send(()))
            .filter(Result::is_ok)
            .count()
            > 0
    }
}
