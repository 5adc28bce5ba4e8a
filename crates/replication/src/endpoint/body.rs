//! Bodies of requests, whole or streamed, and of streamed responses.

use std::fmt;
use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use super::Permit;
use super::errors::describe;

/// The body of a request.
#[derive(Default)]
pub(crate) enum RequestBody {
    /// None.
    #[default]
    Empty,
    /// In memory. Never copied, however often it is sent.
    Bytes(Bytes),
    /// Streamed. It can be sent only once, so such a request is never retried.
    Stream {
        /// The total length, for `Content-Length`.
        length: u64,
        /// The bytes. An error aborts the request.
        stream: BoxStream<'static, Result<Bytes, BodyFailed>>,
    },
}

/// Why a body ended early. The reader decides whether to retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyFailed {
    /// Nothing arrived within the connection timeout.
    #[error("nothing came for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// The connection broke, the data was not HTTP, or the source of a forwarded body failed.
    #[error("{0}")]
    Broken(String),
    /// The body exceeds its reader's maximum, in bytes.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
}

/// Bytes that arrive in pieces.
#[allow(
    async_fn_in_trait,
    reason = "everything that reads lives on one thread"
)]
pub(crate) trait Chunks {
    /// Waits for the next piece, which is never empty; `None` at the end.
    ///
    /// # Errors
    /// The stream broke, or has the wrong format.
    async fn chunk(&mut self) -> Result<Option<Bytes>, BodyFailed>;
}

impl<C: Chunks> Chunks for &mut C {
    async fn chunk(&mut self) -> Result<Option<Bytes>, BodyFailed> {
        C::chunk(self).await
    }
}

/// Collects a stream, reserving memory for `expected` bytes. Returns `None` if it exceeds `max` bytes.
///
/// # Errors
/// The stream broke, or has the wrong format.
pub(crate) async fn collect(
    chunks: &mut impl Chunks,
    expected: usize,
    max: usize,
) -> Result<Option<Bytes>, BodyFailed> {
    let Some(first) = chunks.chunk().await? else {
        return Ok(Some(Bytes::new()));
    };
    let Some(second) = chunks.chunk().await? else {
        return Ok((first.len() <= max).then_some(first));
    };
    let mut collected = Vec::with_capacity(expected.max(first.len() + second.len()));
    collected.extend_from_slice(&first);
    collected.extend_from_slice(&second);
    while collected.len() <= max {
        match chunks.chunk().await? {
            Some(chunk) => collected.extend_from_slice(&chunk),
            None => return Ok(Some(collected.into())),
        }
    }
    Ok(None)
}

/// The body of a streamed response. Holds one of the endpoint's connections until it has ended or is dropped. Fails
/// if nothing arrives within the connection timeout, or at the deadline of the request.
pub(crate) struct BodyStream {
    /// The body, and its connection; `None` once it has ended.
    body: Option<(BoxStream<'static, reqwest::Result<Bytes>>, Permit)>,
    /// Maximum silence.
    silence: Duration,
    /// The deadline for the whole body.
    deadline: Option<Instant>,
}

impl BodyStream {
    pub(super) fn of_response(
        response: Response,
        silence: Duration,
        deadline: Option<Instant>,
        permit: Permit,
    ) -> Self {
        let pieces = response
            .bytes_stream()
            .try_filter(|piece| ready(!piece.is_empty()));
        Self {
            body: Some((pieces.boxed(), permit)),
            silence,
            deadline,
        }
    }

    /// Reads the whole body, of which `length` bytes are expected.
    ///
    /// # Errors
    /// The body broke off, or has more than `bytes_max` bytes.
    pub async fn read_whole(
        mut self,
        length: usize,
        bytes_max: usize,
    ) -> Result<Bytes, BodyFailed> {
        let too_long = BodyFailed::TooLong(bytes_max);
        if length > bytes_max {
            return Err(too_long);
        }
        // A server's claimed length is trusted up to a limit.
        let believed = length.min(RESERVED_BYTES_MAX);
        collect(&mut self, believed, bytes_max)
            .await?
            .ok_or(too_long)
    }
}

impl Chunks for BodyStream {
    /// Only time spent in this call counts as silence.
    async fn chunk(&mut self) -> Result<Option<Bytes>, BodyFailed> {
        let Some((body, _)) = &mut self.body else {
            return Ok(None);
        };
        let silent = Instant::now() + self.silence;
        let deadline = self.deadline;
        let until = deadline.map_or(silent, |deadline| deadline.min(silent));
        let piece = match timeout_at(until, body.try_next()).await {
            Ok(piece) => piece.map_err(|error| BodyFailed::Broken(describe(&error))),
            Err(_) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => Err(
                BodyFailed::Broken("the request took longer than `request_timeout`".into()),
            ),
            Err(_) => Err(BodyFailed::Silent(self.silence)),
        };
        if !matches!(piece, Ok(Some(_))) {
            self.body = None;
        }
        piece
    }
}

/// Maximum memory reserved for a body in advance, in bytes.
const RESERVED_BYTES_MAX: usize = 16 << 20;

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyStream")
    }
}
