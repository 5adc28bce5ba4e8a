//! Runs blocking or long work on a separate thread.
//!
//! SUMMARY   [`run`] starts a thread for one piece of work and returns its result.
//! PROMISES  If no thread can be started the caller gets an error, never a panic.
//! DIFFERS   `tokio::task::spawn_blocking` panics if the system refuses its first thread.
//! LIMITS    One thread per call: callers bound their concurrency.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// Runs `work` on a thread named `name`. The thread starts at once; dropping the returned future lets the work finish
/// on its own.
///
/// # Errors
/// The system has no room for another thread, possibly temporarily; or the work panicked.
pub fn run<T, W>(name: &str, work: W) -> impl Future<Output = io::Result<T>> + use<T, W>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    run_on(thread::Builder::new().name(name.to_owned()), work)
}

fn run_on<T, W>(
    builder: thread::Builder,
    work: W,
) -> impl Future<Output = io::Result<T>> + use<T, W>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    let (reply, result) = oneshot::channel();
    // The caller may have gone, and not need the result.
    let started = builder.spawn(move || drop(reply.send(work())));
    async move {
        started.map_err(|error| {
            let reason = format!("the system has no room for another thread: {error}");
            io::Error::new(error.kind(), reason)
        })?;
        let lost = |_| io::Error::other("a thread of the service panicked");
        result.await.map_err(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_rt::test]
    async fn work_runs_on_another_thread_and_its_result_is_returned() {
        let here = thread::current().id();
        let there = run("work", || thread::current().id()).await.unwrap();
        assert_ne!(here, there);
    }

    #[actix_rt::test]
    async fn a_thread_that_cannot_be_started_is_an_error() {
        // No machine has enough address space for such a stack.
        let impossible = thread::Builder::new().stack_size(1 << 60);
        let refused = run_on(impossible, || ()).await.unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("no room for another thread"), "{text}");
    }

    #[actix_rt::test]
    async fn work_that_panics_is_an_error() {
        let lost = run("panics", || -> () { panic!("meant to happen") }).await;
        assert!(lost.is_err());
    }
}
