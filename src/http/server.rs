//! HttpServer: runs the HTTP server within the service.
//!
//! SUMMARY   Starts actix-web on its own threads, and ends when actix-web ends, gracefully or at once.
//! PROMISES  When it has ended, the address is free and no request is open. Idle connections are closed
//!           [`LAST_REQUESTS_MAX`] after the order to stop; open requests may finish.
//! CALLED    Started and stopped by the supervisor.
//! LIMITS    A graceful stop with open connections may end up to a second late: the server checks once a second
//!           whether they are closed.

use std::future::ready;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_http::HttpService;
use actix_http::error::DispatchError;
use actix_service::{
    IntoServiceFactory, ServiceFactory, ServiceFactoryExt, fn_service, map_config,
};
use actix_web::dev::{AppConfig, Server, ServerHandle};
use actix_web::middleware::from_fn;
use actix_web::{App, web};
use slog::{Logger, error, info, o, warn};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::connections::{Connections, Peer};
use super::guard::{Connection, Guarded, HEAD_WAIT, KEEP_ALIVE, Way};
use super::{HttpContext, entrance, routes};
use crate::actors::client::LAST_REQUESTS_MAX;
use crate::actors::client::peer::local_holder;
use crate::actors::listener::bound::Bound;
use crate::machine_bounds::connections_max;
use crate::otp::{ExitReason, PidGuard, Stop};
use crate::tls::{Certificate, client_name};
use child::watches::{self, WATCHES_MIN};

/// Threads that read requests and write answers. The pool's arbiter does the work, so one suffices; a second one lets
/// small requests proceed alongside large bodies.
const WORKERS: usize = 2;

/// Minimum time between the last accept and the order to stop. The library's accepting thread is notified of a
/// stop later than the workers, and panics if it has accepted a connection when no worker is left. With open
/// connections, [`LAST_REQUESTS_MAX`] is added: stopping workers drop requests that they have not begun to serve.
const ACCEPTING_ENDS: Duration = Duration::from_millis(20);

/// How long a client may take to close a completed connection.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// Threads of each worker that check passwords; [`crate::auth`] has the stricter limit.
const BLOCKING_THREADS: usize = 2;

/// The parts of an HTTP server.
#[derive(Clone)]
pub(crate) struct HttpOptions {
    /// The Unix socket for users of this machine.
    pub local: Rc<Bound>,
    /// The address without TLS, if any.
    pub plain: Option<Rc<Bound>>,
    /// The address with TLS, if any.
    pub encrypted: Option<Rc<Bound>>,
    /// The certificate for TLS.
    pub certificate: Arc<Certificate>,
    /// Shared state of all request handlers.
    pub shared: Arc<HttpContext>,
}

struct Running {
    serving: SpawnHandle,
    handle: ServerHandle,
    connections: Arc<Connections>,
}

pub(crate) struct HttpServer {
    options: HttpOptions,
    running: Option<Running>,
    log: Logger,
    pid_guard: PidGuard,
}

impl HttpServer {
    pub fn new(options: HttpOptions, pid_guard: PidGuard) -> Self {
        Self {
            log: options.shared.log.new(o!("component" => "http")),
            options,
            running: None,
            pid_guard,
        }
    }

    /// Returns a server; `None` if the sockets are already closed.
    fn listen(&self) -> io::Result<Option<(Server, Arc<Connections>)>> {
        // Without enough watches, the library panics when it starts its threads.
        watches::require(WATCHES_MIN)?;
        let duplicate = |bound: &Option<Rc<Bound>>| {
            Ok::<_, io::Error>(
                bound
                    .as_ref()
                    .map(|bound| bound.duplicate())
                    .transpose()?
                    .flatten()
                    .map(TcpListener::from),
            )
        };
        let Some(local) = self.options.local.duplicate()? else {
            return Ok(None);
        };
        let plain = duplicate(&self.options.plain)?;
        let encrypted = duplicate(&self.options.encrypted)?;
        let shared = Arc::clone(&self.options.shared);
        let wanted = shared.config.borrow().server.max_connections;
        let connections = Connections::new(connections_max(wanted));
        let listening = Listening {
            shared,
            certificate: Arc::clone(&self.options.certificate),
            connections: Arc::clone(&connections),
        };
        Ok(Some((
            listening.listen(local.into(), plain, encrypted)?,
            connections,
        )))
    }

    /// Returns the TCP addresses with their schemes.
    fn bound(&self) -> impl Iterator<Item = (&'static str, &Bound)> {
        let plain = self.options.plain.as_deref().map(|bound| ("http", bound));
        let encrypted = self.options.encrypted.as_deref();
        plain
            .into_iter()
            .chain(encrypted.map(|bound| ("https", bound)))
    }
}

impl Actor for HttpServer {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let (server, connections) = match self.listen() {
            Ok(Some(listening)) => listening,
            Ok(None) => return self.pid_guard.shut_down(ctx),
            Err(error) => {
                error!(self.log, "cannot listen"; "error" => %error);
                let reason = ExitReason::Failed(format!("cannot listen: {error}"));
                return self.pid_guard.end(reason, ctx);
            }
        };
        info!(self.log, "listening"; "listen" => %self.options.local);
        for (scheme, bound) in self.bound() {
            let address = bound.tcp_address();
            let shown = address.map(|address| format!("{scheme}://{address}/"));
            info!(self.log, "listening"; "listen" => shown);
        }
        if self.options.shared.authority.is_open() {
            warn!(self.log, "nobody has to log in over HTTP";
                "effect" => "every user of this machine who can reach the HTTP address may do everything",
                "remedy" => "remove [server] open");
        }
        let handle = server.handle();
        let serving = server.into_actor(self).map(|ended, server, ctx| {
            let reason = match ended {
                Ok(()) => ExitReason::Shutdown,
                Err(error) => {
                    let error = watches::named(error);
                    ExitReason::Failed(format!("the HTTP server failed: {error}"))
                }
            };
            server.pid_guard.end(reason, ctx);
        });
        ctx.spawn(super::history::sample(Arc::clone(&self.options.shared)).into_actor(self));
        self.running = Some(Running {
            serving: ctx.spawn(serving),
            handle,
            connections,
        });
    }
}

/// Stops accepting, and ends when open requests have finished, or at once.
impl Handler<Stop> for HttpServer {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        self.options.shared.stopping.send_replace(true);
        self.options.local.close();
        self.bound().for_each(|(_, bound)| bound.close());
        let Some(running) = &self.running else {
            return self.pid_guard.shut_down(ctx);
        };
        info!(self.log, "stopped listening");
        if msg.now {
            // Dropping the server ends it at once, even during a graceful stop.
            ctx.cancel_future(running.serving);
            return self.pid_guard.shut_down(ctx);
        }
        // The order takes effect immediately; the server's own future shows when it has ended.
        let handle = running.handle.clone();
        drop(handle.pause());
        let connections = Arc::clone(&running.connections);
        ctx.run_later(ACCEPTING_ENDS, move |_, ctx| {
            // An accepted client is about to send a request, and should get an answer.
            let wait = if connections.are_open() {
                LAST_REQUESTS_MAX
            } else {
                Duration::ZERO
            };
            ctx.run_later(wait, move |_, _| drop(handle.stop(true)));
        });
    }
}

/// Connections of each worker beyond the maximum, for those being accepted or closed.
const IN_PASSING: usize = 8;

/// A connection with its peer, if it has a slot.
type Accepted<S> = Result<(Guarded<S>, Option<SocketAddr>), DispatchError>;

/// State from which each thread makes its services.
#[derive(Clone)]
struct Listening {
    shared: Arc<HttpContext>,
    certificate: Arc<Certificate>,
    connections: Arc<Connections>,
}

impl Listening {
    /// Makes a server, which runs while polled; its threads start at the first poll.
    ///
    /// # Errors
    /// The system refuses a listener.
    fn listen(
        self,
        local: UnixListener,
        plain: Option<TcpListener>,
        encrypted: Option<TcpListener>,
    ) -> io::Result<Server> {
        let grace = self.shared.config.borrow().server.shutdown_grace;
        let builder = Server::build();
        let ending = builder.graceful_shutdown_signal();
        let ending = move || {
            let ending = ending.clone();
            async move { ending.notified().await }
        };
        let per_worker = self.connections.max.div_ceil(WORKERS) + IN_PASSING;
        let mut builder = builder
            .workers(WORKERS)
            .disable_signals()
            .max_concurrent_connections(per_worker)
            .worker_max_blocking_threads(BLOCKING_THREADS)
            // The supervisor has the deadline; this is the last resort.
            .shutdown_timeout(grace.as_secs().saturating_add(1));
        let (listening, in_time) = (self.clone(), ending.clone());
        builder = builder.listen_uds("local", local, move || {
            let serving = listening.clone();
            let let_in = fn_service(move |stream| ready(serving.let_in_local(stream)));
            let_in.and_then(listening.service(in_time.clone()))
        })?;
        if let Some(listener) = plain {
            let (listening, ending) = (self.clone(), ending.clone());
            builder = builder.listen("http", listener, move || {
                let serving = listening.clone();
                let let_in = fn_service(move |stream| ready(serving.let_in(stream, Way::Plain)));
                let_in.and_then(listening.service(ending.clone()))
            })?;
        }
        if let Some(listener) = encrypted {
            builder = builder.listen("https", listener, move || {
                let serving = self.clone();
                let let_in = fn_service(move |stream| serving.clone().encrypt(stream));
                let_in.and_then(self.service(ending.clone()))
            })?;
        }
        Ok(builder.run())
    }

    /// Makes the service for a listener's connections.
    fn service<S, F, E>(
        &self,
        ending: F,
    ) -> impl ServiceFactory<
        (Guarded<S>, Option<SocketAddr>),
        Config = (),
        Response = (),
        Error = DispatchError,
        InitError = (),
    > + use<S, F, E>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
        F: Fn() -> E + Send + Sync + 'static,
        E: Future<Output = ()> + 'static,
    {
        let app = App::new()
            .app_data(web::Data::from(Arc::clone(&self.shared)))
            .configure(routes::routes)
            .wrap(from_fn(entrance::serve))
            .into_factory()
            .map_err(|error: actix_web::Error| error.error_response());
        let shared = Arc::clone(&self.shared);
        let expected = fn_service(move |request| {
            let shared = Arc::clone(&shared);
            async move { entrance::expected(request, &shared).await }
        });
        HttpService::build()
            .graceful_shutdown_signal(ending)
            .expect(expected)
            .keep_alive(KEEP_ALIVE)
            // [`Guarded`] enforces the deadline for heads.
            .client_request_timeout(Duration::ZERO)
            .client_disconnect_timeout(CLOSE_WAIT)
            // A client that closes its side is gone: its request ends, and its processes are returned.
            .h1_allow_half_closed(false)
            .on_connect_ext(|socket: &Guarded<S>, data| {
                data.insert(Rc::clone(&socket.connection));
            })
            .h1(map_config(app, |()| AppConfig::default()))
    }

    /// Takes a slot for a connection.
    fn let_in(&self, stream: TcpStream, way: Way) -> Accepted<TcpStream> {
        // Fails only if the client has gone.
        let peer = stream.peer_addr()?;
        // Answers are written whole, or in large pieces.
        stream.set_nodelay(true)?;
        let Some(place) = self.connections.enter(peer.ip().into()) else {
            if matches!(way, Way::Plain) {
                // Fits into the empty buffer of a new connection; the client may not read it.
                let _ = stream.try_write(BUSY);
            }
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        };
        let connection = Connection::new(place, way, self.shared.config.clone());
        Ok((Guarded::new(stream, connection), Some(peer)))
    }

    /// Takes a slot for a connection of the Unix socket.
    fn let_in_local(&self, stream: UnixStream) -> Accepted<UnixStream> {
        let holder = local_holder(&stream, &self.shared.user_names);
        let Some(place) = self.connections.enter(Peer::User(holder.uid)) else {
            // As in `let_in`.
            let _ = stream.try_write(BUSY);
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        };
        let way = Way::Local(Arc::new(holder));
        let connection = Connection::new(place, way, self.shared.config.clone());
        Ok((Guarded::new(stream, connection), None))
    }

    /// Takes a slot for a connection and starts TLS.
    async fn encrypt(self, stream: TcpStream) -> Accepted<TlsStream<TcpStream>> {
        let (guarded, peer) = self.let_in(stream, Way::Encrypted)?;
        let Guarded {
            stream, connection, ..
        } = guarded;
        let acceptor = self
            .certificate
            .acceptor()
            .ok_or_else(|| io::Error::other("there is no certificate"))?;
        let stream = tokio::select! {
            accepted = timeout(HEAD_WAIT, acceptor.accept(stream)) => {
                accepted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??
            }
            () = connection.closed() => {
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
            }
        };
        if let Some(name) = client_name(stream.get_ref().1) {
            // Set once: by this handshake.
            let _ = connection.certified.set(name);
        }
        Ok((Guarded::new(stream, connection), peer))
    }
}

/// The answer to a client without a slot.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\
    Connection: close\r\n\r\n";
