//! A connection's state, shared by its actor and the calls in hand.
//!
//! SUMMARY   The socket, what is to be written to it, how much is in hand and what is held.
//! PROMISES  Replies are written together where they come together. Nothing here grows without a
//!           bound: a client that does not read is not read from.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use actix_rt::time::Instant;
use bytes::{Buf, Bytes, BytesMut};
use rustc_hash::FxHashMap;
use rustix::net::SendFlags;
use serde::Serialize;
use tokio::io::Interest;

use super::account::{Account, FREE_BYTES};
use super::handover::Expected;
use super::held_max::HeldBy;
use super::holding::Holding;
use super::stream::Stream;
use super::{Services, login, peer};
use crate::auth::rights::Rights;
use crate::functions::QueryServers;
use crate::functions::caller::Caller;
use crate::in_flight::network_of;
use crate::messages::client::ProcToken;
use crate::messages::client_error::ErrorReply;
use crate::messages::pools::HolderDown;
use crate::messages::proc_manager::GetProcError;
use crate::metrics::ClientMetrics;
use crate::pace::Pace;
use crate::query_server::pipe::read_chunk;
use policy::pool::Token;

/// Requests in hand beyond which no more are read; those that wait for a process do not count.
const REQUESTS_IN_HAND_MAX: usize = 256;

/// The same as a size, in bytes. One request of any size is always taken.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Replies that the client has not taken beyond which nothing more is read, in bytes.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// How long a connection that is closed over a line that was too long may go on sending it, so
/// that the client sees the error and not a broken pipe.
const LINGER: Duration = Duration::from_secs(2);

/// How many processes a connection may hold, dead ones included, before dead ones are forgotten.
const HELD_SWEEP_MIN: usize = 256;

/// How far the connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Requests are read.
    Open,
    /// Nothing more is read; it ends when everything in hand is answered and written.
    Closing,
    /// It has ended.
    Over,
}

/// What is in hand, and how large it is.
#[derive(Default)]
pub(super) struct Load {
    requests: Cell<usize>,
    bytes: Cell<usize>,
}

impl Load {
    pub(super) fn add(&self, bytes: usize) {
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
    }

    pub(super) fn remove(&self, bytes: usize) {
        self.requests.set(self.requests.get() - 1);
        self.bytes.set(self.bytes.get() - bytes);
    }

    pub(super) fn is_over(&self, requests_max: usize, bytes_max: usize) -> bool {
        self.requests.get() >= requests_max || self.bytes.get() >= bytes_max
    }
}

/// One connection.
pub(super) struct Session {
    stream: Stream,
    /// The address at the other end of TCP.
    pub(super) peer: Option<IpAddr>,
    /// The user at the other end of a Unix socket.
    uid: Option<u32>,
    /// Whether it may ask for anything: on TCP, once it has logged in.
    admitted: Cell<bool>,
    /// Who has logged in on it.
    user: RefCell<Option<String>>,
    /// What it may do before anybody has.
    rights: Rights,
    line_bytes_max: Cell<usize>,
    pub(super) services: Rc<Services>,
    /// Takes processes, and runs functions, in the name of this connection.
    pub(super) query_servers: QueryServers,
    phase: Cell<Phase>,
    unsent: RefCell<BytesMut>,
    /// Whether a task is at work that writes when the socket takes more.
    sending: Cell<bool>,
    /// Whom to wake when there is room again, or when it is over.
    reader: RefCell<Option<Waker>>,
    /// What keeps more from being read.
    pub(super) in_hand: Load,
    /// What waits for a process, and does not.
    pub(super) waiting: Load,
    /// Whether the connection is about to become a tunnel: what follows is not for us to read yet.
    attaching: Cell<bool>,
    /// Whether it is, or was, a tunnel.
    is_tunnel: Cell<bool>,
    /// The pipes of an attached client, which come next.
    expected: RefCell<Option<Expected>>,
    /// Why the connection ends, if it is not the client that ends it; the first reason counts. The
    /// last line of a service's connection tells it.
    epitaph: RefCell<Option<ErrorReply>>,
    /// When something last came through a tunnel, or went through it.
    last_activity: Cell<Instant>,
    held: RefCell<FxHashMap<Token, Rc<Holding>>>,
    metrics: Arc<ClientMetrics>,
    /// How fast the client takes what it is sent.
    pace: Pace,
    account: Account,
    /// What is held of a line that is not complete, in bytes.
    partial_bytes: Cell<usize>,
    sweep_at: Cell<usize>,
    /// Whether the manager knows where to tell that a process is taken away.
    is_told: Cell<bool>,
}

/// What a connection may do from its start.
pub(super) struct Terms {
    /// The longest line of one who need not log in, in bytes.
    pub(super) line_bytes_max: usize,
    /// Whether nobody has to log in, also on TCP.
    pub(super) open: bool,
    /// What one may do who has not logged in.
    pub(super) rights: Rights,
    /// Where it is counted.
    pub(super) metrics: Arc<ClientMetrics>,
    /// In what time the client has to take something of what it is sent.
    pub(super) write_timeout: Duration,
}

impl Session {
    pub(super) fn new(
        stream: Stream,
        services: Rc<Services>,
        caller: Caller,
        terms: Terms,
    ) -> Rc<Self> {
        let Terms {
            line_bytes_max,
            open,
            rights,
            metrics,
            write_timeout,
        } = terms;
        let (address, admitted) = match &stream {
            Stream::Unix(_) => (None, true),
            Stream::Tcp(tcp) => (tcp.peer_addr().ok().map(|peer| peer.ip()), open),
        };
        let who = peer::holder(&stream, &services.user_names);
        let uid = who.uid;
        caller.speak_for(Some(Arc::new(who)));
        Rc::new(Self {
            metrics,
            pace: Pace::new(write_timeout),
            partial_bytes: Cell::new(0),
            account: Account::new(services.in_flight.as_ref(), address),
            stream,
            query_servers: QueryServers::new(caller).telling(services.sums.clone()),
            peer: address,
            uid,
            admitted: Cell::new(admitted),
            user: RefCell::default(),
            rights,
            line_bytes_max: Cell::new(match admitted {
                true => line_bytes_max,
                false => line_bytes_max.min(login::LINE_BYTES_MAX),
            }),
            services,
            phase: Cell::new(Phase::Open),
            unsent: RefCell::new(BytesMut::new()),
            sending: Cell::new(false),
            reader: RefCell::new(None),
            in_hand: Load::default(),
            waiting: Load::default(),
            attaching: Cell::new(false),
            is_tunnel: Cell::new(false),
            expected: RefCell::new(None),
            epitaph: RefCell::new(None),
            last_activity: Cell::new(Instant::now()),
            held: RefCell::new(FxHashMap::default()),
            sweep_at: Cell::new(HELD_SWEEP_MIN),
            is_told: Cell::new(false),
        })
    }

    pub(super) fn is_admitted(&self) -> bool {
        self.admitted.get()
    }

    /// Lets a user in who has logged in, with lines of this length.
    pub(super) fn admit(&self, user: String, line_bytes_max: usize) {
        let who = peer::logged_in(&self.stream, &self.services.user_names, &user);
        self.query_servers.caller().speak_for(Some(who));
        self.user.replace(Some(user));
        self.admitted.set(true);
        self.line_bytes_max.set(line_bytes_max);
    }

    /// Returns what it may do now: a configuration that was read again counts at once.
    pub(super) fn rights(&self) -> Rights {
        match &*self.user.borrow() {
            Some(user) => self.services.authority.rights(user),
            None => self.rights.clone(),
        }
    }

    /// Returns whose processes those that it holds are.
    pub(super) fn holder(&self) -> Option<HeldBy> {
        let user = self.user.borrow().clone().map(HeldBy::User);
        let address = self.peer.map(|peer| HeldBy::Address(network_of(peer)));
        user.or(address).or(self.uid.map(HeldBy::Uid))
    }

    pub(super) fn line_bytes_max(&self) -> usize {
        self.line_bytes_max.get()
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Goes on to a later phase; there is no way back.
    pub(super) fn set_phase(&self, phase: Phase) {
        if self.phase.get() != Phase::Over {
            self.phase.set(phase);
        }
        self.wake_reader();
    }

    /// Returns whether everything in hand is answered and written.
    pub(super) fn is_quiet(&self) -> bool {
        let in_hand = self.in_hand.requests.get() + self.waiting.requests.get();
        in_hand == 0 && self.unsent.borrow().is_empty()
    }

    /// Returns whether it wants nothing and holds nothing, so that it loses nothing with its connection.
    fn is_idle(&self) -> bool {
        let holds = self.is_tunnel.get() || self.attaching.get() || !self.held.borrow().is_empty();
        self.is_quiet() && !holds && self.phase.get() == Phase::Open
    }

    /// Ends the connection if it is idle. Returns whether it did.
    pub(super) fn end_if_idle(&self) -> bool {
        let is_idle = self.is_idle();
        if is_idle {
            self.end();
        }
        is_idle
    }

    /// Counts what is in hand, with so much of a line that is not complete; false if there is no room.
    pub(super) fn count_partial(&self, partial: usize) -> bool {
        self.partial_bytes.set(partial);
        self.account.set(self.bytes())
    }

    /// Notes that the line that was not complete is taken in hand.
    pub(super) fn line_taken(&self) {
        self.partial_bytes.set(0);
    }

    /// Counts what is left after a request.
    pub(super) fn count_less(&self) {
        self.account.set_less(self.bytes());
    }

    /// Returns what is in hand of requests and replies, in bytes.
    fn bytes(&self) -> usize {
        let requests = self.in_hand.bytes.get() + self.waiting.bytes.get();
        requests + self.partial_bytes.get() + self.unsent.borrow().len()
    }

    /// Returns whether more may be read.
    pub(super) fn has_room(&self) -> bool {
        !self.attaching.get()
            && !self
                .in_hand
                .is_over(REQUESTS_IN_HAND_MAX, REQUEST_BYTES_MAX)
            && self.unsent.borrow().len() < UNSENT_BYTES_MAX
    }

    pub(super) fn set_attaching(&self, attaching: bool) {
        self.attaching.set(attaching);
        self.wake_reader();
    }

    /// Returns whether it is a connection of this machine, which descriptors can come over.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.stream, Stream::Unix(_))
    }

    /// Notes that it is a process's from now on: it is not closed for others.
    pub(super) fn set_tunnel(&self) {
        self.is_tunnel.set(true);
    }

    /// Keeps the descriptors that come from now on.
    pub(super) fn expect_pipes(&self, expected: Expected) {
        self.set_tunnel();
        self.expected.replace(Some(expected));
    }

    pub(super) fn take_expected(&self) -> Option<Expected> {
        self.expected.take()
    }

    /// Returns where it is counted.
    pub(super) fn metrics(&self) -> &Arc<ClientMetrics> {
        &self.metrics
    }

    pub(super) fn wake_reader_later(&self, waker: &Waker) {
        let mut reader = self.reader.borrow_mut();
        if !reader.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *reader = Some(waker.clone());
        }
    }

    pub(super) fn wake_reader(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Returns another descriptor of the same socket.
    pub(super) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.stream.as_fd().try_clone_to_owned()
    }

    pub(super) fn poll_read(&self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match read_chunk(|scratch| self.read(scratch)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => {
                    let length = result.as_ref().map_or(0, Bytes::len);
                    self.metrics.received_bytes.add(length as u64);
                    return Poll::Ready(result);
                }
            }
        }
    }

    /// Reads once. A short read has emptied the socket; what comes later is announced anew, which
    /// saves the system call that would only say so.
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

    /// Queues a reply for writing.
    pub(super) fn push(&self, id: &str, member: &[u8], value: &[u8]) {
        if self.phase.get() == Phase::Over {
            return;
        }
        if value.len() > FREE_BYTES && !self.account.set(self.bytes() + value.len()) {
            return self.push_error(id, &ErrorReply::no_room());
        }
        let mut unsent = self.unsent.borrow_mut();
        unsent.reserve(id.len() + member.len() + value.len() + 10);
        for piece in [b"{\"id\":", id.as_bytes(), member, value, b"}\n"] {
            unsent.extend_from_slice(piece);
        }
    }

    /// Queues an error reply for writing.
    pub(super) fn push_error(&self, id: &str, error: &ErrorReply) {
        let json = serde_json::to_vec(error).expect("config: texts can always be written");
        self.push(id, b",\"error\":", &json);
    }

    /// Queues bytes for writing as they are. Where there is no room for them the connection is cut.
    pub(super) fn push_raw(&self, bytes: &[u8]) {
        self.last_activity.set(Instant::now());
        if self.phase.get() == Phase::Over {
            return;
        }
        if bytes.len() > FREE_BYTES && !self.account.set(self.bytes() + bytes.len()) {
            return self.cut(ErrorReply::no_room());
        }
        self.unsent.borrow_mut().extend_from_slice(bytes);
    }

    /// Writes what is queued, as far as the client takes it; the rest as soon as it does.
    pub(super) fn flush(self: &Rc<Self>) {
        if !self.sending.get() && !self.write_now() {
            self.sending.set(true);
            // Ends when everything is written or the connection is over.
            actix_rt::spawn(Rc::clone(self).write_all());
        }
    }

    async fn write_all(self: Rc<Self>) {
        while !self.write_now() {
            let writable = self.stream.writable();
            let Some(by) = self.take_by() else {
                // Fails only with the event loop, which ends this too.
                let _ = writable.await;
                continue;
            };
            match tokio::time::timeout_at(by, writable).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => break,
                Err(_) => {
                    // The system says only when there is much room that there is some.
                    self.write_as(|bytes| {
                        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                        Ok(rustix::net::send(&self.stream, bytes, flags)?)
                    });
                    if self.take_by().is_some_and(|by| by <= Instant::now()) {
                        self.cut(ErrorReply::unread());
                    }
                }
            }
        }
        self.sending.set(false);
    }

    /// Returns by when the client has to have taken some of what waits for it.
    fn take_by(&self) -> Option<Instant> {
        self.pace
            .waiting(self.unsent.borrow().len(), Instant::now())
    }

    /// Returns whether nothing is left to write.
    fn write_now(&self) -> bool {
        self.write_as(|bytes| self.stream.try_write(bytes))
    }

    fn write_as(&self, write: impl Fn(&[u8]) -> io::Result<usize>) -> bool {
        let mut unsent = self.unsent.borrow_mut();
        while !unsent.is_empty() {
            match write(&unsent) {
                Ok(length) => {
                    self.metrics.sent_bytes.add(length as u64);
                    self.pace.took(length);
                    unsent.advance(length);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    drop(unsent);
                    self.give_up();
                    unsent = self.unsent.borrow_mut();
                }
            }
        }
        *unsent = BytesMut::new();
        drop(unsent);
        self.pace.waiting(0, Instant::now());
        self.count_less();
        self.wake_reader();
        true
    }

    /// The client takes nothing more: what is in hand is answered to nobody.
    fn give_up(&self) {
        self.unsent.borrow_mut().clear();
        self.set_phase(Phase::Over);
        // Also tells whoever waits for the client to send something.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both);
    }

    /// Ends the connection at once, and notes why.
    pub(super) fn cut(&self, why: impl Into<ErrorReply>) {
        self.epitaph.borrow_mut().get_or_insert_with(|| why.into());
        self.give_up();
    }

    /// Returns whether the client has taken everything that it was sent.
    pub(super) fn is_written(&self) -> bool {
        self.unsent.borrow().is_empty()
    }

    /// Ends the tunnel once everything in hand is answered, and notes why.
    pub(super) fn end_tunnel(&self, why: impl Into<ErrorReply>) {
        self.epitaph.borrow_mut().get_or_insert_with(|| why.into());
        self.set_phase(Phase::Closing);
    }

    /// Returns why the tunnel ends, if it is not the client that ends it.
    pub(super) fn take_epitaph(&self) -> Option<ErrorReply> {
        self.epitaph.take()
    }

    /// Notes that something came through the tunnel.
    pub(super) fn note_activity(&self) {
        self.last_activity.set(Instant::now());
    }

    /// Returns for how long nothing came or went, none while something is in hand.
    pub(super) fn idle_time(&self) -> Option<Duration> {
        (self.in_hand.requests.get() == 0).then(|| self.last_activity.get().elapsed())
    }

    /// Ends the connection: whatever is still in hand is answered to nobody.
    pub(super) fn end(&self) {
        self.set_phase(Phase::Over);
        self.unsent.take();
        self.held.take();
        // Fails when the client is gone already, which is as good.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both);
    }

    /// Ends the connection after its last words have been written and the client has stopped
    /// sending, or after [`LINGER`].
    pub(super) async fn linger(self: Rc<Self>) {
        let farewell = async {
            while !self.unsent.borrow().is_empty() {
                self.stream.writable().await?;
                self.write_now();
            }
            rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write)?;
            while !std::future::poll_fn(|cx| self.poll_read(cx))
                .await?
                .is_empty()
            {}
            io::Result::Ok(())
        };
        // In time or not, well or not: the connection ends.
        let _ = actix_rt::time::timeout(LINGER, farewell).await;
        self.end();
    }
}

/// What is held.
impl Session {
    pub(super) fn hold(&self, holding: Rc<Holding>) {
        let mut held = self.held.borrow_mut();
        held.insert(holding.name.token, holding);
        if held.len() >= self.sweep_at.get() {
            held.retain(|_, holding| holding.is_alive());
            self.sweep_at.set(HELD_SWEEP_MIN.max(held.len() * 2));
        }
    }

    /// Returns whether the manager has still to be told where to say that a process is taken away.
    pub(super) fn begin_to_be_told(&self) -> bool {
        !self.is_told.replace(true)
    }

    /// The manager is gone: a successor does not know it.
    pub(super) fn end_to_be_told(&self) {
        self.is_told.set(false);
    }

    /// Returns whether the client holds a process.
    pub(super) fn holds(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    /// Tells the client of each process that it holds that the service ends. Returns whether everything
    /// is written.
    pub(super) fn tell_of_shutdown(&self) -> bool {
        let held = self.held.borrow();
        for holding in held.values().filter(|holding| holding.is_alive()) {
            let error = GetProcError::ShuttingDown;
            self.push_down(holding.name, error.name(), &error.to_string());
        }
        self.write_now()
    }

    /// Tells the client that a process which it holds is taken from it.
    pub(super) fn take_away(self: &Rc<Self>, down: &HolderDown) {
        let name = ProcToken {
            proc: down.proc,
            token: down.token,
        };
        // It may have been given back meanwhile.
        if self.release(Some(name)).is_none() {
            return;
        }
        self.push_down(name, down.name, &down.reason);
        self.flush();
    }

    /// Queues the line that says that a process is held no more.
    fn push_down(&self, proc: ProcToken, name: &str, reason: &str) {
        #[derive(Serialize)]
        struct Notice<'a> {
            down: String,
            name: &'a str,
            reason: &'a str,
        }
        let notice = Notice {
            down: proc.to_string(),
            name,
            reason,
        };
        let mut line = serde_json::to_vec(&notice).expect("config: texts can always be written");
        line.push(b'\n');
        self.push_raw(&line);
    }

    /// Finds what the client holds under this name.
    pub(super) fn holding(&self, name: Option<ProcToken>) -> Option<Rc<Holding>> {
        let name = name?;
        let held = self.held.borrow();
        held.get(&name.token)
            .filter(|holding| holding.name == name)
            .cloned()
    }

    /// Takes what the client holds under this name away from it.
    pub(super) fn release(&self, name: Option<ProcToken>) -> Option<Rc<Holding>> {
        let holding = self.holding(name)?;
        self.held.borrow_mut().remove(&holding.name.token)
    }
}
