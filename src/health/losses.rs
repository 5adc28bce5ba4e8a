//! Losses that nobody has acknowledged, kept over restarts.
//!
//! SUMMARY   A `_local/` document of the store holds them; where daemons share a database, one for each daemon.
//! CALLED    By the HealthWatcher, which reads the document once and writes it when they change.
//! LIMITS    A service that is killed forgets what changed since its last look.

use std::collections::BTreeMap;

use settee_client::Problem;
use store::{Store, StoreError};

/// The document's id without `_local/`.
const NAME: &str = "settee-losses";

/// How much of each loss nobody has acknowledged, by its kind and subject.
pub(crate) type OpenLosses = BTreeMap<String, BTreeMap<String, u64>>;

/// Returns what these problems report as lost.
pub(crate) fn of(problems: Vec<Problem>) -> OpenLosses {
    let mut losses = OpenLosses::new();
    for problem in problems.into_iter().filter(|problem| problem.count > 0) {
        let of_kind = losses.entry(problem.kind).or_default();
        of_kind.insert(problem.subject, problem.count);
    }
    losses
}

fn name(store: &Store, daemon: &str) -> String {
    match store.fleet() {
        Some(_) => format!("{NAME}-{daemon}"),
        None => NAME.to_owned(),
    }
}

/// Reads the losses of a daemon; a text that is something else has none.
pub(crate) async fn read(store: &Store, daemon: &str) -> Result<OpenLosses, StoreError> {
    let found = store.local(&name(store, daemon)).await?;
    let losses = found.and_then(|found| serde_json::from_str(&found.body).ok());
    Ok(losses.unwrap_or_default())
}

/// Writes the losses of a daemon. Returns whether nobody else wrote the document meanwhile.
pub(crate) async fn write(
    store: &Store,
    daemon: &str,
    losses: &OpenLosses,
) -> Result<bool, StoreError> {
    let name = name(store, daemon);
    let known = store.local(&name).await?.map(|known| known.number);
    // Texts and numbers: there is nothing that JSON has no form for.
    let body = serde_json::to_string(losses).unwrap_or_default();
    let written = store.edit_local(&name, known, Some(body)).await?;
    Ok(written.is_ok())
}
