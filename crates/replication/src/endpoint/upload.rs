//! Long request bodies, in pieces.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, sleep_until};

use super::body::BodyFailed;
use super::http::lock;

/// Longer request bodies are sent in pieces of this size, in bytes, so that a slow connection can be distinguished
/// from a silent one, and an early answer is noticed.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Makes a body that yields to reading the connection before each piece.
///
/// A server that refuses a body answers and closes without reading it. A client that keeps writing then only sees a
/// reset connection; the answer can be read just before.
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

/// Returns the pieces of a long body, without copies.
pub(super) fn pieces(mut body: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let length = body.len().min(PIECE_BYTES);
        (length > 0).then(|| body.split_to(length))
    })
}

/// When a part of a request's body was last sent.
#[derive(Clone)]
pub(super) struct Activity(Arc<Mutex<Instant>>);

impl Activity {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    fn note(&self) {
        *lock(&self.0) = Instant::now();
    }

    /// Waits until nothing was sent for this long.
    pub async fn silent_for(&self, silence: Duration) {
        loop {
            let until = *lock(&self.0) + silence;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}
