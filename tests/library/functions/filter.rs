//! `filter_docs` and `filter_view`: which documents pass.

use crate::functions::support::Functions;
use serde_json::json;
use settee_testkit::{Script, ScriptedChild, Step};

#[actix_rt::test]
async fn a_filter_returns_for_each_document_whether_it_passes() {
    let functions = Functions::javascript();
    let ddoc = json!({
        "filters": {"min": "function(doc, req) { return doc.n >= Number(req.query.min) }"},
        "views": {"even": {"map": "function(doc) { if (doc.n % 2 == 0) emit(doc._id) }"}},
    });
    let docs = json!([{"_id": "a", "n": 1}, {"_id": "b", "n": 2}, {"_id": "c", "n": 4}]);
    let req = json!({"query": {"min": "2"}});
    let passed = functions
        .ok(
            "filter_docs",
            json!({"ddoc": ddoc, "name": "min", "docs": docs, "req": req}),
        )
        .await;
    assert_eq!(passed, json!([false, true, true]));
    let passed = functions
        .ok(
            "filter_view",
            json!({"ddoc": ddoc, "name": "even", "docs": docs}),
        )
        .await;
    assert_eq!(passed, json!([false, true, true]));
    let none = json!({"ddoc": ddoc, "name": "min", "docs": [], "req": req});
    assert_eq!(functions.ok("filter_docs", none).await, json!([]));
    functions.quiet().await;
}

#[actix_rt::test]
async fn the_prompts_match_those_of_couchdb() {
    let child = ScriptedChild::new(
        Script::echo()
            .on_text("\"filters\"", [Step::answer("[true,[true,false]]")])
            .on_text("\"views\"", [Step::answer("[true,[true,false]]")]),
    );
    let functions = Functions::scripted(&child);
    let docs = json!([{"_id": "a"}, {"_id": "b", "n": 1.0}]);
    functions
        .ok(
            "filter_docs",
            json!({"ddoc": {}, "name": "f", "docs": docs, "req": {"a": 1}}),
        )
        .await;
    functions
        .ok(
            "filter_view",
            json!({"ddoc": {}, "name": "v", "docs": docs}),
        )
        .await;
    assert_eq!(
        child.prompts()[1..],
        [
            r#"["reset",{}]"#,
            r#"["ddoc","_design/d",["filters","f"],[[{"_id":"a"},{"_id":"b","n":1.0}],{"a":1}]]"#,
            r#"["reset",{}]"#,
            r#"["ddoc","_design/d",["views","v","map"],[[{"_id":"a"},{"_id":"b","n":1.0}]]]"#,
            r#"["reset",{}]"#,
        ]
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn after_exit_status_1_each_document_is_retried_alone() {
    // Exits as if out of memory if it gets more than one document.
    let child = ScriptedChild::new(
        Script::echo()
            .on_text("},{\"_id\"", [Step::Exit(1)])
            .on_text("\"yes\"", [Step::answer("[true,[true]]")])
            .on_text("\"filters\"", [Step::answer("[true,[false]]")]),
    );
    let functions = Functions::scripted(&child);
    let docs = json!([{"_id": "a", "v": "yes"}, {"_id": "b"}, {"_id": "c", "v": "yes"}]);
    let passed = functions
        .ok(
            "filter_docs",
            json!({"ddoc": {}, "name": "f", "docs": docs}),
        )
        .await;
    assert_eq!(passed, json!([true, false, true]));
    let alone = child
        .prompts()
        .iter()
        .filter(|line| line.contains("\"filters\""))
        .count();
    assert_eq!(alone, 4);
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_document_that_fails_even_alone_is_named_in_the_error() {
    let child = ScriptedChild::new(
        Script::echo()
            .on_text(
                "\"big\"",
                [Step::Complain("out of memory".into()), Step::Exit(1)],
            )
            .on_text("\"filters\"", [Step::answer("[true,[true]]")]),
    );
    let functions = Functions::scripted(&child);
    let docs = json!([{"_id": "small"}, {"_id": "big"}]);
    let error = functions
        .error(
            "filter_docs",
            json!({"ddoc": {}, "name": "f", "docs": docs}),
        )
        .await;
    assert_eq!(
        (&error["doc"], &error["status"]),
        (&json!("big"), &json!(1))
    );
    assert_eq!(error["stderr"], json!(["out of memory"]));
    assert_eq!(error["function"], "filters/f");
    functions.quiet().await;
}

#[actix_rt::test]
async fn other_errors_are_not_retried() {
    let child = ScriptedChild::new(
        Script::echo()
            .on_text("\"two\"", [Step::Exit(2)])
            .on_text("\"short\"", [Step::answer("[true,[true]]")])
            .on_text("\"filters\"", [Step::error("teapot", "short")]),
    );
    let functions = Functions::scripted(&child);
    let docs = json!([{"_id": "a"}, {"_id": "b"}]);
    let call = |name: &str| json!({"ddoc": {}, "name": name, "docs": docs});
    assert_eq!(
        functions.error("filter_docs", call("two")).await["status"],
        2
    );
    let error = functions.error("filter_docs", call("short")).await;
    assert_eq!(error["name"], "query_protocol_error");
    assert!(
        error["reason"]
            .as_str()
            .unwrap()
            .contains("each of 2 documents"),
        "{error}"
    );
    assert_eq!(
        functions.error("filter_docs", call("teapot")).await["name"],
        "teapot"
    );
    let asked = child
        .prompts()
        .iter()
        .filter(|line| line.contains("\"filters\""))
        .count();
    assert_eq!(asked, 3);
    functions.quiet().await;
}
