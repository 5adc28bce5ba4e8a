//! The meaning of a version of a document: the replication that it requests, and changes to make in the store.
//!
//! SOURCE    couch_replicator_doc_processor: process_change/2, process_updated/2.

use std::sync::Arc;

use super::defaults;
use super::document::{asked_by, members, parse};
use super::state::{self, STATE, is_over};
use super::table::Wish;
use crate::config::Replicator;
use store::Document;

/// The content of a version.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The document's request; `None` if this version does not count.
    pub wish: Option<Wish>,
    /// The change to make in the store.
    pub in_store: Option<StoreWork>,
    /// Whether its body has the replication's state; false if the version does not count.
    pub has_state: bool,
}

/// A change in the store for a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreWork {
    /// Forget the kept settings of its job.
    ForgetKept,
    /// Replace its body by the one that [`without_state`] returns.
    RemoveState,
}

impl Reading {
    /// Reads a version. If it is not acted upon (another daemon owns the document, or a later version was seen), only
    /// its deletion counts.
    pub fn of(document: &Document, is_acted_upon: bool, config: &Replicator) -> Self {
        let in_store = document.deleted.then_some(StoreWork::ForgetKept);
        if !is_acted_upon || document.id.starts_with("_design/") {
            return Self {
                wish: None,
                in_store,
                has_state: false,
            };
        }
        let body = members(document);
        let has_state = body.text(STATE).is_some();
        if document.deleted || is_over(&body) {
            return Self {
                wish: Some(Wish::Nothing),
                in_store,
                has_state,
            };
        }
        let wish = match parse(&document.id, &body, &defaults(config)) {
            Ok(replication) => Wish::Run(Arc::new(replication)),
            Err(reason) => Wish::Broken {
                reason,
                replication: asked_by(&document.id, &body).map(Arc::new),
            },
        };
        let is_state_unwanted = !config.update_docs && has_state;
        Self {
            wish: Some(wish),
            in_store: is_state_unwanted.then_some(StoreWork::RemoveState),
            has_state,
        }
    }
}

/// Returns the body of a document without the members that `update_docs` wrote; `None` if there are none, or the
/// replication has completed or failed.
pub(crate) fn without_state(document: &Document) -> Option<String> {
    let mut body = members(document);
    let has_state = body.text(STATE).is_some() && !is_over(&body);
    (has_state && state::remove(&mut body)).then(|| body.to_string())
}

/// Returns the body of a document without any outcome of its replication, so that it runs again.
pub(crate) fn afresh(document: &Document) -> String {
    let mut body = members(document);
    state::remove(&mut body);
    body.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::Config;
    use store::Revision;

    fn document(id: &str, body: &Value, deleted: bool) -> Document {
        let body = body.to_string();
        Document {
            id: id.to_owned(),
            revision: Revision::after(None, deleted, &body),
            deleted,
            seq: 1,
            body,
        }
    }

    /// Returns a body that requests a replication, with these further members.
    fn asking(more: Value) -> Value {
        let mut body = json!({"source": "http://s/a", "target": "http://t/b"});
        let more = more.as_object().cloned().unwrap_or_default();
        body.as_object_mut().unwrap().extend(more);
        body
    }

    fn config(update_docs: bool) -> Replicator {
        let mut config = Config::default().replicator;
        config.update_docs = update_docs;
        config
    }

    /// Reads a version to act on. Returns the name of its request, and the change to make in the store.
    fn read(document: &Document, config: &Replicator) -> (&'static str, Option<StoreWork>) {
        let reading = Reading::of(document, true, config);
        let wish = match reading.wish {
            Some(Wish::Run(_)) => "run",
            Some(Wish::Nothing) => "nothing",
            Some(Wish::Broken { .. }) => "broken",
            None => "none",
        };
        (wish, reading.in_store)
    }

    #[test]
    fn a_document_requests_its_replication_unless_deleted_completed_or_failed() {
        let config = config(false);
        let body = asking(json!({}));
        assert_eq!(read(&document("d", &body, false), &config), ("run", None));
        let forget = Some(StoreWork::ForgetKept);
        let deleted = document("d", &body, true);
        assert_eq!(read(&deleted, &config), ("nothing", forget));
        for state in [state::COMPLETED, state::FAILED] {
            let over = document("d", &asking(json!({STATE: state})), false);
            assert_eq!(read(&over, &config), ("nothing", None), "{state}");
        }
    }

    #[test]
    fn a_design_document_requests_no_replication() {
        let design = document("_design/d", &asking(json!({})), false);
        assert_eq!(read(&design, &config(false)), ("none", None));
    }

    #[test]
    fn only_the_deletion_counts_in_a_version_not_acted_upon() {
        let body = asking(json!({STATE: "triggered"}));
        for (deleted, expected) in [(false, None), (true, Some(StoreWork::ForgetKept))] {
            let reading = Reading::of(&document("d", &body, deleted), false, &config(false));
            assert!(reading.wish.is_none());
            assert_eq!(reading.in_store, expected);
        }
    }

    #[test]
    fn a_transitional_state_is_removed_unless_update_docs_is_set() {
        for state in ["triggered", "error"] {
            let body = asking(json!({STATE: state, state::TIME: "t", state::ID: "x"}));
            let passing = document("d", &body, false);
            assert_eq!(read(&passing, &config(true)), ("run", None));
            let remove = Some(StoreWork::RemoveState);
            assert_eq!(read(&passing, &config(false)), ("run", remove));
            let left = without_state(&passing).unwrap();
            let left: Value = serde_json::from_str(&left).unwrap();
            assert_eq!(left, asking(json!({})));
            assert_eq!(without_state(&document("d", &left, false)), None);
        }
    }

    #[test]
    fn a_final_state_is_not_removed() {
        for state in [state::COMPLETED, state::FAILED] {
            let body = asking(json!({STATE: state, state::REASON: "why"}));
            assert_eq!(without_state(&document("d", &body, false)), None);
        }
    }

    #[test]
    fn the_replication_that_a_refused_document_requests_is_known() {
        let mut config = config(false);
        config.valid_endpoint_protocols = vec!["https".to_owned()];
        for (body, is_known) in [(asking(json!({})), true), (json!({"source": 7}), false)] {
            let reading = Reading::of(&document("d", &body, false), true, &config);
            let Some(Wish::Broken { replication, .. }) = reading.wish else {
                panic!("this replication may not run: {body}");
            };
            assert_eq!(replication.is_some(), is_known, "{body}");
        }
    }
}
