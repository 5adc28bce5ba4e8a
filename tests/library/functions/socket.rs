//! Every call that runs functions, over the socket of a running service and through the client
//! library.

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use settee::client::{
    Client, ClientError, Compiling, DdocIn, Indexing, Mapping, Operator, Reducing,
};
use settee::messages::function::FunctionName;
use settee::query_server::status::DaemonStatus;
use strum::VariantArray;

use crate::support::daemon::{Service, signal};

fn ddoc() -> Box<RawValue> {
    to_raw_value(&json!({
        "_id": "_design/d", "_rev": "1-a",
        "validate_doc_update": "function(n, o, u) { if (!n.ok) throw {forbidden: u.name || 'nobody'} }",
        "filters": {"f": "function(doc, req) { return doc.n > req.query.n }"},
        "views": {"v": {"map": "function(doc) { if (doc.n) emit(doc.n) }"}},
        "shows": {"s": "function(doc, req) { return (doc ? doc._id : 'none') + req.query.n }"},
        "updates": {"u": "function(doc, req) { return [{_id: req.uuid}, 'made'] }"},
        "lists": {"l": "function(head, req) { var row; while (row = getRow()) send(row.key); return head.offset + '' }"},
        "rewrites": "function(req) { return {path: req.path.join('/')} }",
    }))
    .unwrap()
}

fn value(json: &RawValue) -> Value {
    serde_json::from_str(json.get()).unwrap()
}

fn values(json: &[Box<RawValue>]) -> Vec<Value> {
    json.iter().map(|json| value(json)).collect()
}

#[tokio::test]
async fn functions_of_a_design_document_are_called_through_the_library() {
    let service = Service::start("");
    let client = Client::connect(service.socket()).await.unwrap();
    let json = ddoc();
    let ddoc = DdocIn {
        db: "shop",
        ddoc: &json,
    };
    let docs = json!([{"_id": "a", "n": 1}, {"_id": "b", "n": 3}, {"_id": "c"}]);
    let req = json!({"query": {"n": 2}, "uuid": "u1", "method": "POST", "path": ["x", "y"]});
    let doc = to_raw_value(&docs[0]).unwrap();

    let edits = json!([{"newDoc": {"ok": true}}, {"newDoc": {}, "oldDoc": {}}]);
    let user = json!({"name": "ida"});
    let verdicts = client
        .validate_docs(ddoc, &edits, &user, &json!({}))
        .await
        .unwrap();
    assert_eq!(
        values(&verdicts),
        [json!(true), json!({"forbidden": "ida"})]
    );
    let passed = client.filter_docs(ddoc, "f", &docs, &req).await.unwrap();
    assert_eq!(passed, [false, true, false]);
    assert_eq!(
        client.filter_view(ddoc, "v", &docs).await.unwrap(),
        [true, true, false]
    );
    let shown = client.show(ddoc, "s", Some(&doc), &req).await.unwrap();
    assert_eq!(value(&shown), json!({"body": "a2"}));
    let shown = client.show(ddoc, "s", None, &req).await.unwrap();
    assert_eq!(value(&shown), json!({"body": "none2"}));
    let made = client.update(ddoc, "u", None, &req).await.unwrap();
    assert_eq!(
        value(&made),
        json!([{"_id": "u1"}, {"code": 201, "body": "made"}])
    );
    let rows = json!([{"key": "a"}, {"key": "b"}]);
    let listed = client
        .list(ddoc, "l", (&json!({"offset": 7}), &rows), &req)
        .await
        .unwrap();
    assert_eq!(
        value(&listed),
        json!({"response": {"headers": {}}, "chunks": ["a", "b", "7"]})
    );
    let rewritten = client.rewrite(ddoc, &req).await.unwrap();
    assert_eq!(value(&rewritten), json!({"path": "x/y"}));
    let answer = client
        .ddoc_prompt(ddoc, &["shows", "s"], &json!([null, req]))
        .await
        .unwrap();
    assert_eq!(answer.get(), r#"["resp",{"body":"none2"}]"#);

    let Err(ClientError::Service(error)) = client.show(ddoc, "gone", Some(&doc), &req).await else {
        panic!("the function does not exist");
    };
    assert_eq!(error.name, "not_found");
    assert_eq!(
        [error.db, error.ddoc, error.function, error.doc],
        ["shop", "_design/d", "shows/gone", "a"].map(|text| Some(text.to_owned()))
    );
}

#[tokio::test]
async fn functions_of_views_and_indexes_are_called_through_the_library() {
    let service = Service::start("");
    let client = Client::connect(service.socket()).await.unwrap();
    let lang = "javascript";
    let docs = &json!([{"_id": "a", "n": 1}, {"_id": "b", "n": 3}]);
    let lib = to_raw_value(&json!({"m": "exports.twice = function(n) { return 2 * n }"})).unwrap();
    let mapping = Mapping {
        db: None,
        lang,
        lib: Some(&lib),
        funs: &["function(doc) { emit(doc._id, require('views/lib/m').twice(doc.n)) }"],
        docs,
    };
    let mapped = client.map_docs(mapping).await.unwrap();
    assert_eq!(mapped.get(), r#"[[[["a",2]]],[[["b",6]]]]"#);
    let with = Reducing {
        db: None,
        lang,
        funs: &["_sum", "function(k, v) { return v.length }", "_first"],
        finalize: false,
    };
    let rows = json!([[["a", "a"], 2], {"key": "b", "id": "b", "value": 6}]);
    let reduced = client.reduce(with, &rows).await.unwrap();
    assert_eq!(
        values(&reduced),
        [json!(8), json!(2), json!([["a", "a"], 2])]
    );
    let again = client
        .rereduce(with, &json!([reduced, reduced]))
        .await
        .unwrap();
    assert_eq!(values(&again)[..2], [json!(16), json!(2)]);
    let finals = client.finalize(with.funs, &again).await.unwrap();
    assert_eq!(values(&finals), [json!(16), json!(2), json!(2)]);
    let indexing = Indexing {
        db: None,
        lang,
        fun: "function(doc) { index('n', doc.n) }",
        nouveau: false,
        docs,
    };
    let entries = client.index_docs(indexing).await.unwrap();
    assert_eq!(values(&entries)[1][0], json!(["n", 3, {}]));
    let mut function = Compiling {
        db: None,
        lang,
        name: "v",
        kind: "map",
        fun: "function(doc) {}",
    };
    client.try_compile(function).await.unwrap();
    function.fun = "function(";
    let Err(ClientError::Service(error)) = client.try_compile(function).await else {
        panic!("the function does not compile");
    };
    assert_eq!(error.name, "compilation_error");
}

#[tokio::test]
async fn mango_maps_reduces_and_validates_with_the_same_calls() {
    let service = Service::start("");
    let client = Client::connect(service.socket()).await.unwrap();
    let docs = json!([{"_id": "a", "n": 1}, {"_id": "b"}]);
    let fields = json!({"fields": {"fields": [{"n": "asc"}]}});
    let call = json!({"lang": "query", "funs": [{"map": fields, "options": {}}], "docs": docs});
    let mapped = client.function("map_docs", &call).await.unwrap();
    assert_eq!(value(&mapped).as_array().unwrap().len(), 2, "{mapped}");
    let call = json!({"lang": "query", "funs": ["_count", "f"], "rows": [[["k", "i"], null]],
                      "context": "c"});
    let reduced = client.function("reduce", &call).await.unwrap();
    assert_eq!(value(&reduced), json!([1, null]));
    let ddoc = to_raw_value(
        &json!({"_id": "_design/m", "_rev": "1-a", "language": "query",
                                    "validate_doc_update": {"newDoc.n": {"$gt": 0}}}),
    )
    .unwrap();
    let ddoc = DdocIn {
        db: "shop",
        ddoc: &ddoc,
    };
    let edits = json!([{"newDoc": {"n": 1}}, {"newDoc": {"n": 0}}]);
    let none = json!({});
    let verdicts = client
        .validate_docs(ddoc, &edits, &none, &none)
        .await
        .unwrap();
    assert_eq!(
        values(&verdicts),
        [json!(true), json!({"forbidden": "document is not valid"})]
    );
    let Err(ClientError::Service(error)) = client.show(ddoc, "s", None, &none).await else {
        panic!("Mango has no show functions");
    };
    assert_eq!(error.function.as_deref(), Some("shows/s"));
}

#[tokio::test]
async fn calls_are_pipelined_on_one_connection_and_cancelled_when_it_closes() {
    let service = Service::start("[query_server_config]\nos_process_limit = 2");
    let client = Client::connect(service.socket()).await.unwrap();
    let source = "function(doc) { emit(doc.n, null) }";
    let calls = (0..40).map(|n| {
        let arguments =
            json!({"lang": "javascript", "funs": [source], "docs": [{"_id": "a", "n": n}]});
        let client = &client;
        async move { client.function("map_docs", &arguments).await.unwrap() }
    });
    for (n, mapped) in futures_util::future::join_all(calls)
        .await
        .iter()
        .enumerate()
    {
        assert_eq!(mapped.get(), format!("[[[[{n},null]]]]"));
    }
    let (endless, docs) = ("function(doc) { while (true) {} }", json!([{"_id": "a"}]));
    let mapping = Mapping {
        db: None,
        lang: "javascript",
        lib: None,
        funs: &[endless],
        docs: &docs,
    };
    let call = client.map_docs(mapping);
    tokio::select! {
        _ = call => panic!("the function never returns"),
        () = held(&service) => {}
    }
    drop(client);
    tokio::task::spawn_blocking(move || {
        service.wait_for_first_pool("returned process", |pool| pool["used"] == 0)
    })
    .await
    .unwrap();
}

/// Waits until a process is in use.
async fn held(service: &Service) {
    let operator = Operator::at(service.socket());
    let is_used = async || {
        let status: DaemonStatus = operator.get("/_status").await.unwrap();
        let pool = status.pools.iter().find(|pool| pool.name == "javascript");
        pool.is_some_and(|pool| pool.used == 1)
    };
    while !is_used().await {}
}

#[test]
fn every_call_is_documented_with_an_example() {
    let text = include_str!("../../../docs/socket.md");
    for name in FunctionName::VARIANTS {
        let name: &str = name.into();
        assert!(
            text.contains(&format!("`{name}`")),
            "{name} is not in the table"
        );
        assert!(
            text.contains(&format!("\"call\":\"{name}\"")),
            "{name} has no example"
        );
    }
}

#[tokio::test]
async fn the_examples_in_the_documentation_return_what_they_show() {
    let service = Service::start("");
    let client = Client::connect(service.socket()).await.unwrap();
    let text = include_str!("../../../docs/socket.md");
    let mut requests = Vec::new();
    for line in text.lines() {
        if let Some(request) = line.strip_prefix("> ") {
            requests.push((serde_json::from_str::<Value>(request).unwrap(), None));
        } else if let Some(reply) = line.strip_prefix("< ")
            && let Some((_, expected)) = requests.last_mut()
        {
            *expected = Some(serde_json::from_str::<Value>(reply).unwrap());
        }
    }
    assert!(
        requests.len() >= FunctionName::VARIANTS.len(),
        "{}",
        requests.len()
    );
    for (request, reply) in requests {
        let name: FunctionName = request["call"].as_str().unwrap().parse().unwrap();
        let name: &str = name.into();
        let mut arguments = request.clone();
        arguments
            .as_object_mut()
            .unwrap()
            .retain(|name, _| name != "call" && name != "id");
        let value = client.function(name, &arguments).await.unwrap();
        let reply = reply.unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(value.get()).unwrap(),
            reply["ok"],
            "{name}"
        );
        assert_eq!(reply["id"], request["id"], "{name}");
    }
}

#[test]
fn a_killed_process_is_not_reported_as_over_a_limit() {
    let service = Service::start("");
    let mut client = service.connect();
    let got = client.ok(&json!({"id": 1, "call": "get_proc", "lang": "javascript"}));
    let pid = u32::try_from(got["os_pid"].as_u64().unwrap()).unwrap();
    // The process is busy, so that its exit is the answer.
    let endless = json!(["add_fun", "for (;;) {}"]);
    client.send(&json!({"id": 2, "call": "prompt", "proc": got["proc"], "data": endless}));
    signal(pid, "KILL");
    let reply = client.reply();
    let error = &reply["error"];
    assert_eq!(error["exit"], "was killed by SIGKILL", "{reply}");
    assert!(!reply.to_string().contains("limit"), "{reply}");
    service.stop();
}

#[test]
fn the_reason_of_a_function_error_is_the_thrown_message() {
    let service = Service::start("");
    let mut client = service.connect();
    // A show without `req` gets an empty request.
    let ddoc = json!({"_id": "_design/d", "_rev": "1-s", "shows": {"s": "function() { throw new Error('boom') }"}});
    let call = json!({"id": 1, "call": "show", "db": "shop", "ddoc": ddoc, "name": "s"});
    let error = client.error(&call);
    assert_eq!(error["name"], "render_error");
    assert!(
        error["reason"].as_str().unwrap().contains("Error: boom"),
        "{error}"
    );
    for (thrown, name, reason) in [
        ("new Error('boom')", "Error", "boom"),
        ("'boom'", "unnamed_error", "boom"),
        ("null", "TypeError", "the function threw null"),
        ("{error: 'odd', reason: {a: 1}}", "odd", r#"{"a":1}"#),
        (
            "(function() { var a = {}; for (;;) a = {a: a} })()",
            "out_of_memory",
            "filters/f of _design/d",
        ),
    ] {
        let source = format!("function() {{ throw {thrown} }}");
        let ddoc = json!({"_id": "_design/d", "_rev": format!("1-{}", thrown.len()), "filters": {"f": source}});
        let call = json!({"id": 1, "call": "filter_docs", "db": "shop", "ddoc": ddoc, "name": "f",
                          "docs": [{"_id": "a"}], "req": {}});
        let error = client.error(&call);
        assert_eq!(error["name"], name, "{error}");
        assert!(
            error["reason"].as_str().unwrap().starts_with(reason),
            "{error}"
        );
    }
    service.stop();
}
