//! Limits the connections of all replications.
//!
//! SUMMARY   [`Connections`] has places for requests in flight, and decides whether idle connections may be kept.
//!           [`ConnectionsMax`] has the available descriptors.
//! PROMISES  Not counting the feeds, one for each replication, no more requests are in flight than there are places;
//!           others wait in order of arrival. When descriptors are scarce, no connection is kept after its request. So
//!           connections never exhaust the descriptors. Places are in [`Lane`]s: the holder of a place waits for
//!           later lanes only, so nothing waits forever.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_service::Service;

use super::http::lock;

/// Maximum connections opened before descriptors are counted again.
const OPENED_MAX: usize = 256;

/// Maximum number of places.
const PLACES_MAX: usize = 1 << 20;

/// Minimum number of places in all lanes together: with few descriptors, replications continue slowly.
const PLACES_MIN: usize = 16;

/// Requests by the order in which they may wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// To sources: what they send is written to targets meanwhile.
    Source,
    /// To targets: attachments may be read meanwhile.
    Target,
    /// Attachments read while their document is written.
    Attachment,
    /// For sessions, which other requests need.
    Login,
}

/// Each lane's fraction of the places, in eighths.
const EIGHTHS: [usize; 4] = [3, 3, 1, 1];

/// The limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionsMax {
    /// Maximum running replications, each with a feed.
    pub feeds: usize,
    /// Maximum descriptors of the program for all purposes.
    pub descriptors: usize,
    /// Counts descriptors in use. Must be fast: the opening of a connection may wait for it.
    pub in_use: fn() -> usize,
}

impl ConnectionsMax {
    /// Returns the number of places: half of the descriptors beyond the feeds. The other half is for idle connections.
    fn places(&self) -> usize {
        let left = self.descriptors.saturating_sub(self.feeds);
        (left / 2).clamp(PLACES_MIN, PLACES_MAX)
    }

    /// Returns the number of connections that may be opened before descriptors are counted again.
    fn opened(&self) -> usize {
        (self.places() / 4).clamp(1, OPENED_MAX)
    }
}

/// The configured limit; before it is set connections are unlimited.
#[derive(Default)]
struct Bound {
    max: Option<ConnectionsMax>,
    lanes: [Option<Arc<Semaphore>>; 4],
}

/// The connections of all replications.
#[derive(Default)]
pub(super) struct Connections {
    bound: Mutex<Bound>,
    /// Requests and feeds in flight.
    under_way: AtomicUsize,
    /// Connections opened since descriptors were counted.
    opened: AtomicUsize,
    is_short: AtomicBool,
}

/// A place of a request in flight.
pub(super) struct Place {
    _permit: Option<OwnedSemaphorePermit>,
    connections: Arc<Connections>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    /// Sets another limit, for requests from now on.
    pub fn bound(&self, max: ConnectionsMax) {
        let places = |eighths: usize| Arc::new(Semaphore::new((max.places() * eighths / 8).max(1)));
        *lock(&self.bound) = Bound {
            max: Some(max),
            lanes: EIGHTHS.map(places).map(Some),
        };
        self.count(max);
    }

    /// Waits for a place; a feed, which has no lane, gets one immediately.
    pub async fn place(self: &Arc<Self>, lane: Option<Lane>) -> Place {
        let lane = lane.and_then(|lane| lock(&self.bound).lanes[lane as usize].clone());
        let permit = match lane {
            None => None,
            // The lanes are never closed.
            Some(lane) => lane.acquire_owned().await.ok(),
        };
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Place {
            _permit: permit,
            connections: Arc::clone(self),
        }
    }

    /// Returns whether a connection has to be closed after its request.
    pub fn are_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Records that a connection is being opened.
    fn opening(&self) {
        let opened = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let max = lock(&self.bound).max;
        if let Some(max) = max.filter(|max| opened >= max.opened()) {
            self.count(max);
        }
    }

    /// Counts descriptors: they are scarce if those in use and those that may follow exceed the limit together.
    fn count(&self, max: ConnectionsMax) {
        self.opened.store(0, Ordering::Relaxed);
        let most = max.feeds + max.places() + max.opened();
        let to_come = most.saturating_sub(self.under_way.load(Ordering::Relaxed));
        let is_short = (max.in_use)() + to_come > max.descriptors;
        self.is_short.store(is_short, Ordering::Relaxed);
    }
}

/// Reports each opened connection.
#[derive(Clone)]
pub(super) struct Counted<S> {
    pub connector: S,
    pub connections: Arc<Connections>,
}

impl<R, S: Service<R>> Service<R> for Counted<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.connections.opening();
        self.connector.call(request)
    }
}
