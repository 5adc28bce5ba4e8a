//! Limits the number of connections, and selects one to close for a new one.
//!
//! SUMMARY   A connection is *busy* while a request of a known sender is open; otherwise it waits for its client, who
//!           may be unknown. At the maximum, a waiting connection is closed for a new one: the oldest one of the peer
//!           with the most.
//! PROMISES  Slow clients and idle connections do not block others. A busy connection is not closed for others.
//! CALLED    By [`super::guard`], on each worker's thread.
//! LIMITS    If all are busy, a new connection is closed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::task::AtomicWaker;

use crate::in_flight::network_of;
use crate::lock;

/// Maximum connections of a peer searched for a waiting one.
const SEARCH_MAX: usize = 256;

/// The peer of a connection: a network, or a user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Peer {
    Network(IpAddr),
    User(Option<u32>),
}

impl From<IpAddr> for Peer {
    fn from(peer: IpAddr) -> Self {
        Self::Network(network_of(peer))
    }
}

/// The state of a connection that others may read and change.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    busy: AtomicBool,
    closed: AtomicBool,
    /// Wakes the connection when it is closed for another.
    pub waker: AtomicWaker,
}

impl Conduct {
    pub fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Release);
    }

    /// Returns whether the connection was closed for another.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

#[derive(Default)]
struct Table {
    /// Peer -> its connections, oldest first.
    peers: HashMap<Peer, BTreeMap<u64, Arc<Conduct>>>,
    /// The number of connections of each peer.
    counts: BTreeSet<(usize, Peer)>,
    total: usize,
    next: u64,
}

impl Table {
    fn change(&mut self, peer: Peer, change: impl FnOnce(&mut BTreeMap<u64, Arc<Conduct>>)) {
        let of_peer = self.peers.entry(peer).or_default();
        let before = of_peer.len();
        change(of_peer);
        let after = of_peer.len();
        self.counts.remove(&(before, peer));
        match after {
            0 => drop(self.peers.remove(&peer)),
            _ => drop(self.counts.insert((after, peer))),
        }
        self.total = self.total - before + after;
    }

    /// Of the peers with a waiting connection among their [`SEARCH_MAX`] oldest, selects the one with the most
    /// connections, and closes its oldest waiting one. Returns `false` if there is no such peer.
    fn close_one(&mut self) -> bool {
        let found = self.counts.iter().rev().find_map(|(_, peer)| {
            let mut candidates = self.peers.get(peer)?.iter().take(SEARCH_MAX);
            let (number, conduct) =
                candidates.find(|(_, conduct)| !conduct.busy.load(Ordering::Acquire))?;
            conduct.closed.store(true, Ordering::Release);
            conduct.waker.wake();
            Some((*number, *peer))
        });
        if let Some((number, peer)) = found {
            self.change(peer, |connections| drop(connections.remove(&number)));
        }
        found.is_some()
    }
}

/// All connections of the server.
pub(super) struct Connections {
    pub max: usize,
    table: Mutex<Table>,
}

impl Connections {
    /// Creates the table for at most `max` connections.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            table: Mutex::default(),
        })
    }

    /// Returns whether any connections are open.
    pub fn are_open(&self) -> bool {
        lock(&self.table).total > 0
    }

    /// Admits a connection; `None` if the maximum is reached and all are busy.
    pub fn enter(self: &Arc<Self>, peer: Peer) -> Option<ConnectionPlace> {
        let conduct = Arc::new(Conduct::default());
        let mut table = lock(&self.table);
        if table.total >= self.max && !table.close_one() {
            return None;
        }
        table.next += 1;
        let number = table.next;
        table.change(peer, |connections| {
            connections.insert(number, Arc::clone(&conduct));
        });
        Some(ConnectionPlace {
            connections: Arc::clone(self),
            peer,
            number,
            conduct,
        })
    }
}

/// A connection's slot, freed when this is dropped.
pub(super) struct ConnectionPlace {
    connections: Arc<Connections>,
    peer: Peer,
    number: u64,
    pub conduct: Arc<Conduct>,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let number = self.number;
        lock(&self.connections.table)
            .change(self.peer, |connections| drop(connections.remove(&number)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(connections: &Arc<Connections>, last: u8) -> Option<ConnectionPlace> {
        connections.enter(IpAddr::from([10, 0, 0, last]).into())
    }

    fn closed(places: &[ConnectionPlace]) -> Vec<usize> {
        let closed = places.iter().enumerate();
        closed
            .filter_map(|(at, place)| place.conduct.is_closed().then_some(at))
            .collect()
    }

    #[test]
    fn the_oldest_waiting_connection_is_closed_for_a_new_one() {
        let connections = Connections::new(3);
        let old: Vec<ConnectionPlace> = (0..3).map_while(|_| enter(&connections, 1)).collect();
        old[0].conduct.set_busy(true);
        let new = enter(&connections, 1);
        assert!(new.is_some());
        assert_eq!(closed(&old), [1]);
        drop((old, new));
        let table = lock(&connections.table);
        assert_eq!(table.total, 0);
        assert!(table.peers.is_empty() && table.counts.is_empty());
    }

    #[test]
    fn a_peer_with_many_makes_room_and_one_with_few_keeps_its_own() {
        let connections = Connections::new(10);
        let few: Vec<ConnectionPlace> = (0..2).map_while(|_| enter(&connections, 1)).collect();
        let many: Vec<ConnectionPlace> = (0..1000).map_while(|_| enter(&connections, 2)).collect();
        assert_eq!(many.len(), 1000);
        assert!(closed(&few).is_empty());
        assert!(enter(&connections, 3).is_some());
        assert_eq!(closed(&many).len(), 993);
    }

    #[test]
    fn busy_connections_are_not_closed_for_others() {
        let connections = Connections::new(2);
        let busy: Vec<ConnectionPlace> = (0..2).map_while(|_| enter(&connections, 1)).collect();
        busy.iter().for_each(|place| place.conduct.set_busy(true));
        assert!(enter(&connections, 2).is_none());
        assert!(closed(&busy).is_empty());
        busy[1].conduct.set_busy(false);
        assert!(enter(&connections, 2).is_some());
        assert_eq!(closed(&busy), [1]);
    }
}
