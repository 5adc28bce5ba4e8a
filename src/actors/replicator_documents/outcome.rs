//! Writes the outcome of a replication into its document.
//!
//! PROMISES  A document that changed meanwhile or is no longer owned is not modified. `triggered` and `error` never
//!           replace `completed` or `failed`.
//! SOURCE    couch_replicator_docs: update_rep_doc/3.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use slog::{Logger, error};

use super::DocumentsOptions;
use crate::otp::system_time;
use crate::replicator::document::{asked_by, members};
use crate::replicator::lease::DocLease;
use crate::replicator::state::{Outcome, is_over};
use replication::spec::Replication;
use store::{Document, Revision, StoreError};

/// The first delay after a failure of the store; it doubles each time.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// Maximum delay.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Writes an outcome; retries while the store fails. Returns whether it was written.
///
/// # Errors
/// The store is closed.
pub(super) async fn write(
    options: Rc<DocumentsOptions>,
    doc: String,
    lease: Option<Arc<DocLease>>,
    replication: Option<Arc<Replication>>,
    outcome: Outcome,
    update_docs: bool,
    log: &Logger,
) -> Result<bool, StoreError> {
    let (mut wait, lease) = (WAIT_MIN, lease.as_ref());
    loop {
        if lease.is_some_and(|lease| !lease.holds()) {
            return Ok(false);
        }
        let (outcome, asked) = (outcome.clone(), replication.clone());
        let written = change(&options, lease, &doc, move |document| {
            let mut body = members(document);
            let is_same = match (&asked_by(&document.id, &body), &asked) {
                (Some(now), Some(before)) => now.same_as(before),
                (now, before) => now.is_none() && before.is_none(),
            };
            // A retry may be older than the final outcome.
            let is_late = is_over(&body) && !outcome.is_final();
            if !is_same || is_late {
                return None;
            }
            outcome.write(&mut body, &system_time().to_string(), update_docs);
            Some(body.to_string())
        });
        match written.await {
            Err(error) if error != StoreError::Closed => {
                if wait == WAIT_MIN {
                    error!(log, "the outcome of a replication cannot be written";
                           "document" => &doc, "error" => %error, "effect" => "it is retried");
                }
                actix_rt::time::sleep(wait).await;
                wait = (wait * 2).min(WAIT_MAX);
            }
            written => return Ok(written?.is_some()),
        }
    }
}

/// Replaces a document's body while it is owned: see [`change`](store::DocumentStore::change).
pub(super) async fn change(
    options: &DocumentsOptions,
    lease: Option<&Arc<DocLease>>,
    doc: &str,
    change: impl FnOnce(&Document) -> Option<String> + Send + 'static,
) -> Result<Option<Revision>, StoreError> {
    let (store, owner) = (&options.database.store, lease.map(|lease| lease.owner()));
    store.change(owner, doc, Box::new(change)).await
}
