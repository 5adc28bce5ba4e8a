//! gen_server's `noreply`: a handler that answers later.
//!
//! actix hands the reply sender over only after the handler has returned, so handler and later
//! answer meet in a small shared slot. Measured, this costs no more than an immediate reply.

use std::cell::RefCell;
use std::rc::Rc;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Message};

enum Slot<T> {
    Waiting,
    Asked(OneshotSender<T>),
    Answered(T),
    Closed,
}

/// What the handler returns.
pub struct Deferred<T>(Rc<RefCell<Slot<T>>>);

/// What the actor keeps, to answer with.
pub struct Replier<T>(Rc<RefCell<Slot<T>>>);

/// Makes the two halves of an answer that comes later.
pub fn deferred<T>() -> (Deferred<T>, Replier<T>) {
    let slot = Rc::new(RefCell::new(Slot::Waiting));
    (Deferred(Rc::clone(&slot)), Replier(slot))
}

impl<A, M, T> MessageResponse<A, M> for Deferred<T>
where
    A: Actor,
    M: Message<Result = T>,
    T: 'static,
{
    fn handle(self, _: &mut A::Context, sender: Option<OneshotSender<T>>) {
        let mut slot = self.0.borrow_mut();
        let Some(sender) = sender else {
            *slot = Slot::Closed;
            return;
        };
        match std::mem::replace(&mut *slot, Slot::Closed) {
            // The caller may have gone meanwhile; what it was to get is dropped, which gives a
            // lease back by itself.
            Slot::Answered(value) => drop(sender.send(value)),
            _ => *slot = Slot::Asked(sender),
        }
    }
}

impl<T> Replier<T> {
    /// Answers. Gives the value back when nobody waits for it any more.
    pub fn send(self, value: T) -> Result<(), T> {
        let mut slot = self.0.borrow_mut();
        match std::mem::replace(&mut *slot, Slot::Closed) {
            Slot::Asked(sender) => sender.send(value),
            Slot::Waiting => {
                *slot = Slot::Answered(value);
                Ok(())
            }
            Slot::Answered(_) | Slot::Closed => Err(value),
        }
    }

    /// Returns whether the caller is gone.
    pub fn is_closed(&self) -> bool {
        match &*self.0.borrow() {
            Slot::Asked(sender) => sender.is_closed(),
            Slot::Closed => true,
            Slot::Waiting | Slot::Answered(_) => false,
        }
    }
}
