//! Runs blocking or long work on a separate thread.
//!
//! SUMMARY   [`run`] starts a thread for one piece of work and returns its result; [`Turns`] bound concurrent work.
//! PROMISES  If no thread can be started the caller gets an error, never a panic.
//! DIFFERS   `tokio::task::spawn_blocking` panics if the system refuses its first thread.
//! LIMITS    One thread per call of [`run`]: callers bound their concurrency.

use std::io;
use std::thread;

use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

/// Runs `work` on a thread named `name`. The thread starts at once; dropping the returned future lets the work finish
/// on its own.
///
/// # Errors
/// The system cannot create another thread, possibly temporarily; or the work panicked.
pub fn run<T, W>(name: &str, work: W) -> impl Future<Output = io::Result<T>> + use<T, W>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    let (reply, result) = oneshot::channel();
    let builder = thread::Builder::new().name(name.to_owned());
    // The caller may be gone and not need the result.
    let started = builder.spawn(move || drop(reply.send(work())));
    ended(started, result)
}

async fn ended<T>(
    started: io::Result<thread::JoinHandle<()>>,
    result: oneshot::Receiver<T>,
) -> io::Result<T> {
    started.map_err(|error| {
        let reason = format!("the system has no room for another thread: {error}");
        io::Error::new(error.kind(), reason)
    })?;
    let lost = |_| io::Error::other("a thread of the service panicked");
    result.await.map_err(lost)
}

/// Limits the number of concurrent threads for one kind of work; further work waits for its turn.
#[derive(Debug)]
pub struct Turns(Semaphore);

/// A turn to run something on a thread.
#[derive(Debug)]
pub struct Turn {
    _permit: Option<SemaphorePermit<'static>>,
}

impl Turns {
    /// Allows this many at a time.
    pub const fn new(at_a_time: usize) -> Self {
        Self(Semaphore::const_new(at_a_time))
    }

    /// Waits for a turn.
    pub async fn turn(&'static self) -> Turn {
        Turn {
            // The semaphore is never closed.
            _permit: self.0.acquire().await.ok(),
        }
    }
}

impl Turn {
    /// Like [`run`]. The turn ends with the work, even if the returned future is dropped earlier.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run<T, W>(self, name: &str, work: W) -> impl Future<Output = io::Result<T>> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        run(name, move || {
            let _turn = self;
            work()
        })
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
        let (_reply, result) = oneshot::channel::<()>();
        let refused = ended(impossible.spawn(|| ()), result).await.unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("no room for another thread"), "{text}");
    }

    #[actix_rt::test]
    async fn a_turn_lasts_as_long_as_the_work_of_a_caller_that_was_dropped() {
        static TURNS: Turns = Turns::new(1);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        drop(TURNS.turn().await.run("work", move || ended.recv()));
        assert_eq!(TURNS.0.available_permits(), 0);
        drop(end);
        TURNS.turn().await;
    }

    #[actix_rt::test]
    async fn work_that_panics_is_an_error() {
        let lost = run("panics", || -> () { panic!("meant to happen") }).await;
        assert!(lost.is_err());
    }
}
