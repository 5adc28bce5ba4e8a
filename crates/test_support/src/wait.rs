//! Waits for a state or an event with a deadline, in real and in paused time.

use std::future::Future;
use std::time::Duration;

use actix_rt::time::{sleep, timeout};

/// How long a test waits for something that must happen. Generous: a test must not fail because the machine is under
/// load.
pub const PATIENCE: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until `condition` holds.
///
/// Uses the test's clock: under `tokio::time::pause` it lets simulated time pass, as fast as everything else allows.
///
/// # Panics
/// It does not hold within [`PATIENCE`]; the message has `what`.
pub async fn eventually<C, F>(what: &str, mut condition: C)
where
    C: FnMut() -> F,
    F: Future<Output = bool>,
{
    let poll = async {
        while !condition().await {
            sleep(POLL_INTERVAL).await;
        }
    };
    assert!(
        timeout(PATIENCE, poll).await.is_ok(),
        "did not happen within {PATIENCE:?}: {what}"
    );
}

/// Waits for a future to be ready.
///
/// # Panics
/// It is not ready within [`PATIENCE`]; the message has `what`.
pub async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("did not happen within {PATIENCE:?}: {what}"),
    }
}

/// Waits for `work`; returns its result, and how many turns another task of the thread had meanwhile.
pub async fn turns_beside<T>(work: impl Future<Output = T>) -> (T, u32) {
    let mut turns = 0;
    let others = async {
        loop {
            turns += 1;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = work => (done, turns),
        () = others => unreachable!("it has no end"),
    }
}
