//! Listener: accepts connections and starts a client for each.
//!
//! SUMMARY   One Unix socket, and TCP where it is configured. At most `max_connections` clients at a time; more wait in the system's
//!           queue to be accepted.
//! PROMISES  Stops accepting first, lets calls in hand finish, and ends when the last client has.
//!           Clients end with it. An error of the system's delays the next accept and loses nobody.
//! SOURCE    The role of Postfix's master; an Erlang listener linked to its connections.

pub mod address;
pub(crate) mod bound;
pub mod socket;

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use rustc_hash::FxHashMap;
use slog::{Logger, error, info, o};
use tokio::sync::watch;

use crate::actors::client::stream::Stream;
use crate::actors::client::{Client, ClientContext, ClientOptions, EndIfIdle};
use crate::actors::config_changes;
use crate::config::Config;
use crate::logging::RepeatLimiter;
use crate::machine_bounds;
use crate::otp::clock::Clock;
use crate::otp::pid::{ActorId, Down, ExitReason, Pid, PidGuard};
use crate::otp::supervisor::Stop;
use crate::warn_repeating;
use address::BoundAddress;
use bound::{AcceptPause, Acceptor};
use socket::BoundSocket;

/// Busy clients that are passed over in the search for an idle one.
const SEARCH_MAX: usize = 256;

/// What a listener needs.
#[derive(Clone)]
pub struct ListenerOptions {
    /// Where it listens.
    pub socket: Rc<BoundSocket>,
    /// Where else, for clients that log in.
    pub tcp: Option<Rc<BoundAddress>>,
    /// What clients are served with.
    pub services: Rc<ClientContext>,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// The log.
    pub log: Logger,
}

/// Where clients come in.
struct Doors {
    unix: Acceptor,
    tcp: Option<Acceptor>,
}

impl Doors {
    /// Waits for the next client. Safe to cancel.
    async fn accept(&self) -> io::Result<Stream> {
        let tcp = async {
            match &self.tcp {
                Some(tcp) => tcp.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.unix.accept() => accepted,
            accepted = tcp => accepted,
        }
    }
}

/// Accepts connections.
pub struct Listener {
    options: ListenerOptions,
    doors: Option<Rc<Doors>>,
    /// Client -> its number, and where to tell it to stop. Those that are gone are taken out by their
    /// `Down`.
    clients: FxHashMap<ActorId, (u64, Recipient<Stop>)>,
    /// Number of a client -> what ends it if it is idle, oldest first.
    idle: BTreeMap<u64, EndIfIdle>,
    /// How many clients the limit of open files leaves room for.
    room: usize,
    next_number: u64,
    /// The task that waits for a connection, or for the time to try again.
    accepting: Option<SpawnHandle>,
    clock: Clock,
    full: RepeatLimiter,
    pause: AcceptPause,
    stopping: bool,
    log: Logger,
    pid_guard: PidGuard,
}

impl Listener {
    /// Makes a listener.
    pub fn new(options: ListenerOptions) -> Self {
        let log = options.log.new(o!("component" => "listener"));
        Self {
            pause: AcceptPause::new(log.clone()),
            log,
            options,
            doors: None,
            clients: FxHashMap::default(),
            idle: BTreeMap::new(),
            room: usize::MAX,
            next_number: 1,
            accepting: None,
            clock: Clock::new(),
            full: RepeatLimiter::default(),
            stopping: false,
            pid_guard: PidGuard::new(),
        }
    }

    /// Returns the name by which its life can be watched.
    pub fn pid(&self) -> Pid {
        self.pid_guard.pid()
    }

    fn listen(&mut self) -> io::Result<()> {
        if let Some(unix) = self.options.socket.acceptor()? {
            let tcp = match &self.options.tcp {
                Some(address) => address.acceptor()?,
                None => None,
            };
            self.doors = Some(Rc::new(Doors { unix, tcp }));
        }
        Ok(())
    }

    /// Waits for the next connection, unless there are as many as there may be.
    fn accept(&mut self, ctx: &mut Context<Self>) {
        let Some(doors) = self.doors.clone() else {
            return;
        };
        let limit = self.options.config.borrow().server.max_connections;
        if self.accepting.is_some() {
            return;
        }
        if self.clients.len() >= limit {
            warn_repeating!(self.log, self.full, self.clock.now(),
                "as many clients as there may be"; "limit" => limit,
                "effect" => "more clients wait to be accepted",
                "remedy" => "raise [server] max_connections");
            return;
        }
        // Of those who are there for nothing, the oldest goes for a new one.
        if self.clients.len() > self.room && !self.end_an_idle_one() {
            let error = io::Error::other("descriptors are kept for children and the store");
            return self.pause(&error, ctx);
        }
        let next = async move { doors.accept().await }.into_actor(self);
        self.accepting = Some(ctx.spawn(next.map(|accepted, listener, ctx| {
            listener.accepting = None;
            match accepted {
                Ok(stream) => {
                    listener.start_client(stream, ctx);
                    listener.accept(ctx);
                }
                Err(error) => listener.pause(&error, ctx),
            }
        })));
    }

    /// Ends the oldest client that is idle, if there is one.
    fn end_an_idle_one(&mut self) -> bool {
        let mut oldest = self.idle.iter().take(SEARCH_MAX);
        let ended = oldest.find_map(|(number, client)| client.end().then_some(*number));
        ended.and_then(|number| self.idle.remove(&number)).is_some()
    }

    fn pause(&mut self, error: &io::Error, ctx: &mut Context<Self>) {
        let pause = self.pause.after(error).into_actor(self);
        self.accepting = Some(ctx.spawn(pause.map(|(), listener, ctx| {
            listener.accepting = None;
            listener.accept(ctx);
        })));
    }

    fn start_client(&mut self, stream: Stream, ctx: &mut Context<Self>) {
        let config = self.options.config.borrow().clone();
        let options = ClientOptions::new(self.next_number, &config, &self.options.log);
        let number = self.next_number;
        self.next_number += 1;
        let services = Rc::clone(&self.options.services);
        let (stop, pid, idle) = Client::serve(stream, services, options);
        self.idle.insert(number, idle);
        self.clients.insert(pid.id(), (number, stop));
        pid.monitor(ctx.address().recipient());
    }

    /// Ignores the mailbox's bound: the order must not be lost, and is given at most twice.
    fn stop_clients(&self, now: bool) {
        self.clients
            .values()
            .for_each(|(_, client)| client.do_send(Stop { now }));
    }

    fn finish_shutdown(&mut self, ctx: &mut Context<Self>) {
        if self.stopping && self.clients.is_empty() {
            self.pid_guard.ending(ExitReason::Shutdown);
            ctx.stop();
        }
    }
}

/// However it ends, its clients end with it: a successor would not know of them.
impl Drop for Listener {
    fn drop(&mut self) {
        self.stop_clients(true);
    }
}

impl Actor for Listener {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.room = machine_bounds::connections_max(usize::MAX);
        if let Err(error) = self.listen() {
            error!(self.log, "cannot listen"; "error" => %error);
            self.pid_guard
                .ending(ExitReason::Failed(format!("cannot listen: {error}")));
            return ctx.stop();
        }
        let path = self.options.socket.path().display().to_string();
        info!(self.log, "listening"; "listen" => path);
        if let Some(address) = &self.options.tcp {
            let address = format!("tcp:{}", address.address());
            info!(self.log, "listening"; "listen" => address);
        }
        config_changes::follow(self.options.config.clone(), ctx, Self::accept);
        self.accept(ctx);
    }
}

impl Handler<Down> for Listener {
    type Result = ();

    fn handle(&mut self, msg: Down, ctx: &mut Self::Context) {
        if let Some((number, _)) = self.clients.remove(&msg.actor) {
            self.idle.remove(&number);
        }
        self.accept(ctx);
        self.finish_shutdown(ctx);
    }
}

/// Ends: no new clients, no new requests, and those in hand are let finish, or not.
impl Handler<Stop> for Listener {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        self.stopping = true;
        if let Some(accepting) = self.accepting.take() {
            ctx.cancel_future(accepting);
        }
        self.doors = None;
        self.options.socket.close();
        if let Some(address) = &self.options.tcp {
            address.close();
        }
        self.options.services.refuse_waiters();
        info!(self.log, "stopped listening"; "count" => self.clients.len());
        self.stop_clients(msg.now);
        self.finish_shutdown(ctx);
    }
}
