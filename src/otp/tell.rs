//! Casts: messages without a reply (`gen_server:cast`).
//!
//! SUMMARY   [`Tell::tell`] puts a message into a mailbox, even a full one.
//! PROMISES  A cast is lost only if its receiver is gone.
//! LIMITS    The bound of a mailbox applies to calls: their senders wait for space. A sender of a cast cannot wait,
//!           so casts are bounded by their subjects: a few for each process, prompt, job, document or claim, and for
//!           each piece of work with a permit, all of which are bounded. Nothing that a client or a database may send
//!           without bound is cast.

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message, Recipient};

use super::registered_name::RegisteredName;

/// A receiver of messages.
pub trait Tell<M: Message> {
    /// Puts the message into the receiver's mailbox, regardless of its bound; an answer is discarded.
    fn tell(&self, message: M);
}

impl<A, M> Tell<M> for Addr<A>
where
    A: Actor<Context: ToEnvelope<A, M>> + Handler<M>,
    M: Message<Result: Send> + Send + 'static,
{
    fn tell(&self, message: M) {
        self.do_send(message);
    }
}

impl<M: Message<Result: Send> + Send> Tell<M> for Recipient<M> {
    fn tell(&self, message: M) {
        self.do_send(message);
    }
}

impl<A, M> Tell<M> for RegisteredName<A>
where
    A: Actor<Context: ToEnvelope<A, M>> + Handler<M>,
    M: Message<Result: Send> + Send + 'static,
{
    fn tell(&self, message: M) {
        self.address().tell(message);
    }
}
