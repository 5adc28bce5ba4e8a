//! Requests, responses and failures.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;

use super::body::{BodyFailed, BodyStream, RequestBody};
use super::excerpt::shown;
use super::{Endpoint, ErrorBody};
use crate::endpoint::rules::EndpointDenied;

/// Default maximum length of a response that is read whole, in bytes.
pub(crate) const REPLY_BYTES_MAX: usize = 256 << 20;

/// Maximum bytes read of an error's body when the response is streamed.
const ERROR_BODY_MAX: usize = 64 * 1024;

/// A request to a database.
pub struct Request {
    pub(super) method: Method,
    /// Relative to the database's URL, percent-encoded, without a leading slash; empty for the database.
    pub(super) path: String,
    /// Unencoded names and values; values are percent-encoded when sent.
    pub(super) query: Vec<(String, String)>,
    /// Further parameters, with values hidden in errors and logs.
    pub(super) secret_query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: RequestBody,
    pub(super) retries: Option<u32>,
    /// Whether the total duration is unlimited.
    pub(super) endless: bool,
    /// Whether it is made to produce the body of another request that is under way.
    pub(super) inside: bool,
    pub(super) reply_bytes_max: usize,
}

impl Request {
    /// Makes a request. `path` is percent-encoded already, and empty for the database itself.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            secret_query: Vec::new(),
            headers: HeaderMap::new(),
            body: RequestBody::Empty,
            retries: None,
            endless: false,
            inside: false,
            reply_bytes_max: REPLY_BYTES_MAX,
        }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    pub(crate) fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path)
    }

    /// Adds a parameter. The value is percent-encoded when it is sent, the name is not.
    #[must_use]
    pub(crate) fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Adds a user's parameter after all others. Errors and logs show only its name.
    #[must_use]
    pub(crate) fn secret_query(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        self.secret_query.push((name.into(), value.into()));
        self
    }

    /// Sets a header, overriding the endpoint's own of that name.
    #[must_use]
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Asks old servers not to wait for their disks.
    #[must_use]
    pub(crate) fn no_full_commit(self) -> Self {
        self.header(
            HeaderName::from_static("x-couch-full-commit"),
            HeaderValue::from_static("false"),
        )
    }

    /// Sets a body of JSON, and its type.
    #[must_use]
    pub fn json(self, body: impl Into<Bytes>) -> Self {
        self.header(
            reqwest::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )
        .body(RequestBody::Bytes(body.into()))
    }

    /// Sets a body; its type is set separately, as a header.
    #[must_use]
    pub(crate) fn body(mut self, body: RequestBody) -> Self {
        self.body = body;
        self
    }

    /// Sets the number of retries, overriding the endpoint's.
    #[must_use]
    pub(crate) fn retries(mut self, retries: u32) -> Self {
        self.retries = Some(retries);
        self
    }

    /// Removes the limit on the total duration, for the changes feed; silence still times out. Disables compression:
    /// a compressing proxy holds back a feed's last rows.
    #[must_use]
    pub(crate) fn endless(mut self) -> Self {
        self.endless = true;
        self.header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
    }

    /// Marks a request that another request under way waits for.
    #[must_use]
    pub(crate) fn inside(mut self) -> Self {
        self.inside = true;
        self
    }

    /// Sets the maximum length of the response to [`super::Endpoint::request`], in bytes.
    #[must_use]
    pub(crate) fn reply_bytes_max(mut self, bytes: usize) -> Self {
        self.reply_bytes_max = bytes;
        self
    }
}

/// An answered request.
#[derive(Clone, Debug)]
pub struct SentRequest {
    pub(crate) endpoint: Endpoint,
    pub(super) method: Method,
    /// With secrets masked.
    pub(super) url: String,
    /// The number of the session that it belonged to.
    pub(super) epoch: Option<u64>,
}

impl fmt::Display for SentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.url)
    }
}

impl SentRequest {
    /// Returns the failure of this request, if it got no complete response.
    pub(crate) fn without_answer(&self, cause: Cause) -> RequestFailed {
        RequestFailed::new(&self.method, &self.url, cause)
    }
}

/// A response, read whole.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(crate) asked: SentRequest,
    /// Its status: below 500, and neither 408 nor 429.
    pub(crate) status: StatusCode,
    /// Its body, decoded.
    pub body: Bytes,
}

impl Reply {
    /// Reads the body as JSON.
    ///
    /// # Errors
    /// It is not JSON, or not of that shape.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// Returns the body for display, shortened and masked.
    pub(crate) fn excerpt(&self) -> String {
        self.asked.endpoint.excerpt(&self.body)
    }

    /// Returns request, status and body for display.
    pub(crate) fn told(&self) -> String {
        format!("{}: {}: {}", self.asked, self.status, self.excerpt())
    }

    /// Returns an error's name and reason for display: from the body if it is a CouchDB error, else the status and the
    /// beginning of the body.
    pub(crate) fn error_and_reason(&self) -> (String, String) {
        let ErrorBody { error, reason } = self.error();
        if error.is_empty() {
            (self.status.as_u16().to_string(), self.excerpt())
        } else {
            let endpoint = &self.asked.endpoint;
            (endpoint.excerpt(error), endpoint.excerpt(reason))
        }
    }

    /// Returns the error in the body; empty strings if it has none.
    pub(crate) fn error(&self) -> ErrorBody {
        self.json().unwrap_or_default()
    }
}

/// A response with a streamed body.
#[derive(Debug)]
pub(crate) struct StreamedReply {
    pub asked: SentRequest,
    /// Its status: below 500, and neither 408 nor 429.
    pub status: StatusCode,
    /// Its headers. `Content-Encoding` is gone where the body was decoded.
    pub headers: HeaderMap,
    /// Its body, decoded while streaming.
    pub body: BodyStream,
}

impl StreamedReply {
    /// Returns request, status and body for display.
    pub async fn told(self) -> String {
        let request = format!("{}: {}", self.asked, self.status);
        format!("{request}: {}", self.excerpt().await)
    }

    /// Reads the beginning of an error's body, for display.
    pub async fn excerpt(self) -> String {
        let body = self.body.read_whole(0, ERROR_BODY_MAX).await;
        self.asked.endpoint.excerpt(body.unwrap_or_default())
    }
}

/// A request without a usable response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{method} {url}: {cause}")]
pub struct RequestFailed {
    pub(crate) method: Method,
    /// The URL with its query, without credentials; long ones are cut.
    pub(crate) url: String,
    /// Why the last attempt failed.
    pub cause: Cause,
}

impl RequestFailed {
    pub(super) fn new(method: &Method, url: &str, cause: Cause) -> Self {
        Self {
            method: method.clone(),
            url: shown(url.as_bytes()),
            cause,
        }
    }

    /// Whether the server rejected the credentials: retrying with them does not help.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.cause, Cause::Refused { .. })
    }

    /// Whether it failed because of the server's rate limit.
    pub fn is_max_backoff(&self) -> bool {
        self.cause == Cause::MaxBackoff
    }
}

/// Why a request failed. The remote's or the network's fault, and worth a later retry, unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// 429s from the server have raised the interval between requests to its maximum.
    #[error("the server answered 429 too often (max_backoff)")]
    MaxBackoff,
    /// A response with this status: 408, or 500 and above.
    #[error("the answer was {status}: {said}")]
    Status {
        status: StatusCode,
        /// The beginning of the response's body.
        said: String,
    },
    /// No connection, for this reason.
    #[error("no connection: {said}")]
    Connect {
        /// The system error behind it, if any.
        kind: Option<std::io::ErrorKind>,
        said: String,
    },
    /// The port of an `https` URL does not speak TLS. Not worth a retry: the URL has to be changed.
    #[error("the server speaks no TLS: use http://")]
    NoTls,
    /// The host's name is unknown.
    #[error("the host's name is not known (nxdomain)")]
    UnknownHost,
    /// Nothing arrived for this long, or the total took longer.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The connection was lost before the end of the response, or the data was not HTTP.
    #[error("{0}")]
    Protocol(String),
    /// The response's body exceeds this maximum, in bytes.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// The response's head exceeds the maximum length.
    #[error("the headers of the answer are too long, or too many")]
    HeadTooLong,
    /// An invalid redirect, or too many successive ones.
    #[error("redirected {0}")]
    Redirect(String),
    /// A redirect leads to another origin. Not worth a retry: the URL, or `redirects_to`, has to be changed.
    #[error(
        "redirected_elsewhere: {from} leads to {to}, which may be someone else's server: use the URL where the database is, or name {to} in [replicator] redirects_to"
    )]
    RedirectedElsewhere { from: String, to: String },
    /// The configuration forbids connecting there. Not worth a retry.
    #[error("{0}")]
    Denied(#[from] EndpointDenied),
    /// The session request failed.
    #[error("replication_auth_error: {0}")]
    Session(String),
    /// The session request got no connection or no response.
    #[error("replication_auth_error: session_request_failed: {0}")]
    NoSession(Box<Cause>),
    /// No session: the server rejects the credentials. Not worth a retry.
    #[error("replication_auth_error: {said}")]
    Refused {
        /// 401 or 403.
        status: StatusCode,
        said: String,
    },
    /// Producing the request's body failed.
    #[error("the body that was being sent broke off: {0}")]
    Body(String),
    /// The request is invalid: a header or URL has forbidden bytes. Not worth a retry.
    #[error("the request cannot be sent: {0}")]
    Invalid(String),
}

impl From<BodyFailed> for Cause {
    fn from(failed: BodyFailed) -> Self {
        match failed {
            BodyFailed::TooLong(bytes) => Self::TooLong(bytes),
            BodyFailed::Silent(time) => Self::Timeout(time),
            failed @ BodyFailed::Broken(_) => Self::Protocol(failed.to_string()),
        }
    }
}

impl Cause {
    /// Returns whether the server was unreachable: no connection, address or timely response; a broken connection; or
    /// a proxy's response for an unavailable server.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::UnknownHost | Self::Timeout(_) | Self::Protocol(_) => true,
            Self::Status { status, .. } => is_of_proxy(*status),
            Self::NoSession(cause) => cause.is_unreachable(),
            _ => false,
        }
    }
}

/// Whether an error means a full disk at the server. CouchDB sends 507, or the system's message with 500.
pub(crate) fn is_of_full_disk(code: u16, said: &str) -> bool {
    const WORDS: [&str; 3] = ["insufficient_storage", "enospc", "no space left on device"];
    code == 507 || (code >= 500 && WORDS.iter().any(|word| said.to_lowercase().contains(word)))
}

/// Whether a proxy sends this status when its server is unavailable: 502, 503, 504.
pub(crate) fn is_of_proxy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 502..=504)
}
