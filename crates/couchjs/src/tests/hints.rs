//! Hints that supplement the engine's messages, with positions; for CouchDB only the messages.

use serde_json::{Value, json};

use super::answers;

/// A map function, the position of its mistake, and what its author reads. A full stack has no room to report a
/// position, and emitted rows are written once the function has returned.
#[rustfmt::skip]
const MISTAKES: &[(&str, (u64, u64), &str)] = &[
    ("function(doc) {\n  new Promise(function() {}); }", (2, 7), "return the value itself"),
    ("function(doc) {\n  fetch('x'); }", (2, 3), "no network"),
    ("function(doc) {\n  setTimeout(log, 1); }", (2, 3), "no timers"),
    ("function(doc) {\n  console.log('x'); }", (2, 3), "log(text)"),
    ("function(doc) { function f() {\n return f() + 1; } f(); }", (0, 0), "without an end"),
    ("function(doc) { var a = {}; a.a = a;\n emit(1, a); }", (0, 0), "leave that member out"),
    ("function(doc) {\n emit(1, 10n); }", (0, 0), "Number or String"),
    ("function(doc) {\n require('lodash'); }", (2, 2), "views/lib/NAME"),
    ("function(doc) {\n require('views/lib/nope'); }", (2, 2), "views/lib/NAME"),
    ("import x from 'y';\nfunction(doc) {}", (1, 8), "bundle what it imports"),
    ("export default function(doc) {}", (1, 1), "is not a module"),
    ("function(doc: any) {\n  emit(1); }", (1, 13), "TypeScript"),
    ("function(doc) { emit(1); }\nreturn 7", (2, 1), "closes too early"),
];

/// Maps a document with a function; the library of the view is empty.
fn lines(source: &str, reset: Value) -> Vec<Value> {
    let commands = [
        json!(["reset", reset]),
        json!(["add_lib", {}]),
        json!(["add_fun", source]),
        json!(["map_doc", {"_id": "a"}]),
    ];
    let told = answers(true, &commands).join("\n");
    let values = serde_json::Deserializer::from_str(&told).into_iter();
    values.map(Result::unwrap).collect()
}

#[test]
fn an_author_learns_the_place_of_a_mistake_and_the_way_out() {
    let mut wrong = Vec::new();
    for (source, place, hint) in MISTAKES {
        let told = lines(source, json!({"report": true, "text_reasons": true}));
        let details = told
            .iter()
            .find(|line| line[0] == "log" && line[2].is_object());
        let details = details.map_or(&Value::Null, |line| &line[2]);
        let message = details["message"].as_str().unwrap_or_default();
        let number = |name: &str| details[name].as_u64().unwrap_or(0);
        if !message.contains(hint) || (number("line"), number("column")) != *place {
            wrong.push(format!("{source}: {told:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn couchdb_gets_no_hint() {
    for (source, _, hint) in MISTAKES {
        let told = lines(source, json!({}));
        assert!(
            told.iter().all(|line| !line.to_string().contains(hint)),
            "{source}: {told:?}"
        );
    }
}

#[test]
fn a_declaration_is_refused_with_what_to_leave_out() {
    for (source, hint) in [
        ("function map(doc) { emit(1); }", "leave out its name"),
        (
            "var map = function(doc) { emit(1); }",
            "leave out what is before the function",
        ),
    ] {
        let add = |text_reasons: bool| {
            let told = lines(source, json!({"text_reasons": text_reasons}));
            told[2][2].as_str().unwrap().to_owned()
        };
        let couchdb = format!("Expression does not eval to a function. ({source})");
        assert_eq!(add(false), couchdb);
        let told = add(true);
        assert!(
            told.contains(hint) && told.ends_with(&format!(" ({source})")),
            "{told}"
        );
    }
}
