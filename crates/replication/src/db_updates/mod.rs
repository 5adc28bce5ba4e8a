//! One connection to a source's server that wakes all replications from its databases: `feed = "db_updates"`.
//!
//! SUMMARY   A replication has a [`Subscription`] to its server. [`Subscription::turn`] waits until the server
//!           reports the database and returns how to read: with a short request, or with a feed of its own if the
//!           server does not report. [`subscribers`] decides, [`connection`] follows `_db_updates`.
//! PROMISES  No change is missed: subscriptions precede the first read; after each connect every replication reads
//!           once, and then at least every [`READ_EVERY`]. There is one connection to a server for each set of
//!           credentials, shared by all threads; it ends with the last subscription. At most [`READS_MAX`]
//!           replications read from a server at a time without having found a change.
//! SOURCE    CouchDB's `_db_updates`, which requires an administrator.
//! DIFFERS   couch_replicator opens a feed for each replication.

mod connection;
mod subscribers;

use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use self::connection::follow;
use self::subscribers::{Next, SubscriberId, Subscribers};
use crate::endpoint::{Endpoint, Http, HttpSettings, RequestFailed, WAIT_MIN, lock};
use crate::spec::EndpointSpec;

/// Maximum time without a read if nothing is reported about the database.
const READ_EVERY: Duration = Duration::from_secs(600);

/// Maximum replications that read from a server at a time without having found a change.
const READS_MAX: usize = 16;

/// Minimum time between the starts of two reads of a replication.
const READ_GAP: Duration = WAIT_MIN;

/// Notified why a replication has its own feed; `None` when it no longer has one.
pub type FeedListener = Rc<dyn Fn(Option<Arc<str>>)>;

/// How to read the changes after the last sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// With a request that ends at the last change.
    Short,
    /// With a continuous feed of its own.
    OwnFeed,
    /// Not at all: the database was deleted.
    Deleted,
}

/// The followed servers, shared by all replications.
#[derive(Default)]
pub(crate) struct Servers(Mutex<FxHashMap<EndpointSpec, Weak<Server>>>);

/// A server with one set of credentials, and its subscribers.
struct Server {
    subscribers: Mutex<Subscribers>,
    reads: Arc<Semaphore>,
    /// Notified when the last subscriber has left.
    unwanted: Notify,
}

impl Servers {
    fn get(&self, spec: &EndpointSpec) -> Arc<Server> {
        let mut servers = lock(&self.0);
        if let Some(known) = servers.get(spec).and_then(Weak::upgrade) {
            return known;
        }
        servers.retain(|_, server| server.strong_count() > 0);
        let server = Arc::new(Server {
            subscribers: Mutex::default(),
            reads: Arc::new(Semaphore::new(READS_MAX)),
            unwanted: Notify::new(),
        });
        servers.insert(spec.clone(), Arc::downgrade(&server));
        server
    }
}

/// A replication's subscription to its source's server. Ends when dropped.
pub struct Subscription {
    server: Arc<Server>,
    id: SubscriberId,
    bell: Arc<Notify>,
    /// The server's endpoint, for the connection.
    endpoint: Endpoint,
    read_at: Instant,
    /// Whether the current read is incomplete.
    is_reading: bool,
    place: Option<OwnedSemaphorePermit>,
    /// Why it has its own feed, if it does.
    own_feed: Option<Arc<str>>,
    listener: FeedListener,
}

impl Subscription {
    /// Subscribes to a source's server; nothing is sent before the first turn. `None` if the URL does not name a
    /// database below a server.
    ///
    /// # Errors
    /// As [`Http::endpoint`].
    pub fn new(
        http: &Http,
        source: &EndpointSpec,
        settings: HttpSettings,
        listener: FeedListener,
    ) -> Result<Option<Self>, RequestFailed> {
        let Some((spec, database)) = source.server_and_database() else {
            return Ok(None);
        };
        let endpoint = http.endpoint(&spec, settings)?;
        let server = http.servers().get(&spec);
        let (id, bell) = lock(&server.subscribers).subscribe(&database);
        Ok(Some(Self {
            server,
            id,
            bell,
            endpoint,
            read_at: Instant::now(),
            is_reading: false,
            place: None,
            own_feed: None,
            listener,
        }))
    }

    /// Waits until there is something to read. A preceding read without [`Subscription::complete`] is repeated.
    pub(crate) async fn turn(&mut self) -> Turn {
        self.release();
        if std::mem::take(&mut self.is_reading) {
            self.set_due(true);
        }
        loop {
            match self.next() {
                Next::Read => {
                    self.note(None);
                    self.begin().await;
                    return Turn::Short;
                }
                Next::OwnFeed(why, after) => {
                    if self.own_feed.is_none() {
                        sleep(after).await;
                    }
                    self.note(Some(why));
                    return Turn::OwnFeed;
                }
                Next::Deleted => return Turn::Deleted,
                Next::Wait => {
                    let until = self.read_at + READ_EVERY;
                    if timeout_at(until, self.bell.notified()).await.is_err() {
                        self.set_due(true);
                    }
                }
            }
        }
    }

    /// Records that the changes were read to the end.
    pub(crate) fn complete(&mut self) {
        self.is_reading = false;
    }

    /// Frees the place among [`READS_MAX`]: a read that has found a change no longer counts.
    pub(crate) fn release(&mut self) {
        self.place = None;
    }

    /// Decides the next step, and opens the connection if there is none.
    fn next(&self) -> Next {
        let now = Instant::now();
        let mut subscribers = lock(&self.server.subscribers);
        let takes = subscribers.take_connection(now);
        let next = subscribers.next(self.id);
        drop(subscribers);
        if takes {
            let following = follow(Arc::clone(&self.server), self.endpoint.clone());
            // Ends with the last subscription, or with its thread: then another subscriber opens a new connection.
            tokio::spawn(following);
        }
        next
    }

    async fn begin(&mut self) {
        if self.read_at.elapsed() < READ_GAP {
            sleep_until(self.read_at + READ_GAP).await;
        }
        self.place = Arc::clone(&self.server.reads).acquire_owned().await.ok();
        self.set_due(false);
        self.read_at = Instant::now();
        self.is_reading = true;
    }

    fn set_due(&self, is_due: bool) {
        lock(&self.server.subscribers).set_due(self.id, is_due);
    }

    fn note(&mut self, why: Option<Arc<str>>) {
        if self.own_feed != why {
            self.own_feed.clone_from(&why);
            (self.listener)(why);
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut subscribers = lock(&self.server.subscribers);
        subscribers.leave(self.id);
        if subscribers.is_empty() {
            self.server.unwanted.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
