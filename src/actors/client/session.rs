//! A connection's state, shared by its actor and its open requests.
//!
//! SUMMARY   The socket, its unsent output, the open requests, and the held processes.
//! PROMISES  Nothing here grows without bound: reading from a client pauses while it does not read.

mod held;
mod output;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use actix_rt::time::Instant;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use tokio::io::Interest;
use tokio::sync::oneshot;

use self::held::HELD_SWEEP_MIN;
use self::output::Unsent;
use super::handover::Expected;
use super::held_max::HeldBy;
use super::holding::Holding;
use super::stream::{HangUp, Stream};
use super::{ClientContext, login, peer};
use crate::auth::rights::Rights;
use crate::functions::QueryServers;
use crate::functions::caller::Caller;
use crate::in_flight::{Sender, Share, network_of};
use crate::messages::client_error::ErrorReply;
use crate::messages::proc_manager::{GetProcError, TenantName, Want};
use crate::metrics::ClientMetrics;
use crate::pace::Pace;
use crate::query_server::status::Holder;
use child::pipe::read_chunk;
use policy::pool::Token;

/// A connection with at most this many bytes in flight is not counted.
const FREE_BYTES: usize = 64 << 10;

/// Open requests at which reading pauses, not counting those that wait for a process.
const REQUESTS_IN_HAND_MAX: usize = 256;

/// The same in bytes. A single request may have any size.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Unsent replies at which reading pauses, in bytes.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// The phases of a connection, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Requests are read.
    Open,
    /// Ending: requests that have arrived are still read, and a connection's first one is awaited.
    Last,
    /// Reading has stopped; it ends when every open request is answered and written.
    Closing,
    /// It has ended.
    Over,
}

/// The number and size of requests.
#[derive(Default)]
pub(super) struct Load {
    requests: Cell<usize>,
    bytes: Cell<usize>,
}

impl Load {
    pub fn add(&self, bytes: usize) {
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
    }

    pub fn remove(&self, bytes: usize) {
        self.requests.set(self.requests.get() - 1);
        self.bytes.set(self.bytes.get() - bytes);
    }

    pub fn is_over(&self, requests_max: usize, bytes_max: usize) -> bool {
        self.requests.get() >= requests_max || self.bytes.get() >= bytes_max
    }
}

/// One connection.
pub(super) struct Session {
    stream: Stream,
    /// The TCP peer's address.
    pub peer: Option<IpAddr>,
    /// The user at the other end of the Unix socket.
    uid: Option<u32>,
    /// The authenticated user.
    user: RefCell<Option<String>>,
    pub terms: SessionTerms,
    pub services: Rc<ClientContext>,
    /// Borrows processes and runs functions for this connection.
    pub query_servers: QueryServers,
    phase: Cell<Phase>,
    unsent: RefCell<Unsent>,
    /// Whether a task is waiting to write once the socket is writable.
    sending: Cell<bool>,
    /// Woken when reading may continue, or when the connection has ended.
    reader: RefCell<Option<Waker>>,
    /// Requests that count toward pausing.
    pub in_hand: Load,
    /// Requests that wait for a process, and do not count.
    pub waiting: Load,
    /// Whether reading is paused until a process is lent or refused, or a login is checked.
    paused: Cell<bool>,
    /// Whether the connection is, or was, a tunnel.
    pub is_tunnel: Cell<bool>,
    /// The pipes that an attached client sends next.
    pub expected: RefCell<Option<Expected>>,
    /// Why the connection ends, unless the client or a stop ends it; the first reason is kept. Sent as the last line of
    /// a service's connection.
    close_reason: RefCell<Option<ErrorReply>>,
    /// Whether reading has ended because of a stop.
    is_shut_down: Cell<bool>,
    /// Time of the last traffic through a tunnel.
    last_activity: Cell<Instant>,
    held: RefCell<FxHashMap<Token, Rc<Holding>>>,
    /// Senders that cancel function calls, by the JSON text of the request ids.
    pub cancels: RefCell<FxHashMap<Box<str>, Vec<oneshot::Sender<()>>>>,
    /// Tracks how fast the client reads its replies.
    pace: Pace,
    /// Its part of the memory of all requests and replies in flight. It is counted only while it has more than
    /// [`FREE_BYTES`], which is rare; then all of its bytes are counted.
    share: RefCell<Share>,
    /// Length of the incomplete line, in bytes.
    partial_bytes: Cell<usize>,
    /// Whether a complete line has ever arrived.
    has_spoken: Cell<bool>,
    sweep_at: Cell<usize>,
}

/// A connection's initial permissions and limits.
pub(super) struct SessionTerms {
    /// Maximum length of a line, in bytes, once a required login is done.
    pub line_bytes_max: usize,
    /// Whether no login is needed, even on TCP.
    pub open: bool,
    pub metrics: Arc<ClientMetrics>,
    /// How long the client may leave its replies unread.
    pub write_timeout: Duration,
}

impl Session {
    pub fn new(
        stream: Stream,
        services: Rc<ClientContext>,
        caller: Caller,
        terms: SessionTerms,
    ) -> Rc<Self> {
        let peer = stream.address().map(|address| address.ip());
        let who = peer::holder(&stream, &services.user_names);
        let uid = who.uid;
        caller.speak_for(Some(Arc::new(who)));
        let certified = stream
            .certified()
            .map(str::to_owned)
            .filter(|name| services.authority.knows(name));
        let sender = Sender {
            peer: peer.map(network_of),
            uid,
            user: None,
        };
        let session = Rc::new(Self {
            pace: Pace::new(terms.write_timeout),
            terms,
            partial_bytes: Cell::new(0),
            has_spoken: Cell::new(false),
            share: RefCell::new(services.in_flight.share(sender)),
            stream,
            query_servers: QueryServers::new(caller).recording(Rc::clone(&services.records)),
            peer,
            uid,
            user: RefCell::default(),
            services,
            phase: Cell::new(Phase::Open),
            unsent: RefCell::default(),
            sending: Cell::new(false),
            reader: RefCell::new(None),
            in_hand: Load::default(),
            waiting: Load::default(),
            paused: Cell::new(false),
            is_tunnel: Cell::new(false),
            expected: RefCell::new(None),
            close_reason: RefCell::new(None),
            is_shut_down: Cell::new(false),
            last_activity: Cell::new(Instant::now()),
            held: RefCell::new(FxHashMap::default()),
            cancels: RefCell::default(),
            sweep_at: Cell::new(HELD_SWEEP_MIN),
        });
        if let Some(user) = certified {
            session.admit(user);
        }
        session
    }

    /// Returns whether calls are allowed: on TCP, after a login.
    pub fn is_admitted(&self) -> bool {
        self.terms.open || self.is_local() || self.user.borrow().is_some()
    }

    /// Admits an authenticated user.
    pub fn admit(&self, user: String) {
        let who = Holder {
            user: Some(user.clone()),
            ..peer::holder(&self.stream, &self.services.user_names)
        };
        let caller = self.query_servers.caller();
        caller.speak_for(Some(Arc::new(who)));
        self.user.replace(Some(user));
    }

    /// Returns its rights under the current configuration.
    pub fn rights(&self) -> Rights {
        match &*self.user.borrow() {
            Some(user) => self.services.authority.rights(user),
            None => peer::local_rights(self.uid),
        }
    }

    /// Returns the holder that `held_max` counts its processes for.
    pub fn holder(&self) -> Option<HeldBy> {
        let user = self.user.borrow().clone().map(HeldBy::User);
        let address = self.peer.map(|peer| HeldBy::Address(network_of(peer)));
        user.or(address).or(self.uid.map(HeldBy::Uid))
    }

    /// Makes the user the tenant of functions without a database, so that clients started by a program share
    /// processes, as CouchDB's do.
    pub fn in_its_name(&self, want: Want) -> Want {
        let user = match (&want.tenant, self.holder()) {
            (TenantName::Client, Some(HeldBy::User(name))) => format!("user {name}"),
            (TenantName::Client, Some(HeldBy::Uid(uid))) => format!("uid {uid}"),
            _ => return want,
        };
        want.of(TenantName::User(user.into()))
    }

    pub fn line_bytes_max(&self) -> usize {
        if self.is_admitted() {
            self.terms.line_bytes_max
        } else {
            self.terms.line_bytes_max.min(login::LINE_BYTES_MAX)
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Advances to a later phase, never back.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.set(self.phase.get().max(phase));
        self.wake_reader();
    }

    /// Returns whether every open request is answered and written.
    pub fn is_quiet(&self) -> bool {
        let in_hand = self.in_hand.requests.get() + self.waiting.requests.get();
        in_hand == 0 && self.unsent.borrow().is_empty()
    }

    /// Ends the connection if it has no state that the client would lose. Returns whether it did.
    pub fn end_if_idle(&self) -> bool {
        let holds = self.is_tunnel.get() || self.paused.get() || self.holds();
        let is_idle = self.is_quiet() && !holds && self.phase.get() == Phase::Open;
        if is_idle {
            self.end();
        }
        is_idle
    }

    /// Counts open requests, with `partial` bytes of an incomplete line; `false` if the limit is reached.
    pub fn count_partial(&self, partial: usize) -> bool {
        self.partial_bytes.set(partial);
        self.count(self.bytes())
    }

    /// Sets the count of its bytes in flight; `false` if the limit is reached.
    fn count(&self, bytes: usize) -> bool {
        let counted = if bytes > FREE_BYTES { bytes } else { 0 };
        self.share.borrow_mut().set(counted).is_ok()
    }

    /// Records that the incomplete line is complete and now a request.
    pub fn line_taken(&self) {
        self.partial_bytes.set(0);
        self.has_spoken.set(true);
    }

    /// Returns whether the client is in the middle of a line, has not sent one yet, or has requested a tunnel.
    pub fn is_to_speak(&self) -> bool {
        self.partial_bytes.get() > 0 || !self.has_spoken.get() || self.is_tunnel.get()
    }

    /// Recounts after a request has ended.
    pub fn count_less(&self) {
        let bytes = self.bytes();
        if self.share.borrow().bytes() > bytes {
            // A lower count never fails.
            let _ = self.count(bytes);
        }
    }

    /// Returns the size of open requests and unsent replies, in bytes.
    fn bytes(&self) -> usize {
        let requests = self.in_hand.bytes.get() + self.waiting.bytes.get();
        requests + self.partial_bytes.get() + self.unsent.borrow().len()
    }

    /// Returns whether more may be read.
    pub fn has_room(&self) -> bool {
        !self.paused.get()
            && !self
                .in_hand
                .is_over(REQUESTS_IN_HAND_MAX, REQUEST_BYTES_MAX)
            && self.unsent.borrow().len() < UNSENT_BYTES_MAX
    }

    pub fn pause_reading(&self) {
        self.paused.set(true);
    }

    pub fn resume_reading(&self) {
        self.paused.set(false);
        self.wake_reader();
    }

    /// Returns whether it is a Unix socket, which can carry descriptors.
    pub fn is_local(&self) -> bool {
        matches!(self.stream, Stream::Unix(_))
    }

    pub fn wake_reader_later(&self, waker: &Waker) {
        let mut reader = self.reader.borrow_mut();
        // Without another clone if it is the same.
        reader
            .get_or_insert_with(|| waker.clone())
            .clone_from(waker);
    }

    pub fn wake_reader(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Watches for the end of both directions.
    pub fn hang_up(&self) -> io::Result<HangUp> {
        HangUp::of(&self.stream)
    }

    pub fn poll_read(&self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match read_chunk(|scratch| self.read(scratch)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => {
                    let length = result.as_ref().map_or(0, Bytes::len);
                    self.terms.metrics.received_bytes.add(length as u64);
                    return Poll::Ready(result);
                }
            }
        }
    }

    /// Reads once. A short read has emptied the socket: marking it as not ready saves a system call that would only
    /// find that out.
    fn read(&self, scratch: &mut [u8]) -> io::Result<usize> {
        let mut short = None;
        let result = self.stream.try_io(Interest::READABLE, || {
            let length = match &mut *self.expected.borrow_mut() {
                Some(expected) => expected.read(self.stream.as_fd(), scratch)?,
                None => rustix::io::read(&self.stream, &mut *scratch)?,
            };
            if (1..scratch.len()).contains(&length) {
                short = Some(length);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(length)
        });
        short.map_or(result, Ok)
    }

    /// Ends the tunnel once every open request is answered, and records the reason.
    pub fn end_tunnel(&self, why: impl Into<ErrorReply>) {
        self.close_reason
            .borrow_mut()
            .get_or_insert_with(|| why.into());
        self.set_phase(Phase::Closing);
    }

    /// Ends the connection once every open request is answered, because of a stop.
    pub fn shut_down(&self) {
        if self.phase() < Phase::Closing {
            self.is_shut_down.set(true);
        }
        self.set_phase(Phase::Closing);
    }

    /// Returns why the tunnel ends, unless the client ends it. A stop loses no read data, so other reasons take
    /// precedence.
    pub fn take_close_reason(&self) -> Option<ErrorReply> {
        let stopped = || {
            self.is_shut_down
                .get()
                .then(|| GetProcError::ShuttingDown.into())
        };
        self.close_reason.take().or_else(stopped)
    }

    pub fn note_activity(&self) {
        self.last_activity.set(Instant::now());
    }

    /// Returns the time since the last traffic; `None` while a request is in hand.
    pub fn idle_time(&self) -> Option<Duration> {
        (self.in_hand.requests.get() == 0).then(|| self.last_activity.get().elapsed())
    }

    /// Ends the connection without answering open requests.
    pub fn end(&self) {
        self.give_up();
        // Afterwards, so that requests dropped with them are not answered.
        self.held.take();
    }
}

#[cfg(test)]
mod tests {
    use super::Phase;

    #[test]
    fn phases_are_in_the_order_in_which_a_connection_goes_through_them() {
        let phases = [Phase::Open, Phase::Last, Phase::Closing, Phase::Over];
        assert!(phases.is_sorted_by(|before, after| before < after));
    }
}
