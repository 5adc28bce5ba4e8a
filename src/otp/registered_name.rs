//! Names of actors that outlive their restarts, as OTP's registered names do, and calls by such a name.

use std::sync::{Arc, PoisonError, RwLock};

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Context, Handler, Message};

/// Nobody answers under a name: the service ends, or the actor is being started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody has this name now")]
pub struct NoProc;

/// An actor's address under a name that outlives a restart (a registered name).
pub struct RegisteredName<A: Actor>(Arc<RwLock<Addr<A>>>);

impl<A: Actor> RegisteredName<A> {
    /// Registers an address.
    pub fn new(address: Addr<A>) -> Self {
        Self(Arc::new(RwLock::new(address)))
    }

    /// Returns the current address.
    pub fn address(&self) -> Addr<A> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Asks the actor that has the name (`gen_server:call`, without its timeout). The question is on its way when this
    /// returns; what is returned waits for the answer.
    ///
    /// # Errors
    /// [`NoProc`]: the actor that had the name ended before it answered.
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
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = address;
    }
}

impl<A: Actor> Clone for RegisteredName<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
