//! HttpServer: runs the HTTP server as a part of the service.
//!
//! SUMMARY   Starts actix-web on threads of its own, and ends with it: gracefully or now.
//! PROMISES  When it has ended, the address is free and no request is open. Idle connections are closed as
//!           soon as it is told to stop; open requests may finish.
//! CALLED    Started and stopped by the supervisor.
//! LIMITS    With connections open, a graceful stop takes up to a second longer than the last
//!           request: the server looks once a second whether they are gone.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_http::HttpService;
use actix_http::error::DispatchError;
use actix_service::{IntoServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::dev::{AppConfig, Server, ServerHandle};
use actix_web::middleware::from_fn;
use actix_web::{App, web};
use slog::{Logger, error, info, o, warn};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::connections::Connections;
use super::guard::{Connection, Guarded, HEAD_WAIT, KEEP_ALIVE};
use super::{HttpContext, entrance, routes};
use crate::actors::listener::bound::Bound;
use crate::config::Config;
use crate::machine_bounds::connections_max;
use crate::otp::pid::{ExitReason, Pid, PidGuard};
use crate::otp::supervisor::Stop;

/// Threads that read requests and write answers. The work is done on the pool's arbiter, so that
/// one keeps up with it; a second one keeps small requests going beside large bodies.
const WORKERS: usize = 2;

/// The time between the end of accepting and the order to stop. The library's accepting thread hears of a stop
/// later than the workers, and panics if it has accepted a connection when no worker is left.
const ACCEPTING_ENDS: Duration = Duration::from_millis(20);

/// How long a client may take to close a connection that is over.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// Threads of each worker for passwords; [`crate::auth`] has the stricter bound.
const BLOCKING_THREADS: usize = 2;

/// What an HTTP server needs.
#[derive(Clone)]
pub(crate) struct HttpOptions {
    /// Where it listens.
    pub(crate) bound: Rc<Bound>,
    /// What requests are answered with.
    pub(crate) shared: Arc<HttpContext>,
}

/// Runs the HTTP server.
pub(crate) struct HttpServer {
    options: HttpOptions,
    running: Option<(SpawnHandle, ServerHandle)>,
    log: Logger,
    pid_guard: PidGuard,
}

impl HttpServer {
    /// Makes a server.
    pub(crate) fn new(options: HttpOptions) -> Self {
        Self {
            log: options.shared.log.new(o!("component" => "http")),
            options,
            running: None,
            pid_guard: PidGuard::new(),
        }
    }

    /// Returns the name by which its life can be watched.
    pub(crate) fn pid(&self) -> Pid {
        self.pid_guard.pid()
    }

    fn listen(&self) -> io::Result<Option<Server>> {
        let listener = self.options.bound.duplicate()?;
        listener
            .map(|listener| listen(listener.into(), Arc::clone(&self.options.shared)))
            .transpose()
    }

    fn end(&mut self, reason: ExitReason, ctx: &mut Context<Self>) {
        self.pid_guard.ending(reason);
        ctx.stop();
    }
}

impl Actor for HttpServer {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let server = match self.listen() {
            Ok(Some(server)) => server,
            Ok(None) => return self.end(ExitReason::Shutdown, ctx),
            Err(error) => {
                error!(self.log, "cannot listen"; "error" => %error);
                let reason = ExitReason::Failed(format!("cannot listen: {error}"));
                return self.end(reason, ctx);
            }
        };
        let address = self.options.shared.address;
        info!(self.log, "listening"; "listen" => format!("http://{address}/"));
        if self.options.shared.authority.is_open() {
            warn!(self.log, "nobody has to log in over HTTP";
                "effect" => "whoever can reach the HTTP address from this machine may do everything",
                "remedy" => "leave [server] open out");
        }
        let handle = server.handle();
        let serving = server.into_actor(self).map(|ended, server, ctx| {
            let reason = match ended {
                Ok(()) => ExitReason::Shutdown,
                Err(error) => ExitReason::Failed(format!("the HTTP server failed: {error}")),
            };
            server.end(reason, ctx);
        });
        let sampling = super::history::sample(Arc::clone(&self.options.shared));
        ctx.spawn(sampling.into_actor(self));
        self.running = Some((ctx.spawn(serving), handle));
    }
}

/// Stops accepting, and ends when open requests have finished, or at once.
impl Handler<Stop> for HttpServer {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        self.options.shared.stopping.send_replace(true);
        self.options.bound.close();
        let Some((serving, handle)) = &self.running else {
            return self.end(ExitReason::Shutdown, ctx);
        };
        if msg.now {
            // Dropping the server is what ends it at once, also in the middle of a graceful stop.
            ctx.cancel_future(*serving);
            info!(self.log, "stopped listening");
            return self.end(ExitReason::Shutdown, ctx);
        }
        info!(self.log, "stopped listening");
        // Orders are sent at once; that the server has ended is told by its own future.
        drop(handle.pause());
        let handle = handle.clone();
        ctx.run_later(ACCEPTING_ENDS, move |_, _| drop(handle.stop(true)));
    }
}

/// Connections that each worker may have beyond those that there may be: they are on their way in or
/// out.
const IN_PASSING: usize = 8;

/// Makes a server, which runs as long as it is polled. Starts its threads when it is polled first.
///
/// # Errors
/// The system refuses the listener.
fn listen(listener: TcpListener, shared: Arc<HttpContext>) -> io::Result<Server> {
    let (wanted, grace) = {
        let config = shared.config.borrow();
        (config.server.max_connections, config.server.shutdown_grace)
    };
    let connections = Connections::new(connections_max(wanted));
    let address = shared.address;
    let builder = Server::build();
    let ending = builder.graceful_shutdown_signal();
    let per_worker = connections.max().div_ceil(WORKERS) + IN_PASSING;
    let make = move || {
        let app = App::new()
            .app_data(web::Data::from(Arc::clone(&shared)))
            .configure(routes::routes)
            .wrap(from_fn(entrance::serve));
        let app = app
            .into_factory()
            .map_err(|error: actix_web::Error| error.error_response());
        let app = map_config(app, |()| AppConfig::default());
        let ending = ending.clone();
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let ending = ending.clone();
                async move { ending.notified().await }
            })
            .keep_alive(KEEP_ALIVE)
            .client_request_timeout(HEAD_WAIT)
            .client_disconnect_timeout(CLOSE_WAIT)
            // A client that closes its side is gone: its request ends, and what it held comes back.
            .h1_allow_half_closed(false)
            .local_addr(address)
            .on_connect_ext(|socket: &Guarded, data| {
                data.insert(Rc::clone(socket.connection()));
            })
            .h1(app);
        let (connections, config) = (Arc::clone(&connections), shared.config.clone());
        let let_in = fn_service(move |stream: TcpStream| {
            std::future::ready(let_in(stream, &connections, &config))
        });
        let_in.and_then(http)
    };
    let server = builder
        .workers(WORKERS)
        .disable_signals()
        .max_concurrent_connections(per_worker)
        .worker_max_blocking_threads(BLOCKING_THREADS)
        // The supervisor has the deadline; this one is the last resort.
        .shutdown_timeout(grace.as_secs().saturating_add(1))
        .listen("http", listener, make)?;
    Ok(server.run())
}

/// Takes a place for a connection.
fn let_in(
    stream: TcpStream,
    connections: &Arc<Connections>,
    config: &watch::Receiver<Arc<Config>>,
) -> Result<(Guarded, Option<SocketAddr>), DispatchError> {
    // Fails only where the client has gone.
    let peer = stream.peer_addr()?;
    // Answers are written whole, or as large as they are ready.
    stream.set_nodelay(true)?;
    let Some(place) = connections.enter(peer.ip()) else {
        // As much as fits the empty buffer of a new connection; nobody may be there to read it.
        let _ = stream.try_write(BUSY);
        return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
    };
    let connection = Connection::new(place, config.clone());
    Ok((Guarded::new(stream, connection), Some(peer)))
}

/// The answer to a client for which there is no place.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\
    Connection: close\r\n\r\n";
