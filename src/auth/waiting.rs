//! Pending logins, counted by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

use super::{WAITING_MAX, WAITING_OF_ADDRESS_MAX, lock};

/// The number of pending logins, by address.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) all: usize,
    pub(super) by_address: HashMap<Option<IpAddr>, usize>,
}

/// A place among the pending logins; returned on drop.
pub(super) struct WaitingPlace<'a> {
    waiting: &'a Mutex<Waiting>,
    from: Option<IpAddr>,
}

impl<'a> WaitingPlace<'a> {
    /// Takes a place, if this address may have one.
    pub(super) fn take(waiting: &'a Mutex<Waiting>, from: Option<IpAddr>) -> Option<Self> {
        let mut guard = lock(waiting);
        let Waiting { all, by_address } = &mut *guard;
        let ours = by_address.entry(from).or_default();
        if *all >= WAITING_MAX || *ours >= WAITING_OF_ADDRESS_MAX {
            if *ours == 0 {
                by_address.remove(&from);
            }
            return None;
        }
        *ours += 1;
        *all += 1;
        Some(Self { waiting, from })
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(self.waiting);
        waiting.all -= 1;
        if let Some(ours) = waiting.by_address.get_mut(&self.from) {
            *ours -= 1;
            if *ours == 0 {
                waiting.by_address.remove(&self.from);
            }
        }
    }
}
