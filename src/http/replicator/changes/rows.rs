//! Rows of a feed of changes.
//!
//! SOURCE    fabric_view_changes: changes_row/1.

use serde_json::json;

use crate::replicator::members::DocMembers;
use store::Document;

/// Returns a sequence number as clients see it, with the mark that tells whose it is.
pub(in super::super) fn seq(number: u64, mark: &str) -> String {
    format!("{number}-{mark}")
}

/// Returns the row of a document of which `whole` is what its reader sees.
pub(super) fn row(
    document: &Document,
    whole: DocMembers,
    mark: &str,
    include_docs: bool,
) -> DocMembers {
    let rev = whole.text("_rev").unwrap_or_default();
    let mut row = DocMembers::default()
        .with("seq", seq(document.seq, mark))
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
