//! Bodies: of requests, whole or streamed, and of streamed answers.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};

/// The body of a request.
#[derive(Default)]
pub enum RequestBody {
    /// None.
    #[default]
    Empty,
    /// In memory. It is not copied, however often it is sent.
    Bytes(Bytes),
    /// As it comes. It can be sent once only, so such a request is never tried again.
    Stream {
        /// How many bytes come, for `Content-Length`. `None` sends it in chunks.
        length: Option<u64>,
        /// The bytes. An error breaks the request off.
        stream: BoxStream<'static, Result<Bytes, BodyFailed>>,
    },
}

impl RequestBody {
    /// Makes a body of a stream.
    pub fn stream(
        length: Option<u64>,
        stream: impl Stream<Item = Result<Bytes, BodyFailed>> + Send + 'static,
    ) -> Self {
        let stream = stream.boxed();
        Self::Stream { length, stream }
    }
}

impl fmt::Debug for RequestBody {
    /// Shows lengths only: documents are nobody's business, and may be large.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::Stream { length, .. } => write!(f, "Stream({length:?})"),
        }
    }
}

/// Why a body ended early. Worth a retry, by the rules of who reads it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFailed {
    /// Nothing came for as long as a connection may be silent.
    #[error("nothing came for {} s", .0.as_secs_f64())]
    Silent(std::time::Duration),
    /// The connection broke, or what came was no HTTP.
    #[error("{0}")]
    Broken(String),
    /// It is longer than its reader takes, in bytes.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// Its source failed: of a body that is passed on from elsewhere.
    #[error("{0}")]
    Source(String),
}

/// The body of a streamed answer. It holds one of the endpoint's connections until it has ended or is
/// dropped. It fails if nothing comes for as long as a connection may be silent.
pub struct BodyStream {
    inner: BoxStream<'static, Result<Bytes, BodyFailed>>,
}

impl BodyStream {
    /// Makes one; for tests, too.
    pub fn new(inner: impl Stream<Item = Result<Bytes, BodyFailed>> + Send + 'static) -> Self {
        let inner = inner.boxed();
        Self { inner }
    }

    /// Reads the rest whole, `bytes_max` bytes at most.
    ///
    /// # Errors
    /// [`BodyFailed`], also if there is more than that.
    pub async fn read_to_end(mut self, bytes_max: usize) -> Result<Bytes, BodyFailed> {
        let Some(first) = self.next().await.transpose()? else {
            return Ok(Bytes::new());
        };
        let mut whole = None::<BytesMut>;
        let too_long = |length: usize| length > bytes_max;
        if too_long(first.len()) {
            return Err(BodyFailed::TooLong(bytes_max));
        }
        while let Some(more) = self.next().await.transpose()? {
            let whole = whole.get_or_insert_with(|| BytesMut::from(&first[..]));
            if too_long(whole.len() + more.len()) {
                return Err(BodyFailed::TooLong(bytes_max));
            }
            whole.extend_from_slice(&more);
        }
        Ok(whole.map_or(first, BytesMut::freeze))
    }
}

impl Stream for BodyStream {
    type Item = Result<Bytes, BodyFailed>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inner.poll_next_unpin(cx)
    }
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyStream")
    }
}
