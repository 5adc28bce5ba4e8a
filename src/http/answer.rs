//! Answers: JSON with a line feed, and errors with CouchDB's codes.
//!
//! SOURCE    chttpd: send_json/2, error_info/1.
//! DIFFERS   An error of the pool has `phase`, `fault` and `retry` besides `error` and `reason`.

use std::convert::Infallible;
use std::fmt;
use std::num::NonZero;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::actors::pool_executor::ExecuteError;
use crate::auth::LoginError;
use crate::messages::client_error::ErrorReply;
use crate::otp::NoProc;

/// A value, or why the request was refused.
pub(super) type HttpResult<T> = Result<T, Refusal>;

/// An answer, or why the request was refused.
pub(super) type Answer = HttpResult<HttpResponse>;

/// Why a request was refused.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub status: StatusCode,
    /// `error`, `reason` and further members.
    members: Map<String, Value>,
    header: Option<Box<(HeaderName, String)>>,
}

impl Refusal {
    pub fn new(status: StatusCode, error: &str, reason: impl Into<Value>) -> Self {
        let mut members = Map::new();
        members.insert("error".to_owned(), error.into());
        members.insert("reason".to_owned(), reason.into());
        Self {
            status,
            members,
            header: None,
        }
    }

    /// Refuses with the status of an error's name.
    pub fn of(error: &str, reason: impl Into<Value>) -> Self {
        Self::new(status_of(error), error, reason)
    }

    pub fn bad_request(reason: impl fmt::Display) -> Self {
        Self::of("bad_request", reason.to_string())
    }

    pub fn not_found(reason: &str) -> Self {
        Self::of("not_found", reason)
    }

    pub fn no_such_path() -> Self {
        Self::not_found("missing: there is nothing at this path")
    }

    pub fn forbidden(reason: impl Into<Value>) -> Self {
        Self::of("forbidden", reason)
    }

    pub fn unauthorized(reason: impl Into<Value>) -> Self {
        Self::of("unauthorized", reason)
            .with_header(header::WWW_AUTHENTICATE, "Basic realm=\"settee\"")
    }

    pub fn bad_content_type(expected: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "bad_content_type",
            format!("Content-Type must be {expected}"),
        )
    }

    pub fn method_not_allowed(allowed: &str) -> Self {
        let reason = format!("Only {allowed} allowed");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", reason)
            .with_header(header::ALLOW, allowed)
    }

    /// Refuses `what` as longer than `limit` bytes, naming the `key` of `[server]` that raises the limit, if any.
    pub fn too_large(what: &str, limit: usize, key: Option<&str>) -> Self {
        let raise = key.map_or_else(String::new, |key| format!(", or raise [server] {key}"));
        let reason = format!("{what} is longer than {limit} bytes: send less at a time{raise}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", reason)
    }

    pub fn unavailable(error: &str, reason: impl Into<Value>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error, reason)
            .with_header(header::RETRY_AFTER, "1")
    }

    pub fn with_header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.header = Some(Box::new((name, value.into())));
        self
    }

    /// Omits the header that makes a browser prompt for a password: the page has its own login form.
    pub fn for_a_form(mut self) -> Self {
        self.header = self
            .header
            .filter(|header| header.0 != header::WWW_AUTHENTICATE);
        self
    }

    pub fn with_member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// Adds an object's members; nothing for `None`.
    pub fn with_members(mut self, object: &impl Serialize) -> Self {
        if let Ok(Value::Object(members)) = serde_json::to_value(object) {
            self.members.extend(members);
        }
        self
    }

    /// Replaces the error's name, and the status by that of the name.
    pub fn named(mut self, error: &str) -> Self {
        self.status = status_of(error);
        self.with_member("error", error)
    }

    /// Returns its error's name.
    pub fn name(&self) -> Option<&str> {
        self.members.get("error").and_then(Value::as_str)
    }

    pub fn reason(&self) -> String {
        self.members
            .get("reason")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    /// Returns the error as a line of JSON.
    pub fn line(&self) -> Bytes {
        line(&self.members)
    }

    pub fn response(&self) -> HttpResponse {
        let mut response = json_builder(self.status);
        if let Some((name, value)) = self.header.as_deref() {
            response.insert_header((name.clone(), value.as_str()));
        }
        response.body(self.line())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason())
    }
}

impl ResponseError for Refusal {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        self.response()
    }
}

impl From<NoProc> for Refusal {
    fn from(_: NoProc) -> Self {
        super::routes::shutting_down()
    }
}

/// Returns the status of an error's name; unknown names, like those of functions, are 500, as in CouchDB.
fn status_of(error: &str) -> StatusCode {
    match error {
        "bad_request" | "compilation_error" | "query_parse_error" | "invalid_value" => {
            StatusCode::BAD_REQUEST
        }
        "unauthorized" => StatusCode::UNAUTHORIZED,
        "forbidden" => StatusCode::FORBIDDEN,
        "not_found" | "pool_removed" | "unknown_ddoc" => StatusCode::NOT_FOUND,
        "file_exists" => StatusCode::PRECONDITION_FAILED,
        "conflict" => StatusCode::CONFLICT,
        "too_many_requests" => StatusCode::TOO_MANY_REQUESTS,
        "not_implemented" => StatusCode::NOT_IMPLEMENTED,
        "draining" | "shutting_down" | "pool_busy" | "tenant_busy" | "throttled" => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// What should be JSON is not.
impl From<serde_json::Error> for Refusal {
    fn from(_: serde_json::Error) -> Self {
        Self::bad_request("invalid UTF-8 JSON")
    }
}

impl From<ErrorReply> for Refusal {
    fn from(error: ErrorReply) -> Self {
        let mut refusal = Self::of(&error.name, Value::Null).with_members(&error);
        refusal.members.shift_remove("name");
        if refusal.status != StatusCode::SERVICE_UNAVAILABLE {
            return refusal;
        }
        let seconds = error
            .retry_after_ms
            .map_or(0, NonZero::get)
            .div_ceil(1000)
            .max(1);
        refusal.with_header(header::RETRY_AFTER, seconds.to_string())
    }
}

impl From<ExecuteError> for Refusal {
    fn from(error: ExecuteError) -> Self {
        let reason = error.to_string();
        match error {
            ExecuteError::Full => Self::unavailable("too_many_requests", reason),
            ExecuteError::Lost => Self::of("internal_error", reason),
        }
    }
}

impl From<LoginError> for Refusal {
    fn from(error: LoginError) -> Self {
        let reason = error.to_string();
        match error {
            LoginError::Incorrect => Self::unauthorized(reason),
            LoginError::LockedOut => {
                Self::of("too_many_requests", reason).with_header(header::RETRY_AFTER, "60")
            }
            LoginError::Busy => Self::unavailable("too_many_requests", reason),
            LoginError::NoThread => Self::unavailable("no_thread", reason),
        }
    }
}

/// Answers with JSON.
pub(super) fn ok(value: &impl Serialize) -> Answer {
    with_status(StatusCode::OK, value)
}

pub(super) fn with_status(status: StatusCode, value: &impl Serialize) -> Answer {
    Ok(json_builder(status).body(line(value)))
}

/// Answers with JSON text unchanged.
pub(super) fn raw(text: Bytes) -> Answer {
    Ok(json_response().body(text))
}

/// Begins a JSON answer.
pub(super) fn json_response() -> HttpResponseBuilder {
    json_builder(StatusCode::OK)
}

fn json_builder(status: StatusCode) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    response
        .insert_header((header::CACHE_CONTROL, "must-revalidate"))
        .content_type("application/json");
    response
}

/// Answers `{"ok": true}`.
pub(super) fn done() -> Answer {
    ok(&json!({"ok": true}))
}

/// Returns a value as a line of JSON.
pub(super) fn line(value: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(value).expect("JSON: an answer can always be written");
    text.push(b'\n');
    text.into()
}

/// The next piece of a body or an answer; `None` at the end.
pub(super) type Piece = HttpResult<Option<Bytes>>;

/// A streamed answer.
pub(super) trait Pieces {
    /// Returns the next piece.
    async fn next(&mut self) -> Piece;
}

/// Answers with pieces as they become available. An error before the first one is sent with its code, a later one as
/// the last line.
pub(super) async fn streamed(content_type: &str, mut pieces: impl Pieces + 'static) -> Answer {
    let first = pieces.next().await?;
    let rest = stream::unfold(Some(pieces), async |pieces| {
        let mut pieces = pieces?;
        match pieces.next().await {
            Ok(None) => None,
            Ok(Some(piece)) => Some((Ok(piece), Some(pieces))),
            Err(refusal) => Some((Ok(refusal.line()), None)),
        }
    });
    let first = stream::iter(first.map(Ok::<_, Infallible>));
    Ok(HttpResponse::Ok()
        .content_type(content_type)
        .streaming(first.chain(rest)))
}
