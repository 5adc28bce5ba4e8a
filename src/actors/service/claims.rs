//! Accepted connections that have no process yet.
//!
//! SUMMARY   [`Claims`] counts one service's [`Claim`]s; a connection drops its claim when it has its process, is
//!           refused, or ends.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// The number of a service's claims.
#[derive(Clone, Default)]
pub(crate) struct Claims(Rc<Inner>);

#[derive(Default)]
struct Inner {
    count: Cell<u32>,
    fewer: Notify,
}

impl Claims {
    pub fn claim(&self) -> Claim {
        self.0.count.set(self.0.count.get() + 1);
        Claim(self.clone())
    }

    pub fn count(&self) -> u32 {
        self.0.count.get()
    }

    /// Waits until a claim ends; returns at once if one has ended since the last call.
    pub async fn fewer(&self) {
        self.0.fewer.notified().await;
    }
}

/// An accepted connection without a process. Dropping it ends the claim.
pub struct Claim(Claims);

impl Drop for Claim {
    fn drop(&mut self) {
        let inner = &self.0.0;
        inner.count.set(inner.count.get() - 1);
        inner.fewer.notify_one();
    }
}
