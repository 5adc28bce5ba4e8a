//! A Mango query server, one prompt at a time.

use serde_json::{Value, json};

use super::*;

fn server() -> QueryServer {
    QueryServer::new(Logger::root(slog::Discard, slog::o!()))
}

fn says(server: &mut QueryServer, prompt: &Value) -> Value {
    serde_json::from_str(&server.prompt(&prompt.to_string())).unwrap()
}

/// Asserts the answer to each prompt.
fn talks(server: &mut QueryServer, talk: &[(Value, Value)]) {
    for (prompt, answer) in talk {
        assert_eq!(says(server, prompt), *answer, "{prompt}");
    }
}

fn error_of(server: &mut QueryServer, prompt: &Value) -> String {
    let answer = says(server, prompt);
    assert_eq!(answer[0], "error", "{prompt}: {answer}");
    answer[1].as_str().unwrap().to_owned()
}

#[test]
fn a_refused_definition_is_logged_before_the_answer_if_the_reset_requests_it() {
    let mut server = server();
    assert_eq!(server.prompt(r#"["reset",{"report":true}]"#), "true");
    assert_eq!(
        server.prompt(r#"["add_fun",{"fields":{"a":"asc"}}]"#),
        "true"
    );
    let told = server.prompt(r#"["add_fun",{"fields":7}]"#);
    let (line, answer) = told.split_once('\n').unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (&line[0], &line[2]["function"], answer),
        (&json!("log"), &json!(1), "true")
    );
    assert_eq!(server.prompt(r#"["map_doc",{"_id":"x"}]"#), "[[],[]]");
    assert_eq!(server.prompt(r#"["reset",{}]"#), "true");
    assert_eq!(server.prompt(r#"["add_fun",{"fields":7}]"#), "true");
}

#[test]
fn documents_are_mapped_to_one_column_per_index() {
    let doc = |value: Value| json!(["map_doc", {"_id": "x", "a": value}]);
    talks(
        &mut server(),
        &[
            (json!(["reset", {"reduce_limit": true}]), json!(true)),
            (doc(json!(1)), json!([])),
            (json!(["add_fun", {"fields": {"a": "asc"}}]), json!(true)),
            (
                json!(["add_fun", {"fields": {"a": "asc", "_id": "asc"}, "partial_filter_selector": {"a": {"$gt": 1}}}]),
                json!(true),
            ),
            (doc(json!(1)), json!([[[[1], null]], []])),
            (
                doc(json!([2])),
                json!([[[[[2]], null]], [[[[2], "x"], null]]]),
            ),
            (json!(["map_doc", {"_id": "x"}]), json!([[], []])),
            (
                json!(["map_doc", {"_id": "_design/x", "a": 1}]),
                json!([[], []]),
            ),
            (json!(["reset"]), json!(true)),
            (doc(json!(1)), json!([])),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn an_invalid_definition_is_logged_and_keeps_its_column() {
    let mut server = server();
    talks(
        &mut server,
        &[
            (
                json!(["add_fun", "function(doc) { emit(1); }"]),
                json!(true),
            ),
            (json!(["add_fun", {"fields": {"a": "asc"}}]), json!(true)),
            (
                json!(["add_fun", {"fields": {"a": "asc"}, "partial_filter_selector": {"$eq": 1}}]),
                json!(true),
            ),
            (
                json!(["add_fun", {"fields": [{"name": "a", "type": "number"}]}]),
                json!(true),
            ),
            (
                json!(["map_doc", {"_id": "x", "a": 1}]),
                json!([[], [[[1], null]], [], []]),
            ),
        ],
    );
    // The first warning was logged, the second is only counted.
    tokio::time::advance(std::time::Duration::from_secs(2000)).await;
    assert_eq!(server.refused.admit(), Some(1));
}

#[test]
fn reduce_and_rereduce_give_nulls_with_and_without_a_context() {
    let expected = json!([true, [null, null]]);
    talks(
        &mut server(),
        &[
            (
                json!(["reduce", ["_count", "_sum"], [[[1, "x"], null]]]),
                expected.clone(),
            ),
            (
                json!(["reduce", ["_count", "_sum"], [], "db/ddoc/_view/v"]),
                expected.clone(),
            ),
            (
                json!(["rereduce", ["_count", "_sum"], [1, 2]]),
                expected.clone(),
            ),
            (
                json!(["rereduce", ["_count", "_sum"], [1, 2], ""]),
                expected,
            ),
            (json!(["rereduce", [], []]), json!([true, []])),
        ],
    );
}

#[test]
fn text_indexes_get_entries_and_without_an_index_one_empty_list() {
    let doc = json!({"_id": "x", "a": true});
    talks(
        &mut server(),
        &[
            (json!(["index_doc", doc]), json!([[]])),
            (json!(["nouveau_index_doc", doc]), json!([[]])),
            (
                json!(["add_fun", {"fields": [{"name": "a", "type": "boolean"}]}, "nouveau"]),
                json!(true),
            ),
            (
                json!(["index_doc", doc]),
                json!([[
                    ["$fieldnames", "a_3aboolean", []],
                    ["a_3aboolean", true, []]
                ]]),
            ),
            (
                json!(["nouveau_index_doc", doc]),
                json!([[
                    {"@type": "string", "name": "$fieldnames", "value": "a_3aboolean"},
                    {"@type": "string", "name": "a_3aboolean", "value": "true"}
                ]]),
            ),
            (
                json!(["index_doc", {"_id": "_design/x", "a": true}]),
                json!([[]]),
            ),
        ],
    );
}

fn validate(new: Value, old: Value) -> Value {
    json!(["ddoc", "_design/v", ["validate_doc_update"], [new, old, {"name": null}, {}]])
}

#[test]
fn a_selector_validates_the_new_and_the_old_document() {
    let forbidden = json!({"forbidden": "document is not valid"});
    let ddoc = json!({"_id": "_design/v", "language": "query", "validate_doc_update": {
        "newDoc.type": {"$in": ["post", "comment"]},
        "$or": [{"oldDoc": null}, {"oldDoc.type": {"$type": "string"}}],
    }});
    talks(
        &mut server(),
        &[
            (json!(["ddoc", "new", "_design/v", ddoc]), json!(true)),
            (validate(json!({"type": "post"}), json!(null)), json!(true)),
            (
                validate(json!({"type": "page"}), json!(null)),
                forbidden.clone(),
            ),
            (validate(json!({}), json!(null)), forbidden.clone()),
            (
                validate(json!({"type": "post"}), json!({"type": 1})),
                forbidden,
            ),
            (
                validate(json!({"type": "post"}), json!({"type": "x"})),
                json!(true),
            ),
            // Validators outlive a reset.
            (json!(["reset", {}]), json!(true)),
            (validate(json!({"type": "post"}), json!(null)), json!(true)),
        ],
    );
}

#[test]
fn the_last_of_two_validators_in_a_design_document_counts() {
    let mut server = server();
    let taught = server.prompt(
        r#"["ddoc","new","_design/v",{"validate_doc_update":{"newDoc.a":1},"validate_doc_update":{"newDoc.a":2}}]"#,
    );
    assert_eq!(taught, "true");
    let answer = says(&mut server, &validate(json!({"a": 2}), json!(null)));
    assert_eq!(answer, json!(true));
}

#[test]
fn an_invalid_validator_is_an_error_and_the_server_survives() {
    let mut server = server();
    for (validator, name) in [
        (json!("function(n, o) {}"), "invalid_selector_json"),
        (json!({"newDoc.a": {"$foo": 1}}), "invalid_operator"),
        (json!({"newDoc.a": {"$mod": [0, 1]}}), "bad_arg"),
        (json!({"newDoc..a": 1}), "invalid_field_name"),
    ] {
        let ddoc = json!(["ddoc", "new", "_design/v", {"validate_doc_update": validator}]);
        assert_eq!(error_of(&mut server, &ddoc), name);
        let asked = error_of(&mut server, &validate(json!({}), json!(null)));
        assert_eq!(asked, "query_protocol_error", "it was not taught");
    }
    let without = json!(["ddoc", "new", "_design/v", {"views": {}}]);
    assert_eq!(says(&mut server, &without), json!(true));
    assert_eq!(
        error_of(&mut server, &validate(json!({}), json!(null))),
        "not_found"
    );
}

#[test]
fn anything_else_is_an_invalid_call_and_the_server_survives() {
    let mut server = server();
    for prompt in [
        json!([]),
        json!({}),
        json!(7),
        json!(["nonsense"]),
        json!(["map_doc"]),
        json!(["map_doc", {}, {}]),
        json!(["reduce", []]),
        json!(["reduce", "x", []]),
        json!(["reduce", [], [], "", ""]),
        json!(["reset", {}, {}]),
        json!(["add_fun"]),
        json!(["add_lib", {}]),
        json!(["list_row", {}]),
        json!(["ddoc", "new", "_design/v"]),
        json!(["ddoc", "new", 5, {}]),
        json!(["ddoc", "_design/v", ["shows", "s"], [null, {}]]),
        json!(["ddoc", "_design/v", ["filters", "f"], [[], {}]]),
        json!(["ddoc", "_design/v", ["validate_doc_update"], []]),
        json!(["ddoc", "_design/v", "validate_doc_update", []]),
    ] {
        assert_eq!(error_of(&mut server, &prompt), "invalid_call", "{prompt}");
    }
    assert!(
        server
            .prompt("{ nonsense")
            .starts_with(r#"["error","invalid_call""#)
    );
    for prompt in [
        json!(["map_doc", 5]),
        json!(["index_doc", []]),
        json!(["ddoc", "new", "_design/v", 5]),
    ] {
        assert_eq!(
            error_of(&mut server, &prompt),
            "invalid_document",
            "{prompt}"
        );
    }
    assert_eq!(says(&mut server, &json!(["reset"])), json!(true));
}

#[test]
fn an_expression_that_takes_too_long_is_an_error() {
    let mut server = server();
    let definition = json!({"fields": {"a": "asc"}, "partial_filter_selector": {"a": {"$regex": r"^(a|a?)+\1c"}}});
    assert_eq!(
        says(&mut server, &json!(["add_fun", definition])),
        json!(true)
    );
    let doc = json!(["map_doc", {"_id": "x", "a": "a".repeat(3_000)}]);
    assert_eq!(error_of(&mut server, &doc), "regex_limit");
    assert_eq!(
        says(&mut server, &json!(["map_doc", {"_id": "x"}])),
        json!([[]])
    );
}

#[test]
fn memory_and_answers_of_a_server_are_bounded() {
    let mut server = server();
    // Many indexes of one large field.
    let definition = json!(["add_fun", {"fields": {"a": "asc"}}]).to_string();
    for _ in 0..100 {
        assert_eq!(server.prompt(&definition), "true");
    }
    let document = json!(["map_doc", {"a": "x".repeat(1_000_000)}]).to_string();
    let refused: Value = serde_json::from_str(&server.prompt(&document)).unwrap();
    assert_eq!(
        (&refused[0], &refused[1]),
        (&json!("error"), &json!("too_large"))
    );
    assert_eq!(server.prompt(r#"["reset"]"#), "true");
    for _ in 0..10 {
        server.prompt(&definition);
    }
    assert!(server.prompt(&document).len() > 10_000_000);

    // Many definitions, until a reset forgets them.
    let long = json!(["add_fun", {"fields": {"a": "asc"}, "x": "y".repeat(500_000)}]).to_string();
    let refused =
        (0..10).find_map(|_| Some(server.prompt(&long)).filter(|answer| answer != "true"));
    assert!(refused.unwrap().starts_with(r#"["error","out_of_memory""#));
    server.prompt(r#"["reset"]"#);
    assert_eq!(server.prompt(&long), "true");

    // Many validators; one that replaces an earlier one takes no further memory.
    let teach = |id: usize| {
        let selector = json!({"newDoc.a": {"$in": ["z".repeat(500_000)]}});
        json!(["ddoc", "new", format!("d{id}"), {"validate_doc_update": selector}]).to_string()
    };
    for _ in 0..20 {
        assert_eq!(server.prompt(&teach(0)), "true");
    }
    let refused =
        (1..10).find_map(|id| Some(server.prompt(&teach(id))).filter(|answer| answer != "true"));
    assert!(refused.unwrap().starts_with(r#"["error","out_of_memory""#));
}
