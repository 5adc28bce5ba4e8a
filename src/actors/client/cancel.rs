//! Calls of functions that their connection may cancel.
//!
//! SUMMARY   A [`Cancellable`] is a call on its way, known to its [`Session`] by the id of its request.
//! PROMISES  A call that is cancelled is dropped, as those of a connection that is closed: its process is ended if it
//!           was working, and its place in a queue is given up. It is answered with `cancelled`.
//! LIMITS    Of several calls with one id the last can be cancelled.

use std::future::{Future, pending};
use std::rc::Rc;

use tokio::sync::oneshot::{self, Sender};

use super::session::Session;
use super::ticket::Ticket;

/// A call that may be cancelled for as long as this exists.
pub(super) struct Cancellable {
    session: Rc<Session>,
    id: Box<str>,
    cancelled: oneshot::Receiver<()>,
}

impl Cancellable {
    pub(super) fn of(ticket: &Ticket) -> Self {
        let (cancel, cancelled) = oneshot::channel();
        let session = Rc::clone(ticket.session());
        let id: Box<str> = ticket.id().into();
        session.cancels.borrow_mut().insert(id.clone(), cancel);
        Self {
            session,
            id,
            cancelled,
        }
    }

    /// Performs the call; `None` if it is cancelled before its end.
    pub(super) async fn perform<T>(mut self, call: impl Future<Output = T>) -> Option<T> {
        let cancelled = async {
            if (&mut self.cancelled).await.is_err() {
                // Another call has the id now.
                pending::<()>().await;
            }
        };
        tokio::select! {
            value = call => Some(value),
            () = cancelled => None,
        }
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        self.cancelled.close();
        let mut cancels = self.session.cancels.borrow_mut();
        // A later call may have the id now.
        if cancels.get(&self.id).is_some_and(Sender::is_closed) {
            cancels.remove(&self.id);
        }
    }
}

impl Session {
    /// Cancels a call by the JSON text of its request's id. Returns false if none is on its way.
    pub(super) fn cancel(&self, id: &str) -> bool {
        let call = self.cancels.borrow_mut().remove(id);
        call.is_some_and(|call| call.send(()).is_ok())
    }
}
