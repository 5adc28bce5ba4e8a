//! Drain: whether this daemon takes new work.
//!
//! SUMMARY   A daemon is drained before its machine is serviced: until undrained, it lends no process and runs no
//!           replication; earlier loans continue. All parts share one [`Drain`].
//! CALLED    Set by HTTP. Checked by the manager of pools for each loan; followed by services, the scheduler and the
//!           fleet member.
//! LIMITS    A restarted daemon takes work.

use tokio::sync::watch;

use crate::otp::system_time;
use policy::schedule::WallTime;

/// Whether the daemon is drained, and since when. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain(watch::Sender<Option<WallTime>>);

impl Drain {
    /// Drains the daemon, or lets it take work again. Returns `false` if nothing changes.
    pub fn set(&self, is_drained: bool) -> bool {
        self.0.send_if_modified(|since| {
            let changes = since.is_some() != is_drained;
            if changes {
                *since = is_drained.then(system_time);
            }
            changes
        })
    }

    /// Returns when the daemon was drained, if it is drained now.
    pub fn since(&self) -> Option<WallTime> {
        *self.0.borrow()
    }

    pub fn is_on(&self) -> bool {
        self.since().is_some()
    }

    /// Returns a receiver of the state, notified when it changes.
    pub fn follow(&self) -> watch::Receiver<Option<WallTime>> {
        self.0.subscribe()
    }

    /// Waits until the daemon takes work. Safe to cancel.
    pub async fn is_over(&self) {
        // `self` keeps the channel open.
        drop(self.follow().wait_for(Option::is_none).await);
    }
}
