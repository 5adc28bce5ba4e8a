//! Whether a job may begin or continue a checkpoint: always, or while the daemon holds its document's lease.
//!
//! SOURCE    FL-3 and FL-5 of `policy::ownership`.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;

/// The lease that a document's job runs under.
pub trait JobLease: fmt::Debug + Send + Sync {
    /// Returns how long a checkpoint begun now may take, unless the lease is renewed meanwhile; `None` if none may
    /// begin.
    fn left(&self) -> Option<Duration>;

    /// Returns the epoch of the owner, for the checkpoint's history.
    fn epoch(&self) -> u64;
}

/// Checked by a job before each checkpoint. Cheap to clone; the default always permits it.
#[derive(Clone, Debug, Default)]
pub struct CheckpointGuard(Option<Arc<dyn JobLease>>);

impl CheckpointGuard {
    /// Permits checkpoints while the lease does.
    pub fn of(lease: Arc<dyn JobLease>) -> Self {
        Self(Some(lease))
    }

    /// Returns how long a checkpoint begun now may take, unless the lease is renewed meanwhile; `None` if none may
    /// begin.
    pub(crate) fn left(&self) -> Option<Duration> {
        let Some(lease) = &self.0 else {
            return Some(Duration::MAX);
        };
        lease.left()
    }

    /// Runs `work` while the lease, with its renewals, lasts. Returns `None` if the lease ends before the work.
    pub(crate) async fn while_held<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        // The remaining time is checked again whenever it has passed.
        let over = async {
            while let Some(left) = self.left() {
                sleep(left).await;
            }
        };
        let (mut work, mut over) = (pin!(work), pin!(over));
        // A suspended process may find an answer and an expired lease at once: then the next request is not sent.
        poll_fn(|cx| match over.as_mut().poll(cx) {
            Poll::Pending if self.left().is_some() => work.as_mut().poll(cx).map(Some),
            Poll::Pending | Poll::Ready(()) => Poll::Ready(None),
        })
        .await
    }

    /// Returns whether both have the same lease, or none.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Returns the epoch of the owner; `None` if a single daemon owns everything.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.0.as_ref().map(|lease| lease.epoch())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use tokio::time::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    /// A lease that counts its checks. [`Lease::of`] pauses the clock.
    #[derive(Debug)]
    struct Lease {
        until: Mutex<Instant>,
        asked: AtomicUsize,
    }

    impl Lease {
        fn of(left: Duration) -> Arc<Self> {
            tokio::time::pause();
            Arc::new(Self {
                until: Mutex::new(Instant::now() + left),
                asked: AtomicUsize::new(0),
            })
        }

        fn renew(&self, left: Duration) {
            *self.until.lock().unwrap() = Instant::now() + left;
        }

        fn guard(self: &Arc<Self>) -> CheckpointGuard {
            let lease: Arc<Self> = Arc::clone(self);
            CheckpointGuard::of(lease)
        }
    }

    impl JobLease for Lease {
        fn left(&self) -> Option<Duration> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let until = *self.until.lock().unwrap();
            Some(until - Instant::now()).filter(|left| !left.is_zero())
        }

        fn epoch(&self) -> u64 {
            1
        }
    }

    #[actix_rt::test]
    async fn work_that_takes_longer_than_the_lease_is_done_while_the_lease_is_renewed() {
        let lease = Lease::of(20 * SECOND);
        let renewing = Arc::clone(&lease);
        let renewing = actix_rt::spawn(async move {
            loop {
                sleep(10 * SECOND).await;
                renewing.renew(20 * SECOND);
            }
        });
        let guard = lease.guard();
        let done = guard.while_held(sleep(3600 * SECOND)).await;
        assert_eq!(done, Some(()));
        // The guard sleeps between checks, for at least 10 s; the other task's wake-ups make the runtime poll it too.
        let asked = lease.asked.load(Ordering::SeqCst);
        assert!(asked <= 4 * 361, "{asked}");
        renewing.abort();
    }

    #[actix_rt::test]
    async fn work_ends_with_a_lease_that_is_no_longer_renewed() {
        let lease = Lease::of(20 * SECOND);
        let renewing = Arc::clone(&lease);
        actix_rt::spawn(async move {
            sleep(15 * SECOND).await;
            renewing.renew(20 * SECOND);
        });
        let begun = Instant::now();
        let guard = lease.guard();
        let done = guard.while_held(std::future::pending::<()>()).await;
        assert_eq!(done, None);
        let (took, renewed) = (begun.elapsed(), 35 * SECOND);
        assert!((renewed..renewed + SECOND).contains(&took), "{took:?}");
    }

    #[actix_rt::test]
    async fn work_ends_with_an_expired_lease_even_if_an_answer_arrived_meanwhile() {
        let lease = Lease::of(20 * SECOND);
        let steps = AtomicUsize::new(0);
        let guard = lease.guard();
        let working = guard.while_held(async {
            loop {
                steps.fetch_add(1, Ordering::SeqCst);
                sleep(10 * SECOND).await;
            }
        });
        // The process was suspended: the answer and the lease's expiry are seen at once.
        let (done, ()): (Option<()>, ()) = tokio::join!(working, tokio::time::advance(60 * SECOND));
        assert_eq!((done, steps.load(Ordering::SeqCst)), (None, 1));
    }

    #[actix_rt::test]
    async fn work_has_no_time_limit_outside_a_fleet_and_never_begins_under_an_expired_lease() {
        let over = Lease::of(Duration::ZERO);
        let work = sleep(36_000 * SECOND);
        assert_eq!(CheckpointGuard::default().while_held(work).await, Some(()));
        let work = async { panic!("work began under an expired lease") };
        assert_eq!(over.guard().while_held(work).await, None::<()>);
    }
}
