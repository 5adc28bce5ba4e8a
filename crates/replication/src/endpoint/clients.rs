//! Connection pools: one for each route, on each thread.
//!
//! SUMMARY   All endpoints of a thread with the same route share a [`reqwest::Client`], and so its idle connections.
//!           A route is direct, through a proxy, or to another target ([`super::connect_to`]). [`Clients`] is shared
//!           by all threads, [`Pools`] belongs to one thread.
//! PROMISES  A thousand endpoints without a proxy share one pool. A thread has at most [`POOLS_MAX`]. A connection is
//!           a task of the thread that opened it, and is used only there.
//! SOURCE    couch_replicator_connection and couch_replicator_utils, ssl_params.
//! DIFFERS   Keys with a password are refused; the library limits the depth of certificate chains. Connections are
//!           HTTP/1.1, with TCP keep-alive and `TCP_NODELAY`.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

use reqwest::{Certificate, Client, Identity, Proxy};
use rustc_hash::FxHashMap;
use tower_layer::layer_fn;

use super::config::{HttpConfig, HttpConfigError};
use super::connect_to::{ConnectTo, Target};
use super::connections::{Connections, Counted};
use super::errors::describe;
use super::guard::{Guard, Guarded, Ports};
use crate::endpoint::listening::Listening;
use crate::spec::ProxySpec;

/// Maximum number of idle connections that a thread keeps to one server.
const IDLE_PER_SERVER_MAX: usize = 256;

/// Maximum number of routes with idle connections on a thread.
const POOLS_MAX: usize = 1_000;

/// How long a connection is idle before the system probes the peer.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// A way of connecting.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Route {
    pub proxy: Option<ProxySpec>,
    /// Replaces the URL's target. URLs with different names or ports share no connections.
    pub target_override: Option<Override>,
    /// The ports of this route that a rule names.
    pub ports: Ports,
}

/// A target that replaces that of a URL.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Override {
    /// The port of the URL, which may differ from the target's.
    pub port: u16,
    pub target: Target,
}

/// The settings of pools.
pub(super) struct Clients {
    pub config: HttpConfig,
    pub guard: Guard,
    pub connect_to: ConnectTo,
    connections: Arc<Connections>,
    /// Whether certificates must be verified by the system's authorities, but the system has none.
    pub has_no_authorities: bool,
    trusted: Option<Vec<Certificate>>,
    identity: Option<Identity>,
}

/// The pools of a thread, all of one configuration.
#[derive(Default)]
pub(super) struct Pools {
    clients: Option<Arc<Clients>>,
    by_route: FxHashMap<Route, Client>,
}

impl Pools {
    /// Returns the pool of one route.
    pub fn get(&mut self, clients: &Arc<Clients>, route: &Route) -> reqwest::Result<Client> {
        let is_current = |known| Arc::ptr_eq(known, clients);
        // Requests in flight keep their pools; others are rebuilt on demand.
        if !self.clients.as_ref().is_some_and(is_current) || self.by_route.len() >= POOLS_MAX {
            self.by_route.clear();
            self.clients = Some(Arc::clone(clients));
        }
        if let Some(client) = self.by_route.get(route) {
            return Ok(client.clone());
        }
        let client = clients.build(route)?;
        self.by_route.insert(route.clone(), client.clone());
        Ok(client)
    }
}

impl Clients {
    /// Reads certificates.
    pub fn new(
        config: HttpConfig,
        listening: Listening,
        connections: Arc<Connections>,
    ) -> Result<Self, HttpConfigError> {
        install_provider();
        let trusted = match &config.ssl_trusted_certificates_file {
            Some(path) if config.verify_ssl_certificates => Some(read_certificates(path)?),
            _ => None,
        };
        let connect_to = ConnectTo::parse(config.connect_to.as_deref().unwrap_or_default());
        let mut clients = Self {
            guard: Guard::new(&config, listening)?,
            connect_to,
            connections,
            has_no_authorities: false,
            trusted,
            identity: read_identity(&config)?,
            config,
        };
        // Reports an unusable certificate at once.
        let mut built = clients.build(&Route::default());
        let by_system = clients.config.verify_ssl_certificates && clients.trusted.is_none();
        if by_system && built.is_err() {
            // A machine without authorities can still use servers without TLS.
            clients.has_no_authorities = true;
            clients.trusted = Some(Vec::new());
            built = clients.build(&Route::default());
        }
        built
            .map(|_| clients)
            .map_err(|error| HttpConfigError::new("verify_ssl_certificates", describe(&error)))
    }

    /// Reads certificates again, with this configuration.
    pub fn with(&self, config: HttpConfig) -> Result<Self, HttpConfigError> {
        let connections = Arc::clone(&self.connections);
        Self::new(config, self.guard.listening.clone(), connections)
    }

    fn build(&self, route: &Route) -> reqwest::Result<Client> {
        let connections = Arc::clone(&self.connections);
        let counted = layer_fn(move |connector| Counted {
            connector,
            connections: Arc::clone(&connections),
        });
        let mut builder = Client::builder()
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .gzip(true)
            .pool_idle_timeout(self.config.connection_close_interval)
            .pool_max_idle_per_host(IDLE_PER_SERVER_MAX)
            .tcp_keepalive(KEEPALIVE)
            .connector_layer(counted);
        if !self.config.verify_ssl_certificates {
            builder = builder.tls_danger_accept_invalid_certs(true);
        } else if let Some(trusted) = &self.trusted {
            builder = builder.tls_certs_only(trusted.iter().cloned());
        }
        if let Some(identity) = &self.identity {
            builder = builder.identity(identity.clone());
        }
        if let Some(proxy) = &route.proxy {
            builder = builder.proxy(proxy_of(proxy)?);
        }
        let instead = route.target_override.as_ref();
        builder
            .dns_resolver(Arc::new(Guarded {
                guard: self.guard.clone(),
                ports: route.ports.clone(),
                instead: instead.map(|other| other.target.clone()),
            }))
            .build()
    }
}

/// Installs the cryptography provider for TLS, once.
fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that it is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

fn proxy_of(spec: &ProxySpec) -> reqwest::Result<Proxy> {
    let Some(mut url) = spec.parsed() else {
        return Proxy::all(spec.url());
    };
    if let Some(auth) = spec.auth() {
        // User and password are percent-encoded here; in CouchDB's proxy URLs they are literal.
        let _ = url.set_username(&super::encode(&auth.user));
        let _ = url.set_password(Some(&super::encode(&auth.password)));
    }
    Proxy::all(url)
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, HttpConfigError> {
    let shown = path.display();
    fs::read(path).map_err(|error| HttpConfigError::new(key, format!("`{shown}`: {error}")))
}

fn read_certificates(path: &Path) -> Result<Vec<Certificate>, HttpConfigError> {
    let key = "ssl_trusted_certificates_file";
    let wrong =
        |problem: &str| HttpConfigError::new(key, format!("`{}`: {problem}", path.display()));
    let certificates = Certificate::from_pem_bundle(&read(key, path)?)
        .map_err(|error| wrong(&describe(&error)))?;
    if certificates.is_empty() {
        return Err(wrong("there is no certificate in it"));
    }
    Ok(certificates)
}

fn read_identity(config: &HttpConfig) -> Result<Option<Identity>, HttpConfigError> {
    let missing = |key, problem: &str| Err(HttpConfigError::new(key, problem.to_owned()));
    let (certificate, key) = match (&config.cert_file, &config.key_file) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => return missing("cert_file", "`key_file` is missing"),
        (None, Some(_)) => return missing("key_file", "`cert_file` is missing"),
    };
    let mut pem = read("key_file", key)?;
    if memchr::memmem::find(&pem, b"ENCRYPTED").is_some() || config.password.is_some() {
        let problem = "keys with a password are not supported: store it without one, readable by its owner only";
        return Err(HttpConfigError::new("key_file", problem.into()));
    }
    pem.push(b'\n');
    pem.extend(read("cert_file", certificate)?);
    let identity = Identity::from_pem(&pem).map_err(|error| {
        let (shown, problem) = (certificate.display(), describe(&error));
        HttpConfigError::new("cert_file", format!("`{shown}`: {problem}"))
    });
    identity.map(Some)
}
