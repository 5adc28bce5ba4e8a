//! Long bodies of requests, in pieces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, sleep_until};

use super::body::BodyFailed;

/// Bodies of requests that are longer are sent in pieces of this many bytes, so that a slow connection can be told
/// from a silent one, and an answer that comes early be seen.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Makes a body that lets the connection be read before each piece.
///
/// A server that refuses a body answers and closes before it has read it. Whoever goes on writing then learns
/// of nothing but a connection that was reset; the answer is there to be read just before.
pub(super) fn paced(
    pieces: impl Stream<Item = Result<Bytes, BodyFailed>> + Send + 'static,
    activity: Activity,
) -> reqwest::Body {
    reqwest::Body::wrap_stream(pieces.then(move |piece| {
        activity.note();
        async {
            tokio::task::yield_now().await;
            piece
        }
    }))
}

/// The pieces of a long body, without copies.
pub(super) struct Pieces(pub(super) Bytes);

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let length = self.0.len().min(PIECE_BYTES);
        (length > 0).then(|| self.0.split_to(length))
    }
}

/// When something of a request's body was sent last.
#[derive(Clone)]
pub(super) struct Activity {
    began: Instant,
    /// In milliseconds after `began`.
    last: Arc<AtomicU64>,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            last: Arc::default(),
        }
    }

    fn note(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Returns when nothing was sent for this long.
    pub(super) async fn silent_for(&self, silence: Duration) {
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            let until = self.began + last + silence;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}
