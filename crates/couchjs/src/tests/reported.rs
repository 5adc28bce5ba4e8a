//! Error reports with positions, enabled by `reset`.

use serde_json::{Value, json};

use super::answers;

/// The lines of a query server, with or without reports.
fn lines(report: bool, commands: &[Value]) -> Vec<Vec<Value>> {
    let mut all = vec![json!(["reset", {"report": report}])];
    all.extend_from_slice(commands);
    let answers = answers(true, &all);
    let answers = answers.iter().skip(1);
    let values = |text: &String| -> Vec<Value> {
        let values = serde_json::Deserializer::from_str(text).into_iter();
        values.map(Result::unwrap).collect()
    };
    answers.map(values).collect()
}

/// The reports of some commands' errors; the answers must equal those of a server without reports.
fn reported(commands: &[Value]) -> Vec<Value> {
    let (with, without) = (lines(true, commands), lines(false, commands));
    let mut details = Vec::new();
    for (with, without) in with.iter().zip(&without) {
        assert_eq!(with.last(), without.last(), "the answer is the same");
        let told = |line: &&Value| line[0] == "log" && line.as_array().unwrap().len() == 3;
        details.extend(with.iter().filter(told).map(|line| line[2].clone()));
        assert_eq!(without.iter().filter(told).count(), 0);
    }
    details
}

/// The report of some commands' only error.
fn only(commands: &[Value]) -> Value {
    let mut all = reported(commands);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Maps a document with a function.
fn mapped(source: &str) -> Value {
    only(&[json!(["add_fun", source]), json!(["map_doc", {"_id": "x"}])])
}

/// Calls a function of a design document.
fn called(ddoc: Value, path: &[&str], arguments: Value) -> Value {
    only(&[
        json!(["ddoc", "new", "_design/d", ddoc]),
        json!(["ddoc", "_design/d", path, arguments]),
    ])
}

fn place(details: &Value) -> (u64, u64) {
    let number = |name: &str| {
        details[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{details}"))
    };
    (number("line"), number("column"))
}

#[test]
fn an_error_is_located_in_the_source_of_every_form_of_a_function() {
    // `@` marks the error.
    for source in [
        "function(doc) { @doc.a.b }",
        "function (doc) {\n  var a = 1;\n\n  @doc.a.b;\n}",
        "(function(doc) { @doc.a.b })",
        "(function map(doc) {\n@doc.a.b })",
        "doc => @doc.a.b",
        "(doc) => {\n  emit(@doc.a.b) }",
        "// a comment\n/* another\n one */ function(doc) { @doc.a.b }",
        "/* c */ function /**/ (doc) { @doc.a.b }",
        "var n = 1; function(doc) { @doc.a.b }",
        "function(a) {} function(doc) { @doc.a.b }",
        "function h() {}\nfunction(doc) { @doc.a.b }",
        "function helper(d) { return @d.a.b }\nfunction(doc) { helper(doc) }",
        "function(doc) { '\u{e9}\u{1f680}'; @doc.a.b }",
        "\u{feff}function(doc) { @doc.a.b }",
        "function(doc) {\r\n  @doc.a.b }",
        "function(doc) {\t@doc.a.b }",
        "function(doc) { [1].map(function q() { @doc.a.b }) }",
        "function(doc) { @eval('1;\\ndoc.a.b') }",
        "function(doc) { new Function('d', 'd.a.b')(@doc) }",
        "function(doc) { throw new @Error('m') }",
        "class A { m(d) { @d.a.b } }\nfunction(doc) { new A().m(doc) }",
        "function(doc) { emit(`${@doc.a.b}`) }",
    ] {
        let (before, _) = source.split_once('@').unwrap();
        let line = before.matches('\n').count() as u64 + 1;
        let last = before.rsplit('\n').next().unwrap();
        let told = mapped(&source.replace('@', ""));
        assert_eq!(told["line"], line, "{source}: {told}");
        let column = last.chars().count() as u64 + 1;
        assert_eq!(told["column"], column, "{source}: {told}");
        assert_eq!((&told["function"], &told["doc"]), (&json!(0), &json!("x")));
    }
}

#[test]
fn an_error_is_reported_with_its_name_its_message_and_no_frame_of_the_server() {
    let told = mapped("function(doc) {\n  function f(d) { return d.a.b }\n  [doc].map(f);\n}");
    let expected = json!({
        "function": 0, "doc": "x", "name": "TypeError",
        "message": "cannot read property 'b' of undefined", "line": 2, "column": 26,
        "stack": ["f (2:26)", "map (native)", "<anonymous> (3:13)"],
    });
    assert_eq!(told, expected);
    let told = mapped("function(doc) { eval('\\ndoc.a.b') }");
    assert_eq!(
        told["stack"],
        json!(["<eval> (eval:2:1)", "<anonymous> (1:17)"])
    );
}

#[test]
fn whatever_is_thrown_has_a_name_and_a_message() {
    for (thrown, name, message) in [
        ("new RangeError('far')", "RangeError", "far"),
        ("'text'", "unnamed_error", "text"),
        ("17", "unnamed_error", "17"),
        ("{error: 'e', reason: 'r'}", "e", "r"),
        ("['error', 'n', 'r']", "n", "r"),
        ("{name: 'N', message: 'm', stack: ''}", "N", "m"),
        (
            "{get stack() { throw 1 }}",
            "unnamed_error",
            "[object Object]",
        ),
        (
            "{name: 'N', stack: 'at (\\nat'}",
            "N",
            "{\"name\":\"N\",\"stack\":\"at (\\nat\"}",
        ),
    ] {
        let told = mapped(&format!("function(doc) {{ throw {thrown} }}"));
        assert_eq!(
            (&told["name"], &told["message"]),
            (&json!(name), &json!(message))
        );
    }
    let long = mapped("function(doc) { throw new Error('x'.repeat(100000)) }");
    assert!(long["message"].as_str().unwrap().len() < 5000);
    let deep = mapped(
        "function(doc) { Error.stackTraceLimit = 60; (function f(n) { n ? f(n - 1) : null.x })(100) }",
    );
    assert!(deep["stack"].as_array().unwrap().len() <= 32);
}

#[test]
fn a_syntax_error_is_shown_with_its_line_and_a_caret() {
    for (source, at, line, caret) in [
        (
            "function(doc) { 1 + ; }",
            (1, 21),
            "function(doc) { 1 + ; }",
            "                    ^",
        ),
        ("(doc) => {\n  foo bar\n}", (2, 7), "  foo bar", "      ^"),
        (
            "function(doc) {\n\t'\u{e9}' foo }",
            (2, 6),
            "\t'\u{e9}' foo }",
            "\t    ^",
        ),
        ("function(", (1, 10), "function(", "         ^"),
        (
            "var a = 1; function(doc) { a b }",
            (1, 30),
            "var a = 1; function(doc) { a b }",
            "                             ^",
        ),
    ] {
        let told = only(&[json!(["add_fun", source])]);
        assert_eq!(place(&told), at, "{told}");
        assert_eq!(
            (&told["source_line"], &told["caret"]),
            (&json!(line), &json!(caret))
        );
        assert_eq!(told["name"], "SyntaxError");
        let of_ddoc = called(
            json!({"shows": {"s": source}}),
            &["shows", "s"],
            json!([{}, {}]),
        );
        assert_eq!(
            (&of_ddoc["function"], &of_ddoc["line"]),
            (&json!("shows/s"), &told["line"])
        );
    }
    let none = only(&[json!(["add_fun", "7"])]);
    assert!(
        none.get("line").is_none() && none.get("caret").is_none(),
        "{none}"
    );
}

#[test]
fn the_stack_of_an_error_may_be_a_getter_that_requires_broken_modules() {
    let details = only(&[
        json!(["add_lib", {"a": "null.z", "b": "null.z", "c": "null.z", "d": "null.z"}]),
        json!([
            "add_fun",
            "function(doc) { var names = ['a', 'b', 'c', 'd']; throw { name: 'n', get stack() {
            try { require('views/lib/' + names.shift()) } catch (e) { return e.stack }
        } } }"
        ]),
        json!(["map_doc", {"_id": "x"}]),
    ]);
    assert_eq!(details["name"], "n");
}

#[test]
fn an_error_in_a_module_names_the_module() {
    let library = json!({
        "late": "exports.f = function(d) {\n  return d.a.b;\n}", "early": "var a;\nnull.z",
        "wrong": "exports.a = (;", "outer": "exports.b = require('views/lib/early')",
        "odd (name)": "null.z",
    });
    let with = |source: &str| {
        only(&[
            json!(["add_lib", library]),
            json!(["add_fun", source]),
            json!(["map_doc", {"_id": "x"}]),
        ])
    };
    let late = with("function(doc) { require('views/lib/late').f(doc) }");
    assert_eq!(
        (&late["module"], place(&late)),
        (&json!("views/lib/late"), (2, 10))
    );
    let stack = json!(["<anonymous> (views/lib/late:2:10)", "<anonymous> (1:45)"]);
    assert_eq!(late["stack"], stack);
    let early = with("function(doc) { require('views/lib/early') }");
    assert_eq!(
        (&early["module"], place(&early)),
        (&json!("views/lib/early"), (2, 1))
    );
    let wrong = with("function(doc) { require('views/lib/wrong') }");
    assert_eq!(
        (&wrong["module"], place(&wrong)),
        (&json!("views/lib/wrong"), (1, 14))
    );
    assert_eq!(wrong["source_line"], "exports.a = (;");
    let outer = with("function(doc) { require('views/lib/outer') }");
    assert_eq!(outer["module"], "views/lib/early");
    let odd = with("function(doc) { require('views/lib/odd (name)') }");
    assert_eq!(
        (&odd["module"], place(&odd)),
        (&json!("views/lib/odd__name_"), (1, 1))
    );
    let ddoc = json!({"lib": {"m": "exports.f = function(d) { return d.a.b }"},
                      "shows": {"s": "function(doc) { return require('lib/m').f(doc) }"}});
    let shown = called(ddoc, &["shows", "s"], json!([{"_id": "y"}, {}]));
    assert_eq!(
        (&shown["module"], place(&shown)),
        (&json!("lib/m"), (1, 34))
    );
}

#[test]
fn half_a_surrogate_pair_in_a_module_is_reported_as_a_replacement_character() {
    let shown = |module: &str| {
        let source = format!("function() {{ this.lib = {{m: \"{module}\"}}; require('lib/m') }}");
        let ddoc = json!({"shows": {"s": source}});
        called(ddoc, &["shows", "s"], json!([null, {}]))
    };
    let wrong = shown(r"exports.a = '\ud800'; ]");
    assert_eq!(wrong["source_line"], "exports.a = '\u{fffd}'; ]");
    let thrown = shown(r"throw new Error('\ud800')");
    let message = "Module require('lib/m') raised error Error: \u{fffd}";
    assert_eq!(thrown["message"], message);
}

#[test]
fn errors_in_functions_of_every_kind_name_the_function_and_the_document() {
    let throws = "function(doc) { if (doc._id != 'good') doc.a.b }";
    let ddoc = json!({
        "shows": {"f": throws}, "updates": {"f": throws}, "filters": {"f": throws},
        "lists": {"f": "function() { null.a }"}, "views": {"v": {"map": throws}},
        "validate_doc_update": throws, "rewrites": "function() { null.a }",
    });
    let (doc, good) = (json!({"_id": "bad"}), json!({"_id": "good"}));
    for (path, arguments, id) in [
        (&["shows", "f"][..], json!([doc, {}]), Some("bad")),
        (&["updates", "f"], json!([doc, {}]), Some("bad")),
        (&["filters", "f"], json!([[good, doc], {}]), Some("bad")),
        (&["views", "v", "map"], json!([[good, doc]]), Some("bad")),
        (
            &["validate_doc_update"],
            json!([doc, null, {}, {}]),
            Some("bad"),
        ),
        (&["lists", "f"], json!([{}, {}]), None),
        (&["rewrites"], json!([{}]), None),
        (&["shows", "none"], json!([doc, {}]), Some("bad")),
    ] {
        let told = called(ddoc.clone(), path, arguments);
        assert_eq!(told["function"], path.join("/"));
        assert_eq!(told.get("doc").and_then(Value::as_str), id, "{told}");
        assert_eq!(
            told.get("line").is_some(),
            path != ["shows", "none"],
            "{told}"
        );
    }
    let second = reported(&[
        json!(["add_fun", "function(doc) { emit(1) }"]),
        json!(["add_fun", "function(doc) { null.a }"]),
        json!(["map_doc", {"_id": "x"}]),
        json!([
            "reduce",
            ["function() { return 1 }", "function() { null.a }"],
            [[["k", "x"], 1]]
        ]),
        json!(["add_fun", "function( {"]),
        json!(["add_fun", "function(doc) { emit({toJSON() { null.a }}) }"]),
        json!(["index_doc", {"_id": "y"}]),
        json!(["map_doc", {"_id": "z"}]),
    ]);
    let functions: Vec<_> = second.iter().map(|told| told["function"].clone()).collect();
    assert_eq!(functions, [1, 1, 2, 1, 1, 2].map(|number| json!(number)));
}

#[test]
fn without_an_error_a_report_only_adds_the_level_of_a_warning() {
    let commands = [
        json!(["add_fun", "function(doc) { log('said'); emit(1) }"]),
        json!(["map_doc", {"_id": "x"}]),
        json!(["ddoc", "new", "d", {"validate_doc_update": "function(d) { throw {forbidden: 'no'} }"}]),
        json!(["ddoc", "d", ["validate_doc_update"], [{"_id": "x"}, null, {}, {}]]),
    ];
    assert_eq!(lines(true, &commands), lines(false, &commands));
    let long = json!([
        "reduce",
        ["function() { return 'x'.repeat(6000) }"],
        [[["k", "x"], 1]]
    ]);
    let reset = |report| json!(["reset", {"report": report, "reduce_limit": "log"}]);
    let levels = [true, false].map(|report| {
        let told = lines(false, &[reset(report), long.clone()])
            .remove(1)
            .remove(0);
        told.get(2).map(|details| details["level"].clone())
    });
    assert_eq!(levels, [Some(json!("warning")), None]);
}

#[test]
fn the_next_reset_disables_reports() {
    let throws = json!(["reduce", ["function() { null.a }"], [[["k", "x"], 1]]]);
    let lines = lines(true, &[throws.clone(), json!(["reset", {}]), throws]);
    let details = [0, 2].map(|index| lines[index][0].as_array().unwrap().len());
    assert_eq!(details, [3, 2]);
}

#[test]
fn traces_in_answers_do_not_name_modules() {
    let ddoc = json!({"lib": "exports.f = function(d) { return d.a.b }",
                      "shows": {"s": "function(doc) { return require('lib').f(doc) }"}});
    let lines = lines(
        false,
        &[
            json!(["ddoc", "new", "d", ddoc]),
            json!(["ddoc", "d", ["shows", "s"], [{}, {}]]),
        ],
    );
    let reason = lines[1].last().unwrap()[2].as_str().unwrap();
    let trace = "    at <anonymous> (<input>:1:73)\n    at <anonymous> (eval_script:1:43)\n    at apply (native)\n    \
                 at show (render:89:48)\n";
    assert!(reason.ends_with(trace), "{reason}");
}
