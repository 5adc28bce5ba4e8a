//! Rows of a feed of changes.
//!
//! SOURCE    fabric_view_changes: changes_row/1.

use serde_json::json;

use super::super::super::answer::Refusal;
use super::super::super::params::Params;
use crate::replicator::document::Person;
use crate::replicator::members::Members;
use crate::replicator::seen::{SeenLeaf, seen};
use crate::store::{Document, Revision, Store, StoreError};

/// Digits of the store's name in a sequence number.
const MARK: usize = 8;

/// Returns a sequence number as clients see it. It has a part of the store's name in it, so that one
/// of another store is known.
pub(in super::super) fn seq(number: u64, uuid: &str) -> String {
    format!("{number}-{}", uuid.get(..MARK).unwrap_or(uuid))
}

/// Whether a row has all leaves of its document, or the winner alone.
pub(super) fn all_leaves(params: &Params) -> Result<bool, Refusal> {
    match params.get("style") {
        None | Some("main_only") => Ok(false),
        Some("all_docs") => Ok(true),
        Some(other) => {
            let reason = format!("no style {other:?}: main_only or all_docs");
            Err(Refusal::bad_request(reason))
        }
    }
}

/// Returns the leaves of each document as its reader sees them; nothing unless `all` are wanted.
pub(super) async fn other_leaves(
    store: &Store,
    documents: &[Document],
    person: &Person,
    all: bool,
) -> Result<Vec<Vec<Revision>>, StoreError> {
    if !all {
        return Ok(vec![Vec::new(); documents.len()]);
    }
    let ids = documents.iter().map(|document| document.id.clone());
    let trees = store.trees(ids.collect()).await?;
    let leaves = trees.iter().map(|tree| match tree.leaves() {
        // The row has it.
        [_] => Vec::new(),
        _ => seen(tree, person).iter().map(SeenLeaf::revision).collect(),
    });
    Ok(leaves.collect())
}

/// Returns the row of a document of which `whole` is what its reader sees.
pub(super) fn row(
    document: &Document,
    whole: Members,
    leaves: &[Revision],
    uuid: &str,
    include_docs: bool,
) -> Members {
    let own = whole.text("_rev").unwrap_or_default();
    let mut changes = vec![json!({"rev": own})];
    let others = leaves.iter().map(Revision::to_string);
    changes.extend(
        others
            .filter(|rev| *rev != own)
            .map(|rev| json!({"rev": rev})),
    );
    let mut row = Members::default()
        .with("seq", seq(document.seq, uuid))
        .with("id", &document.id)
        .with("changes", changes);
    if document.deleted {
        row.set("deleted", true);
    }
    if include_docs {
        row.set("doc", whole);
    }
    row
}
