//! Client: one connection to the service, and everything that it holds.
//!
//! SUMMARY   Reads requests, executes them, writes the replies. To the pool, this actor is the client: its processes
//!           and requests end with it.
//! PROMISES  Every request is answered once, in any order, but prompts to one process in order. Bad input only causes
//!           an error reply. Its loans are returned when it ends, for any reason.
//! CALLED    Started by the listener; used only by its peer.
//! SOURCE    The clients of couch_proc_manager are Erlang processes; here a connection is one.
//! LIMITS    A client's state is not kept: a new connection is a new client.

mod calls;
mod cancel;
mod context;
mod handover;
mod held_max;
mod holding;
mod lent;
mod lines;
mod login;
pub(crate) mod peer;
mod relay;
mod session;
pub(crate) mod stream;
mod ticket;
mod tunnel_end;

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use slog::{Logger, debug, o};

use crate::functions::caller::Caller;
use crate::messages::client_error::ErrorReply;
use crate::messages::pools::ProcRevoked;
use crate::messages::proc_manager::{CallError, Lease};
use crate::messages::process::Fault;
use crate::metrics::{ClientMetrics, LendEnd};
use crate::otp::{Down, ExitReason, Pid, PidGuard, Stop, Tell, Watch};
use child::line_buffer::PiecedLine;
pub(crate) use context::ClientContext;
use holding::Holding;
pub(crate) use lent::{EndCount, Lending, last_line};
use lines::{Input, Lines};
pub(crate) use peer::UserNames;
use relay::Signal;
use session::{Phase, Session, SessionTerms};
use stream::Stream;
use ticket::Ticket;

/// How long requests are still read from a connection after the order to stop.
pub(crate) const LAST_REQUESTS_MAX: Duration = Duration::from_millis(250);

/// A handle to a served connection.
pub(crate) struct ClientHandle {
    /// Its pid.
    pub pid: Pid,
    stop: Recipient<Stop>,
    session: Weak<Session>,
}

impl ClientHandle {
    /// Ends it, at once or after pending calls.
    pub fn stop(&self, now: bool) {
        self.stop.tell(Stop { now });
    }

    /// Ends the connection if it has no requests and no processes. Returns whether it did.
    pub fn end_if_idle(&self) -> bool {
        let session = self.session.upgrade();
        session.is_some_and(|session| session.end_if_idle())
    }
}

/// The meaning of a connection's lines, and the state for them.
enum Mode {
    /// Requests. The session holds the processes that they borrow.
    Requests,
    /// The lines of one process.
    Tunnel(Tunnel),
    /// Nothing: the client speaks over its own pipes.
    Relay(handover::RunningRelay),
}

/// The process whose lines a connection carries.
struct Tunnel {
    process: Rc<Holding>,
    /// The timeout of a line; `None`: that of the process.
    timeout: Option<Duration>,
    /// Whether the client requested a report of its end.
    tells_end: bool,
    _end: Watch,
}

/// One connection.
pub(crate) struct Client {
    session: Rc<Session>,
    mode: Mode,
    /// How long `attach` keeps an idle process.
    attach_idle: Duration,
    /// How long a client of `attach` waits for an answer, unless its `reset` says otherwise.
    attach_patience: Duration,
    /// The process that a connection of a service gets, and its terms.
    lending: Option<Lending>,
    /// `None` once it is closing.
    connected: Option<Connected>,
    log: Logger,
    pid_guard: PidGuard,
}

impl Client {
    /// Starts the actor for a connection; with `lending`, for a connection of a service. `pid_guard` may already have
    /// a place in the pool's queue.
    pub fn serve(
        stream: Stream,
        services: Rc<ClientContext>,
        log: &Logger,
        lending: Option<Lending>,
        pid_guard: PidGuard,
    ) -> ClientHandle {
        let pid = pid_guard.pid();
        let config = Arc::clone(&services.config.borrow());
        let timeout = config.server.request_timeout;
        let (metrics, write_timeout) = match &lending {
            Some(lending) => (lending.metrics(), lending.write_timeout(timeout)),
            None => (services.metrics.clients(), timeout),
        };
        let connected = Connected::new(Arc::clone(&metrics));
        let caller = Caller::in_the_name_of(pid.clone(), services.manager.clone());
        let terms = SessionTerms {
            line_bytes_max: config.server.line_max,
            open: lending.is_some(),
            metrics,
            write_timeout,
        };
        let session = Session::new(stream, services, caller, terms);
        let client = Self {
            session: Rc::clone(&session),
            mode: Mode::Requests,
            attach_idle: config.query_server_config.attach_idle,
            attach_patience: config.couchdb.os_process_timeout,
            lending,
            connected: Some(connected),
            log: log.new(o!("client" => pid.id().0)),
            pid_guard,
        };
        ClientHandle {
            pid,
            stop: client.start().recipient(),
            session: Rc::downgrade(&session),
        }
    }

    fn take_line(&mut self, line: PiecedLine, ctx: &mut Context<Self>) {
        if let Some(expected) = self.session.expected.take() {
            return self.take_over(expected, &line.join(), ctx);
        }
        match &self.mode {
            Mode::Requests if !self.session.is_admitted() => self.take_first(&line.join(), ctx),
            Mode::Requests => calls::take_line(&self.session, line, ctx),
            Mode::Tunnel(tunnel) => {
                self.session.note_activity();
                let ticket = self.session.ticket(None, line.length());
                let line = line.join();
                tunnel.process.prompt(ticket, line, tunnel.timeout, false);
            }
            Mode::Relay(_) => {}
        }
    }

    /// Makes the connection a tunnel to a process; the tunnel ends with the process.
    fn open_tunnel(
        &mut self,
        lease: Lease,
        timeout: Option<Duration>,
        tells_end: bool,
        ctx: &mut Context<Self>,
    ) -> Result<Rc<Holding>, ErrorReply> {
        let end = lease.process.pid.watch(ctx.address().recipient());
        let process = Holding::new(lease);
        self.session.take_within_limit(&process)?;
        self.mode = Mode::Tunnel(Tunnel {
            process: Rc::clone(&process),
            timeout,
            tells_end,
            _end: end,
        });
        Ok(process)
    }

    /// Reports the error, except in a tunnel of `attach`, and ends; further input is discarded.
    fn refuse_long_line(&mut self, ctx: &mut Context<Self>) {
        let limit = self.session.line_bytes_max();
        debug!(self.log, "line too long, connection closed"; "limit" => limit);
        if !self.session.is_admitted() {
            let reason = format!("a line before the login may have at most {limit} bytes");
            return self.turn_away("null", &ErrorReply::unauthorized(reason), ctx);
        }
        self.refuse_line(ErrorReply::line_too_long(limit), ctx);
    }

    fn refuse_line(&mut self, error: ErrorReply, ctx: &mut Context<Self>) {
        if self.lending.is_some() {
            return self.session.end_tunnel(error);
        }
        if !matches!(self.mode, Mode::Tunnel(_)) {
            self.session.push_error("null", &error);
        }
        self.close(ctx);
    }

    /// Reports why the client is refused, and ends.
    fn turn_away(&mut self, id: &str, error: &ErrorReply, ctx: &mut Context<Self>) {
        self.session.push_error(id, error);
        self.close(ctx);
    }

    /// Ends once its last lines are written; further input is discarded.
    fn close(&mut self, ctx: &mut Context<Self>) {
        self.session.flush();
        // Ends after a bounded time.
        actix_rt::spawn(Rc::clone(&self.session).linger());
        let reason = ExitReason::Failed("it was turned away".into());
        self.pid_guard.end(reason, ctx);
    }
}

/// Counts a connection while it exists.
struct Connected(Arc<ClientMetrics>);

impl Connected {
    fn new(metrics: Arc<ClientMetrics>) -> Self {
        metrics.accepted.one();
        metrics.connected.up();
        Self(metrics)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connected.down();
    }
}

impl Actor for Client {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        debug!(self.log, "client connected");
        ctx.add_stream(Lines::new(Rc::clone(&self.session)));
        self.expect_login(ctx);
        self.lend(ctx);
    }
}

impl StreamHandler<Input> for Client {
    fn handle(&mut self, input: Input, ctx: &mut Self::Context) {
        match input {
            Input::Line(line) => self.take_line(line, ctx),
            Input::TooLong => self.refuse_long_line(ctx),
            Input::NoRoom => self.refuse_line(ErrorReply::no_room(), ctx),
        }
    }

    fn finished(&mut self, ctx: &mut Self::Context) {
        debug!(self.log, "client disconnected");
        let over = self.session.phase() == Phase::Over;
        if self.lending.is_some() {
            return if over {
                self.lending_cut(LendEnd::Gone, ctx)
            } else {
                self.end_lending(ctx)
            };
        }
        let (Mode::Tunnel(tunnel), false) = (&self.mode, over) else {
            return self.end_after_notice(over, ctx);
        };
        let (process, session) = (Rc::clone(&tunnel.process), Rc::clone(&self.session));
        let tells_end = tunnel.tells_end;
        let closing = async move {
            let end = process.finish().await;
            if tells_end {
                session.push_raw(&end.line().into());
            }
            if tells_end || !session.is_local() {
                session.linger().await;
            }
        };
        // Takes at most the timeout of a `reset`, plus a bounded time.
        self.end_after(closing, ctx);
    }
}

impl Handler<Stop> for Client {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        match (&self.mode, self.lending.is_some()) {
            (_, true) if msg.now => self.lending_cut(LendEnd::Shutdown, ctx),
            (_, false) if msg.now => {
                if self.session.services.is_stopping() {
                    self.session.tell_of_shutdown();
                }
                // Also while it lingers.
                self.session.end();
            }
            // The client was accepted: its requests, including those about to arrive, are answered. Meanwhile it may
            // hand over its pipes: `end_in_order` checks the mode again.
            (Mode::Requests, _) | (Mode::Tunnel(_), true) => {
                self.session.set_phase(Phase::Last);
                ctx.run_later(LAST_REQUESTS_MAX, |client, _| client.end_in_order());
            }
            (Mode::Tunnel(_), false) | (Mode::Relay(_), _) => self.end_in_order(),
        }
    }
}

/// A process that it holds is revoked: the process's end answers pending prompts.
impl Handler<ProcRevoked> for Client {
    type Result = ();

    fn handle(&mut self, msg: ProcRevoked, _: &mut Self::Context) {
        if self.lending.is_some() {
            let error = ErrorReply::answer(msg.name, &msg.reason, Fault::Host);
            self.session.end_tunnel(error);
        } else if matches!(self.mode, Mode::Requests) {
            self.session.take_away(&msg);
        }
    }
}

impl Client {
    /// Stops reading, and ends once pending requests are answered.
    fn end_in_order(&self) {
        match &self.mode {
            Mode::Relay(relay) => relay.tell(Signal::Stop),
            Mode::Requests | Mode::Tunnel(_) => self.session.shut_down(),
        }
    }

    /// Ends; if the service ends, first reports each process that is still held.
    fn end_after_notice(&mut self, over: bool, ctx: &mut Context<Self>) {
        if !over && self.session.services.is_stopping() {
            self.session.tell_of_shutdown();
        }
        if over || self.session.is_local() && self.session.is_written() {
            return self.end(ctx);
        }
        // On TCP unread input would discard data in flight. Ends after a bounded time.
        self.end_after(Rc::clone(&self.session).linger(), ctx);
    }

    fn end_after(&self, closing: impl Future<Output = ()> + 'static, ctx: &mut Context<Self>) {
        ctx.spawn(wrap_future::<_, Self>(closing).map(|(), client, ctx| client.end(ctx)));
    }

    fn end(&mut self, ctx: &mut Context<Self>) {
        self.session.end();
        // Processes still held were not returned: the client counts as crashed, however its connection ended.
        let reason = ExitReason::Failed("its connection ended".into());
        self.pid_guard.end(reason, ctx);
    }

    /// The process for a tunnel was lent or refused.
    fn attached(
        &mut self,
        ticket: Ticket,
        result: Result<Lease, CallError>,
        end: bool,
        ctx: &mut Context<Self>,
    ) {
        let opened = result
            .map_err(ErrorReply::from)
            .and_then(|lease| self.open_tunnel(lease, Some(Duration::MAX), end, ctx));
        match opened {
            Ok(process) => ticket.ok(&calls::Lent::of(&process, end)),
            Err(error) => ticket.error(&error),
        }
        self.session.resume_reading();
    }
}

/// The process of the tunnel ended: its output is delivered, then the connection closes.
impl Handler<Down> for Client {
    type Result = ();

    fn handle(&mut self, _: Down, _: &mut Self::Context) {
        match &self.mode {
            Mode::Requests => self.session.set_phase(Phase::Closing),
            Mode::Tunnel(tunnel) => self.session.end_tunnel(tunnel.process.shared.gone()),
            Mode::Relay(relay) => relay.tell(Signal::ProcessDown),
        }
    }
}
