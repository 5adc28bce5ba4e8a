//! `validate_docs`: one function, taught once, and many documents.

use crate::functions::support::Functions;
use serde_json::{Value, json};
use settee_testkit::{Script, ScriptedChild, Step};

const ADULTS: &str = "function(newDoc, oldDoc, userCtx, secObj) {
    if (oldDoc && oldDoc.locked) throw {forbidden: 'locked'};
    if (newDoc.age < 18) throw {forbidden: {too: 'young'}};
    if (userCtx.roles.indexOf('_admin') < 0 && newDoc.admin) throw {unauthorized: 'who are you?'};
    if (newDoc.odd) throw newDoc.odd;
    if (newDoc.broken) undefined.x;
}";

fn call(docs: Value) -> Value {
    json!({"ddoc": {"validate_doc_update": ADULTS}, "docs": docs})
}

#[actix_rt::test]
async fn each_document_is_accepted_forbidden_or_unauthorized() {
    let functions = Functions::javascript();
    let verdicts = functions
        .ok(
            "validate_docs",
            call(json!([
                {"newDoc": {"_id": "a", "age": 20}},
                {"newDoc": {"_id": "b", "age": 3}},
                {"newDoc": {"_id": "c"}, "oldDoc": {"_id": "c", "locked": true}},
                {"newDoc": {"_id": "d", "admin": true}},
                {"newDoc": {"_id": "e"}, "oldDoc": null},
            ])),
        )
        .await;
    assert_eq!(
        verdicts,
        json!([
            true,
            {"forbidden": {"too": "young"}},
            {"forbidden": "locked"},
            {"unauthorized": "who are you?"},
            true,
        ])
    );
    let mut admin = call(json!([{"newDoc": {"_id": "d", "admin": true}}]));
    admin["userCtx"] = json!({"db": "shop", "name": "root", "roles": ["_admin"]});
    assert_eq!(functions.ok("validate_docs", admin).await, json!([true]));
    assert_eq!(
        functions.ok("validate_docs", call(json!([]))).await,
        json!([])
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn many_documents_are_validated_by_one_process() {
    let functions = Functions::javascript();
    let docs: Vec<Value> = (0..1000)
        .map(|age| json!({"newDoc": {"_id": format!("p{age}"), "age": age}}))
        .collect();
    let verdicts = functions.ok("validate_docs", call(json!(docs))).await;
    let accepted = verdicts.as_array().unwrap().iter().position(|v| *v == true);
    assert_eq!(
        (verdicts.as_array().unwrap().len(), accepted),
        (1000, Some(18))
    );
    assert_eq!(functions.pool.started().len(), 1);
    functions.quiet().await;
}

#[actix_rt::test]
async fn the_prompts_match_those_of_couchdb() {
    let child = ScriptedChild::new(
        Script::echo().on_text("[\"validate_doc_update\"]", [Step::answer("1")]),
    );
    let functions = Functions::scripted(&child);
    let mut arguments = json!({"ddoc": {}, "docs": [
        {"newDoc": {"_id": "a", "_revisions": {"start": 1, "ids": ["x"]}}},
        {"newDoc": {"_id": "b"}, "oldDoc": {"_id": "b", "n": 1.0}},
    ]});
    functions.ok("validate_docs", arguments.clone()).await;
    arguments["userCtx"] = json!({"name": "ida"});
    arguments["secObj"] = json!({"admins": {}});
    arguments["docs"].as_array_mut().unwrap().pop();
    functions.ok("validate_docs", arguments).await;
    let vdu = r#"["ddoc","_design/d",["validate_doc_update"],"#;
    let anonymous = r#"{"db":"shop","name":null,"roles":[]},{}"#;
    let a = r#"{"_id":"a","_revisions":{"start":1,"ids":["x"]}}"#;
    assert_eq!(
        child.prompts()[1..],
        [
            r#"["reset",{}]"#.to_owned(),
            format!("{vdu}[{a},null,{anonymous}]]"),
            format!(r#"{vdu}[{{"_id":"b"}},{{"_id":"b","n":1.0}},{anonymous}]]"#),
            r#"["reset",{}]"#.to_owned(),
            format!(r#"{vdu}[{a},null,{{"name":"ida"}},{{"admins":{{}}}}]]"#),
            r#"["reset",{}]"#.to_owned(),
        ]
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn any_other_verdict_is_an_error_with_the_verdict_and_the_document() {
    let functions = Functions::javascript();
    for (odd, named) in [
        (
            json!({"forbidden": "a", "unauthorized": "b"}),
            "not exactly one member",
        ),
        (json!(17), "a number: 17"),
        (json!(["x", "y"]), "an array"),
        (json!({"teapot": "short"}), "short"),
        (json!("plain"), "plain"),
    ] {
        // Documents before and after the odd one are in flight at the same time.
        let mut docs = vec![json!({"newDoc": {"_id": "fine"}}); 70];
        docs[40] = json!({"newDoc": {"_id": "odd", "odd": odd}});
        let error = functions.error("validate_docs", call(json!(docs))).await;
        assert_eq!(error["name"], "unknown_error", "{error}");
        assert!(error["reason"].as_str().unwrap().contains(named), "{error}");
        assert_eq!(
            (&error["doc"], &error["function"], &error["fault"]),
            (
                &json!("odd"),
                &json!("validate_doc_update"),
                &json!("client")
            )
        );
    }
    let broken = call(json!([{"newDoc": {"_id": "x", "broken": true}}, {"newDoc": {"_id": "y"}}]));
    let error = functions.error("validate_docs", broken).await;
    assert_eq!(
        (&error["name"], &error["doc"]),
        (&json!("TypeError"), &json!("x"))
    );
    // The process survived all of these.
    assert_eq!(functions.pool.started().len(), 1);
    functions.quiet().await;
}

#[actix_rt::test]
async fn invalid_documents_are_refused_before_a_process_starts() {
    let functions = Functions::javascript();
    for docs in [
        json!(null),
        json!({}),
        json!([1]),
        json!([{"oldDoc": {}}]),
        json!([{"newDoc": "a"}]),
        json!([{"newDoc": {}, "oldDoc": 7}]),
        json!([[{}, {}]]),
    ] {
        let error = functions.error("validate_docs", call(docs.clone())).await;
        assert_eq!(error["name"], "bad_request", "{docs}");
        assert!(
            error["reason"].as_str().unwrap().contains("'docs'"),
            "{error}"
        );
    }
    assert_eq!(functions.pool.started().len(), 0);
    functions.quiet().await;
}
