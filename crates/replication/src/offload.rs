//! Work that would keep everybody else on this thread waiting.
//!
//! PROMISES  What has at most [`LIGHT_BYTES`] to work on is done here, which takes a few milliseconds; what has more is
//!           done on a thread that may take its time.

use std::panic::resume_unwind;

use tokio::task::spawn_blocking;

/// The most bytes that are worked on at a time between others' turns.
const LIGHT_BYTES: usize = 512 << 10;

/// Does work on so many bytes.
pub(crate) async fn offload<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= LIGHT_BYTES {
        return work();
    }
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(died) => match died.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends, and so does whoever waits for this.
            Err(_) => std::future::pending().await,
        },
    }
}
