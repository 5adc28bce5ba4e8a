//! Names of actors that outlive their restarts, as OTP's registered names do.

use std::sync::{Arc, PoisonError, RwLock};

use actix::{Actor, Addr};

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
