//! `try_compile` and `index_docs`.

use crate::functions::support::Functions;
use serde_json::json;
use settee_testkit::{Script, ScriptedChild, Step};

#[actix_rt::test]
async fn a_function_compiles_or_fails_with_the_error_that_couchdb_reports() {
    let functions = Functions::javascript();
    let call = |fun: &str| json!({"name": "by_name", "fun": fun});
    assert_eq!(
        functions.ok("try_compile", call("function(doc) {}")).await,
        true
    );
    let error = functions
        .error("try_compile", call("function(doc) { emit( }"))
        .await;
    assert_eq!(
        (&error["name"], &error["fault"]),
        (&json!("compilation_error"), &json!("client"))
    );
    assert_eq!(error["function"], "by_name/map");
    let reason = error["reason"].as_str().unwrap();
    let start = "Compilation of the map function in the 'by_name' view failed: ";
    assert!(reason.starts_with(start), "{reason}");
    let missing = functions.error("try_compile", call("")).await;
    assert_eq!(missing["name"], "not_found");
    assert_eq!(functions.pool.started().len(), 1);
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_function_that_crashes_the_query_server_is_a_compilation_error() {
    let child = ScriptedChild::new(Script::echo().on(
        "add_fun",
        [Step::Complain("Segmentation fault".into()), Step::Exit(3)],
    ));
    let functions = Functions::scripted(&child);
    let call = json!({"name": "v", "fun": "f", "type": "reduce"});
    let error = functions.error("try_compile", call).await;
    assert_eq!(error["name"], "compilation_error");
    assert_eq!(
        error["reason"],
        "Compilation of the reduce function in the 'v' view failed with exit status: 3"
    );
    assert_eq!(
        (&error["stderr"], &error["status"]),
        (&json!(["Segmentation fault"]), &json!(3))
    );
    assert_eq!(child.prompts(), [r#"["reset",{}]"#, r#"["add_fun","f"]"#]);
    functions.quiet().await;
}

#[actix_rt::test]
async fn index_docs_returns_entries_for_both_kinds_of_index() {
    let functions = Functions::javascript();
    let docs = json!([{"_id": "a", "n": 1}, {"_id": "b"}, {"_id": "c", "n": 3}]);
    let fun = "function(doc) { if (doc.n) index('n', doc.n, {store: true}) }";
    let entries = functions
        .ok("index_docs", json!({"fun": fun, "docs": docs}))
        .await;
    assert_eq!(
        entries,
        json!([[["n", 1, {"store": true}]], [], [["n", 3, {"store": true}]]])
    );
    let fun = "function(doc) { if (doc.n) index('double', 'n', doc.n) }";
    let call = json!({"fun": fun, "docs": docs, "nouveau": true});
    let entries = functions.ok("index_docs", call).await;
    assert_eq!(
        (
            &entries[0][0]["@type"],
            &entries[1],
            &entries[2][0]["value"]
        ),
        (&json!("double"), &json!([]), &json!(3)),
        "{entries}"
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn index_prompts_match_those_of_couchdb_and_only_the_first_list_is_used() {
    let child = ScriptedChild::new(
        Script::echo()
            .on(
                "index_doc",
                [Step::answer(r#"[[["a", 1.0, {}]],[["b",2,{}]]]"#)],
            )
            .on("nouveau_index_doc", [Step::answer("[[]]")]),
    );
    let functions = Functions::scripted(&child);
    let call = json!({"fun": {"index": {"fields": "all"}}, "docs": [{"_id": "a"}, {"_id": "b"}]});
    let text = functions.perform_text("index_docs", call).await.unwrap();
    assert_eq!(text, r#"[[["a", 1.0, {}]],[["a", 1.0, {}]]]"#);
    let call = json!({"fun": "f", "docs": [{"_id": "a"}], "nouveau": true});
    functions.ok("index_docs", call).await;
    assert_eq!(
        child.prompts(),
        [
            r#"["reset",{}]"#,
            r#"["add_fun",{"index":{"fields":"all"}}]"#,
            r#"["index_doc",{"_id":"a"}]"#,
            r#"["index_doc",{"_id":"b"}]"#,
            r#"["reset",{}]"#,
            r#"["add_fun","f","nouveau"]"#,
            r#"["nouveau_index_doc",{"_id":"a"}]"#,
            r#"["reset",{}]"#,
        ]
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_malformed_index_answer_is_reported_with_its_document() {
    let child = ScriptedChild::new(
        Script::echo()
            .on_text("\"bad\"", [Step::answer("[]")])
            .on("index_doc", [Step::answer("[[]]")]),
    );
    let functions = Functions::scripted(&child);
    let docs = json!([{"_id": "good"}, {"_id": "bad"}, {"_id": "fine"}]);
    let error = functions
        .error("index_docs", json!({"fun": "f", "docs": docs}))
        .await;
    assert_eq!(
        (&error["name"], &error["doc"]),
        (&json!("query_protocol_error"), &json!("bad"))
    );
    functions.quiet().await;
}
