//! One database, over HTTP.
//!
//! SUMMARY   [`Http`] is what all replications share: connections, rate limits, certificates. Its
//!           [`Endpoint`]s each speak to one database for one job. [`Endpoint::request`] reads an answer
//!           whole, after as many tries as it takes; [`Endpoint::stream`] hands the body on as it comes.
//! PROMISES  A clone of an endpoint is cheap and shares its connections, session and limits. At most
//!           `http_connections` requests of an endpoint are under way; others wait in order of arrival.
//!           No error, log line or debug output holds a credential.
//! SOURCE    couch_replicator_httpc, _httpc_pool, _connection, _rate_limiter, _auth_session.
//! DIFFERS   Redirects have a bound. Connections of all jobs to one server are one pool.

mod body;
mod http;
mod request;

use serde_json::value::RawValue;

pub use self::body::{BodyFailed, BodyStream, RequestBody};
pub use self::http::{Http, HttpConfig, HttpConfigError, HttpSettings};
pub use self::request::{Cause, Reply, Request, RequestFailed, StreamedReply};
pub use reqwest::Method;
pub use reqwest::StatusCode;
pub use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// One database of one job.
#[derive(Clone, Debug)]
pub struct Endpoint {
    url: std::sync::Arc<str>,
}

impl Endpoint {
    /// Returns the URL as it may be shown: without credentials, with its trailing slash.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request, as often as it takes, and reads the answer whole.
    ///
    /// Answers of any status below 500, but 408, 429 and redirects, are returned: what they mean is the
    /// caller's to say. 408, 500 and above, lost connections and time-outs are tried again
    /// `retries_per_request` times, with waits of 250 ms, 500 ms, 1 s, .. between; 429 as often as the
    /// rate limit allows. A request whose body is a stream is sent once.
    ///
    /// # Errors
    /// [`RequestFailed`] says what happened last and is worth a retry by the job's own rules only.
    pub async fn request(&self, request: Request) -> Result<Reply, RequestFailed> {
        Err(self.not_yet(&request))
    }

    /// Sends a request and returns the answer as soon as its headers are here.
    ///
    /// Nothing but 429, redirects and refused sessions is tried again: 408, 500 and above, lost connections and
    /// time-outs are [`RequestFailed`] at once. Other statuses are returned.
    ///
    /// # Errors
    /// See [`Endpoint::request`].
    pub async fn stream(&self, request: Request) -> Result<StreamedReply, RequestFailed> {
        Err(self.not_yet(&request))
    }

    fn not_yet(&self, request: &Request) -> RequestFailed {
        let problem = "requests are not sent yet".to_owned();
        RequestFailed::new(request.method(), &self.url, Cause::Protocol(problem))
    }
}

/// Percent-encodes a document's id for a path. `_design/x` and `_local/x` keep their slash.
///
/// SOURCE couch_replicator_api_wrap, encode_doc_id.
#[must_use]
pub fn encode_doc_id(id: &str) -> String {
    for prefix in ["_design/", "_local/"] {
        if let Some(rest) = id.strip_prefix(prefix) {
            return format!("{prefix}{}", encode(rest));
        }
    }
    encode(id)
}

/// Percent-encodes everything but letters, digits and `-._~`.
#[must_use]
pub fn encode(text: &str) -> String {
    const KEPT: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    percent_encoding::utf8_percent_encode(text, KEPT).to_string()
}

/// What CouchDB says in the body of an error: `{"error": .., "reason": ..}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct ErrorBody {
    /// Its name, like `not_found`.
    pub error: String,
    /// Why, in words. Other JSON than text is given as JSON text.
    #[serde(deserialize_with = "text_or_json")]
    pub reason: String,
}

fn text_or_json<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let raw: Box<RawValue> = serde::Deserialize::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned()))
}
