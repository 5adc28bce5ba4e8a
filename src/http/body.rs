//! Reads bodies with limits on length, time and memory.
//!
//! SUMMARY   [`read`] reads a whole body; [`Incoming`] reads the pieces of a stream of lines. Read data is charged
//!           to the request's [`Account`], its share of the memory of all requests in flight.
//! PROMISES  A body that is too long, or for which memory is lacking, is refused as soon as its length is known: by
//!           its announced length before it is read, otherwise while it is read. At most [`UNKNOWN_BYTES_MAX`] are
//!           read from an unauthenticated sender. A client that sends nothing, or too slowly, is disconnected. A long
//!           body does not block a thread that serves others.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::http::{StatusCode, header};
use actix_web::{Error, FromRequest, HttpMessage, HttpRequest, web};
use bytes::{Bytes, BytesMut};
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt, StreamExt, TryFutureExt};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::answer::{HttpResult, Piece, Refusal};
use super::request::text;
use super::{HttpContext, Shared};
use crate::aside::aside;
use crate::in_flight::{NoRoom, Share};
use crate::pace::Pace;

/// Maximum time without progress in a stream.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(30);

/// Maximum length of a login or of an unauthenticated sender's body, in bytes.
pub(super) const UNKNOWN_BYTES_MAX: usize = 4096;

/// Maximum length of a body with settings, in bytes.
pub(super) const ORDER_BYTES_MAX: usize = 1 << 20;

/// The name of the error of a body whose connection closed early; no client is left to read it.
const CUT: &str = "disconnected";

/// A request's part of the memory of all requests in flight.
#[derive(Clone)]
pub(super) struct Account(Rc<RefCell<Share>>);

impl Account {
    pub fn new(share: Share) -> Self {
        Self(Rc::new(RefCell::new(share)))
    }

    /// Sets the size of the request's part.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn set(&self, bytes: usize) -> HttpResult<()> {
        Ok(self.0.borrow_mut().set(bytes)?)
    }

    fn grow(&self, bytes: usize) -> HttpResult<()> {
        Ok(self.0.borrow_mut().grow(bytes)?)
    }

    /// Returns the account of an authenticated request.
    fn of(request: &HttpRequest) -> Option<Self> {
        request.extensions().get::<Self>().cloned()
    }
}

impl From<NoRoom> for Refusal {
    fn from(error: NoRoom) -> Self {
        Self::unavailable("too_many_requests", error.to_string())
    }
}

pub(super) struct Body {
    bytes: Bytes,
    account: Option<Account>,
}

impl Body {
    /// Parses the text with `parse`. Parsed values are charged at a quarter of `value_bytes` each: the limit of memory
    /// in flight is itself a quarter of the memory.
    ///
    /// # Errors
    /// It is not UTF-8, or `parse` refuses it; or memory or a thread is lacking.
    pub async fn parse<T: Send + 'static>(
        self,
        value_bytes: usize,
        parse: impl FnOnce(&str) -> HttpResult<T> + Send + 'static,
    ) -> HttpResult<T> {
        if let Some(account) = &self.account {
            // An upper bound, since strings may contain these characters.
            let bytes = self.bytes.clone();
            let values = move || memchr::memchr3_iter(b',', b'[', b'{', &bytes).count();
            let values = aside(self.bytes.len(), values).await.map_err(no_thread)?;
            account.set(self.bytes.len().max(values.saturating_mul(value_bytes) / 4))?;
        }
        aside(self.bytes.len(), move || parse(utf8(&self.bytes)?))
            .await
            .map_err(no_thread)?
    }

    /// Parses the body as JSON.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub async fn json(self) -> HttpResult<Value> {
        // A list or an object allocates up to twice its length.
        self.parse(2 * size_of::<Value>(), |text| {
            Ok(serde_json::from_str(text)?)
        })
        .await
    }

    /// Returns the text.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn text(&self) -> HttpResult<&str> {
        utf8(&self.bytes)
    }
}

fn utf8(bytes: &[u8]) -> HttpResult<&str> {
    std::str::from_utf8(bytes)
        .map_err(|_| Refusal::bad_request("invalid UTF-8 JSON: the body is not UTF-8"))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn no_thread(error: io::Error) -> Refusal {
    Refusal::unavailable("no_thread", error.to_string())
}

/// A body of up to `MAX` bytes.
pub(super) struct AtMost<const MAX: usize>(pub(super) Body);

impl<const MAX: usize> FromRequest for AtMost<MAX> {
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self, Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let given = <(web::Payload, Shared)>::from_request(request, payload);
        let request = request.clone();
        async move {
            let (payload, shared) = given.await?;
            Ok(Self(read_at_most(MAX, &request, payload, &shared).await?))
        }
        .boxed_local()
    }
}

/// Reads a body of up to `[server] body_max`.
///
/// # Errors
/// It is too long, too slow or truncated; or the memory limit is reached.
pub(super) async fn read(
    request: &HttpRequest,
    payload: web::Payload,
    shared: &HttpContext,
) -> HttpResult<Body> {
    read_at_most(bytes_max(shared), request, payload, shared).await
}

/// Returns the current maximum length of a body for [`read`].
pub(super) fn bytes_max(shared: &HttpContext) -> usize {
    // Not borrowed while the bound reads the configuration itself.
    let limit = shared.config.borrow().server.body_max;
    limit.min(shared.in_flight.request_max())
}

/// Reads a body of up to `limit` bytes.
///
/// # Errors
/// As [`read`].
async fn read_at_most(
    limit: usize,
    request: &HttpRequest,
    payload: web::Payload,
    shared: &HttpContext,
) -> HttpResult<Body> {
    let account = Account::of(request);
    let limit = match &account {
        Some(_) => limit,
        None => limit.min(UNKNOWN_BYTES_MAX),
    };
    let announced: usize = text(request.head(), header::CONTENT_LENGTH)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let too_large = || {
        let key = (limit == shared.config.borrow().server.body_max).then_some("body_max");
        Refusal::too_large("the body", limit, key)
    };
    if announced > limit {
        return Err(too_large());
    }
    if let Some(account) = &account {
        account.set(announced)?;
    }
    let pace = Pace::new(shared.config.borrow().server.request_timeout);
    let mut body = BytesMut::with_capacity(announced);
    let mut chunks = Chunks {
        payload,
        turn_bytes: 0,
    };
    while let Some(chunk) = chunks.next(pace.deadline()).await? {
        pace.took(chunk.len());
        if body.len() + chunk.len() > limit {
            return Err(too_large());
        }
        if let Some(account) = &account
            && body.len() + chunk.len() > announced
        {
            account.grow(chunk.len())?;
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Body {
        bytes: body.freeze(),
        account,
    })
}

/// The body of a stream of lines.
pub(super) struct Incoming {
    chunks: Chunks,
    account: Option<Account>,
    timeout: Duration,
    /// Progress of the incomplete line.
    line: Option<(Pace, usize)>,
    /// Whether the connection closed early.
    pub is_cut: Arc<AtomicBool>,
}

impl FromRequest for Incoming {
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self, Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let given = <(web::Payload, Shared)>::from_request(request, payload);
        let account = Account::of(request);
        given
            .map_ok(|(payload, shared)| Self {
                chunks: Chunks {
                    payload,
                    turn_bytes: 0,
                },
                account,
                timeout: shared.config.borrow().server.request_timeout,
                line: None,
                is_cut: Arc::default(),
            })
            .boxed_local()
    }
}

impl Incoming {
    /// Returns the next piece; `None` at the end. Between lines a client has [`IDLE_MAX`]; within one it has to be as
    /// fast as with a whole body.
    ///
    /// # Errors
    /// It is too slow or truncated, or the memory limit is reached.
    pub async fn next(&mut self) -> Piece {
        let idle = Instant::now() + IDLE_MAX;
        let line = self.line.as_ref();
        let deadline = line.map_or(idle, |(pace, _)| pace.deadline().min(idle));
        let next = self.chunks.next(deadline).await;
        let is_cut = next
            .as_ref()
            .is_err_and(|refusal| refusal.name() == Some(CUT));
        self.is_cut.store(is_cut, Ordering::Relaxed);
        let Some(chunk) = next? else {
            return Ok(None);
        };
        let begun = memchr::memrchr(b'\n', &chunk).map_or(0, |end| end + 1);
        let rest = chunk.len() - begun;
        let (pace, before) = match self.line.take().filter(|_| begun == 0) {
            Some(line) => line,
            None => (Pace::new(self.timeout), 0),
        };
        pace.took(rest);
        if let Some(account) = &self.account {
            account.set(before + rest)?;
        }
        self.line = (before + rest > 0).then_some((pace, before + rest));
        Ok(Some(chunk))
    }
}

/// Bytes of a body that are read or sent before other tasks of the thread have a turn: they never wait for a fast client.
pub(super) const TURN_BYTES: usize = 256 << 10;

/// The pieces of a body.
struct Chunks {
    payload: web::Payload,
    /// Bytes read in this turn.
    turn_bytes: usize,
}

impl Chunks {
    /// Returns the next piece; `None` at the end.
    async fn next(&mut self, deadline: Instant) -> Piece {
        if self.turn_bytes >= TURN_BYTES {
            self.turn_bytes = 0;
            tokio::task::yield_now().await;
        }
        match timeout_at(deadline, self.payload.next()).await {
            Err(_) => {
                let reason = format!(
                    "the body came too slowly ([server] request_timeout), or nothing of a stream came for {} s",
                    IDLE_MAX.as_secs()
                );
                Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", reason))
            }
            Ok(None) => Ok(None),
            Ok(Some(Ok(chunk))) => {
                self.turn_bytes += chunk.len();
                Ok(Some(chunk))
            }
            Ok(Some(Err(error))) => {
                let name = match error {
                    PayloadError::Incomplete(_) | PayloadError::Io(_) => CUT,
                    _ => "bad_request",
                };
                let reason = format!("the body is cut off: {error}");
                Err(Refusal::new(StatusCode::BAD_REQUEST, name, reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;

    use actix_web::body::{BodyStream, MessageBody};
    use futures_util::stream;
    use test_support::turns_beside;

    use super::super::guard::Exchange;
    use super::super::outgoing::Outgoing;
    use super::*;

    #[actix_rt::test]
    async fn other_tasks_run_while_a_long_body_arrives() {
        let piece = Bytes::from(vec![b' '; TURN_BYTES / 2]);
        let pieces = stream::iter(vec![piece; 8]).map(Ok);
        let mut payload: Payload = Payload::Stream {
            payload: Box::pin(pieces),
        };
        let request = actix_web::test::TestRequest::default().to_http_request();
        let payload = web::Payload::from_request(&request, &mut payload).await;
        let mut chunks = Chunks {
            payload: payload.unwrap(),
            turn_bytes: 0,
        };
        let reading = turns_beside(async {
            let mut bytes = 0;
            while let Some(piece) = chunks.next(Instant::now() + IDLE_MAX).await.ok().unwrap() {
                bytes += piece.len();
            }
            bytes
        });
        assert_eq!(reading.await, (4 * TURN_BYTES, 4));
    }

    #[actix_rt::test]
    async fn other_tasks_run_while_a_long_answer_is_sent() {
        let request = actix_web::test::TestRequest::default().to_http_request();
        let whole = Bytes::from(vec![b' '; 4 * TURN_BYTES]);
        let rows = stream::iter(vec![whole.slice(..TURN_BYTES / 2); 8]).map(Ok::<_, io::Error>);
        for body in [whole.boxed(), BodyStream::new(rows).boxed()] {
            let mut answer = Outgoing::new(body, Exchange::begin(&request), None);
            let sending = turns_beside(async {
                let mut bytes = 0;
                while let Some(piece) = poll_fn(|cx| Pin::new(&mut answer).poll_next(cx)).await {
                    bytes += piece.unwrap().len();
                }
                bytes
            });
            assert_eq!(sending.await, (4 * TURN_BYTES, 4));
        }
    }
}
