//! The lease that this daemon has on a document, for its job and the writers of its outcome.
//!
//! SUMMARY   The fleet member sets the expiry of an epoch's lease ([`EpochLease`]), and the table of documents ends
//!           claims ([`DocLease`]); jobs on other threads check both without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::checkpoint_guard::{CheckpointGuard, JobLease};
use crate::otp::BootClock;
use policy::ownership::{Claim, Epoch};

/// The lease of an epoch.
#[derive(Debug)]
pub(crate) struct EpochLease {
    /// The owner's epoch.
    pub epoch: Epoch,
    clock: BootClock,
    /// Until when checkpoints may begin, in microseconds of the clock; 0: it has ended.
    until: AtomicU64,
}

impl EpochLease {
    /// Begins an epoch's lease, which is invalid until its expiry is set.
    pub fn new(epoch: Epoch, clock: BootClock) -> Self {
        Self {
            epoch,
            clock,
            until: AtomicU64::new(0),
        }
    }

    /// Sets until when checkpoints may begin.
    pub fn set_until(&self, until: Duration) {
        let until = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        self.until.store(until, Ordering::SeqCst);
    }

    /// Ends it permanently.
    pub fn end(&self) {
        self.set_until(Duration::ZERO);
    }

    fn left(&self) -> Option<Duration> {
        let left = Duration::from_micros(self.until.load(Ordering::SeqCst))
            .checked_sub(self.clock.now())?;
        Some(left).filter(|left| !left.is_zero())
    }
}

/// A claim on a document: valid during its epoch's lease, until the document is lost.
#[derive(Debug)]
pub(crate) struct DocLease {
    lease: Arc<EpochLease>,
    /// The claim that owns the document.
    pub claim: Claim,
    /// Whether the document is closed to daemons that cannot reach its servers: their back-off does not apply here.
    pub is_extra: bool,
    is_lost: AtomicBool,
}

impl DocLease {
    /// Begins a claim.
    pub fn new(lease: Arc<EpochLease>, claim: Claim, is_extra: bool) -> Arc<Self> {
        Arc::new(Self {
            lease,
            claim,
            is_extra,
            is_lost: AtomicBool::new(false),
        })
    }

    /// Returns the claim's owner.
    pub fn owner(&self) -> Epoch {
        self.lease.epoch
    }

    /// Ends the claim: the document is no longer owned, or must not be acted on.
    pub fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
    }

    /// Returns whether the document is still owned.
    pub fn holds(&self) -> bool {
        self.left().is_some()
    }

    /// Returns the guard for checkpoints of the document's job.
    pub fn guard(self: &Arc<Self>) -> CheckpointGuard {
        CheckpointGuard::of(self.clone())
    }
}

impl JobLease for DocLease {
    fn left(&self) -> Option<Duration> {
        let is_lost = self.is_lost.load(Ordering::SeqCst);
        self.lease.left().filter(|_| !is_lost)
    }

    fn epoch(&self) -> u64 {
        self.lease.epoch.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_ends_when_it_is_lost_its_epoch_ends_or_it_expires() {
        let clock = BootClock::default();
        let epoch = Arc::new(EpochLease::new(Epoch(7), clock.clone()));
        let [lost, kept] = [1, 2].map(|claim| {
            DocLease::new(Arc::clone(&epoch), policy::ownership::Request(claim), false)
        });
        assert!(!kept.holds(), "the lease has no expiry yet");
        let hour = Duration::from_secs(3600);
        epoch.set_until(clock.now() + hour);
        assert!(kept.left().is_some_and(|left| left <= hour));
        lost.lose();
        assert_eq!((lost.holds(), kept.holds()), (false, true));
        clock.set_forward(hour);
        assert!(!kept.holds());
        epoch.set_until(clock.now() + hour);
        assert_eq!((lost.holds(), kept.holds()), (false, true));
        epoch.end();
        assert!(!kept.holds());
    }
}
