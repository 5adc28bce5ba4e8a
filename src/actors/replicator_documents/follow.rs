//! Reads the store's updates from the first one, and passes them to the actor.
//!
//! LIMITS    Reads [`BATCH`] documents at a time, and the next ones once the scheduler has the jobs of these: a start
//!           with many documents makes no burst.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use actix::Addr;
use slog::{Logger, error};
use tokio::sync::watch;

use super::{DocumentsOptions, ReplicatorDocuments, Updated};
use crate::messages::replication_scheduler::ADDS_MAX;
use store::{Store, StoreError};

/// Documents read at a time.
const BATCH: usize = ADDS_MAX;

/// Delay after a failure of the store.
const STORE_WAIT: Duration = Duration::from_secs(5);

/// Interval between attempts to open an existing store, which another service may be using.
const OPEN_WAIT: Duration = Duration::from_secs(30);

/// Follows the store's updates. `last_read` is the number of the last one that the actor has handled.
pub(super) async fn follow(
    options: Rc<DocumentsOptions>,
    to: Addr<ReplicatorDocuments>,
    last_read: Rc<Cell<u64>>,
    log: Logger,
) {
    let store = options.database.store.clone();
    let mut updates = store.updates();
    until_open(&store, &mut updates).await;
    let (mut since, mut mark) = (0, String::new());
    // An error is logged once until the store works again.
    let mut is_told = false;
    loop {
        updates.mark_unchanged();
        last_read.set(since);
        let changes = match options.identity.get(&store).await {
            Ok(_) => store.changes(since, BATCH).await,
            Err(error) => Err(error),
        };
        match changes {
            // The numbering has changed: everything is reread.
            Ok(changes) if !mark.is_empty() && changes.mark != mark => {
                (since, mark) = (0, changes.mark);
                options.database.states.lock().renumbered();
            }
            Ok(changes) if changes.documents.is_empty() => {
                (since, mark) = (changes.update_seq, changes.mark);
                last_read.set(since);
                if updates.changed().await.is_err() {
                    return;
                }
            }
            Ok(changes) => {
                mark = changes.mark;
                since = changes
                    .documents
                    .last()
                    .map_or(since, |document| document.seq);
                if to.send(Updated(changes.documents)).await.is_err() {
                    return;
                }
            }
            Err(StoreError::Closed) => return,
            Err(error) => {
                if !std::mem::replace(&mut is_told, true) {
                    error!(log, "replication documents cannot be read"; "error" => %error,
                           "effect" => "changes of documents take effect later");
                }
                actix_rt::time::sleep(STORE_WAIT).await;
                continue;
            }
        }
        is_told = false;
    }
}

/// Waits until another part of the service opens the store: a service that only lends processes needs none. Opens an
/// existing store itself, if it could not be opened at the start.
async fn until_open(store: &Store, updates: &mut watch::Receiver<Option<u64>>) {
    while updates.borrow_and_update().is_none() {
        tokio::select! {
            changed = updates.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = actix_rt::time::sleep(OPEN_WAIT) => {
                if store.place().exists() {
                    // The error was logged at the start.
                    drop(store.open().await);
                }
            }
        }
    }
}
