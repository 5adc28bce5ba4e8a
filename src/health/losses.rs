//! Unacknowledged losses, kept across restarts.
//!
//! SUMMARY   They are stored in a `_local/` document; if daemons share a database, each has its own document.
//! CALLED    By the HealthWatcher, which reads the document once and writes it on changes.
//! LIMITS    A killed service loses changes since its last check.

use std::collections::BTreeMap;

use settee_client::Problem;
use store::{Store, StoreError};

/// The document's id without `_local/`.
const NAME: &str = "settee-losses";

/// The unacknowledged part of each loss, by kind and subject.
pub(crate) type OpenLosses = BTreeMap<String, BTreeMap<String, u64>>;

/// Returns the losses reported by these problems.
pub(crate) fn of(problems: Vec<Problem>) -> OpenLosses {
    let mut losses = OpenLosses::new();
    for problem in problems.into_iter().filter(|problem| problem.count > 0) {
        losses
            .entry(problem.kind)
            .or_default()
            .insert(problem.subject, problem.count);
    }
    losses
}

fn name(store: &Store, daemon: &str) -> String {
    match store.fleet() {
        Some(_) => format!("{NAME}-{daemon}"),
        None => NAME.to_owned(),
    }
}

/// Reads a daemon's losses; returns none if the document is missing or invalid.
pub(crate) async fn read(store: &Store, daemon: &str) -> Result<OpenLosses, StoreError> {
    let found = store.local(&name(store, daemon)).await?;
    Ok(found
        .and_then(|found| serde_json::from_str(&found.body).ok())
        .unwrap_or_default())
}

/// Writes a daemon's losses. Returns false if the document was changed by another writer.
pub(crate) async fn write(
    store: &Store,
    daemon: &str,
    losses: &OpenLosses,
) -> Result<bool, StoreError> {
    let name = name(store, daemon);
    let known = store.local(&name).await?.map(|known| known.number);
    // Strings and numbers always have a JSON form.
    let body = serde_json::to_string(losses).unwrap_or_default();
    let written = store.edit_local(&name, known, Some(body)).await?;
    Ok(written.is_ok())
}
