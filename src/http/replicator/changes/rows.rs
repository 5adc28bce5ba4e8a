//! Rows of a feed of changes.
//!
//! SOURCE    fabric_view_changes: changes_row/1.

use serde_json::json;

use crate::replicator::members::DocMembers;
use crate::store::Document;

/// Digits of the store's name in a sequence number.
const MARK: usize = 8;

/// Returns a sequence number as clients see it. It has a part of the store's name in it, so that one
/// of another store is known.
pub(in super::super) fn seq(number: u64, uuid: &str) -> String {
    format!("{number}-{}", uuid.get(..MARK).unwrap_or(uuid))
}

/// Returns the row of a document of which `whole` is what its reader sees.
pub(super) fn row(
    document: &Document,
    whole: DocMembers,
    uuid: &str,
    include_docs: bool,
) -> DocMembers {
    let rev = whole.text("_rev").unwrap_or_default();
    let mut row = DocMembers::default()
        .with("seq", seq(document.seq, uuid))
        .with("id", &document.id)
        .with("changes", [json!({"rev": rev})]);
    if document.deleted {
        row.set("deleted", true);
    }
    if include_docs {
        row.set("doc", whole);
    }
    row
}
