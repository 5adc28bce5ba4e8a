//! Names of actors that survive their restarts, like OTP's registered names, and calls by name.

use std::sync::{Arc, Mutex};

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Context, Handler, Message};

use crate::lock;

/// No actor answers under a name: the service is shutting down, or the actor is restarting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no actor has this name now")]
pub struct NoProc;

/// An actor's address under a name that survives restarts (a registered name).
pub struct RegisteredName<A: Actor>(Arc<Mutex<Addr<A>>>);

impl<A: Actor> RegisteredName<A> {
    /// Registers an address.
    pub fn new(address: Addr<A>) -> Self {
        Self(Arc::new(Mutex::new(address)))
    }

    /// Returns the current address.
    pub fn address(&self) -> Addr<A> {
        lock(&self.0).clone()
    }

    /// Calls the actor with the name (`gen_server:call`, without its timeout). The message is sent when this returns;
    /// the returned future waits for the answer.
    ///
    /// # Errors
    /// [`NoProc`]: the actor with the name ended before it answered.
    pub fn call<M>(&self, message: M) -> impl Future<Output = Result<M::Result, NoProc>> + use<A, M>
    where
        A: Actor<Context = Context<A>> + Handler<M>,
        M: Message<Result: Send> + Send + 'static,
        Context<A>: ToEnvelope<A, M>,
    {
        let asked = self.address().send(message);
        async move { asked.await.map_err(|_| NoProc) }
    }

    /// Registers the address of a successor.
    pub fn replace(&self, address: Addr<A>) {
        *lock(&self.0) = address;
    }
}

impl<A: Actor> Clone for RegisteredName<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
