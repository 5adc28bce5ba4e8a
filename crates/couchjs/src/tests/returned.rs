//! Useless return values of functions, which a report lists.

use serde_json::{Value, json};

use super::answers;

/// Returns a promise.
const LATER: &str = "(async function() { return 1; })()";

/// The answers to some commands, each with its preceding log lines; the answers alone equal those of a server that
/// does not report.
fn told(commands: &[Value]) -> Vec<String> {
    let all = |report: bool| {
        let mut all = vec![json!(["reset", {"report": report}])];
        all.extend_from_slice(commands);
        answers(true, &all).split_off(1)
    };
    let (with, without) = (all(true), all(false));
    for (with, without) in with.iter().zip(&without) {
        assert!(with.ends_with(without.as_str()), "{with} {without}");
        assert!(!without.contains("returned"), "{without}");
    }
    with
}

/// The reports at the end of a call of these map functions.
fn at_the_end(functions: &[&str]) -> Vec<Value> {
    let add = functions.iter().map(|source| json!(["add_fun", source]));
    let mut commands: Vec<Value> = add.collect();
    commands.push(json!(["map_doc", {"_id": "a", "n": 1}]));
    commands.push(json!(["map_doc", {"_id": "b"}]));
    commands.push(json!(["reset"]));
    commands.push(json!(["reset"]));
    let told = told(&commands);
    let [.., end, after] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(after, "true", "values are reported once");
    let lines = serde_json::Deserializer::from_str(end).into_iter::<Value>();
    let lines = lines.map(Result::unwrap);
    lines.filter(|line| *line != json!(true)).collect()
}

#[test]
fn a_map_function_that_returns_a_value_but_emits_nothing_is_reported_at_the_end_of_its_call() {
    let told = at_the_end(&["function(doc) { return [doc.n, 1]; }", "doc => doc.n"]);
    let line = |function: usize, returned: &str| {
        let text = format!(
            "map function {} returned {returned} over document a",
            function + 1
        );
        let details = json!({"function": function, "returned": returned, "doc": "a"});
        json!(["log", text, details])
    };
    assert_eq!(told, [line(0, "a list"), line(1, "a number")]);
}

#[test]
fn a_map_function_that_emits_for_any_document_may_return_what_it_likes() {
    let returns = ["function(doc) { return doc.n && emit(1) || false; }"];
    assert_eq!(at_the_end(&returns), [] as [Value; 0]);
    assert_eq!(at_the_end(&["function(doc) {}"]), [] as [Value; 0]);
}

#[test]
fn a_map_function_that_returns_a_promise_is_reported_though_it_emits() {
    let emits = format!("function(doc) {{ emit(1); return doc.n ? 7 : {LATER}; }}");
    let told = at_the_end(&[&emits]);
    let details = json!({"function": 0, "returned": "a promise", "doc": "b"});
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0][2], details);
}

#[test]
fn a_promise_of_any_other_function_is_a_warning_of_its_command() {
    let ddoc = json!({
        "shows": {"s": format!("function() {{ return {LATER}; }}"),
                  "p": format!("function() {{ provides('html', function() {{ return {LATER}; }}); }}")},
        "lists": {"l": format!("function() {{ return {LATER}; }}")},
        "updates": {"u": format!("function() {{ return {LATER}; }}")},
        "filters": {"f": format!("function() {{ return {LATER}; }}")},
        "views": {"v": {"map": format!("function() {{ return {LATER}; }}")}},
        "validate_doc_update": format!("function() {{ return {LATER}; }}"),
        "rewrites": format!("function() {{ return {LATER}; }}"),
    });
    let calls = [
        (json!(["shows", "s"]), json!([null, {}])),
        (
            json!(["shows", "p"]),
            json!([null, {"query": {"format": "html"}}]),
        ),
        (json!(["updates", "u"]), json!([null, {"method": "POST"}])),
        (json!(["filters", "f"]), json!([[{}, {}], {}])),
        (json!(["views", "v", "map"]), json!([[{}, {}]])),
        (json!(["validate_doc_update"]), json!([{}, null, {}, {}])),
        (json!(["rewrites"]), json!([{}])),
    ];
    let mut commands = vec![
        json!(["ddoc", "new", "_design/d", ddoc]),
        json!(["reduce", [format!("function() {{ return {LATER}; }}")], []]),
    ];
    let call = |(path, arguments): &(Value, Value)| json!(["ddoc", "_design/d", path, arguments]);
    commands.extend(calls.iter().map(call));
    let list = (json!(["lists", "l"]), json!([{}, {}]));
    let told = told(&commands);
    for (told, command) in told.iter().zip(&commands).skip(1) {
        let warned = " returned a promise, as async functions do: nothing waits for it, and what it promises is lost; \
                      return the value itself\",{\"level\":\"warning\"}]";
        assert_eq!(told.matches(warned).count(), 1, "{command}: {told}");
        assert_eq!(told.matches("promise, as").count(), 1, "{command}: {told}");
    }
    let list = [call(&list), json!(["list_end"])];
    let list = self::told(&[&commands[..1], &list].concat());
    assert!(list[2].starts_with("[\"log\",\"lists/l of _design/d returned a promise,"));
    assert!(told[2].starts_with("[\"log\",\"shows/s of _design/d returned a promise,"));
}

#[test]
fn an_async_function_is_refused_in_words_unless_couchdb_asks() {
    for source in [
        "async function(doc) { emit(1); }",
        "async doc => emit(1)",
        "(async function(doc) {})",
        "(async function*(doc) { emit(1); })",
    ] {
        let add = json!(["add_fun", source]);
        let told = answers(
            true,
            &[
                add.clone(),
                json!(["reset", {"text_reasons": true}]),
                add.clone(),
            ],
        );
        let couchdb = format!("Expression does not eval to a function. ({source})");
        let couchdb = json!(["error", "compilation_error", couchdb]);
        assert_eq!(told[0], couchdb.to_string());
        let words: Value = serde_json::from_str(&told[2]).unwrap();
        assert_eq!(words[1], "compilation_error");
        let words = words[2].as_str().unwrap();
        assert!(words.starts_with("The function is async, "), "{words}");
        assert!(words.ends_with(&format!(" ({source})")), "{words}");
    }
}
