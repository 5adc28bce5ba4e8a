//! Limits the processes of one pool that a holder has at a time.
//!
//! SUMMARY   A holder is an authenticated user, else an address (with IPv6, a network of 64 bits), else a user of this
//!           machine; all its connections together hold at most `held_max` processes of a pool.
//! PROMISES  A process is counted when it is about to be lent, so concurrent requests cannot exceed the limit either.
//!           A holder at its limit is refused instead of queued, since it would wait for itself, and the process is
//!           returned unused.
//! LIMITS    Counts only processes that connections hold: not those lent to function calls, or to `settee attach` over
//!           its own pipes. Loans made without a limit do not count after a change that sets one.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::{Rc, Weak};

use rustc_hash::FxHashMap;

use super::holding::Holding;
use super::session::Session;
use crate::messages::client_error::ErrorReply;

/// Number of holders at which those without processes are dropped.
const HOLDERS_SWEEP_MIN: usize = 64;

/// A holder of processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum HeldBy {
    /// A configured user.
    User(String),
    /// All clients with this IPv4 address, or in this IPv6 network of 64 bits.
    Address(IpAddr),
    /// A user of this machine.
    Uid(u32),
}

/// The processes of all holders.
#[derive(Default)]
pub(crate) struct AllHeld {
    held: RefCell<FxHashMap<HeldBy, Vec<Weak<Holding>>>>,
    sweep_at: Cell<usize>,
}

impl AllHeld {
    /// Counts a process for its holder; false if the holder has reached its maximum for the pool.
    fn add(&self, holder: HeldBy, holding: &Rc<Holding>, max: u32) -> bool {
        let mut all = self.held.borrow_mut();
        if all.len() >= self.sweep_at.get().max(HOLDERS_SWEEP_MIN) {
            all.retain(|_, held| held.iter().any(|one| one.strong_count() > 0));
            self.sweep_at.set(all.len() * 2);
        }
        let held = all.entry(holder).or_default();
        held.retain(|other| other.upgrade().is_some_and(|other| other.is_held()));
        let same_pool = |other: &Weak<Holding>| {
            let other = other.upgrade();
            other.is_some_and(|other| other.lender.pool == holding.lender.pool)
        };
        let count = held.iter().filter(|other| same_pool(other)).count();
        let fits = count < max as usize;
        if fits {
            held.push(Rc::downgrade(holding));
        }
        fits
    }
}

impl Session {
    /// Counts a process for this connection's holder, or returns the process if the holder has reached the maximum.
    ///
    /// # Errors
    /// The maximum is reached; the error names the remedy.
    pub fn take_within_limit(&self, holding: &Rc<Holding>) -> Result<(), ErrorReply> {
        let max = holding.lender.held_max;
        let (true, Some(holder)) = (max > 0, self.holder()) else {
            return Ok(());
        };
        if self.services.held.add(holder, holding, max) {
            return Ok(());
        }
        if let Some(lease) = holding.take() {
            lease.put_back();
        }
        Err(ErrorReply::too_many_held(&holding.lender.pool, max))
    }
}
