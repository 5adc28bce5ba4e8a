//! Work on long input, on a separate thread, so that other users of the current thread do not wait for it.
//!
//! SUMMARY   [`aside`] works at once if there are few bytes, and in turn on another thread if there are many.
//! CALLED    For the bodies of HTTP requests and their answers, and for lines from clients and from query servers.

use std::io;

use blocking::Turns;

/// Maximum length of input processed on the current thread, in bytes.
const SHORT_BYTES_MAX: usize = 256 << 10;

/// Maximum long inputs processed at a time; more wait.
const THREADS_MAX: usize = 2;

static TURNS: Turns = Turns::new(THREADS_MAX);

/// Returns whether this many bytes are processed on another thread.
pub(crate) const fn is_long(bytes: usize) -> bool {
    bytes > SHORT_BYTES_MAX
}

/// Returns the result of `work`, which processes this many bytes, and is done on another thread if they are many.
///
/// # Errors
/// The system cannot create another thread, possibly temporarily; or the work panicked on one.
pub(crate) async fn aside<T, W>(bytes: usize, work: W) -> io::Result<T>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    if !is_long(bytes) {
        return Ok(work());
    }
    TURNS.turn().await.run("aside", work).await
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[actix_rt::test]
    async fn only_long_input_is_handed_to_another_thread() {
        let here = thread::current().id();
        for (length, is_here) in [(SHORT_BYTES_MAX, true), (SHORT_BYTES_MAX + 1, false)] {
            let there = aside(length, || thread::current().id()).await.unwrap();
            assert_eq!(there == here, is_here, "{length}");
        }
    }
}
