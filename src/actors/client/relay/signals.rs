//! What happens to a relay from outside.

use std::cell::{Cell, RefCell};
use std::task::Waker;

/// Tells a relay what its actor hears, and wakes it.
#[derive(Default)]
pub(in crate::actors::client) struct Signals {
    relay: RefCell<Option<Waker>>,
    pub(super) process_down: Cell<bool>,
    pub(super) stop: Cell<bool>,
}

impl Signals {
    /// The process ended.
    pub(in crate::actors::client) fn process_down(&self) {
        self.process_down.set(true);
        self.wake();
    }

    /// The service ends.
    pub(in crate::actors::client) fn stop(&self) {
        self.stop.set(true);
        self.wake();
    }

    fn wake(&self) {
        if let Some(relay) = self.relay.take() {
            relay.wake();
        }
    }

    pub(super) fn wake_later(&self, waker: &Waker) {
        let mut relay = self.relay.borrow_mut();
        if !relay.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *relay = Some(waker.clone());
        }
    }
}
