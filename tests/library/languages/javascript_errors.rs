//! Errors of the built-in JavaScript server: each has a name and a text.

use serde_json::{Value, json};
use test_support::{TestRandom, effort};

use crate::languages::couchjs::{commands, map, play};

/// The option with which Settee starts the server.
const TEXT_REASONS: &[&str] = &["--text-reasons"];

/// What a function may throw, as expressions.
const THROWN: &[&str] = &[
    "null",
    "undefined",
    "0",
    "17",
    "''",
    "'text'",
    "true",
    "NaN",
    "Symbol('s')",
    "10n",
    "/x/",
    "[]",
    "{}",
    "function() {}",
    "function named() {}",
    "new Date(0)",
    "new Map()",
    "Object.create(null)",
    "new Error('boom')",
    "new Error('')",
    "new AggregateError([], 'all')",
    "'\\ud800'",
    "Object.assign(new Error('code'), {code: 5})",
    "Object.freeze(new RangeError('frozen'))",
    "(function() { var e = new Error('circular'); e.self = e; return e })()",
    "(function() { var e = new Error('big'); e.big = 10n; return e })()",
    "{get name() { throw 1 }, message: 'm'}",
    "{get message() { throw 1 }, name: 'N'}",
    "{get error() { throw 1 }}",
    "{get stack() { throw 1 }}",
    "{get 0() { throw 1 }}",
    "{toString() { throw 1 }}",
    "{toString() { return {} }}",
    "{toJSON() { throw 1 }, name: 'J'}",
    "{name: {a: 1}, message: {b: 2}}",
    "{name: 'N', message: {b: 2}}",
    "{name: '', message: 'm'}",
    "{name: 'DataCloneError', message: 'm', code: 25}",
    "{name: '\\ud800', message: '\\udc00'}",
    "{forbidden: {a: 1}}",
    "{forbidden: 10n}",
    "{forbidden: undefined}",
    "{error: 'e', reason: {a: 1}}",
    "{error: {x: 1}, reason: 'r'}",
    "{error: 5, reason: 5}",
    "{error: 'e', reason: 10n}",
    "['error']",
    "['error', 'n']",
    "['error', 'n', {a: 1}]",
    "['error', 'n', 'r', 'x']",
    "['error', 5, 'r']",
    "['error', null, null]",
    "['fatal']",
    "['fatal', 'n', {a: 1}]",
    "['log', 'x']",
    "['x']",
    "{name: 'InternalError', message: {a: 1}}",
];

/// Returns the commands that run this source as each kind of function.
fn calls(source: &str, module: &str) -> Vec<(&'static str, Vec<Value>)> {
    let ddoc = |arguments: Value, path: Value| {
        let ddoc = json!({
            "shows": {"s": source, "m": "function() { require('module') }",
                      "p": format!("function() {{ provides('html', {source}) }}"),
                      "g": format!("function() {{ return {{get body() {{ ({source})() }}}} }}")},
            "lists": {"s": source}, "updates": {"s": source}, "filters": {"s": source},
            "views": {"s": {"map": source}}, "validate_doc_update": source, "rewrites": source,
            "module": module,
        });
        vec![
            json!(["ddoc", "new", "d", ddoc]),
            json!(["ddoc", "d", path, arguments]),
        ]
    };
    let add = json!(["add_fun", source]);
    let lib = "function(doc) { require('views/lib/module') }";
    let unwritable = format!("function(doc) {{ emit({{toJSON: {source}}}, 1) }}");
    vec![
        ("map", vec![add.clone(), json!(["map_doc", {}])]),
        ("index", vec![add, json!(["index_doc", {}])]),
        (
            "toJSON",
            vec![json!(["add_fun", unwritable]), json!(["map_doc", {}])],
        ),
        (
            "library",
            vec![
                json!(["add_lib", {"module": module}]),
                json!(["add_fun", lib]),
                json!(["map_doc", {}]),
            ],
        ),
        ("compile", vec![json!(["add_fun", module])]),
        (
            "reduce",
            vec![json!(["reduce", [source], [[["k", "d"], 1]]])],
        ),
        ("rereduce", vec![json!(["rereduce", [source], [1]])]),
        ("show", ddoc(json!([null, {}]), json!(["shows", "s"]))),
        ("module", ddoc(json!([null, {}]), json!(["shows", "m"]))),
        ("provides", ddoc(json!([null, {}]), json!(["shows", "p"]))),
        ("getter", ddoc(json!([null, {}]), json!(["shows", "g"]))),
        ("list", ddoc(json!([{}, {}]), json!(["lists", "s"]))),
        ("update", ddoc(json!([null, {}]), json!(["updates", "s"]))),
        ("filter", ddoc(json!([[{}], {}]), json!(["filters", "s"]))),
        (
            "view filter",
            ddoc(json!([[{}]]), json!(["views", "s", "map"])),
        ),
        (
            "validate",
            ddoc(json!([{}, null, {}, {}]), json!(["validate_doc_update"])),
        ),
        ("rewrite", ddoc(json!([{}]), json!(["rewrites"]))),
    ]
}

#[test]
fn every_thrown_value_has_a_name_and_a_text() {
    let mut random = TestRandom::for_test("every_thrown_value_has_a_name_and_a_text");
    for thrown in THROWN {
        let source = format!("function() {{ throw ({thrown}); }}");
        for (kind, lines) in calls(&source, &format!("throw ({thrown})")) {
            for options in [TEXT_REASONS, &[]] {
                if random.below(effort(5, 1)) > 0 {
                    continue;
                }
                let answer = commands(options, &lines).last();
                if !matches!(answer[0].as_str(), Some("error" | "fatal")) {
                    continue;
                }
                let context = format!("{kind}, {thrown}, {options:?}: {answer}");
                assert_eq!(answer.as_array().unwrap().len(), 3, "{context}");
                assert!(
                    answer[1].as_str().is_some_and(|name| !name.is_empty()),
                    "{context}"
                );
                assert!(answer[2].is_string() || options.is_empty(), "{context}");
            }
        }
    }
}

#[test]
fn the_reason_is_the_thrown_message() {
    for (thrown, name, reason) in [
        ("new TypeError('boom')", "TypeError", "boom"),
        (
            "Object.assign(new Error('boom'), {code: 5n})",
            "Error",
            "boom",
        ),
        ("'boom'", "unnamed_error", "boom"),
        (
            "{name: 'Odd', message: 'boom'}",
            "Odd",
            r#"{"name":"Odd","message":"boom"}"#,
        ),
        ("{error: 'e', reason: 'boom'}", "e", "boom"),
        ("{error: 'e', reason: {a: 1}}", "e", r#"{"a":1}"#),
        ("null", "TypeError", "the function threw null"),
        (
            "{get name() { throw 1 }, message: 'boom'}",
            "TypeError",
            "boom",
        ),
        ("function() {}", "unnamed_error", "a function"),
    ] {
        let source = format!("function() {{ throw ({thrown}); }}");
        let (_, lines) = calls(&source, "")
            .into_iter()
            .find(|(kind, _)| *kind == "filter")
            .unwrap();
        let answer = commands(TEXT_REASONS, &lines).last();
        assert_eq!(answer, json!(["error", name, reason]), "{thrown}");
    }
}

#[test]
fn a_function_error_is_reported_even_if_the_request_is_empty_or_invalid() {
    let source = "function() { throw new Error('boom'); }";
    for (kind, name) in [
        ("show", "render_error"),
        ("list", "render_error"),
        ("update", "render_error"),
        ("provides", "render_error"),
        ("rewrite", "rewrite_error"),
    ] {
        let (_, lines) = calls(source, "")
            .into_iter()
            .find(|(known, _)| *known == kind)
            .unwrap();
        for request in [
            json!({}),
            json!(null),
            json!(5),
            json!({"path": 7, "headers": null}),
        ] {
            let mut lines = lines.clone();
            let arguments = &mut lines[1][3];
            if arguments[1].is_object() {
                arguments[1] = request.clone();
            }
            let answer = commands(&[], &lines).last();
            assert_eq!(answer[1], name, "{kind}, {request}: {answer}");
            assert!(
                answer[2].as_str().unwrap().contains("Error: boom"),
                "{kind}, {request}: {answer}"
            );
        }
    }
}

#[test]
fn a_validation_function_can_refuse_with_a_value_that_json_cannot_express() {
    let refused = |thrown: &str| {
        let source = format!("function() {{ throw ({thrown}); }}");
        let lines = [
            json!(["ddoc", "new", "d", {"validate_doc_update": source}]),
            json!(["ddoc", "d", ["validate_doc_update"], [{}, null, {}, {}]]),
        ];
        commands(TEXT_REASONS, &lines).last()
    };
    assert_eq!(refused("{forbidden: 10n}"), json!({"forbidden": "10"}));
    let unwritable = "{unauthorized: {toJSON() { throw 1 }, toString() { return 'log in' }}}";
    assert_eq!(refused(unwritable), json!({"unauthorized": "log in"}));
    // Sent unchanged, this value would be a log line and not an answer.
    assert_eq!(
        refused("['log', 'x']"),
        json!(["error", "unnamed_error", r#"["log","x"]"#])
    );
}

/// Function bodies that exhaust memory.
const HOGS: [&str; 4] = [
    "var a = []; for (;;) a.push({});",
    "var a = {}; for (;;) a = {a: a};",
    "var m = new Map(), i = 0; for (;;) m.set(i++, i);",
    "JSON.stringify(new Array(2e6).fill('abcdefgh'));",
];

/// Options with a small memory limit, in bytes.
const LITTLE: &[&str] = &["-S", "8388608", "--text-reasons"];

fn assert_out_of_memory(context: &str, lines: &[String], function: &str) {
    let played = play(LITTLE, lines);
    let answer = played.last();
    assert_eq!(
        (&answer[0], &answer[1]),
        (&json!("error"), &json!("out_of_memory")),
        "{context}: {answer}"
    );
    let reason = answer[2].as_str().unwrap();
    assert!(reason.starts_with(function), "{context}: {reason}");
    assert!(
        reason.contains("8388608 bytes")
            && reason.ends_with("raise [sandbox] javascript_memory_max in the configuration"),
        "{context}: {reason}"
    );
    assert_eq!(played.status, Some(255), "{context}");
}

#[test]
fn running_out_of_memory_is_reported_in_every_kind_of_function() {
    for hog in HOGS {
        for (kind, lines) in calls(&format!("function() {{ {hog} }}"), hog) {
            let function = match kind {
                "map" | "index" | "toJSON" | "library" => "map function 1 of 1 (function(",
                "compile" => "compiling ",
                "reduce" | "rereduce" => "reduce function function() {",
                _ => "",
            };
            let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
            assert_out_of_memory(&format!("{kind}, {hog}"), &lines, function);
        }
    }
}

#[test]
fn running_out_of_memory_is_reported_outside_of_functions_too() {
    let objects = format!("[{}{{}}]", "{},".repeat(200_000));
    let filter = r#"["ddoc","new","d",{"filters":{"s":"function() { return true }"}}]"#;
    let taught =
        format!(r#"["ddoc","new","d",{{"filters":{{"s":"function() {{}}"}},"x":{objects}}}]"#);
    let pairs = format!(
        "[{}[[\"k\",\"d\"],1]]",
        "[[\"k\",\"d\"],1],".repeat(100_000)
    );
    let cases: [(&str, Vec<String>, &str); 7] = [
        ("the document", vec![
            r#"["add_fun","function(doc) { emit(1, doc) }"]"#.into(),
            format!(r#"["map_doc",{{"x":{objects}}}]"#),
        ], "map function 1 of 1"),
        ("the rows", vec![
            r#"["add_fun","function(doc) { for (;;) emit([1], {}) }"]"#.into(), r#"["map_doc",{}]"#.into(),
        ], "map function 1 of 1"),
        ("plain rows", vec![
            r#"["add_fun","function(doc) { for (;;) emit(1, 1) }"]"#.into(), r#"["map_doc",{}]"#.into(),
        ], "map function 1 of 1"),
        ("the text of an error", vec![
            r#"["ddoc","new","d",{"shows":{"s":"function() { throw {toString: function() { var a = {}; for (;;) a = {a: a} }} }"}}]"#.into(),
            r#"["ddoc","d",["shows","s"],[null,{}]]"#.into(),
        ], "shows/s of d"),
        ("arguments", vec![filter.into(), format!(r#"["ddoc","d",["filters","s"],[{objects},{{}}]]"#)], "filters/s of d"),
        ("a design document", vec![taught, r#"["ddoc","d",["filters","s"],[[],{}]]"#.into()], "filters/s of d"),
        ("pairs", vec![format!(r#"["reduce",["function(k, v) {{ return k }}"],{pairs}]"#)], "reduce function"),
    ];
    for (what, lines, function) in cases {
        assert_out_of_memory(what, &lines, function);
    }
}

/// What CouchDB's own server answers when its engine runs out of memory.
fn couchdb_out_of_memory() -> Value {
    json!(["error", "InternalError", "out of memory"])
}

#[test]
fn under_couchdb_running_out_of_memory_is_couchdbs_internal_error() {
    let source = format!("function(doc) {{ {} }}", HOGS[1]);
    let emits = "function(doc) { while (true) { emit(doc, doc) } }";
    let mut all = calls(&source, HOGS[1]);
    all.push((
        "rows",
        vec![json!(["add_fun", emits]), json!(["map_doc", {}])],
    ));
    for (kind, lines) in all {
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        let played = play(&LITTLE[..2], &lines);
        assert_eq!(played.last(), couchdb_out_of_memory(), "{kind}");
        assert_eq!(played.status, Some(255), "{kind}");
    }
    let long = json!(["map_doc", {"_id": "x".repeat(12 << 20)}]).to_string();
    let played = play(&LITTLE[..2], &[r#"["reset"]"#.to_owned(), long]);
    assert_eq!(played.last(), couchdb_out_of_memory(), "a line");
}

#[test]
fn a_rendering_function_that_throws_null_or_undefined_raises_a_type_error() {
    for thrown in ["null", "undefined"] {
        let source = format!("function() {{ throw {thrown}; }}");
        let kinds = ["show", "list", "update", "provides", "rewrite"];
        let rendering = |(kind, _): &(&str, _)| kinds.contains(kind);
        for (kind, mut lines) in calls(&source, "").into_iter().filter(rendering) {
            lines.push(json!(["reset"]));
            let answers = commands(&[], &lines).answers();
            let expected = [json!(["error", "TypeError", {}]), json!(true)];
            assert_eq!(answers[1..], expected, "{kind}, {thrown}");
        }
    }
}

#[test]
fn under_couchdb_a_refusal_that_json_cannot_express_is_an_error() {
    for thrown in ["circular", "{forbidden: 10n}"] {
        let source = format!(
            "function() {{ var circular = {{forbidden: 'x'}}; circular.self = circular; throw {thrown}; }}"
        );
        let lines = [
            json!(["ddoc", "new", "d", {"validate_doc_update": source}]),
            json!(["ddoc", "d", ["validate_doc_update"], [{}, null, {}, {}]]),
            json!(["reset"]),
        ];
        let answers = commands(&[], &lines).answers();
        let expected = [json!(["error", "TypeError", {}]), json!(true)];
        assert_eq!(answers[1..], expected, "{thrown}");
    }
}

#[test]
fn runaway_recursion_is_reported_and_the_server_survives() {
    let source = "function() { function f() { f(); return 1 } f(); }";
    for (kind, mut lines) in calls(source, "(function f() { f(); return 1 })()") {
        lines.push(json!(["reset"]));
        let answers = commands(TEXT_REASONS, &lines).answers();
        assert_eq!(answers.last(), Some(&json!(true)), "{kind}");
        let answer = &answers[answers.len() - 2];
        // An exception in a library counts as one in the map function, which is logged.
        let logged = kind == "library" && *answer == json!([[]]);
        let text = answer.to_string();
        assert!(
            logged || text.contains("Maximum call stack size exceeded"),
            "{kind}: {answer}"
        );
    }
}

#[test]
fn an_answer_longer_than_the_line_limit_is_an_error_and_the_server_survives() {
    let options = ["--line-max", "5000", "--text-reasons"];
    let too_large = |answer: &Value| {
        assert_eq!(
            (&answer[0], &answer[1]),
            (&json!("error"), &json!("answer_too_large"))
        );
        assert!(
            answer[2].as_str().unwrap().contains("at most 5000"),
            "{answer}"
        );
    };
    let fits = map(&options, "emit(new Array(4991).join('x'), 1)");
    assert_eq!(fits.lines[1].len(), 5000);
    too_large(&map(&options, "emit(new Array(5000).join('x'), 1)").last());
    // The server survives, and a log message is truncated.
    let played = map(&options, "log(new Array(9000).join('\\u00e9')); emit(1, 1)");
    assert_eq!(played.last(), json!([[[1, 1]]]));
    assert!(played.lines.iter().all(|line| line.len() <= 5000));
    assert!(
        played.lines[1].ends_with(".. (17998 bytes)\"]"),
        "{}",
        played.lines[1]
    );
    // Chunks of a list are lines of their own.
    let list = "function() { getRow(); send(new Array(9000).join('x')); getRow(); return 'end' }";
    let played = commands(
        &options,
        &[
            json!(["ddoc", "new", "d", {"lists": {"l": list}}]),
            json!(["ddoc", "d", ["lists", "l"], [{}, {}]]),
            json!(["list_row", {"id": "a", "key": 1, "value": 1}]),
            json!(["reset"]),
        ],
    );
    let answers = played.answers();
    too_large(&answers[2]);
    assert_eq!(answers[3], json!(true));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn a_malformed_command_is_answered_with_an_error_and_the_server_survives() {
    let filter = json!({"filters": {"f": "function() { return true }"}, "views": 5, "shows": {"s": 7, "o": {}}});
    for (command, named) in [
        (
            json!(["ddoc", "new", "x", "str"]),
            "the design document x must be an object, it is a string",
        ),
        (
            json!(["ddoc", "new", "x", null]),
            "must be an object, it is null",
        ),
        (
            json!(["ddoc", "new", "x", 5]),
            "must be an object, it is a number",
        ),
        (
            json!(["ddoc", "new", "x", true]),
            "must be an object, it is a boolean",
        ),
        (
            json!(["ddoc", "new", "x", [{}]]),
            "must be an object, it is a list",
        ),
        (
            json!(["ddoc", "new", "x"]),
            "must be an object, it is missing",
        ),
        (
            json!(["ddoc", "new", 5, {}]),
            "the id of a design document must be a string, it is a number",
        ),
        (
            json!(["ddoc", "new", null, {}]),
            "must be a string, it is null",
        ),
        (json!(["ddoc", "new"]), "must be a string, it is missing"),
        (
            json!(["ddoc", "d", ["views", "v", "map"], [[]]]),
            "d has nothing at views/v/map",
        ),
        (
            json!(["ddoc", "d", ["lists", "l"], [{}, {}]]),
            "d has nothing at lists/l",
        ),
        (
            json!(["ddoc", "d", ["shows", "x"], [null, {}]]),
            "missing shows function x on design doc d",
        ),
        (
            json!(["ddoc", "d", ["shows", "s"], [null, {}]]),
            "Expression does not eval to a function. (7)",
        ),
        (
            json!(["ddoc", "d", ["shows", "o"], [null, {}]]),
            "Expression does not eval to a function. ({})",
        ),
        (json!(["ddoc", "d"]), "a call names its function by a list"),
        (
            json!(["ddoc", "d", ["filters", "f"]]),
            "arguments of a function must be a list, they are missing",
        ),
        (
            json!(["ddoc", "d", ["filters", "f"], {}]),
            "must be a list, they are an object",
        ),
        (
            json!(["ddoc", "d", ["filters", "f"], [5]]),
            "a filter needs a list of documents",
        ),
        (
            json!(["ddoc", "d", ["filters", "f"], []]),
            "a filter needs a list of documents",
        ),
        (json!(["add_fun"]), "missing function"),
        (json!(["add_fun", null]), "missing function"),
        (
            json!(["add_fun", 5]),
            "Expression does not eval to a function. (5)",
        ),
        (
            json!(["add_fun", {}]),
            "Expression does not eval to a function. ({})",
        ),
        (
            json!(["add_lib"]),
            "must be an object of modules, it is missing",
        ),
        (
            json!(["add_lib", "str"]),
            "must be an object of modules, it is a string",
        ),
        (
            json!(["add_lib", null]),
            "must be an object of modules, it is null",
        ),
        (
            json!(["add_lib", []]),
            "must be an object of modules, it is a list",
        ),
        (
            json!(["reset", "str"]),
            "the configuration must be an object, it is a string",
        ),
        (json!(["reset", [1]]), "must be an object, it is a list"),
        (
            json!(["reduce"]),
            "reduce: the list of functions must be a list, it is missing",
        ),
        (
            json!(["reduce", "str", []]),
            "must be a list, it is a string",
        ),
        (
            json!(["reduce", [5], []]),
            "Expression does not eval to a function. (5)",
        ),
        (
            json!(["reduce", ["function() { return 1 }"], 5]),
            "the list of rows must be a list, it is a number",
        ),
        (
            json!(["reduce", ["function() { return 1 }"], [5]]),
            "row 0 is not [[key, id], value]",
        ),
        (
            json!(["rereduce", ["function() { return 1 }"]]),
            "the list of rows must be a list, it is missing",
        ),
        (
            json!(["rereduce", ["function() { return 1 }"], {}]),
            "must be a list, it is an object",
        ),
        (json!({"a": 1}), "a command must be a list"),
    ] {
        let lines = [
            json!(["ddoc", "new", "d", filter]),
            command.clone(),
            json!(["reset"]),
        ];
        let played = commands(TEXT_REASONS, &lines);
        let answers = played.answers();
        assert_eq!(answers.len(), 3, "{command}");
        assert_eq!(answers[1][0], "error", "{command}: {}", answers[1]);
        let reason = answers[1][2].as_str().unwrap();
        assert!(reason.contains(named), "{command}: {reason}");
        assert_eq!(
            (&answers[2], played.status),
            (&json!(true), Some(0)),
            "{command}"
        );
    }
}

#[test]
fn a_failed_lesson_leaves_the_document_that_was_taught_before() {
    let played = commands(
        TEXT_REASONS,
        &[
            json!(["ddoc", "new", "d", {"filters": {"f": "function() { return true }"}}]),
            json!(["ddoc", "new", "d", "str"]),
            json!(["ddoc", "d", ["filters", "f"], [[{}], {}]]),
        ],
    );
    assert_eq!(played.last(), json!([true, [true]]));
}
