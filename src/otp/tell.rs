//! Casts: messages that nobody waits for (`gen_server:cast`).
//!
//! SUMMARY   [`Tell::tell`] puts a message into a mailbox also where that is full.
//! PROMISES  A cast is lost only when its receiver is gone.
//! LIMITS    The bound of a mailbox is for calls: their senders wait until there is room. A sender of a cast cannot
//!           wait, so that casts are bounded by what they tell of: a few for each process, prompt, job, document or
//!           claim, and for each piece of work that has a permit, all of which have bounds of their own. Nothing that
//!           a client or a database may send without bound is cast.

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message, Recipient};

use super::registered_name::RegisteredName;

/// Where a message can be sent.
pub trait Tell<M: Message> {
    /// Puts the message into the receiver's mailbox, whatever its bound; an answer goes nowhere.
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
