//! Functions that never end: which prompt is blamed, with which limit, and what happens to the others.

use crate::functions::support::Functions;
use crate::support::daemon::Service;
use serde_json::{Value, json};

/// Timeout of a function, in milliseconds.
const LIMIT_MS: u64 = 1500;

/// Takes forever inside the engine's native code, which never checks for interrupts.
const NATIVE: &str = "var a = []; for (var i = 0; i < 60; i++) a = [a, a]; JSON.stringify(a);";

/// Asserts that the function is blamed.
async fn assert_blamed(functions: &Functions, call: &str, mut arguments: Value, phase: &str) {
    arguments["timeout_ms"] = json!(LIMIT_MS);
    let error = functions.error(call, arguments.clone()).await;
    let members = ["name", "fault", "retry", "phase", "limit_ms"];
    assert_eq!(
        json!(members.map(|name| &error[name])),
        json!(["timeout", "function", false, phase, LIMIT_MS]),
        "{call} {arguments}: {error}"
    );
}

#[actix_rt::test]
async fn an_endless_loop_in_any_design_document_function_is_blamed_on_the_function() {
    let functions = Functions::javascript();
    let ddoc = json!({
        "lib": {"endless": "while (true) {}"},
        "shows": {
            "s": "function() { while (true) {} }",
            "native": format!("function() {{ {NATIVE} }}"),
            "pattern": "function() { return /^(a+)+$/.test('a'.repeat(60) + 'b') + '' }",
            "module": "function() { require('lib/endless') }",
            "answer": "function() { return {json: {toJSON: function() { while (true) {} }}} }",
            "getter": "function() { return {get body() { while (true) {} }} }",
            "source": "(function() { while (true) {} })()",
        },
        "updates": {"u": "function() { while (true) {} }"},
        "filters": {"f": "function() { while (true) {} }"},
        "views": {"v": {"map": "function() { while (true) {} }"}},
        "lists": {
            "l": "function() { while (true) {} }",
            "rows": "function() { while (getRow()) {} while (true) {} }",
        },
        "rewrites": "function() { while (true) {} }",
        "validate_doc_update": format!("function() {{ {NATIVE} }}"),
    });
    let docs = json!([{"_id": "a"}]);
    for (call, arguments) in [
        ("show", json!({"name": "s"})),
        ("show", json!({"name": "native"})),
        ("show", json!({"name": "pattern"})),
        ("show", json!({"name": "module"})),
        ("show", json!({"name": "answer"})),
        ("show", json!({"name": "getter"})),
        ("show", json!({"name": "source"})),
        ("update", json!({"name": "u"})),
        ("filter_docs", json!({"name": "f", "docs": docs})),
        ("filter_view", json!({"name": "v", "docs": docs})),
        (
            "list",
            json!({"name": "l", "head": {}, "rows": [{"id": "a"}]}),
        ),
        (
            "list",
            json!({"name": "rows", "head": {}, "rows": [{"id": "a"}]}),
        ),
        ("rewrite", json!({})),
        ("validate_docs", json!({"docs": [{"newDoc": {}}]})),
    ] {
        let mut arguments = arguments;
        arguments["ddoc"] = ddoc.clone();
        if !["filter_view", "validate_docs"].contains(&call) {
            arguments["req"] = json!({"path": []});
        }
        assert_blamed(&functions, call, arguments, "ddoc call").await;
    }
    functions.quiet().await;
}

#[actix_rt::test]
async fn an_endless_loop_in_any_view_function_is_blamed_on_the_function() {
    let functions = Functions::javascript();
    let endless = "function() { while (true) {} }";
    let native = format!("function() {{ {NATIVE} }}");
    let docs = json!([{"_id": "a"}]);
    let rows = json!([[["k", "a"], 1]]);
    for (call, arguments, phase) in [
        ("map_docs", json!({"funs": [endless], "docs": docs}), "map"),
        ("map_docs", json!({"funs": [native], "docs": docs}), "map"),
        ("reduce", json!({"funs": [endless], "rows": rows}), "reduce"),
        (
            "rereduce",
            json!({"funs": [native], "values": [1, 2]}),
            "reduce",
        ),
        ("index_docs", json!({"fun": endless, "docs": docs}), "index"),
        (
            "try_compile",
            json!({"fun": "(function() { while (true) {} })()", "name": "v"}),
            "compile",
        ),
    ] {
        assert_blamed(&functions, call, arguments, phase).await;
    }
    functions.quiet().await;
}

/// Maps ten documents sent at once with a function that never ends for the fifth, and asserts that only the fifth
/// prompt is blamed.
fn assert_the_fifth_of_ten_is_blamed(endless: &str) {
    let service = Service::start("");
    let mut client = service.connect();
    let proc = client.get_proc("javascript");
    let fun = format!("function(doc) {{ if (doc.n == 5) {{ {endless} }} emit(doc.n, 1) }}");
    client.prompt(&proc, json!(["reset", {}]));
    client.prompt(&proc, json!(["add_fun", fun]));
    // Together, so that the query server reads several at a time.
    let lines = (1..=10).map(|n| {
        let line = json!({"id": n, "call": "prompt", "proc": proc, "timeout_ms": 3000,
            "data": ["map_doc", {"_id": "a", "n": n}]});
        format!("{line}\n")
    });
    client.send_raw(lines.collect::<String>().as_bytes());
    for n in 1..=10 {
        let reply = client.reply();
        assert_eq!(reply["id"], n);
        let error = &reply["error"];
        let outcome = json!([error["name"], error["fault"], error["retry"]]);
        match n {
            1..5 => assert_eq!(reply["ok"], json!([[[n, 1]]]), "{endless}"),
            5 => assert_eq!(outcome, json!(["timeout", "function", false]), "{error}"),
            _ => assert_eq!(outcome, json!(["not_run", "function", true]), "{error}"),
        }
    }
    assert!(client.ret_proc(&proc));
    service.stop();
}

#[test]
fn prompts_before_an_endless_one_are_answered_and_those_after_it_are_not_run() {
    assert_the_fifth_of_ten_is_blamed("while (true) {}");
}

#[test]
fn prompts_before_one_that_is_endless_in_native_code_are_answered_too() {
    assert_the_fifth_of_ten_is_blamed(NATIVE);
}

#[actix_rt::test]
async fn an_endless_prompt_is_blamed_even_if_the_query_server_holds_back_earlier_answers() {
    use settee_testkit::{Script, ScriptedChild, Step};
    // The first process never answers `reset`; the next one does.
    let script = Script::echo()
        .on(
            "reset",
            [Step::Once("held", vec![Step::Hang]), Step::answer("true")],
        )
        .on_text("\"shows\"", [Step::Hang]);
    let child = ScriptedChild::new(script);
    let builder = settee_testkit::TestPool::builder()
        .timeout(std::time::Duration::from_millis(LIMIT_MS))
        .script("scripted", &child);
    let functions = Functions::on(builder, "scripted");
    assert_blamed(
        &functions,
        "show",
        json!({"ddoc": {}, "name": "s"}),
        "ddoc call",
    )
    .await;
    functions.quiet().await;
}
