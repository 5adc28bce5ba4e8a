//! Work that would block the other tasks of this thread.
//!
//! PROMISES  Work on at most [`LIGHT_BYTES`] is done on this thread, which takes a few milliseconds; work on more is
//!           done on a thread for blocking work.

use std::panic::resume_unwind;

use tokio::task::spawn_blocking;

/// The most bytes that are worked on before other tasks have a turn.
const LIGHT_BYTES: usize = 512 << 10;

/// Does work on that many bytes.
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
