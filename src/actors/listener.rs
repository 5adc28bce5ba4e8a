//! Listener: accepts connections and starts a client for each.
//!
//! SUMMARY   One Unix socket, and TCP where it is configured. At most `max_connections` clients at a time;
//!           more wait in the system's queue to be accepted.
//! PROMISES  Stops accepting first, lets calls in hand finish, and ends when the last client has.
//!           Clients end with it. An error of the system's delays the next accept and loses nobody.
//! SOURCE    The role of Postfix's master; an Erlang listener linked to its connections.

pub mod address;
pub(crate) mod bound;
pub(crate) mod connections;
pub mod socket;

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use slog::{Logger, error, info, o};
use tokio::sync::watch;

use crate::actors::client::stream::Stream;
use crate::actors::client::{Client, ClientContext};
use crate::actors::config_changes;
use crate::config::Config;
use crate::logging::RepeatLimiter;
use crate::machine_bounds;
use crate::otp::clock::Clock;
use crate::otp::pid::{Down, ExitReason, Pid, PidGuard};
use crate::otp::supervisor::Stop;
use crate::warn_repeating;
use bound::{AcceptPause, Acceptor, Bound};
use connections::Connections;

/// What a listener needs.
#[derive(Clone)]
pub(crate) struct ListenerOptions {
    /// Where it listens.
    pub socket: Rc<Bound>,
    /// Where else, for clients that log in.
    pub tcp: Option<Rc<Bound>>,
    /// What clients are served with.
    pub services: Rc<ClientContext>,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// The log.
    pub log: Logger,
}

/// What accepts clients.
struct Acceptors {
    unix: Acceptor,
    tcp: Option<Acceptor>,
}

impl Acceptors {
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
pub(crate) struct Listener {
    options: ListenerOptions,
    acceptors: Option<Rc<Acceptors>>,
    clients: Connections,
    /// How many clients the limit of open files leaves room for.
    room: usize,
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
            acceptors: None,
            clients: Connections::default(),
            room: usize::MAX,
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
                Some(tcp) => tcp.acceptor()?,
                None => None,
            };
            self.acceptors = Some(Rc::new(Acceptors { unix, tcp }));
        }
        Ok(())
    }

    /// Waits for the next connection, unless there are as many as there may be.
    fn accept(&mut self, ctx: &mut Context<Self>) {
        let Some(acceptors) = self.acceptors.clone() else {
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
        // The oldest idle client makes room for a new one.
        if self.clients.len() > self.room && !self.clients.end_an_idle_one() {
            let error = io::Error::other("descriptors are kept for children and the store");
            return self.pause(&error, ctx);
        }
        let next = async move { acceptors.accept().await }.into_actor(self);
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

    fn pause(&mut self, error: &io::Error, ctx: &mut Context<Self>) {
        let pause = self.pause.after(error).into_actor(self);
        self.accepting = Some(ctx.spawn(pause.map(|(), listener, ctx| {
            listener.accepting = None;
            listener.accept(ctx);
        })));
    }

    fn start_client(&mut self, stream: Stream, ctx: &mut Context<Self>) {
        let config = self.options.config.borrow().clone();
        let services = Rc::clone(&self.options.services);
        let client = Client::serve(
            stream,
            services,
            &config,
            &self.options.log,
            None,
            PidGuard::new(),
        );
        self.clients.add(client, ctx.address().recipient());
    }

    fn finish_shutdown(&mut self, ctx: &mut Context<Self>) {
        if self.stopping && self.clients.is_empty() {
            self.pid_guard.ending(ExitReason::Shutdown);
            ctx.stop();
        }
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
        for bound in [Some(&self.options.socket), self.options.tcp.as_ref()]
            .into_iter()
            .flatten()
        {
            info!(self.log, "listening"; "listen" => %bound);
        }
        config_changes::follow(self.options.config.clone(), ctx, Self::accept);
        self.accept(ctx);
    }
}

impl Handler<Down> for Listener {
    type Result = ();

    fn handle(&mut self, msg: Down, ctx: &mut Self::Context) {
        self.clients.remove(&msg);
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
        self.acceptors = None;
        self.options.socket.close();
        if let Some(tcp) = &self.options.tcp {
            tcp.close();
        }
        self.options.services.refuse_waiters();
        info!(self.log, "stopped listening"; "count" => self.clients.len());
        self.clients.stop(msg.now);
        self.finish_shutdown(ctx);
    }
}
