//! The memory of requests and answers in flight, divided among their senders.
//!
//! SUMMARY   [`InFlight`] tracks the total and who holds how much; a [`Share`] belongs to one request, and is
//!           returned with it.
//! PROMISES  All shares together never exceed the bound. A sender with other requests gets a large share only if
//!           as much remains free as it then holds. A part is reserved for small requests.
//! CALLED    By HTTP for bodies and answers, by connections of the sockets for lines and replies.
//! SOURCE    Dynamic thresholds for shared buffers (Choudhury and Hahne, 1998).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use crate::machine_bounds;
use crate::{ConfigWatch, lock};

/// The bound divided by this, an eighth, is reserved for small requests.
const KEPT_FOR_SMALL: usize = 8;

/// The bound divided by this, half of that eighth, is reserved for senders that hold little.
const KEPT_FOR_FEW: usize = 16;

/// A sender holds little if all its requests together hold at most the bound divided by this.
const LITTLE: usize = 64;

/// Maximum size of a small request, in bytes.
const SMALL_BYTES: usize = 64 << 10;

/// The default bound is the memory divided by this.
const OF_MEMORY: usize = 4;

/// The sender of a request: its network and user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sender {
    /// The peer's network, as returned by [`network_of`]; `None` for the Unix socket.
    pub peer: Option<IpAddr>,
    /// The local user at the other end of a Unix socket.
    pub uid: Option<u32>,
    /// The user; `None` if no login is needed.
    pub user: Option<String>,
}

/// Returns the network that stands for a peer: for IPv6 its 64-bit prefix.
pub(crate) fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

/// The limit is reached at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "requests and answers in flight use all of [server] in_flight_max: try again \
     later"
)]
pub(crate) struct NoRoom;

/// The shares held.
#[derive(Default)]
struct Held {
    total: usize,
    senders: HashMap<Sender, usize>,
}

/// The memory of everything in flight.
pub(crate) struct InFlight {
    config: ConfigWatch,
    /// The bound if none is configured, in bytes.
    default_max: usize,
    held: Mutex<Held>,
}

impl InFlight {
    /// Uses the bound of the current configuration.
    pub fn new(config: ConfigWatch) -> Arc<Self> {
        Arc::new(Self {
            config,
            default_max: machine_bounds::memory() / OF_MEMORY,
            held: Mutex::default(),
        })
    }

    fn max(&self) -> usize {
        match self.config.borrow().server.in_flight_max {
            0 => self.default_max,
            max => max,
        }
    }

    /// Returns the largest share of one request, in bytes.
    pub fn request_max(&self) -> usize {
        let max = self.max();
        max - max / KEPT_FOR_SMALL
    }

    /// Returns an empty share.
    pub fn share(self: &Arc<Self>, sender: Sender) -> Share {
        Share {
            in_flight: Arc::clone(self),
            sender,
            bytes: 0,
        }
    }
}

/// Returns whether a request may hold `bytes`, if its sender's other requests hold `others` and the sum of all would
/// be `total`.
fn may_hold(bytes: usize, others: usize, total: usize, max: usize) -> bool {
    let own = others + bytes;
    if own <= max / LITTLE {
        return total <= max;
    }
    if bytes <= SMALL_BYTES {
        return total <= max - max / KEPT_FOR_FEW;
    }
    let leaves_as_much = own <= max.saturating_sub(total);
    total <= max - max / KEPT_FOR_SMALL && (others == 0 || leaves_as_much)
}

/// The share of one request; returned on drop.
pub(crate) struct Share {
    in_flight: Arc<InFlight>,
    sender: Sender,
    bytes: usize,
}

impl Share {
    /// Sets the share to this many bytes, more or fewer.
    ///
    /// # Errors
    /// The limit is reached; the share is unchanged.
    pub fn set(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes == self.bytes {
            return Ok(());
        }
        let max = self.in_flight.max();
        let mut held = lock(&self.in_flight.held);
        let own = held.senders.get(&self.sender).copied().unwrap_or(0);
        let (others, total) = (own - self.bytes, held.total - self.bytes + bytes);
        if bytes > self.bytes && !may_hold(bytes, others, total, max) {
            return Err(NoRoom);
        }
        held.total = total;
        match others + bytes {
            0 => drop(held.senders.remove(&self.sender)),
            own => drop(held.senders.insert(self.sender.clone(), own)),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Enlarges the share by this many bytes.
    ///
    /// # Errors
    /// See [`Self::set`].
    pub fn grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.set(self.bytes.saturating_add(bytes))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Reducing a share never fails.
        let _ = self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::config::Config;

    const MAX: usize = 100 << 20;

    fn in_flight() -> Arc<InFlight> {
        let mut config = Config::default();
        config.server.in_flight_max = MAX;
        let (_, config) = watch::channel(Arc::new(config));
        InFlight::new(config)
    }

    fn sender(user: &str) -> Sender {
        Sender {
            user: Some(user.to_owned()),
            ..Sender::default()
        }
    }

    fn share(in_flight: &Arc<InFlight>, user: &str, bytes: usize) -> Result<Share, NoRoom> {
        let mut share = in_flight.share(sender(user));
        share.set(bytes).map(|()| share)
    }

    #[test]
    fn a_sender_gets_one_large_request_at_a_time() {
        let in_flight = in_flight();
        let first = share(&in_flight, "ann", 60 << 20);
        assert!(first.is_ok());
        assert!(share(&in_flight, "ann", 60 << 20).is_err());
        assert!(share(&in_flight, "bob", 20 << 20).is_ok());
        drop(first);
        assert!(share(&in_flight, "ann", 60 << 20).is_ok());
    }

    #[test]
    fn each_user_of_the_machine_is_a_sender_of_its_own() {
        let in_flight = in_flight();
        let share = |uid: u32, bytes: usize| {
            let uid = Some(uid);
            let mut share = in_flight.share(Sender {
                uid,
                ..Sender::default()
            });
            share.set(bytes).map(|()| share)
        };
        let _first = share(1000, 60 << 20).expect("one large request is taken");
        assert!(share(1000, 20 << 20).is_err());
        assert!(share(1001, 20 << 20).is_ok());
    }

    #[test]
    fn a_sender_of_many_requests_leaves_as_much_free_as_it_holds() {
        let in_flight = in_flight();
        let taken: Vec<Share> = (0..100)
            .map_while(|_| share(&in_flight, "ann", 5 << 20).ok())
            .collect();
        assert_eq!(taken.len(), 10);
        assert!(share(&in_flight, "bob", 25 << 20).is_ok());
    }

    #[test]
    fn small_requests_find_room_whatever_large_ones_hold() {
        let in_flight = in_flight();
        let _first = share(&in_flight, "ann", 60 << 20);
        let _second = share(&in_flight, "bob", 27 << 20);
        assert!(share(&in_flight, "eve", 20 << 20).is_err());
        assert!(share(&in_flight, "eve", 30 << 10).is_ok());
        assert!(share(&in_flight, "ann", 30 << 10).is_ok());
        let many: Vec<Share> = (0..10_000)
            .map_while(|_| share(&in_flight, "ann", 30 << 10).ok())
            .collect();
        assert!(many.len() < 1000);
        assert!(share(&in_flight, "eve", 30 << 10).is_ok());
    }

    #[test]
    fn all_shares_together_never_exceed_the_bound() {
        let in_flight = in_flight();
        let users: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let taken: Vec<Share> = (users.iter())
            .filter_map(|user| share(&in_flight, user, 1 << 20).ok())
            .collect();
        assert_eq!(taken.len(), 100);
        drop(taken);
        assert_eq!(lock(&in_flight.held).total, 0);
        assert!(lock(&in_flight.held).senders.is_empty());
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_are_one_peer() {
        let network = |text: &str| network_of(text.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(network("10.0.0.1"), "10.0.0.1");
    }
}
