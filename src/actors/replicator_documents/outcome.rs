//! Writes what became of a replication into its document.
//!
//! PROMISES  A document that asks for something else by then is left as it is.
//! SOURCE    couch_replicator_docs: update_rep_doc/3.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::{DocumentsOptions, now};
use crate::replication::spec::Replication;
use crate::replicator::defaults;
use crate::replicator::document::{members, parse};
use crate::replicator::state::Outcome;
use crate::store::StoreError;

/// How often an outcome is written that the store does not take.
const WRITES_MAX: u32 = 5;

/// Writes an outcome; tries again while the store fails.
///
/// # Errors
/// The store has failed too often.
pub(super) async fn write(
    options: Rc<DocumentsOptions>,
    doc: String,
    replication: Option<Arc<Replication>>,
    outcome: Outcome,
    update_docs: bool,
) -> Result<(), StoreError> {
    let mut wait = Duration::from_secs(1);
    for _ in 1..WRITES_MAX {
        match write_once(&options, &doc, &replication, &outcome, update_docs).await {
            Err(StoreError::Failed(_)) => actix_rt::time::sleep(wait).await,
            result => return result,
        }
        wait *= 2;
    }
    write_once(&options, &doc, &replication, &outcome, update_docs).await
}

async fn write_once(
    options: &DocumentsOptions,
    doc: &str,
    replication: &Option<Arc<Replication>>,
    outcome: &Outcome,
    update_docs: bool,
) -> Result<(), StoreError> {
    let defaults = defaults(&options.config.borrow().replicator);
    let (outcome, asked) = (outcome.clone(), replication.clone());
    let written = options.database.store().change(doc, move |document| {
        let mut body = members(document);
        let now_asked = parse(&document.id, &body.clone().into(), &defaults).ok();
        let is_same = match (&now_asked, &asked) {
            (Some(now), Some(before)) => now.same_as(before),
            (now, before) => now.is_none() && before.is_none(),
        };
        if !is_same {
            return None;
        }
        outcome.write(&mut body, &now().to_string(), update_docs);
        Some(serde_json::Value::Object(body).to_string())
    });
    written.await.map(drop)
}
