//! Accounts for the memory of a connection's requests and replies in flight.
//!
//! SUMMARY   A connection is counted only while it has more than [`FREE_BYTES`] in flight, which is rare; then all of
//!           its bytes are counted.
//! PROMISES  Everything counted is released with the connection.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

use crate::in_flight::{InFlight, Sender, Share, network_of};

/// A connection with at most this many bytes in flight is not counted.
pub(super) const FREE_BYTES: usize = 64 << 10;

/// The account of one connection.
pub(super) struct Account(RefCell<Share>);

impl Account {
    /// Begins empty; `peer` is the address of a TCP peer, `uid` the user at the other end of a Unix socket.
    pub fn new(in_flight: &Arc<InFlight>, peer: Option<IpAddr>, uid: Option<u32>) -> Self {
        let sender = Sender {
            peer: peer.map(network_of),
            uid,
            user: None,
        };
        Self(RefCell::new(in_flight.share(sender)))
    }

    /// Sets the count of bytes; `false` if the limit is reached.
    pub fn set(&self, bytes: usize) -> bool {
        let counted = if bytes > FREE_BYTES { bytes } else { 0 };
        self.0.borrow_mut().set(counted).is_ok()
    }

    /// Sets the count of bytes if it is lower than before.
    pub fn set_less(&self, bytes: usize) {
        if self.0.borrow().bytes() > bytes {
            // A lower count never fails.
            let _ = self.set(bytes);
        }
    }
}
