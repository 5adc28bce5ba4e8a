//! A design document is identified by its content, not by its revision.

use crate::support::daemon::{Client, Service};
use serde_json::{Value, json};

/// Returns a design document without a revision, whose show function returns `word`.
fn saying(word: &str) -> Value {
    json!({
        "_id": "_design/d",
        "lib": {"word": format!("exports.word = '{word}'")},
        "shows": {"s": "function() { return require('lib/word').word }"},
    })
}

fn shown(client: &mut Client, ddoc: &Value) -> Value {
    let call = json!({"id": 1, "call": "ddoc_prompt", "db": "shop", "ddoc": ddoc,
        "path": ["shows", "s"], "args": [null, {}]});
    client.ok(&call)[1]["body"].clone()
}

#[test]
fn the_same_revision_with_other_content_runs_the_new_function() {
    let service = Service::start("");
    let mut client = service.connect();
    let with_rev = |word: &str| {
        let mut ddoc = saying(word);
        ddoc["_rev"] = json!("1-a");
        ddoc
    };
    for word in ["one", "two", "one", "two", "three", "one"] {
        assert_eq!(shown(&mut client, &with_rev(word)), word);
    }
    service.stop();
}

#[test]
fn a_design_document_needs_no_revision() {
    let service = Service::start("");
    let mut client = service.connect();
    for word in ["one", "two", "one"] {
        assert_eq!(shown(&mut client, &saying(word)), word);
    }
    service.stop();
}

#[test]
fn a_validation_selector_is_replaced_with_its_document() {
    let service = Service::start("");
    let mut client = service.connect();
    for wanted in [1, 2, 1] {
        let ddoc = json!({"_id": "_design/v", "_rev": "1-a", "language": "query",
            "validate_doc_update": {"newDoc": {"n": wanted}}});
        let docs = json!([{"newDoc": {"n": 1}}, {"newDoc": {"n": 2}}]);
        let verdicts = client.ok(
            &json!({"id": 1, "call": "validate_docs", "db": "shop", "ddoc": ddoc, "docs": docs}),
        );
        let accepted = [1, 2].map(|n| n == wanted);
        let verdicts = [&verdicts[0], &verdicts[1]];
        assert_eq!(verdicts.map(|verdict| *verdict == true), accepted);
    }
    service.stop();
}
