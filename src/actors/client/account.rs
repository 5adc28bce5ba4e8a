//! Accounts for the memory of a connection's requests and replies among everything in flight.
//!
//! SUMMARY   Lines and replies up to [`FREE_BYTES`] are not counted: few connections have more in hand.
//! PROMISES  Everything counted is released with the connection.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

use crate::in_flight::{InFlight, Sender, Share, network_of};

/// What a connection may have in hand without being counted, in bytes.
pub(super) const FREE_BYTES: usize = 64 << 10;

/// The account of one connection.
pub(super) struct Account(RefCell<Share>);

impl Account {
    /// Begins with nothing; `peer` is the address at the other end of TCP, `uid` the user at that of a Unix socket.
    pub(super) fn new(in_flight: &Arc<InFlight>, peer: Option<IpAddr>, uid: Option<u32>) -> Self {
        let sender = Sender {
            peer: peer.map(network_of),
            uid,
            user: None,
        };
        Self(RefCell::new(in_flight.share(sender)))
    }

    /// Counts that many bytes; `false` if there is no room for them.
    pub(super) fn set(&self, bytes: usize) -> bool {
        let counted = if bytes > FREE_BYTES { bytes } else { 0 };
        self.0.borrow_mut().set(counted).is_ok()
    }

    /// Counts that many bytes if they are fewer than before.
    pub(super) fn set_less(&self, bytes: usize) {
        if self.0.borrow().bytes() > bytes {
            // Counting less is never refused.
            let _ = self.set(bytes);
        }
    }
}
