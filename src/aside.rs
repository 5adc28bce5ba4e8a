//! Work on long input, on a thread of its own, so that others that the current thread serves do not wait for it.
//!
//! SUMMARY   [`aside`] does something with bytes: at once with short ones, in turn and on another thread with long ones.
//! CALLED    By HTTP for bodies, by clients of the sockets and children for lines.

use std::io;

use blocking::Turns;
use bytes::Bytes;

/// Input up to this length is worked on where it is. Bytes.
const SHORT_BYTES_MAX: usize = 256 << 10;

/// How much long input is worked on at a time; more waits for its turn.
const THREADS_MAX: usize = 2;

static TURNS: Turns = Turns::new(THREADS_MAX);

/// Returns whether work on that many bytes is done aside.
pub(crate) const fn is_long(bytes: usize) -> bool {
    bytes > SHORT_BYTES_MAX
}

/// Does something with bytes.
///
/// # Errors
/// The system has no room for another thread, which may pass.
pub(crate) async fn aside<T, W>(bytes: Bytes, work: W) -> io::Result<T>
where
    T: Send + 'static,
    W: FnOnce(&[u8]) -> T + Send + 'static,
{
    if !is_long(bytes.len()) {
        return Ok(work(&bytes));
    }
    TURNS.turn().await.run("aside", move || work(&bytes)).await
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[actix_rt::test]
    async fn only_long_input_is_handed_to_another_thread() {
        let here = thread::current().id();
        for (length, is_here) in [(SHORT_BYTES_MAX, true), (SHORT_BYTES_MAX + 1, false)] {
            let bytes = Bytes::from(vec![b' '; length]);
            let there = aside(bytes, |_| thread::current().id()).await.unwrap();
            assert_eq!(there == here, is_here, "{length}");
        }
    }
}
