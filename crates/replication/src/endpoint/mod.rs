//! One database, over HTTP.
//!
//! SUMMARY   [`Http`] is shared by all replications: connections, rate limits, certificates. Each of its
//!           [`Endpoint`]s connects to one database for one job. [`Endpoint::request`] reads a whole response, with
//!           retries; [`Endpoint::stream`] passes the body on as it arrives.
//! PROMISES  A clone of an endpoint is cheap and shares its connections, session and limits. At most
//!           `http_connections` requests of an endpoint are in flight; others wait in order of arrival. All endpoints
//!           together stay within the maximum of connections ([`connections`]). No error, log line or debug output
//!           contains a credential.
//! SOURCE    couch_replicator_httpc, _httpc_pool, _connection, _rate_limiter, _auth_session.
//! DIFFERS   Redirects are bounded. All jobs share one pool of connections for each server.

mod body;
mod clients;
mod config;
mod connect_to;
mod connections;
mod cookie;
mod errors;
mod excerpt;
mod guard;
mod http;
mod limiter;
pub mod listening;
mod location;
mod login;
mod pace;
mod reach;
mod request;
mod resolver;
mod retries;
pub mod rules;
mod send;
mod sending;
mod session;
#[cfg(test)]
mod tests;
mod upload;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use url::Url;

pub(crate) use self::body::{BodyFailed, BodyStream, Chunks, RequestBody, collect};
pub(crate) use self::config::Side;
pub use self::config::{HttpConfig, HttpConfigError, HttpSettings};
pub use self::connections::ConnectionsMax;
pub(crate) use self::excerpt::shown;
pub(crate) use self::http::lock;
pub use self::http::{Http, PreparedHttp};
pub(crate) use self::location::is_path;
pub(super) use self::location::keeps_path;
pub use self::pace::SlowServer;
pub use self::request::{Cause, Request, RequestFailed};
pub(crate) use self::request::{Reply, SentRequest, StreamedReply, is_of_full_disk, is_of_proxy};
pub(crate) use self::retries::{Backoff, Retries, WAIT_MIN};
pub(crate) use self::send::RENEWALS_MAX;
pub(crate) use reqwest::Method;
pub(crate) use reqwest::StatusCode;
pub(crate) use reqwest::header::{HeaderMap, HeaderValue};

use self::connections::{Lane, Place};
use self::excerpt::Secrets;
use self::http::{headers, sensitive};
use self::location::Base;
use self::session::Session;
use super::spec::{BasicAuth, EndpointSpec, ProxySpec};
use crate::counters::Counter;
use crate::endpoint::rules::parse_origin;

/// A request of an endpoint in flight.
pub(crate) struct Permit {
    _own: OwnedSemaphorePermit,
    _place: Place,
}

/// One database of one job. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Endpoint(Arc<Inner>);

struct Inner {
    http: Http,
    settings: HttpSettings,
    request_timeout: Option<Duration>,
    /// The URL with secrets masked.
    url: Arc<str>,
    /// The URL with its parameter values: the key of its rate limits.
    key: Arc<str>,
    base: Base,
    base_url: Url,
    /// Such as `http://db.example:5984`.
    server: Arc<str>,
    /// Origins that redirects may lead to.
    redirects_to: Vec<String>,
    headers: HeaderMap,
    auth: Option<BasicAuth>,
    basic: Option<HeaderValue>,
    secrets: Secrets,
    proxy: Option<ProxySpec>,
    connections: Arc<Semaphore>,
    session: Mutex<Session>,
}

impl Endpoint {
    fn new(
        http: Http,
        spec: &EndpointSpec,
        settings: HttpSettings,
        config: &HttpConfig,
    ) -> Result<Self, RequestFailed> {
        let base_url = Url::parse(&spec.url).map_err(|_| {
            RequestFailed::new(
                &Method::GET,
                &spec.shown(),
                Cause::Invalid("its URL is invalid".to_owned()),
            )
        })?;
        let auth = spec.auth.as_ref();
        let session = Session::new(
            config.sessions && auth.is_some(),
            config.session_refresh_interval,
            config.session_min_update_interval,
        );
        let redirects_to = config.redirects_to.split(',').filter_map(parse_origin);
        let connections = settings.http_connections.max(1) as usize;
        Ok(Self(Arc::new(Inner {
            http,
            request_timeout: config.request_timeout,
            url: spec.shown().into(),
            key: spec.url.as_str().into(),
            base: Base::new(&spec.url),
            base_url,
            server: spec.server().into(),
            redirects_to: redirects_to.collect(),
            headers: headers(spec),
            auth: spec.auth.clone(),
            basic: auth.and_then(|auth| sensitive(&auth.header_value())),
            secrets: Secrets::of(spec),
            proxy: spec.proxy.clone(),
            connections: Arc::new(Semaphore::new(connections)),
            session: Mutex::new(session),
            settings,
        })))
    }

    /// Returns the URL for display: without credentials, with masked parameter values and its trailing slash.
    pub(crate) fn url(&self) -> &str {
        &self.0.url
    }

    /// Returns a displayable name of the database. URLs that differ only in parameter values have different names.
    pub(crate) fn tag(&self) -> String {
        let Inner { url, key, .. } = &*self.0;
        if url == key {
            return url.to_string();
        }
        // Random in each process: the values cannot be guessed from the hash.
        static KEYS: OnceLock<RandomState> = OnceLock::new();
        let hash = KEYS.get_or_init(RandomState::new).hash_one(key);
        format!("{url} {hash:016x}")
    }

    /// Returns a text from this server for display, shortened and masked.
    pub(crate) fn excerpt(&self, text: impl AsRef<[u8]>) -> String {
        self.0.secrets.shown(text.as_ref())
    }

    /// Returns this many retries, bounded in time so that a failing job does not look healthy.
    pub(crate) fn retries(&self, retries: u32) -> Retries {
        Retries::new(retries, self.0.settings.health_threshold / 2)
    }

    /// Returns how long the server may be silent.
    pub(crate) fn silence_max(&self) -> Duration {
        self.0.settings.connection_timeout
    }

    /// Returns the log for events that do not concern a single replication.
    pub(crate) fn logger(&self) -> &slog::Logger {
        self.0.http.logger()
    }

    /// Waits for a place among the endpoint's connections, then for one among all; first come, first served.
    async fn permit(&self, lane: Option<Lane>) -> Permit {
        let connections = self.0.connections.clone();
        Permit {
            _own: connections
                .acquire_owned()
                .await
                .expect("RP-1: the connections of an endpoint are never closed"),
            _place: self.0.http.connections().place(lane).await,
        }
    }

    /// Returns the lane of a request among those of all replications; `None` for a feed.
    fn lane(&self, request: &Request) -> Option<Lane> {
        let lane = match (self.0.settings.side, request.inside) {
            (_, true) => Lane::Attachment,
            (Side::Source, false) => Lane::Source,
            (Side::Target, false) => Lane::Target,
        };
        (!request.endless).then_some(lane)
    }

    /// Counts an event of this endpoint in the counters of all replications.
    pub(crate) fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Counts several events of this endpoint.
    pub(crate) fn add(&self, counter: Counter, count: u64) {
        self.0.http.counters().add(counter, count);
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.0.url)
    }
}

/// Percent-encodes a document id for a path. `_design/x` and `_local/x` keep their slash.
///
/// SOURCE couch_replicator_api_wrap, encode_doc_id.
pub fn encode_doc_id(id: &str) -> String {
    for prefix in ["_design/", "_local/"] {
        if let Some(rest) = id.strip_prefix(prefix) {
            return format!("{prefix}{}", encode(rest));
        }
    }
    encode(id)
}

/// Percent-encodes everything except letters, digits and `-._~`.
pub(crate) fn encode(text: &str) -> String {
    const KEPT: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    percent_encoding::utf8_percent_encode(text, KEPT).to_string()
}

/// The body of CouchDB's errors: `{"error": .., "reason": ..}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub(crate) struct ErrorBody {
    /// Its name, such as `not_found`.
    pub error: String,
    /// The reason as text. JSON other than a string is kept as JSON text.
    #[serde(deserialize_with = "text_or_json")]
    pub reason: String,
}

/// Reads a string's text, anything else as JSON.
pub(crate) fn text_or_json<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<String, D::Error> {
    let raw: Box<RawValue> = serde::Deserialize::deserialize(deserializer)?;
    Ok(text_of(&raw))
}

/// Returns a string's text, anything else as JSON.
pub(crate) fn text_of(raw: &RawValue) -> String {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned())
}
