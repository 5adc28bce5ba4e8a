//! The meaning of a version of a document: the replication that it requests.
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
    /// The document's request.
    pub wish: Wish,
    /// Whether its body has the replication's state.
    pub has_state: bool,
    /// Whether that state has to be removed: see [`without_state`].
    pub is_state_unwanted: bool,
}

impl Reading {
    /// Reads a version; `None` for a design document.
    pub fn of(document: &Document, config: &Replicator) -> Option<Self> {
        if document.id.starts_with("_design/") {
            return None;
        }
        let body = members(document);
        let has_state = body.text(STATE).is_some();
        let is_over = document.deleted || is_over(&body);
        let wish = if is_over {
            Wish::Nothing
        } else {
            match parse(&document.id, &body, &defaults(config)) {
                Ok(replication) => Wish::Run(Arc::new(replication)),
                Err(reason) => Wish::Broken {
                    reason,
                    replication: asked_by(&document.id, &body).map(Arc::new),
                },
            }
        };
        Some(Self {
            wish,
            has_state,
            is_state_unwanted: has_state && !is_over && !config.update_docs,
        })
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

    /// Reads a version. Returns the name of its request, and whether its state has to be removed.
    fn read(document: &Document, config: &Replicator) -> (&'static str, bool) {
        let reading = Reading::of(document, config).unwrap();
        let wish = match reading.wish {
            Wish::Run(_) => "run",
            Wish::Nothing => "nothing",
            Wish::Broken { .. } => "broken",
        };
        (wish, reading.is_state_unwanted)
    }

    #[test]
    fn a_document_requests_its_replication_unless_deleted_completed_or_failed() {
        let config = config(false);
        let body = asking(json!({}));
        assert_eq!(read(&document("d", &body, false), &config), ("run", false));
        let deleted = document("d", &asking(json!({STATE: "triggered"})), true);
        assert_eq!(read(&deleted, &config), ("nothing", false));
        for state in [state::COMPLETED, state::FAILED] {
            let over = document("d", &asking(json!({STATE: state})), false);
            assert_eq!(read(&over, &config), ("nothing", false), "{state}");
        }
    }

    #[test]
    fn a_design_document_requests_no_replication() {
        let design = document("_design/d", &asking(json!({})), false);
        assert!(Reading::of(&design, &config(false)).is_none());
    }

    #[test]
    fn a_transitional_state_is_removed_unless_update_docs_is_set() {
        for state in ["triggered", "error"] {
            let body = asking(json!({STATE: state, state::TIME: "t", state::ID: "x"}));
            let passing = document("d", &body, false);
            assert_eq!(read(&passing, &config(true)), ("run", false));
            assert_eq!(read(&passing, &config(false)), ("run", true));
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
            let reading = Reading::of(&document("d", &body, false), &config).unwrap();
            let Wish::Broken { replication, .. } = reading.wish else {
                panic!("this replication may not run: {body}");
            };
            assert_eq!(replication.is_some(), is_known, "{body}");
        }
    }
}
