//! How many connections all replications have together.
//!
//! SUMMARY   [`Connections`] has places for requests under way, and says whether connections may be kept when nobody
//!           uses them. What there is room for is [`ConnectionsMax`].
//! PROMISES  Beside the feeds, of which each replication has one, no more requests are under way than there are places;
//!           others wait in order of arrival. While descriptors are short no connection is kept behind its request. So
//!           connections never need more room than there is.
//!           Places are in [`Lane`]s: one that is held waits for later lanes only, so nobody waits forever.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_layer::Layer;
use tower_service::Service;

use super::http::lock;

/// The most connections that are opened before descriptors are counted again.
const OPENED_MAX: usize = 256;

/// More than this are never needed.
const PLACES_MAX: usize = 1 << 20;

/// Fewer places than this are never there, in all lanes together: replications go on, slowly.
const PLACES_MIN: usize = 16;

/// Which requests wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Those to sources: what they bring is written to targets meanwhile.
    Source,
    /// Those to targets: attachments may be read meanwhile.
    Target,
    /// Attachments that are read while their document is written.
    Attachment,
    /// For sessions, without which a request does not begin.
    Login,
}

/// Of 8 places, how many a lane has.
const EIGHTHS: [usize; 4] = [3, 3, 1, 1];

/// What connections have room for.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionsMax {
    /// The most replications that run, each with a feed.
    pub feeds: usize,
    /// The most descriptors of the program, whatever they are for.
    pub descriptors: usize,
    /// Counts those in use.
    /// It must not take long: connections are opened between two counts.
    pub in_use: fn() -> usize,
}

impl ConnectionsMax {
    /// Of what the feeds leave, one half is for requests, the other for connections that nobody uses.
    fn places(&self) -> usize {
        let left = self.descriptors.saturating_sub(self.feeds);
        (left / 2).clamp(PLACES_MIN, PLACES_MAX)
    }

    /// How many connections may be opened before descriptors are counted again.
    fn opened(&self) -> usize {
        (self.places() / 4).clamp(1, OPENED_MAX)
    }
}

/// What was configured; nothing bounds connections before.
#[derive(Default)]
struct Bound {
    max: Option<ConnectionsMax>,
    lanes: [Option<Arc<Semaphore>>; 4],
}

/// The connections of all replications.
#[derive(Default)]
pub(super) struct Connections {
    bound: Mutex<Bound>,
    /// Requests under way, and feeds.
    under_way: AtomicUsize,
    /// Since descriptors were counted.
    opened: AtomicUsize,
    is_short: AtomicBool,
}

/// A request under way.
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
    /// Takes another bound, for requests that begin from now on.
    pub(super) fn bound(&self, max: ConnectionsMax) {
        let places = |eighths: usize| Arc::new(Semaphore::new((max.places() * eighths / 8).max(1)));
        let bound = Bound {
            max: Some(max),
            lanes: EIGHTHS.map(places).map(Some),
        };
        *lock(&self.bound) = bound;
        self.count(max);
    }

    /// Waits for a place; a feed, which is in no lane, has one at once.
    pub(super) async fn place(self: &Arc<Self>, lane: Option<Lane>) -> Place {
        let lane = lane.and_then(|lane| lock(&self.bound).lanes[lane as usize].clone());
        let permit = match lane {
            None => None,
            // They are never closed.
            Some(lane) => lane.acquire_owned().await.ok(),
        };
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Place {
            _permit: permit,
            connections: Arc::clone(self),
        }
    }

    /// Returns whether a connection is to be closed behind its request.
    pub(super) fn are_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// A connection is being opened.
    fn opening(&self) {
        let opened = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let max = lock(&self.bound).max;
        if let Some(max) = max.filter(|max| opened >= max.opened()) {
            self.count(max);
        }
    }

    /// Counts descriptors: they are short if what may still come has no room beside what is there.
    fn count(&self, max: ConnectionsMax) {
        self.opened.store(0, Ordering::Relaxed);
        let most = max.feeds + max.places() + max.opened();
        let to_come = most.saturating_sub(self.under_way.load(Ordering::Relaxed));
        let is_short = (max.in_use)() + to_come > max.descriptors;
        self.is_short.store(is_short, Ordering::Relaxed);
    }
}

/// Reports each connection that is opened.
#[derive(Clone)]
pub(super) struct CountOpened(pub(super) Arc<Connections>);

/// See [`CountOpened`].
#[derive(Clone)]
pub(super) struct Counted<S> {
    connector: S,
    connections: Arc<Connections>,
}

impl<S> Layer<S> for CountOpened {
    type Service = Counted<S>;

    fn layer(&self, connector: S) -> Counted<S> {
        Counted {
            connector,
            connections: Arc::clone(&self.0),
        }
    }
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

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}
