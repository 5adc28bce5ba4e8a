//! HTTP settings of the service, and of one job.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::spec::Options;

/// The role of an endpoint in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It is read from.
    Source,
    /// It is written to.
    Target,
}

/// One job's settings for one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// How long a connection may be silent.
    pub(crate) connection_timeout: Duration,
    /// How often a request is retried.
    pub(crate) retries: u32,
    /// The endpoint's role.
    pub(crate) side: Side,
    /// Concurrent requests; at least 1.
    pub(crate) http_connections: u32,
    /// A request that has been failing for more than half of this time is not retried, so that a failing job does not
    /// look healthy.
    pub(crate) health_threshold: Duration,
}

impl HttpSettings {
    /// Returns the settings of a target.
    pub fn of_target(options: &Options, health_threshold: Duration) -> Self {
        Self {
            connection_timeout: options.tuning.connection_timeout,
            retries: options.tuning.retries_per_request,
            side: Side::Target,
            http_connections: options.tuning.http_connections.max(1),
            health_threshold,
        }
    }

    /// Returns the settings of a source: at least two connections, as its changes feed keeps one.
    ///
    /// SOURCE couch_replicator_scheduler_job, init_state.
    pub fn of_source(options: &Options, health_threshold: Duration) -> Self {
        let target = Self::of_target(options, health_threshold);
        Self {
            side: Side::Source,
            http_connections: target.http_connections.max(2),
            ..target
        }
    }
}

/// The HTTP settings for all jobs, from `[replicator]`.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Maximum duration of a request, except for the changes feed; `None`: no limit.
    pub request_timeout: Option<Duration>,
    /// Whether servers must show a trusted certificate.
    pub verify_ssl_certificates: bool,
    /// Certificates that are trusted, in PEM; the system's if `None`.
    pub ssl_trusted_certificates_file: Option<PathBuf>,
    /// How often certificates are reloaded, for connections opened afterwards.
    pub cacert_reload_interval: Duration,
    /// The client's certificate, in PEM.
    pub cert_file: Option<PathBuf>,
    /// Its key, in PEM, without a password.
    pub key_file: Option<PathBuf>,
    /// The key's password. Not supported: a key with one is refused with an error that names the remedy.
    pub password: Option<String>,
    /// How long an idle connection is kept.
    pub connection_close_interval: Duration,
    /// Targets that replace hosts and ports of URLs: `pattern:port:target:target_port[,..]`. Not with a proxy.
    pub connect_to: Option<String>,
    /// Hosts and networks that connections may go to, separated by commas: see
    /// [`crate::endpoint::rules::EndpointRules`].
    pub endpoints_allowed: String,
    /// Exceptions to `endpoints_allowed`.
    pub endpoints_denied: String,
    /// Further origins that redirects may lead to, separated by commas.
    pub redirects_to: String,
    /// Whether endpoints with credentials use a session instead of sending them with each request.
    pub sessions: bool,
    /// When a session without a `Max-Age` is renewed.
    pub session_refresh_interval: Duration,
    /// The age from which a refused request renews a session.
    pub session_min_update_interval: Duration,
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("verify_ssl_certificates", &self.verify_ssl_certificates)
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}

/// Why a configuration is unusable: its author's fault, unless a file is temporarily missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` of the replicator: {problem}")]
pub struct HttpConfigError {
    /// The key of `[replicator]`.
    pub(crate) key: &'static str,
    /// The problem.
    pub(crate) problem: String,
}

impl HttpConfigError {
    pub(super) fn new(key: &'static str, problem: String) -> Self {
        Self { key, problem }
    }
}
