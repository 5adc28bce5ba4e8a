//! Keeps the store small: purges deleted documents after `[store] deleted_kept_for`, then compacts the file.
//!
//! PROMISES  A request to the store waits for at most [`PURGE_BATCH`] purges, or for one compaction, of which there
//!           is at most one per [`COMPACT_WAIT`]. A deletion is purged only after it was read, which removes its job.
//!           The store is not opened for this.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use actix_rt::time::{Instant, sleep};
use slog::{Logger, info, warn};

use super::DocumentsOptions;
use store::{Store, StoreError, unix_now};

/// Deleted documents checked in one request.
const PURGE_BATCH: usize = 1000;

/// Minimum and maximum interval of searches for deleted documents.
const PURGE_WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60 * 60));

/// Minimum time between two compactions.
const COMPACT_WAIT: Duration = Duration::from_secs(10);

/// Waits until the store is open, and keeps it small until it is closed.
pub(super) async fn keep_small(
    options: Rc<DocumentsOptions>,
    last_read: Rc<Cell<u64>>,
    log: Logger,
) {
    let store = &options.database.store;
    let mut config = options.config.clone();
    let mut compacted: Option<Instant> = None;
    // An earlier run of the service may have left space to compact.
    let mut is_due = true;
    let mut is_told = false;
    if store.updates().wait_for(Option::is_some).await.is_err() {
        return;
    }
    loop {
        let kept_for = config.borrow_and_update().store.deleted_kept_for;
        let before = unix_now()
            .saturating_sub(kept_for.as_secs())
            .saturating_add(1);
        let until = last_read.get();
        let is_behind = store.updates().borrow().is_some_and(|seq| seq > until);
        let is_early = compacted.is_some_and(|at| at.elapsed() < COMPACT_WAIT);
        let done = async {
            is_due |= purge(store, before, until, &log).await? > 0;
            if is_due && !is_early {
                let count = store.compact().await?;
                (is_due, compacted) = (false, Some(Instant::now()));
                if count > 0 {
                    info!(log, "the file of the store shrank by this many bytes"; "count" => count);
                }
            }
            Ok(())
        };
        match done.await {
            Err(StoreError::Closed) => return,
            Err(error) if !std::mem::replace(&mut is_told, true) => {
                warn!(log, "deleted documents cannot be removed from the store"; "error" => %error,
                      "effect" => "it is retried; the file stays larger than necessary");
            }
            done => is_told &= done.is_err(),
        }
        let wait = if is_due {
            COMPACT_WAIT
        } else {
            let most = if is_behind {
                COMPACT_WAIT
            } else {
                PURGE_WAIT.1
            };
            kept_for.clamp(PURGE_WAIT.0, most)
        };
        tokio::select! {
            () = sleep(wait) => {}
            changed = config.changed() => if changed.is_err() {
                return;
            }
        }
    }
}

/// Purges documents deleted before a time, in seconds since 1970, up to the update `until`. Returns their number.
async fn purge(store: &Store, before: u64, until: u64, log: &Logger) -> Result<usize, StoreError> {
    let (mut removed, mut next) = (0, 0);
    loop {
        let purged = store.purge(before, next..=until, PURGE_BATCH).await?;
        removed += purged.removed;
        match purged.last {
            Some(last) => next = last + 1,
            None => break,
        }
    }
    if removed > 0 {
        info!(log, "deleted documents were removed from the store"; "count" => removed);
    }
    Ok(removed)
}
