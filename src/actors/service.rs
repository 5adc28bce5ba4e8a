//! Service: a socket with a pool behind it; each connection is lent one process.
//!
//! SUMMARY   Accepts a connection when admission finds that a process is or can be available, and starts a client
//!           that is lent one for the connection's lifetime.
//! PROMISES  Decides nothing: [`accept`] consults [`policy::admission`] after every change of the pool.
//!           Connections not yet accepted wait in the system's backlog; none is lost. A removed service closes its
//!           socket last and answers connections still waiting ([`leaving`]), unless the program ends and was passed
//!           the socket: the next program then serves them.
//! CALLED    By the service manager, one for each `[services.NAME]`.
//! SOURCE    Postfix master: a line in master.cf.

pub mod accept;
pub mod claims;
mod leaving;
pub mod queue_place;
pub mod socket;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use slog::{Logger, error, info, o};

use crate::actors::changes;
use crate::actors::client::stream::Stream;
use crate::actors::client::{Client, ClientContext, EndCount, Lending};
use crate::actors::listener::bound::Acceptor;
use crate::actors::listener::connections::Connections;
use crate::config::{ServiceConfig, language_name};
use crate::metrics::{Closed, ServicePlace, ServiceState};
use crate::otp::{Down, ExitReason, Pid, PidGuard, Stop};
use accept::Entrance;
use queue_place::QueuePlace;
use socket::ServiceSocket;

/// Changes the settings of a running service; existing connections keep theirs.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Reconfigure(pub Arc<ServiceConfig>);

/// Returns where a service listens, for display.
fn place(socket: &ServiceSocket, settings: &ServiceConfig) -> ServicePlace {
    ServicePlace {
        listen: socket.shown().to_owned(),
        pool: language_name(settings.pool_name().unwrap_or_default()),
        local_only: settings.is_local_only(),
    }
}

/// One service.
pub(crate) struct Service {
    /// Its section of the configuration.
    settings: Arc<ServiceConfig>,
    /// Where it listens.
    socket: Rc<ServiceSocket>,
    /// The context of its clients.
    services: Rc<ClientContext>,
    acceptor: Option<Rc<Acceptor>>,
    entrance: Rc<Entrance>,
    connections: Connections,
    /// The task that waits for a connection.
    accepting: Option<SpawnHandle>,
    stopping: bool,
    state: Arc<ServiceState>,
    log: Logger,
    pid_guard: PidGuard,
}

impl Service {
    /// Makes a service.
    pub fn new(
        name: &str,
        settings: Arc<ServiceConfig>,
        socket: Rc<ServiceSocket>,
        services: Rc<ClientContext>,
    ) -> Self {
        let log = services
            .log
            .new(o!("component" => "service", "service" => name.to_owned()));
        let state = services
            .metrics
            .show_service(name, place(&socket, &settings));
        Self {
            entrance: Entrance::new(
                Rc::clone(&services),
                &settings,
                Arc::clone(&state),
                log.clone(),
            ),
            settings,
            socket,
            services,
            state,
            acceptor: None,
            connections: Connections::default(),
            accepting: None,
            stopping: false,
            log,
            pid_guard: PidGuard::new(),
        }
    }

    /// Returns the pid by which it can be monitored.
    pub fn pid(&self) -> Pid {
        self.pid_guard.pid()
    }

    /// Waits for the next connection that may be accepted, replacing an earlier wait.
    fn accept(&mut self, ctx: &mut Context<Self>) {
        let Some(acceptor) = self.acceptor.clone() else {
            return;
        };
        let next = Rc::clone(&self.entrance)
            .next(acceptor)
            .into_actor(self)
            .map(|(stream, place), service, ctx| {
                service.accepting = None;
                service.start_connection(stream, place, ctx);
                service.accept(ctx);
            });
        if let Some(before) = self.accepting.replace(ctx.spawn(next)) {
            ctx.cancel_future(before);
        }
    }

    fn start_connection(
        &mut self,
        stream: Stream,
        place: Option<QueuePlace>,
        ctx: &mut Context<Self>,
    ) {
        let settings = &self.settings;
        let client_timeout = if self.entrance.stress.get() {
            settings.client_timeout_stress
        } else {
            settings.client_timeout
        };
        let unless_zero = |time: Duration| (!time.is_zero()).then_some(time);
        let (pid_guard, answer) = place.map(QueuePlace::hand_over).unzip();
        let lending = Lending {
            want: self.entrance.want(),
            prompt_timeout: unless_zero(settings.prompt_timeout),
            client_timeout: unless_zero(client_timeout),
            session_timeout: unless_zero(settings.session_timeout),
            // A connection with a place in the queue already has its claim.
            claim: answer.is_none().then(|| self.entrance.claims.claim()),
            answer,
            end: EndCount::new(Arc::clone(self.state.metrics())),
        };
        let client = Client::serve(
            stream,
            Rc::clone(&self.services),
            &self.log,
            Some(lending),
            pid_guard.unwrap_or_else(PidGuard::new),
        );
        self.connections.add(client, ctx.address().recipient());
    }

    /// Answers later connections with the reason why the service has left this address.
    fn turn_away(&mut self, ctx: &mut Context<Self>) {
        let Some(acceptor) = self.acceptor.take() else {
            return;
        };
        // Ends with the service.
        ctx.spawn(leaving::turn_away(Rc::clone(&self.socket), acceptor).into_actor(self));
    }

    /// Ends once no connection is left, and releases the socket last.
    fn finish_removal(&mut self, ctx: &mut Context<Self>) {
        if self.stopping && self.connections.is_empty() {
            leaving::dismiss_waiting(&self.socket);
            info!(self.log, "stopped listening"; "listen" => self.socket.shown());
            self.pid_guard.shut_down(ctx);
        }
    }
}

impl Actor for Service {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        match self.socket.bound.acceptor() {
            Ok(acceptor) => self.acceptor = acceptor.map(Rc::new),
            Err(error) => {
                error!(self.log, "cannot listen"; "error" => %error);
                let reason = ExitReason::Failed(format!("cannot listen: {error}"));
                return self.pid_guard.end(reason, ctx);
            }
        }
        info!(self.log, "listening"; "listen" => self.socket.shown());
        changes::follow(self.services.drain.follow(), ctx, Self::accept);
        self.accept(ctx);
    }
}

impl Handler<Down> for Service {
    type Result = ();

    fn handle(&mut self, msg: Down, ctx: &mut Self::Context) {
        self.connections.remove(&msg);
        self.finish_removal(ctx);
    }
}

impl Handler<Reconfigure> for Service {
    type Result = ();

    fn handle(&mut self, msg: Reconfigure, ctx: &mut Self::Context) {
        let moved = self.entrance.reconfigure(&msg.0);
        self.settings = msg.0;
        self.state.set_place(place(&self.socket, &self.settings));
        if moved {
            self.accept(ctx);
        }
    }
}

/// Ends the service: accepts no more connections; existing ones finish open requests or are cut, and return their
/// processes; the socket is closed last. Safe to repeat.
impl Handler<Stop> for Service {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        self.stopping = true;
        if let Some(accepting) = self.accepting.take() {
            ctx.cancel_future(accepting);
        }
        self.entrance.close(Closed::Stopping);
        self.turn_away(ctx);
        self.connections.stop(msg.now);
        self.finish_removal(ctx);
    }
}
