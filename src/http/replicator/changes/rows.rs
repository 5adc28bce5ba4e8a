//! Rows of a changes feed, and the filter of its documents.
//!
//! SOURCE    fabric_view_changes: changes_row/1.

use serde_json::{Value, json};

use super::super::super::answer::Refusal;
use super::super::super::params::Params;
use crate::replicator::members::DocMembers;
use mango::Selector;
use store::Document;

/// Returns a sequence for clients: the number, and the mark of the numbering that it belongs to.
pub(crate) fn seq(number: u64, mark: &str) -> String {
    format!("{number}-{mark}")
}

/// Returns a document's row; `whole` is the document as its reader sees it.
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

// Which documents a changes feed shows.
//
// SOURCE    couch_changes: configure_filter/4.
// DIFFERS   No filters of design documents and no views: no code runs for a feed.
// PROMISES  A selector matches only what the reader sees of a document: it cannot be used to guess passwords.

/// Which documents are shown.
pub(super) enum Filter {
    All,
    Ids(Vec<String>),
    /// Design documents.
    Design,
    Selector(Box<Selector>),
}

impl Filter {
    /// Reads a filter from the parameters.
    pub(super) fn of(params: &Params) -> Result<Self, Refusal> {
        match params.get("filter") {
            None | Some("") => Ok(Self::All),
            Some("_design") => Ok(Self::Design),
            Some("_doc_ids") => {
                let ids = params.json(&["doc_ids"])?;
                let ids = ids
                    .as_ref()
                    .and_then(Value::as_array)
                    .ok_or_else(|| Refusal::bad_request("`doc_ids` must be an array."))?;
                Ok(Self::Ids(
                    ids.iter()
                        .filter_map(Value::as_str)
                        .map(str::to_owned)
                        .collect(),
                ))
            }
            Some("_selector") => {
                let text = params.get("selector").ok_or_else(|| {
                    Refusal::bad_request("Selector must be specified in POST payload")
                })?;
                let selector = Selector::parse(text)
                    .map_err(|error| Refusal::bad_request(error.to_string()))?;
                Ok(Self::Selector(Box::new(selector)))
            }
            Some(other) => Err(Refusal::of(
                "not_implemented",
                format!(
                    "the filter {other:?} is not supported here, only _doc_ids, _selector and _design"
                ),
            )),
        }
    }

    /// Returns whether a document is shown. `whole` is the document as its reader sees it.
    pub(super) fn wants(&self, id: &str, whole: &DocMembers) -> bool {
        match self {
            Self::All => true,
            Self::Ids(ids) => ids.iter().any(|wanted| wanted == id),
            Self::Design => id.starts_with("_design/"),
            Self::Selector(selector) => selector.matches(&whole.to_string()).unwrap_or(false),
        }
    }
}
