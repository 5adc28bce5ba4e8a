//! Whether a listener accepts another connection, and when it has finished.
//!
//! SUMMARY   [`Listening`] counts connections that are not yet, or no longer, clients: TLS handshakes, and relays of
//!           encrypted connections, which outlive their clients until all bytes are sent.
//! PROMISES  Pure.
//! CALLED    By the Listener, which knows the clients.

/// A listener's limits.
#[derive(Clone, Copy, Debug)]
pub struct ListenBounds {
    /// Maximum concurrent connections (`max_connections`).
    pub connections_max: usize,
    /// Maximum file descriptors of connections.
    pub descriptors_max: usize,
    /// Descriptors of a relay, besides that of its client.
    pub relay_descriptors: usize,
}

/// Whether another connection is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayAccept {
    /// There is room for it.
    Yes,
    /// The maximum is reached: further connections wait until one ends.
    Full,
    /// Too few descriptors remain: an idle client must be disconnected.
    MakeRoom,
}

/// A listener's state besides its clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listening {
    /// Connections in their TLS handshake.
    handshakes: usize,
    /// Connections whose bytes are relayed.
    relays: usize,
    stopping: bool,
    /// Whether the stop waits only for the clients, not for the relays.
    now: bool,
}

impl Listening {
    /// Returns whether another connection is accepted with this many clients.
    pub fn may_accept(&self, clients: usize, bounds: &ListenBounds) -> MayAccept {
        let connections = clients + self.handshakes;
        if connections >= bounds.connections_max {
            MayAccept::Full
        } else if connections + self.relays * bounds.relay_descriptors > bounds.descriptors_max {
            MayAccept::MakeRoom
        } else {
            MayAccept::Yes
        }
    }

    /// A TLS handshake has begun.
    pub const fn handshake_begun(&mut self) {
        self.handshakes += 1;
    }

    /// A TLS handshake has ended. Returns whether its connection may be served: not while the listener stops.
    pub const fn handshake_ended(&mut self) -> bool {
        self.handshakes -= 1;
        !self.stopping
    }

    /// A relay has begun.
    pub const fn relay_begun(&mut self) {
        self.relays += 1;
    }

    /// A relay has ended.
    pub const fn relay_ended(&mut self) {
        self.relays -= 1;
    }

    /// Stops accepting. `now`: the last replies need not reach the clients.
    pub const fn stop(&mut self, now: bool) {
        self.stopping = true;
        self.now |= now;
    }

    /// Returns whether a stopping listener has finished: no client remains, and the last replies have been delivered.
    /// It does not wait for handshakes.
    pub const fn has_finished(&self, clients: usize) -> bool {
        self.stopping && clients == 0 && (self.relays == 0 || self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: ListenBounds = ListenBounds {
        connections_max: 4,
        descriptors_max: 4,
        relay_descriptors: 2,
    };

    #[test]
    fn a_handshake_counts_as_a_client() {
        let mut listening = Listening::default();
        assert_eq!(listening.may_accept(3, &BOUNDS), MayAccept::Yes);
        assert_eq!(listening.may_accept(4, &BOUNDS), MayAccept::Full);
        listening.handshake_begun();
        assert_eq!(listening.may_accept(3, &BOUNDS), MayAccept::Full);
        assert!(listening.handshake_ended());
        assert_eq!(listening.may_accept(3, &BOUNDS), MayAccept::Yes);
    }

    #[test]
    fn a_relay_uses_descriptors_but_does_not_count_as_a_connection() {
        let mut listening = Listening::default();
        listening.relay_begun();
        assert_eq!(listening.may_accept(2, &BOUNDS), MayAccept::Yes);
        assert_eq!(listening.may_accept(3, &BOUNDS), MayAccept::MakeRoom);
        listening.handshake_begun();
        assert_eq!(listening.may_accept(2, &BOUNDS), MayAccept::MakeRoom);
        assert_eq!(listening.may_accept(3, &BOUNDS), MayAccept::Full);
        listening.relay_ended();
        assert_eq!(listening.may_accept(2, &BOUNDS), MayAccept::Yes);
    }

    #[test]
    fn a_listener_finishes_after_the_last_client_and_the_last_relay() {
        let mut listening = Listening::default();
        assert!(!listening.has_finished(0));
        listening.handshake_begun();
        listening.relay_begun();
        listening.stop(false);
        assert!(!listening.has_finished(1));
        assert!(!listening.has_finished(0));
        listening.relay_ended();
        assert!(!listening.has_finished(1));
        assert!(listening.has_finished(0));
        assert!(!listening.handshake_ended());
    }

    #[test]
    fn an_immediate_stop_waits_only_for_clients() {
        let mut listening = Listening::default();
        listening.relay_begun();
        listening.stop(true);
        // A later stop that waits for relays changes nothing.
        listening.stop(false);
        assert!(!listening.has_finished(1));
        assert!(listening.has_finished(0));
    }
}
