//! What all replications share: connections, rate limits, certificates, counters.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use tokio::time::Instant;
use url::Url;

use super::clients::{Clients, Override, Pools, Route};
use super::config::{HttpConfig, HttpConfigError, HttpSettings};
use super::connections::{Connections, ConnectionsMax};
use super::errors::describe;
use super::limiter::Limiter;
use super::pace::{Paces, SlowServer};
use super::{Cause, Endpoint, RequestFailed};
use crate::counters::{Counter, Counters};
use crate::db_updates::Servers;
use crate::endpoint::listening::Listening;
use crate::spec::{EndpointSpec, ProxySpec};

/// The user agent of requests. Operators search logs of CouchDB and proxies for the first word.
const AGENT: &str = concat!(
    "CouchDB-Replicator/",
    env!("CARGO_PKG_VERSION"),
    " (Settee)"
);

/// Shared by all replications of the service. A clone is cheap and shares everything, including the connections,
/// which belong to one thread ([`Http::with_own_connections`]).
#[derive(Clone)]
pub struct Http {
    shared: Arc<Shared>,
    pools: Arc<Mutex<Pools>>,
}

/// Shared by all threads. Locks are held for a few instructions.
struct Shared {
    clients: Mutex<Current>,
    limiter: Mutex<Limiter>,
    paces: Mutex<Paces>,
    servers: Servers,
    connections: Arc<Connections>,
    started: Instant,
    counters: Arc<Counters>,
    logger: slog::Logger,
}

/// The settings of new connections.
struct Current {
    clients: Arc<Clients>,
    /// When files must be read again.
    files_due: Option<std::time::Instant>,
}

impl From<Clients> for Current {
    /// The files of `clients` were just read.
    fn from(clients: Clients) -> Self {
        let config = &clients.config;
        let reads_files = config.verify_ssl_certificates || config.cert_file.is_some();
        let due = || std::time::Instant::now() + config.cacert_reload_interval;
        Self {
            files_due: reads_files.then(due),
            clients: Arc::new(clients),
        }
    }
}

/// A configuration whose files were read; empty if it is in force already.
pub struct PreparedHttp(Option<Clients>);

/// Locks a mutex. A panic under the lock leaves its data intact.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Http {
    /// Creates a handle without opening connections. Reads certificate files, which blocks.
    ///
    /// # Errors
    /// A certificate file cannot be read or used, or a setting is invalid or needs another one.
    pub fn new(config: HttpConfig, logger: &slog::Logger) -> Result<Self, HttpConfigError> {
        Self::beside(Listening::default(), config, logger)
    }

    /// As [`Http::new`], for a program that also listens: replications do not connect to the addresses in `listening`.
    ///
    /// # Errors
    /// See [`Http::new`].
    pub fn beside(
        listening: Listening,
        config: HttpConfig,
        logger: &slog::Logger,
    ) -> Result<Self, HttpConfigError> {
        let connections = Arc::<Connections>::default();
        let clients = Clients::new(config, listening, Arc::clone(&connections))?;
        warn_of(&clients, logger);
        let shared = Shared {
            clients: Mutex::new(clients.into()),
            limiter: Mutex::default(),
            paces: Mutex::default(),
            servers: Servers::default(),
            connections,
            started: Instant::now(),
            counters: Arc::default(),
            logger: logger.clone(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            pools: Arc::default(),
        })
    }

    /// Returns a handle with separate connections, for another thread: limits, counters, certificates and
    /// configuration stay shared. A connection is a task of the thread that opened it, and ends with it.
    #[must_use]
    pub fn with_own_connections(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            pools: Arc::default(),
        }
    }

    /// Prepares a configuration for [`Http::configure`]. Reads files, see [`Http::new`]; changes nothing.
    ///
    /// # Errors
    /// See [`Http::new`].
    pub fn prepare(&self, config: HttpConfig) -> Result<PreparedHttp, HttpConfigError> {
        let current = Arc::clone(&lock(&self.shared.clients).clients);
        let is_new = current.config != config;
        let clients = is_new.then(|| current.with(config)).transpose()?;
        Ok(PreparedHttp(clients))
    }

    /// Sets a prepared configuration: timeouts, sessions and `redirects_to` for endpoints made from now on, the rest
    /// for requests from now on.
    pub fn configure(&self, prepared: PreparedHttp) {
        if let Some(clients) = prepared.0 {
            warn_of(&clients, &self.shared.logger);
            *lock(&self.shared.clients) = clients.into();
        }
    }

    /// Limits the connections of all replications together, for requests from now on.
    pub fn bound_connections(&self, max: ConnectionsMax) {
        self.shared.connections.bound(max);
    }

    /// Returns the connections of all replications.
    pub(super) fn connections(&self) -> &Arc<Connections> {
        &self.shared.connections
    }

    /// Makes an endpoint. Nothing is sent yet.
    ///
    /// # Errors
    /// The URL or the proxy is unusable, or a header has invalid bytes.
    pub fn endpoint(
        &self,
        spec: &EndpointSpec,
        settings: HttpSettings,
    ) -> Result<Endpoint, RequestFailed> {
        let clients = Arc::clone(&lock(&self.shared.clients).clients);
        Endpoint::new(self.clone(), spec, settings, &clients.config)
    }

    /// Returns the counters of all replications.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.shared.counters
    }

    /// Returns the servers whose `_db_updates` are followed.
    pub(crate) fn servers(&self) -> &Servers {
        &self.shared.servers
    }

    pub(super) fn logger(&self) -> &slog::Logger {
        &self.shared.logger
    }

    /// Runs `act` with the rate limits and the time on their clock, in milliseconds.
    pub(super) fn limiter<T>(&self, act: impl FnOnce(&mut Limiter, u64) -> T) -> T {
        let now = self.shared.started.elapsed().as_millis();
        act(
            &mut lock(&self.shared.limiter),
            u64::try_from(now).unwrap_or(u64::MAX),
        )
    }

    /// Records how long a request to a server waited.
    pub fn note_wait(&self, server: &Arc<str>, waited: Duration) {
        lock(&self.shared.paces).note(server, waited, self.shared.started.elapsed());
    }

    /// Returns the servers that are slow to answer, ordered by name.
    pub fn slow_servers(&self) -> Vec<SlowServer> {
        lock(&self.shared.paces).slow(self.shared.started.elapsed())
    }

    /// Returns the connections for a URL, and the URL and `Host` to use with them.
    pub(super) fn route(&self, url: &Url, proxy: Option<&ProxySpec>) -> Result<Connection, Cause> {
        let clients = self.current_clients();
        let connect_to = &clients.connect_to;
        let mut route = Route {
            proxy: proxy.cloned(),
            ..Route::default()
        };
        let asked = url;
        let mut url = url.clone();
        let mut host = None;
        if proxy.is_none()
            && let Some(port) = url.port_or_known_default()
            && let Some(target) = url
                .host_str()
                .and_then(|name| connect_to.target(name, port))
        {
            self.shared.counters.count(Counter::ConnectToApplied);
            host = HeaderValue::from_str(&url[url::Position::BeforeHost..url::Position::AfterPort])
                .ok();
            if matches!(url.host(), Some(url::Host::Domain(_))) {
                let target = target.clone();
                route.target_override = Some(Override { port, target });
                // Without a port in the URL, that of the target applies.
                let _ = url.set_port(None);
            } else {
                // An address is not resolved, and TLS sends no name for it.
                let bracketed = target
                    .host
                    .contains(':')
                    .then(|| format!("[{}]", target.host));
                let _ = url.set_host(Some(bracketed.as_deref().unwrap_or(&target.host)));
                let _ = url.set_port(Some(target.port));
            }
        }
        let guard = &clients.guard;
        match &route.target_override {
            // The resolver knows the port of the target.
            Some(_) => drop(guard.ports(asked, None, true)?),
            None => {
                let through = proxy.and_then(ProxySpec::parsed);
                let is_looked_up_here = through.as_ref().is_none_or(|url| url.scheme() == "socks5");
                route.ports = guard.ports(&url, through.as_ref(), is_looked_up_here)?;
            }
        }
        let client = lock(&self.pools)
            .get(&clients, &route)
            .map_err(|error| Cause::Invalid(describe(&error)))?;
        Ok(Connection { client, url, host })
    }

    /// Returns the settings of new connections. When files are due, has them reread, once per interval.
    pub(super) fn current_clients(&self) -> Arc<Clients> {
        let mut current = lock(&self.shared.clients);
        let clients = Arc::clone(&current.clients);
        let now = std::time::Instant::now();
        if current.files_due.is_some_and(|due| now >= due) {
            current.files_due = Some(now + clients.config.cacert_reload_interval);
            drop(current);
            self.read_certificates_again(Arc::clone(&clients));
        }
        clients
    }

    /// Reads certificates on a blocking thread. Nothing is changed if that fails, or if another configuration has
    /// been set meanwhile: its certificates were read when it was set.
    fn read_certificates_again(&self, clients: Arc<Clients>) {
        let http = self.clone();
        let known = Arc::clone(&clients);
        let reading = blocking::run("certificates", move || known.with(known.config.clone()));
        // Ends once the files are read.
        tokio::spawn(async move {
            let read = reading.await.map_err(|error| error.to_string());
            match read.and_then(|read| read.map_err(|error| error.to_string())) {
                Ok(again) => {
                    let mut current = lock(&http.shared.clients);
                    if Arc::ptr_eq(&current.clients, &clients) {
                        *current = again.into();
                    }
                }
                Err(error) => {
                    slog::error!(http.shared.logger, "certificates were not read again"; "error" => error);
                }
            }
        });
    }
}

/// How a request is sent.
pub(super) struct Connection {
    pub client: Client,
    pub url: Url,
    pub host: Option<HeaderValue>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http")
    }
}

/// Warns of missing authorities, and of settings that are ignored.
fn warn_of(clients: &Clients, logger: &slog::Logger) {
    if clients.has_no_authorities {
        slog::warn!(logger, "this machine trusts no certificate authority: https is refused";
            "remedy" => "install ca-certificates, or name a file in [replicator] ssl_trusted_certificates_file");
    }
    for entry in &clients.connect_to.malformed {
        slog::warn!(logger, "an invalid entry of connect_to is ignored";
            "line" => entry,
            "remedy" => "write pattern:port:target:target_port, the pattern without an IPv6 address");
    }
}

/// Returns our own headers of every request.
pub(super) fn own_headers() -> HeaderMap {
    HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static("application/json")),
        (USER_AGENT, HeaderValue::from_static(AGENT)),
    ])
}

/// Headers about message framing and the connection. Connections are shared: with one of these, a replication document
/// could smuggle requests, or receive the answers to others.
const OF_CONNECTIONS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Returns the headers of every request: our own, overridden by the user's, which are marked as sensitive.
pub(super) fn headers(spec: &EndpointSpec) -> HeaderMap {
    let mut headers = own_headers();
    for (name, value) in &spec.headers {
        // Both were checked when the replication was parsed.
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes())
            && let Some(value) = sensitive(value)
            && !OF_CONNECTIONS.contains(&name.as_str())
        {
            headers.insert(name, value);
        }
    }
    headers
}

/// Returns a header's value that debug output hides; `None` if it has invalid bytes.
pub(super) fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}
