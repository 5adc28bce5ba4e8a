//! The language `query`, Mango: in a pool, and over the socket of a service.

use crate::support::daemon::Service;
use serde_json::{Value, json};
use settee::languages::query::query;
use settee_testkit::TestPool;

#[actix_rt::test]
async fn a_pool_lends_a_mango_server_that_was_taught_its_validator() {
    let pool = TestPool::builder().language("query", query()).start();
    let mut client = pool.client("validates");
    let members = r#""language":"query","validate_doc_update":{"newDoc.type":"post"}"#;
    client
        .takes(pool.ddoc_with("db", "_design/v", members))
        .await;
    for (new, answer) in [
        (r#"{"type":"post"}"#, "true"),
        (
            r#"{"type":"page"}"#,
            r#"{"forbidden":"document is not valid"}"#,
        ),
    ] {
        let prompt =
            format!(r#"["ddoc","_design/v",["validate_doc_update"],[{new},null,{{}},{{}}]]"#);
        assert_eq!(client.prompts(&prompt).await.as_deref(), Ok(answer));
    }
    client.returns().await;
    assert_eq!(pool.started().len(), 1);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_design_document_with_an_invalid_selector_cannot_be_taught() {
    let pool = TestPool::builder().language("query", query()).start();
    let mut client = pool.client("fails");
    let members = r#""language":"query","validate_doc_update":{"newDoc.a":{"$foo":1}}"#;
    let error = client
        .is_refused(pool.ddoc_with("db", "_design/v", members))
        .await;
    let text = error.to_string();
    assert!(
        text.contains("invalid_operator") && text.contains("$foo"),
        "{text}"
    );
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_mango_server_survives_bad_prompts() {
    let pool = TestPool::builder().language("query", query()).start();
    let mut client = pool.client("asks");
    client.takes(pool.any()).await;
    for prompt in [
        r#"["add_lib",{}]"#,
        r#"["map_doc",7]"#,
        "[]",
        r#"["ddoc","x",["shows","s"],[]]"#,
    ] {
        assert!(client.prompts(prompt).await.is_err(), "{prompt}");
    }
    assert_eq!(client.prompts(r#"["reset"]"#).await.as_deref(), Ok("true"));
    client.returns().await;
    assert_eq!(pool.started().len(), 1);
    pool.assert_quiet().await;
}

#[test]
fn a_service_always_has_mango() {
    let service = Service::start("");
    let mut client = service.connect();
    let proc = client.get_proc("Query");
    let index =
        json!({"fields": {"year": "asc"}, "partial_filter_selector": {"year": {"$gt": 1990}}});
    for (data, answer) in [
        (json!(["reset", {}]), json!(true)),
        (json!(["add_fun", index]), json!(true)),
        (
            json!(["map_doc", {"_id": "b", "year": 1994}]),
            json!([[[[1994], null]]]),
        ),
        (json!(["map_doc", {"_id": "b", "year": 1989}]), json!([[]])),
        (
            json!(["reduce", ["_count"], [[[1994, "b"], null]], ""]),
            json!([true, [null]]),
        ),
        (
            json!(["index_doc", {"_id": "b", "year": 1989}]),
            json!([[]]),
        ),
    ] {
        assert_eq!(client.prompt(&proc, data.clone()), answer, "{data}");
    }
    assert!(client.ret_proc(&proc));
    assert_eq!(client.pool("query")["free"], 1);
    service.stop();
}

#[test]
fn a_validator_runs_in_one_call_over_the_socket() {
    let service = Service::start("");
    let mut client = service.connect();
    let ddoc = |validator: Value| json!({"_id": "_design/v", "_rev": "1-a", "language": "query", "validate_doc_update": validator});
    let call = |ddoc: &Value, new: Value| {
        json!({"call": "ddoc_prompt", "db": "db", "ddoc": ddoc, "path": ["validate_doc_update"],
               "args": [new, null, {"name": null, "roles": []}, {}]})
    };
    let valid = ddoc(json!({"newDoc.title": {"$type": "string"}}));
    assert_eq!(client.ok(&call(&valid, json!({"title": "x"}))), true);
    let forbidden = json!({"forbidden": "document is not valid"});
    assert_eq!(client.ok(&call(&valid, json!({"title": 1}))), forbidden);
    let mut wrong = ddoc(json!({"newDoc.title": {"$type": 1}}));
    wrong["_rev"] = json!("2-b");
    let error = client.error(&call(&wrong, json!({})));
    let class = json!([
        error["name"],
        error["phase"],
        error["fault"],
        error["retry"]
    ]);
    let expected = json!(["compilation_error", "teach", "client", false]);
    assert_eq!(class, expected, "{error}");
    // The reason names the design document and the position.
    for word in ["_design/v", "line 1, column"] {
        assert!(error["reason"].as_str().unwrap().contains(word), "{error}");
    }
    assert!(
        error["reason"].as_str().unwrap().contains("$type"),
        "{error}"
    );
    service.stop();
}
