//! Requests, answers and failures.

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

/// The longest answer that is read whole, in bytes, unless a request says otherwise.
pub(crate) const REPLY_BYTES_MAX: usize = 256 << 20;

/// The most of an error's body that is read of an answer that comes as a stream, in bytes.
const ERROR_BODY_MAX: usize = 64 * 1024;

/// A request to a database.
pub struct Request {
    pub(super) method: Method,
    /// Below the database's URL, percent-encoded, without a slash in front; empty for the database.
    pub(super) path: String,
    /// Names and values as they are; values are percent-encoded when they are sent.
    pub(super) query: Vec<(String, String)>,
    /// Further ones, whose values are not shown.
    pub(super) secret_query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: RequestBody,
    pub(super) retries: Option<u32>,
    /// The whole may take as long as it likes.
    pub(super) endless: bool,
    /// It is made while another one of the replication is under way, for that one's body.
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

    /// Adds a parameter of a user's, behind all others. Errors and logs show its name alone.
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
        let name = HeaderName::from_static("x-couch-full-commit");
        self.header(name, HeaderValue::from_static("false"))
    }

    /// Sets a body of JSON, and its type.
    #[must_use]
    pub fn json(self, body: impl Into<Bytes>) -> Self {
        let json = HeaderValue::from_static("application/json");
        self.header(reqwest::header::CONTENT_TYPE, json)
            .body(RequestBody::Bytes(body.into()))
    }

    /// Sets a body. Its type is a header of its own.
    #[must_use]
    pub(crate) fn body(mut self, body: RequestBody) -> Self {
        self.body = body;
        self
    }

    /// Sets how often it is retried, overriding the endpoint's number.
    #[must_use]
    pub(crate) fn retries(mut self, retries: u32) -> Self {
        self.retries = Some(retries);
        self
    }

    /// Lets it take as long as it likes, as long as something comes: for the changes feed. It is not to be
    /// compressed: a proxy that compresses a feed holds its last rows back.
    #[must_use]
    pub(crate) fn endless(mut self) -> Self {
        self.endless = true;
        self.header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
    }

    /// Says that another request of the replication, which is under way, waits for it.
    #[must_use]
    pub(crate) fn inside(mut self) -> Self {
        self.inside = true;
        self
    }

    /// Sets the longest answer that [`super::Endpoint::request`] takes, in bytes.
    #[must_use]
    pub(crate) fn reply_bytes_max(mut self, bytes: usize) -> Self {
        self.reply_bytes_max = bytes;
        self
    }
}

/// A request that was answered.
#[derive(Clone, Debug)]
pub struct SentRequest {
    pub(super) endpoint: Endpoint,
    pub(super) method: Method,
    /// As it may be shown.
    pub(super) url: String,
    /// The number of the session that it was sent in.
    pub(super) epoch: Option<u64>,
}

impl fmt::Display for SentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.url)
    }
}

impl SentRequest {
    /// It had no answer, or not a whole one.
    pub(crate) fn without_answer(&self, cause: Cause) -> RequestFailed {
        RequestFailed::new(&self.method, &self.url, cause)
    }

    /// Returns what may be shown of the answer's body.
    pub(crate) fn excerpt(&self, body: &[u8]) -> String {
        self.endpoint.0.secrets.shown(body)
    }
}

/// An answer, read whole.
#[derive(Clone, Debug)]
pub struct Reply {
    /// What it answers.
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

    /// Returns what may be shown of the body.
    pub(crate) fn excerpt(&self) -> String {
        self.asked.excerpt(&self.body)
    }

    /// Returns the name of an error and its reason, as they may be shown: in the words of the body, else its beginning.
    pub(crate) fn error_and_reason(&self) -> (String, String) {
        let ErrorBody { error, reason } = self.error();
        if error.is_empty() {
            (self.status.as_u16().to_string(), self.excerpt())
        } else {
            (
                self.asked.excerpt(error.as_bytes()),
                self.asked.excerpt(reason.as_bytes()),
            )
        }
    }

    /// Returns what the body of an error says; empty texts if it says nothing of the kind.
    pub(crate) fn error(&self) -> ErrorBody {
        self.json().unwrap_or_default()
    }
}

/// An answer whose body comes.
#[derive(Debug)]
pub(crate) struct StreamedReply {
    /// What it answers.
    pub(crate) asked: SentRequest,
    /// Its status: below 500, and neither 408 nor 429.
    pub(crate) status: StatusCode,
    /// Its headers. `Content-Encoding` is gone where the body was decoded.
    pub(crate) headers: HeaderMap,
    /// Its body, decoded as it comes.
    pub(crate) body: BodyStream,
}

impl StreamedReply {
    /// Reads the beginning of an error's body. Returns what may be shown of it.
    pub(crate) async fn excerpt(self) -> String {
        let body = self.body.read_whole(0, ERROR_BODY_MAX).await;
        self.asked.excerpt(&body.unwrap_or_default())
    }
}

/// A request that got no answer worth the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{method} {url}: {cause}")]
pub struct RequestFailed {
    pub(crate) method: Method,
    /// The URL with its query, without credentials; of a long one the beginning.
    pub(crate) url: String,
    /// What happened, the last time it was tried.
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

    /// Whether the server refuses the credentials: trying again with them does not help.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.cause, Cause::Refused { .. })
    }

    /// Whether the rate limit of the server ended it.
    pub fn is_max_backoff(&self) -> bool {
        self.cause == Cause::MaxBackoff
    }
}

/// Why a request failed. The far side's fault, or the network's, and worth a retry later, unless it says
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The server said too often that there are too many requests.
    #[error("the server takes fewer requests than this (max_backoff)")]
    MaxBackoff,
    /// An answer with this status, 408 or 500 and above.
    #[error("the answer was {status}: {said}")]
    Status {
        status: StatusCode,
        /// The beginning of the answer's body.
        said: String,
    },
    /// No connection, in this many words.
    #[error("no connection: {said}")]
    Connect {
        /// What the system says, if it is why.
        kind: Option<std::io::ErrorKind>,
        said: String,
    },
    /// What answers `https` is not TLS. Not worth a retry: the URL has to be changed.
    #[error("the server speaks no TLS: use http://")]
    NoTls,
    /// The host's name is unknown.
    #[error("the host's name is not known (nxdomain)")]
    UnknownHost,
    /// Nothing came for this long, or the whole took longer.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The connection was lost before the end of the answer, or what came was no HTTP.
    #[error("{0}")]
    Protocol(String),
    /// The body of the answer is longer than is read, in bytes.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// The head of the answer, which has its headers, is longer than is read.
    #[error("the headers of the answer are too long, or too many")]
    HeadTooLong,
    /// A redirect leads nowhere, or there are too many in a row.
    #[error("redirected {0}")]
    Redirect(String),
    /// A redirect leads to another origin. Not worth a retry: the URL, or `redirects_to`, has to be changed.
    #[error(
        "redirected_elsewhere: {from} leads to {to}, which may be another's server: use the URL where the database is, or name {to} in [replicator] redirects_to"
    )]
    RedirectedElsewhere {
        /// The origin that was asked.
        from: String,
        /// The other one.
        to: String,
    },
    /// The configuration keeps replications from connecting there. Not worth a retry.
    #[error("{0}")]
    Denied(#[from] EndpointDenied),
    /// The request for a session failed.
    #[error("replication_auth_error: {0}")]
    Session(String),
    /// There was no connection for the request for a session, or no answer.
    #[error("replication_auth_error: session_request_failed: {0}")]
    NoSession(Box<Cause>),
    /// No session, for the server does not take the credentials. Not worth a retry.
    #[error("replication_auth_error: {said}")]
    Refused {
        /// 401 or 403.
        status: StatusCode,
        said: String,
    },
    /// The session ended while a body was sent that can be sent once only.
    #[error("the session ended while the body was being sent")]
    SessionLost,
    /// The body to be sent failed where it comes from.
    #[error("the body that was being sent broke off: {0}")]
    Body(String),
    /// The request cannot be made: a header or URL has bytes that it must not have. Not worth a retry.
    #[error("it cannot be sent: {0}")]
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
    /// Returns whether the server could not be reached: no connection, no address, no answer in time; or a connection
    /// that broke off, or an answer of a proxy before it, as of one whose server is away.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::UnknownHost | Self::Timeout(_) | Self::Protocol(_) => true,
            Self::Status { status, .. } => is_of_proxy(*status),
            Self::NoSession(cause) => cause.is_unreachable(),
            _ => false,
        }
    }
}

/// Whether an error says that the server's disk is full. CouchDB says so with 507, or tells in 500 what the system said.
pub(crate) fn is_of_full_disk(code: u16, said: &str) -> bool {
    const WORDS: [&str; 3] = ["insufficient_storage", "enospc", "no space left on device"];
    code == 507 || (code >= 500 && WORDS.iter().any(|word| said.to_lowercase().contains(word)))
}

/// Whether an answer is one of those that a proxy gives when the server behind it is away: 502, 503, 504.
pub(crate) fn is_of_proxy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 502..=504)
}
