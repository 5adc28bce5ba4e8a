//! HTTP: CouchDB's paths that belong to the pool, and functions by POST.
//!
//! SUMMARY   [`server`] makes an actix-web server on threads of its own; what a request wants of the
//!           pool goes through the [`Gateway`], once there and once back.
//! PROMISES  Every answer is JSON with a content type, errors are `{"error", "reason"}` with CouchDB's
//!           codes. A client that goes away in the middle takes its work with it.
//! CALLED    By [`crate::actors::http_server`].
//! SOURCE    chttpd, chttpd_node, chttpd_misc, chttpd_auth.
//! LIMITS    No TLS and no HTTP/2: a proxy in front does these. A request that is no HTTP gets a bare
//!           400 from the server below.

mod access;
mod answer;
mod body;
mod config_api;
mod connections;
mod dashboard;
mod guard;
mod info;
mod line_stream;
mod list_stream;
mod map_stream;
mod origin;
mod outgoing;
mod params;
mod pools_api;
mod progress;
mod query;
mod replicate;
mod replicator;
mod request;
mod routes;
mod scheduler_api;
mod session_api;
mod tasks;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::HttpService;
use actix_http::error::DispatchError;
use actix_service::{IntoServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::dev::{AppConfig, Server};
use actix_web::{App, web};
use slog::Logger;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::actors::gate::Gateway;
use crate::actors::replicator_api::ReplicatorApi;
use crate::auth::Authority;
use crate::config::Config;
use crate::in_flight::InFlight;
use crate::machine_bounds::connections_max;
use crate::metrics::Metrics;
use connections::Connections;
use guard::{Connection, Guarded, HEAD_WAIT, KEEP_ALIVE};
use tasks::Tasks;

/// Threads that read requests and write answers. The work is done on the pool's arbiter, so that
/// one keeps up with it; a second one keeps small requests going beside large bodies.
const WORKERS: usize = 2;

/// How long a client may take to close a connection that is over.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// Threads of each worker for passwords; [`crate::auth`] has the stricter bound.
const BLOCKING_THREADS: usize = 2;

/// What all requests share.
pub struct Shared {
    /// The way to the pool.
    pub gateway: Gateway,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<Config>>,
    /// Who is let in.
    pub authority: Arc<Authority>,
    /// What the service counts.
    pub metrics: Metrics,
    /// The log.
    pub log: Logger,
    /// Where the server listens.
    pub address: SocketAddr,
    /// Replications: documents and jobs.
    pub replications: ReplicatorApi,
    tasks: Tasks,
    /// The memory of requests and answers in flight.
    in_flight: Arc<InFlight>,
    stopping: watch::Sender<bool>,
}

impl Shared {
    /// Gathers what requests are answered with.
    #[allow(
        clippy::too_many_arguments,
        reason = "what requests are answered with, named by its types"
    )]
    pub(crate) fn new(
        gateway: Gateway,
        config: watch::Receiver<Arc<Config>>,
        authority: Arc<Authority>,
        metrics: Metrics,
        address: SocketAddr,
        replications: ReplicatorApi,
        in_flight: Arc<InFlight>,
        log: Logger,
    ) -> Self {
        Self {
            gateway,
            config,
            authority,
            metrics,
            log,
            address,
            replications,
            tasks: Tasks::default(),
            in_flight,
            stopping: watch::Sender::new(false),
        }
    }

    /// Says from now on that the service is about to end.
    pub fn begin_stop(&self) {
        self.stopping.send_replace(true);
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Returns what tells that the service is about to end.
    fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.borrow())
    }
}

/// Connections that each worker may have beyond those that there may be: they are on their way in or
/// out.
const IN_PASSING: usize = 8;

/// Makes a server, which runs as long as it is polled. Starts its threads when it is polled first.
///
/// # Errors
/// The system refuses the listener.
pub fn server(listener: TcpListener, shared: Arc<Shared>) -> io::Result<Server> {
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
            .default_service(web::to(routes::route));
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
        // Whoever stops the service has the clock; this is only its last resort.
        .shutdown_timeout(grace.as_secs().saturating_add(1))
        .listen("http", listener, make)?;
    Ok(server.run())
}

/// Finds a connection its place.
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

/// What a client is told for whom there is no place.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\
    Connection: close\r\n\r\n";
