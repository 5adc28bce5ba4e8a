//! Manages a daemon: HTTP over the Unix socket next to the one that lends processes.
//!
//! SUMMARY   [`Operator`] requests a path of `docs/http.md` and parses its JSON; [`path`] and [`with_query`] build
//!           one.
//! PROMISES  Each request has its own connection: nothing stays open in between.
//! LIMITS    An answer has at most [`REPLY_BYTES_MAX`] bytes. Timeouts are the caller's.

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use super::connection::REPLY_BYTES_MAX;
use super::error::{ClientError, ServiceError};
use super::wire::no_json;

/// Returns the socket for managing the daemon that lends processes at `socket`: `X.http.sock` next to `X.sock`.
pub fn operator_socket(socket: &Path) -> PathBuf {
    let name = socket.as_os_str().as_bytes();
    let stem = name.strip_suffix(b".sock").unwrap_or(name);
    OsString::from_vec([stem, b".http.sock"].concat()).into()
}

/// Characters left unencoded in a part of a path and in a query.
const AS_IT_IS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Returns the path with these parts, which may contain any characters.
pub fn path<const N: usize>(parts: [&str; N]) -> String {
    parts
        .map(|part| format!("/{}", utf8_percent_encode(part, AS_IT_IS)))
        .concat()
}

/// Returns a path with these parameters.
pub fn with_query<'a>(path: &str, query: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let query: Vec<String> = query
        .into_iter()
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(&value, AS_IT_IS)))
        .collect();
    format!("{path}?{}", query.join("&"))
}

/// A client that manages a daemon. Root and the daemon's own user may do everything; the socket's group may call
/// functions.
#[derive(Clone, Debug)]
pub struct Operator {
    socket: PathBuf,
}

impl Operator {
    /// Makes a client for the daemon that lends processes at `socket`. Connects with the first request.
    pub fn at(socket: impl AsRef<Path>) -> Self {
        let socket = operator_socket(socket.as_ref());
        Self { socket }
    }

    /// Gets JSON from a path.
    ///
    /// # Errors
    /// [`ClientError::Service`] with the error's name and reason, as in `docs/http.md`; [`ClientError::Protocol`] for
    /// an answer that is not a `T`; otherwise see [`ClientError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, &()).await
    }

    /// Posts JSON to a path; returns the answer's JSON.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.ask(Method::POST, path, body).await
    }

    /// Puts JSON to a path; returns the answer's JSON.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.ask(Method::PUT, path, body).await
    }

    /// Sends `DELETE` to a path; returns the answer's JSON.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::DELETE, path, &()).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let answer = self.send(method, path, body).await?.rest().await?;
        serde_json::from_slice(&answer)
            .map_err(|error| ClientError::Protocol(format!("the answer of {path}: {error}")))
    }

    /// Gets text from a path: lines of JSON.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn text(&self, path: &str) -> Result<String, ClientError> {
        let answer = self.open(path).await?.rest().await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Gets a possibly long answer from a path, read in pieces.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn open(&self, path: &str) -> Result<Pieces, ClientError> {
        self.send(Method::GET, path, &()).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Pieces, ClientError> {
        let body = match method {
            Method::GET | Method::DELETE => Vec::new(),
            _ => serde_json::to_vec(body).map_err(no_json)?,
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost")
            .header(CONNECTION, "close")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| ClientError::Protocol(format!("the request: {error}")))?;
        send_on(UnixStream::connect(&self.socket).await?, request).await
    }
}

async fn send_on(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Pieces, ClientError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(&error))?;
    // Ends together with the response; if the connection breaks, reading the response returns the error.
    tokio::spawn(connection);
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| broken(&error))?;
    let status = response.status();
    let answer = Pieces(response.into_body());
    if status.is_success() {
        Ok(answer)
    } else {
        Err(refusal(status, &answer.rest().await?))
    }
}

/// An answer read in pieces.
#[derive(Debug)]
pub struct Pieces(Incoming);

impl Pieces {
    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// See [`ClientError`]: the connection broke.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.0.frame().await {
            let frame = frame.map_err(|error| broken(&error))?;
            if let Ok(piece) = frame.into_data() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    async fn rest(self) -> Result<Bytes, ClientError> {
        let body = Limited::new(self.0, REPLY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| match error.downcast() {
            Ok(error) => broken(&error),
            Err(error) => ClientError::Protocol(error.to_string()),
        })?;
        Ok(body.to_bytes())
    }
}

/// Parses the error of an answer. With these two codes a later retry may succeed.
fn refusal(status: StatusCode, answer: &[u8]) -> ClientError {
    let is_passing = [
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    let mut error: ServiceError = serde_json::from_slice(answer).unwrap_or_else(|_| ServiceError {
        name: status.as_str().to_owned(),
        reason: status.canonical_reason().unwrap_or_default().into(),
        ..ServiceError::default()
    });
    error.retry |= is_passing.contains(&status);
    ClientError::Service(error.into())
}

/// A connection cut by the peer counts as closed, regardless of the library's error.
fn broken(error: &hyper::Error) -> ClientError {
    // A request that was never sent is cancelled; the cause is one level down.
    if let Some(reason) = error.source().and_then(<dyn Error>::downcast_ref) {
        return broken(reason);
    }
    let of_system = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>());
    match of_system {
        Some(error) => super::connection::broken(error.kind().into()),
        None if error.is_incomplete_message() || error.is_canceled() => ClientError::Closed,
        None => ClientError::Protocol(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn the_management_socket_is_beside_the_one_that_lends_processes() {
        let beside = |socket: &str| operator_socket(Path::new(socket));
        assert_eq!(beside("/run/x.sock"), Path::new("/run/x.http.sock"));
        assert_eq!(beside("/run/x.1"), Path::new("/run/x.1.http.sock"));
    }

    #[tokio::test]
    async fn a_service_that_sends_first_does_not_speak_http() {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        theirs
            .write_all(b"220 mail.example ESMTP\r\n")
            .await
            .unwrap();
        let answer = send_on(ours, Request::default()).await;
        assert!(
            matches!(answer, Err(ClientError::Protocol(_))),
            "{answer:?}"
        );
    }

    #[test]
    fn names_may_have_any_characters() {
        assert_eq!(path(["_pools", "a/b c"]), "/_pools/a%2Fb%20c");
        let query = [("match", "a&b*".to_owned()), ("limit", "7".to_owned())];
        assert_eq!(with_query("/x", query), "/x?match=a%26b%2A&limit=7");
    }

    #[test]
    fn an_error_keeps_its_name_its_reason_and_whether_a_retry_may_help() {
        let of = |status, answer: &str| match refusal(status, answer.as_bytes()) {
            ClientError::Service(error) => (error.to_string(), error.retry),
            other => panic!("{other}"),
        };
        let text = r#"{"error":"not_found","reason":"missing"}"#;
        let missing = ("not_found: missing".to_owned(), false);
        assert_eq!(of(StatusCode::NOT_FOUND, text), missing);
        let busy = ("503: Service Unavailable".to_owned(), true);
        assert_eq!(of(StatusCode::SERVICE_UNAVAILABLE, ""), busy);
    }
}
