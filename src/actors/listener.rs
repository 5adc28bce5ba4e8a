//! Listener: accepts connections and starts a client for each.
//!
//! SUMMARY   One Unix socket, and, if configured, TCP with and without TLS. At most `max_connections` concurrent
//!           clients; more wait in the system's backlog.
//! PROMISES  On a stop it first stops accepting, lets open calls finish, and ends with the last client. If it ends
//!           otherwise, its clients end too. A system error delays the next accept and loses no connection.
//! SOURCE    The role of Postfix's master; an Erlang listener linked to its connections.

pub mod address;
pub(crate) mod bound;
pub(crate) mod connections;
mod encryption;
pub mod inherited;
pub mod socket;

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use slog::{Logger, debug, error, info, o};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::actors::changes;
use crate::actors::client::stream::Stream;
use crate::actors::client::{Client, ClientContext};
use crate::logging::RepeatLimiter;
use crate::machine_bounds;
use crate::otp::{Down, ExitReason, PidGuard, Stop};
use crate::tls::Certificate;
use crate::warn_repeating;
use bound::{AcceptPause, Acceptor, Bound};
use connections::Connections;
use encryption::{DESCRIPTORS, Relay, encrypt};
use policy::listening::{ListenBounds, Listening, MayAccept};

/// The parts of a listener.
#[derive(Clone)]
pub(crate) struct ListenerOptions {
    /// The Unix socket.
    pub socket: Rc<Bound>,
    /// TCP, for clients that log in.
    pub tcp: Option<Rc<Bound>>,
    /// TCP with TLS.
    pub tls: Option<Rc<Bound>>,
    /// The certificate for TLS.
    pub certificate: Arc<Certificate>,
    /// The context of clients.
    pub services: Rc<ClientContext>,
}

/// The acceptors of the listener's sockets.
struct Acceptors {
    unix: Acceptor,
    tcp: Option<Acceptor>,
    tls: Option<Acceptor>,
}

impl Acceptors {
    /// Waits for the next client; returns also whether its TLS handshake is outstanding. Safe to cancel.
    async fn accept(&self) -> io::Result<(Stream, bool)> {
        tokio::select! {
            accepted = self.unix.accept() => Ok((accepted?, false)),
            accepted = accept(self.tcp.as_ref()) => Ok((accepted?, false)),
            accepted = accept(self.tls.as_ref()) => Ok((accepted?, true)),
        }
    }
}

/// Waits for the next client of a listener, if there is one. Safe to cancel.
async fn accept(acceptor: Option<&Acceptor>) -> io::Result<Stream> {
    match acceptor {
        Some(acceptor) => acceptor.accept().await,
        None => std::future::pending().await,
    }
}

/// Works in a separate task, because an actor polls everything it waits for at each event. Dropping this aborts it.
async fn separately<T: 'static>(work: impl Future<Output = T> + 'static) -> io::Result<T> {
    let mut task = JoinSet::new();
    task.spawn_local(work);
    let ended = task.join_next().await.expect("the set has one task");
    Ok(ended?)
}

/// Accepts connections.
pub(crate) struct Listener {
    options: ListenerOptions,
    acceptors: Option<Rc<Acceptors>>,
    clients: Connections,
    /// Connections that are not yet, or no longer, clients.
    listening: Listening,
    /// Maximum clients within the limit of open files.
    room: usize,
    /// The task that waits for a connection, or for the next attempt.
    accepting: Option<SpawnHandle>,
    full: RepeatLimiter,
    pause: AcceptPause,
    log: Logger,
    pid_guard: PidGuard,
}

impl Listener {
    /// Makes a listener.
    pub fn new(options: ListenerOptions, pid_guard: PidGuard) -> Self {
        let log = options.services.log.new(o!("component" => "listener"));
        Self {
            pause: AcceptPause::new(log.clone()),
            log,
            options,
            acceptors: None,
            clients: Connections::default(),
            listening: Listening::default(),
            room: usize::MAX,
            accepting: None,
            full: RepeatLimiter::default(),
            pid_guard,
        }
    }

    fn listen(&mut self) -> io::Result<()> {
        if let Some(unix) = self.options.socket.acceptor()? {
            let acceptor = |bound: &Option<Rc<Bound>>| match bound {
                Some(bound) => bound.acceptor(),
                None => Ok(None),
            };
            let tcp = acceptor(&self.options.tcp)?;
            let tls = acceptor(&self.options.tls)?;
            self.acceptors = Some(Rc::new(Acceptors { unix, tcp, tls }));
        }
        Ok(())
    }

    /// Waits for the next connection, unless the maximum is reached.
    fn accept(&mut self, ctx: &mut Context<Self>) {
        let Some(acceptors) = self.acceptors.clone() else {
            return;
        };
        if self.accepting.is_some() {
            return;
        }
        let bounds = ListenBounds {
            connections_max: self.options.services.config.borrow().server.max_connections,
            descriptors_max: self.room,
            relay_descriptors: DESCRIPTORS,
        };
        match self.listening.may_accept(self.clients.len(), &bounds) {
            MayAccept::Yes => {}
            MayAccept::Full => {
                warn_repeating!(self.log, self.full,
                    "maximum number of clients reached"; "limit" => bounds.connections_max,
                    "effect" => "more clients wait to be accepted",
                    "remedy" => "raise [server] max_connections");
                return;
            }
            // The oldest idle client makes room for a new one.
            MayAccept::MakeRoom => {
                if !self.clients.end_an_idle_one() {
                    let error = "descriptors are reserved for children and the store";
                    return self.pause(&io::Error::other(error), ctx);
                }
            }
        }
        let next = async move { acceptors.accept().await }.into_actor(self);
        self.accepting = Some(ctx.spawn(next.map(|accepted, listener, ctx| {
            listener.accepting = None;
            match accepted {
                Ok((Stream::Tcp(tcp), true)) => listener.shake_hands(tcp, ctx),
                Ok((stream, _)) => listener.start_client(stream, ctx),
                Err(error) => return listener.pause(&error, ctx),
            }
            listener.accept(ctx);
        })));
    }

    fn pause(&mut self, error: &io::Error, ctx: &mut Context<Self>) {
        let pause = self.pause.after(error).into_actor(self);
        self.accepting = Some(ctx.spawn(pause.map(|(), listener, ctx| {
            listener.accepting = None;
            listener.accept(ctx);
        })));
    }

    /// Serves a client after its TLS handshake.
    fn shake_hands(&mut self, tcp: TcpStream, ctx: &mut Context<Self>) {
        self.listening.handshake_begun();
        let certificate = Arc::clone(&self.options.certificate);
        let handshake = separately(async move { encrypt(tcp, &certificate).await });
        let handshake = async move { handshake.await? }.into_actor(self);
        ctx.spawn(handshake.map(|shaken, listener, ctx| {
            let is_served = listener.listening.handshake_ended();
            match shaken {
                Ok((stream, relay)) if is_served => {
                    listener.start_client(stream, ctx);
                    listener.relay(relay, ctx);
                }
                Ok(_) => {}
                Err(error) => debug!(listener.log, "TLS handshake failed"; "error" => %error),
            }
            listener.accept(ctx);
        }));
    }

    fn relay(&mut self, relay: Relay, ctx: &mut Context<Self>) {
        self.listening.relay_begun();
        let write_timeout = self.options.services.config.borrow().server.request_timeout;
        let relaying = separately(relay.run(write_timeout)).into_actor(self);
        ctx.spawn(relaying.map(|_, listener, ctx| {
            listener.listening.relay_ended();
            listener.accept(ctx);
            listener.finish_shutdown(ctx);
        }));
    }

    fn start_client(&mut self, stream: Stream, ctx: &mut Context<Self>) {
        let services = &self.options.services;
        let client = Client::serve(
            stream,
            Rc::clone(services),
            &services.log,
            None,
            PidGuard::new(),
        );
        self.clients.add(client, ctx.address().recipient());
    }

    fn finish_shutdown(&mut self, ctx: &mut Context<Self>) {
        if self.listening.has_finished(self.clients.len()) {
            self.pid_guard.shut_down(ctx);
        }
    }
}

impl Actor for Listener {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.room = machine_bounds::connections_max(usize::MAX);
        if let Err(error) = self.listen() {
            error!(self.log, "cannot listen"; "error" => %error);
            let reason = ExitReason::Failed(format!("cannot listen: {error}"));
            return self.pid_guard.end(reason, ctx);
        }
        let Self { options, log, .. } = &*self;
        let others = [&options.tcp, &options.tls].into_iter().flatten();
        for bound in [&options.socket].into_iter().chain(others) {
            info!(log, "listening"; "listen" => %bound);
        }
        changes::follow(self.options.services.config.clone(), ctx, Self::accept);
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

/// Accepts no further clients or requests; open requests may finish, unless the stop is immediate.
impl Handler<Stop> for Listener {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        self.listening.stop(msg.now);
        if let Some(accepting) = self.accepting.take() {
            ctx.cancel_future(accepting);
        }
        self.acceptors = None;
        self.options.socket.close();
        [&self.options.tcp, &self.options.tls]
            .into_iter()
            .flatten()
            .for_each(|bound| bound.close());
        self.options.services.refuse_waiters();
        info!(self.log, "stopped listening"; "count" => self.clients.len());
        self.clients.stop(msg.now);
        self.finish_shutdown(ctx);
    }
}
