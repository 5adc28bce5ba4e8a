//! Work that would block other tasks of this thread.
//!
//! PROMISES  Work on up to [`LIGHT_BYTES`], which takes a few milliseconds, is done on this thread; work on more
//!           bytes is done on a blocking thread.

use std::panic::resume_unwind;

use tokio::task::spawn_blocking;

/// Maximum number of bytes processed before other tasks get a turn.
const LIGHT_BYTES: usize = 512 << 10;

/// Runs `work`, which processes this many bytes, and returns its result.
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
            // The runtime is shutting down, and drops this task.
            Err(_) => std::future::pending().await,
        },
    }
}
