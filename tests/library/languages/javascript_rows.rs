//! Rows of the built-in JavaScript server: very many of them, and values that look like errors.

use serde_json::{Value, json};

use crate::languages::couchjs::{commands, map};

/// Returns the answer of an index function.
fn indexed(body: &str, kind: &str) -> Value {
    let source = format!("function(doc) {{ {body} }}");
    let name = if kind == "nouveau" {
        "nouveau_index_doc"
    } else {
        "index_doc"
    };
    let played = commands(
        &[],
        &[
            json!(["add_fun", source, kind]),
            json!([name, {"_id": "a"}]),
        ],
    );
    played.last()
}

#[test]
fn a_million_rows_of_plain_values_fit_in_the_default_memory_limit() {
    let played = map(&[], "for (var i = 0; i < 1000000; i++) emit(i, null);");
    let rows: Vec<String> = (0..1_000_000).map(|i| format!("[{i},null]")).collect();
    assert_eq!(played.lines[0], "true");
    assert!(played.lines[1] == format!("[[{}]]", rows.join(",")));
    assert_eq!(played.status, Some(0));
    // Strings, numbers with an exponent, and halves of surrogate pairs.
    let body = "for (var i = 0; i < 600000; i++) emit('k' + i, i % 2 ? 1e21 : '\\ud800');";
    let played = map(&[], body);
    assert!(played.lines[1].ends_with(r#",["k599998","\ud800"],["k599999",1e+21]]]"#));
}

#[test]
fn half_a_million_index_fields_fit_in_the_default_memory_limit() {
    let body = "for (var i = 0; i < 500000; i++) index('n', i);";
    let fields = indexed(body, "");
    assert_eq!(fields[0].as_array().unwrap().len(), 500_000);
    assert_eq!(fields[0][499_999], json!(["n", 499_999, {}]));
}

#[test]
fn rows_of_plain_values_and_objects_keep_their_order() {
    let body = "for (var i = 0; i < 20000; i++) emit(i, i % 5000 == 4999 ? {at: i} : null);";
    let rows = map(&[], body).last();
    let rows = rows[0].as_array().unwrap();
    assert_eq!(rows.len(), 20_000);
    for (at, row) in rows.iter().enumerate() {
        let value = if at % 5000 == 4999 {
            json!({"at": at})
        } else {
            json!(null)
        };
        assert_eq!(row, &json!([at, value]));
    }
}

#[test]
fn a_value_that_changes_after_emit_is_written_with_its_final_content() {
    let body = "var early = {n: 1}, key = ['k'], late = [];
        emit(key, early);
        for (var i = 0; i < 10000; i++) emit(i, 'plain');
        emit('late', late);
        early.n = 2; key[0] = 'changed'; late.push(3);";
    let rows = map(&[], body).last();
    assert_eq!(rows[0][0], json!([["changed"], {"n": 2}]));
    assert_eq!(rows[0][1], json!([0, "plain"]));
    assert_eq!(rows[0][10_001], json!(["late", [3]]));
}

#[test]
fn a_function_that_fails_after_many_rows_yields_none() {
    let played = map(
        &[],
        "for (var i = 0; i < 10000; i++) emit(i, i); throw 'late';",
    );
    assert_eq!(played.last(), json!([[]]));
}

#[test]
fn an_object_with_the_members_of_an_error_is_emitted_as_an_error() {
    let body = "emit(1, new TypeError('wrong'));
        emit(2, {stack: '', name: 'Odd', message: 'm', more: 1});
        emit(3, {stack: null, name: 0, message: undefined});
        emit(4, Object.create({stack: 1, name: 'Inherited', message: [2]}));
        emit(new Error('key'), {stack: 's', name: 'n'});
        emit(5, [new Error('inside')]);
        log({stack: '', name: 'Odd', message: ''});";
    let played = map(&[], body);
    let rows = json!([[
        [1, {"error": "TypeError", "message": "wrong"}],
        [2, {"error": "Odd", "message": "m"}],
        [3, {"error": 0}],
        [4, {"error": "Inherited", "message": [2]}],
        [{}, {"stack": "s", "name": "n"}],
        [5, [{}]],
    ]]);
    assert_eq!(played.last(), rows);
    let log: Value = serde_json::from_str(&played.lines[1]).unwrap();
    assert_eq!(log, json!(["log", r#"{"error":"Odd","message":""}"#]));
}

#[test]
fn mistakes_of_an_index_function_are_reported_with_couchdbs_messages() {
    let reported = |call: &str, kind: &str| {
        let report = match kind {
            "nouveau" => "index('string', 'reported', e.name + ': ' + e.message)",
            _ => "index('reported', e.name + ': ' + e.message)",
        };
        let fields = indexed(&format!("try {{ {call} }} catch (e) {{ {report} }}"), kind);
        let value = match kind {
            "nouveau" => &fields[0][0]["value"],
            _ => &fields[0][0][1],
        };
        value.as_str().unwrap().to_owned()
    };
    for (call, expected) in [
        (
            "index('a', 'x', 'options')",
            "options must be an object not string",
        ),
        ("index('a', 'x', 7)", "options must be an object not number"),
        (
            "index('a', 'x', true)",
            "options must be an object not boolean",
        ),
        (
            "index('a', 'x', function() {})",
            "options must be an object not function",
        ),
        ("index(5, 'x')", "name must be a string not number"),
        (
            "index('a', null)",
            "value must be a string, a number or boolean not object",
        ),
    ] {
        let expected = format!("TypeError: {expected}");
        assert_eq!(reported(call, ""), expected, "{call}");
    }
    for (call, expected) in [
        (
            "index('stored', 'a', true)",
            "type of true must be a string or number",
        ),
        (
            "index('stored', 'a')",
            "type of undefined must be a string or number",
        ),
        (
            "index('stored', 'a', [1, 2])",
            "type of 1,2 must be a string or number",
        ),
        (
            "index('string', 'a', true)",
            "type of value must be a string not boolean",
        ),
        (
            "index('double', 'a', 'x')",
            "type of value must be a number not string",
        ),
        (
            "index(7, 'a', 'x')",
            "type of type must be a string not number",
        ),
        ("index('odd', 'a', 'x')", "odd not supported"),
    ] {
        let expected = format!("TypeError: {expected}");
        assert_eq!(reported(call, "nouveau"), expected, "{call}");
    }
}
