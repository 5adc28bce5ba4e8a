//! The console, which `reset` can enable.

use serde_json::{Value, json};

use super::answers;

/// Logs with every method of the console, and with `log`.
const SAYS: &str = "console.log('a', 1, {b: [null]}, new TypeError('no')); console.warn(); console.error('e'); \
                    console.info(undefined, true); console.debug(\"\\u00e9\\n\"); log('l');";

fn said() -> String {
    let lines = [
        "a 1 {\"b\":[null]} {\"error\":\"TypeError\",\"message\":\"no\"}",
        "",
        "e",
        "undefined true",
        "\u{e9}\n",
        "l",
    ];
    lines
        .iter()
        .map(|line| json!(["log", line]).to_string())
        .collect()
}

fn reset(console: bool) -> Value {
    json!(["reset", {"console": console}])
}

fn ddoc(show: &str) -> Value {
    let shows = json!({"s": format!("function() {{ {show} }}")});
    json!(["ddoc", "new", "_design/d", {"shows": shows, "m": SAYS}])
}

fn show() -> Value {
    json!(["ddoc", "_design/d", ["shows", "s"], [null, {}]])
}

#[test]
fn the_methods_of_the_console_log_in_every_kind_of_function() {
    let returns = format!("function() {{ {SAYS} return 7; }}");
    let told = answers(
        true,
        &[
            reset(true),
            json!(["add_fun", format!("function(doc) {{ {SAYS} emit(1, 2); }}")]),
            json!(["map_doc", {"_id": "a"}]),
            json!(["reduce", [returns], [[[1, "a"], 2]]]),
            reset(true),
            json!(["add_lib", {"m": SAYS}]),
            json!(["add_fun", "function(doc) { require('views/lib/m'); }"]),
            json!(["map_doc", {"_id": "a"}]),
            ddoc(&format!("{SAYS} return 'x';")),
            show(),
            ddoc("require('m'); return 'x';"),
            show(),
        ],
    );
    let said = said();
    assert_eq!(told[2], format!("{said}[[[1,2]]]"));
    assert_eq!(told[3], format!("{said}[true,[7]]"));
    assert_eq!(told[7], format!("{said}[[]]"));
    assert_eq!(told[9], format!("{said}[\"resp\",{{\"body\":\"x\"}}]"));
    assert_eq!(told[11], format!("{said}[\"resp\",{{\"body\":\"x\"}}]"));
}

#[test]
fn functions_have_no_console_unless_the_last_reset_asked_for_one() {
    let asks = "function(doc) { emit(typeof console, 'console' in globalThis); }";
    let show_asks = "return typeof console + ' ' + Object.keys(globalThis).includes('console');";
    let commands = |reset: Value| {
        vec![
            reset,
            json!(["add_fun", asks]),
            json!(["map_doc", {"_id": "a"}]),
            show(),
        ]
    };
    let mut all = vec![ddoc(show_asks)];
    let resets = [
        json!(["reset"]),
        reset(true),
        json!(["reset", {"text_reasons": true}]),
        reset(true),
        json!(["forget", {"text_reasons": true}]),
    ];
    for reset in resets {
        let is_forget = reset[0] == "forget";
        let mut commands = commands(reset);
        if is_forget {
            commands.insert(1, ddoc(show_asks));
        }
        all.extend(commands);
    }
    let told = answers(true, &all);
    let mapped: Vec<&str> = told
        .iter()
        .map(String::as_str)
        .filter(|line| line.starts_with("[["))
        .collect();
    let (has, has_none) = (r#"[[["object",true]]]"#, r#"[[["undefined",false]]]"#);
    assert_eq!(mapped, [has_none, has, has_none, has, has_none]);
    let shown: Vec<&str> = told
        .iter()
        .map(String::as_str)
        .filter(|line| line.starts_with("[\"resp"))
        .collect();
    let (has, has_none) = (
        r#"["resp",{"body":"object true"}]"#,
        r#"["resp",{"body":"undefined false"}]"#,
    );
    assert_eq!(shown, [has_none, has, has_none, has, has_none]);
}

#[test]
fn a_function_cannot_change_the_console_for_other_functions_or_later_holders() {
    let breaks =
        "console.log = function() { throw 'mine'; }; console = {warn: 7}; JSON.stringify = null;";
    let uses = "function(doc) { console.log('whole', doc._id); emit(1, 2); }";
    let whole = r#"["log","whole a"][[],[[1,2]]]"#;
    let told = answers(
        true,
        &[
            reset(true),
            json!(["add_fun", format!("function(doc) {{ {breaks} }}")]),
            json!(["add_fun", uses]),
            json!(["map_doc", {"_id": "a"}]),
            json!(["map_doc", {"_id": "a"}]),
            ddoc(&format!("{breaks} return 'x';")),
            show(),
            // Another holder: `forget` removes the functions of the first.
            json!(["forget", {}]),
            reset(true),
            json!(["add_fun", uses]),
            json!(["map_doc", {"_id": "a"}]),
            ddoc("console.log('whole', 'a'); return 'x';"),
            show(),
        ],
    );
    assert_eq!(told[3], whole);
    assert!(told[4].ends_with(whole), "{}", told[4]);
    assert_eq!(told[10], r#"["log","whole a"][[[1,2]]]"#);
    assert_eq!(told[12], r#"["log","whole a"]["resp",{"body":"x"}]"#);
}
