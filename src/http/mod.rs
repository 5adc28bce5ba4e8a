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
mod dashboard;
mod info;
mod line_stream;
mod list_stream;
mod map_stream;
mod origin;
mod params;
mod pools_api;
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
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::{App, HttpServer, web};
use slog::Logger;
use tokio::sync::watch;

use crate::actors::gate::Gateway;
use crate::auth::Authority;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::replicator::Replications;
use body::Budget;
use tasks::Tasks;

/// Threads that read requests and write answers. The work is done on the pool's arbiter, so that
/// one keeps up with it; a second one keeps small requests going beside large bodies.
const WORKERS: usize = 2;

/// How long a client may take to send the head of its first request.
const HEAD_WAIT: Duration = Duration::from_secs(5);

/// How long a connection without a request is kept.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

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
    pub replications: Replications,
    tasks: Tasks,
    budget: Budget,
    stopping: watch::Sender<bool>,
}

impl Shared {
    /// Gathers what requests are answered with.
    pub fn new(
        gateway: Gateway,
        config: watch::Receiver<Arc<Config>>,
        authority: Arc<Authority>,
        metrics: Metrics,
        address: SocketAddr,
        replications: Replications,
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
            budget: Budget::default(),
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

/// Makes a server, which runs as long as it is polled. Starts its threads when it is polled first.
///
/// # Errors
/// The system refuses the listener.
pub fn server(listener: TcpListener, shared: Arc<Shared>) -> io::Result<Server> {
    let (connections, grace) = {
        let config = shared.config.borrow();
        (config.server.max_connections, config.server.shutdown_grace)
    };
    let make = move || {
        App::new()
            .app_data(web::Data::from(Arc::clone(&shared)))
            .default_service(web::to(routes::route))
    };
    let server = HttpServer::new(make)
        .workers(WORKERS)
        .disable_signals()
        .max_connections(connections.div_ceil(WORKERS))
        .worker_max_blocking_threads(BLOCKING_THREADS)
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(HEAD_WAIT)
        .client_disconnect_timeout(CLOSE_WAIT)
        // A client that closes its side is gone: its request ends, and what it held comes back.
        .h1_allow_half_closed(false)
        // Whoever stops the service has the clock; this is only its last resort.
        .shutdown_timeout(grace.as_secs().saturating_add(1))
        .listen(listener)?;
    Ok(server.run())
}
