//! The command `forget`, after which the built-in JavaScript server answers like a new one.

use serde_json::{Value, json};

use super::couchjs::commands;

/// Plants state wherever a function can.
const PLANT: &str = "globalThis.planted = 1; Object.prototype.planted = 2; Array.prototype.map = null; \
                     JSON.stringify = function() { return '7'; }; Object.freeze(Math);";

fn ddoc(show: &str) -> Value {
    json!({
        "_id": "_design/d",
        "lib": {"state": "exports.seen = [];"},
        "shows": {"s": format!("function(doc, req) {{ {show} }}")},
    })
}

fn show(document: &str, arguments: Value) -> Value {
    json!(["ddoc", document, ["shows", "s"], arguments])
}

/// Commands that teach and run functions that try to leave state.
fn teaching() -> Vec<Value> {
    let leaves = "require('lib/state').seen.push(doc); this.shows.other = 'function() { return 1; }'; \
                  registerType('planted', 'text/planted'); return 'x';";
    vec![
        json!(["reset", {"reduce_limit": "log", "text_reasons": true}]),
        json!(["add_lib", {"m": format!("{PLANT} exports.f = 1;")}]),
        json!([
            "add_fun",
            format!("function(doc) {{ {PLANT} require('views/lib/m'); emit(1, planted); }}")
        ]),
        json!(["map_doc", {"_id": "secret"}]),
        json!([
            "reduce",
            [format!("function() {{ {PLANT} return 1; }}")],
            []
        ]),
        json!([
            "ddoc",
            "new",
            "_design/d",
            ddoc(&format!("{PLANT} {leaves}"))
        ]),
        json!(["ddoc", "new", "_design/secret", ddoc(leaves)]),
        show("_design/d", json!([{"_id": "secret"}, {}])),
        show("_design/secret", json!([{"_id": "secret"}, {}])),
    ]
}

/// Commands whose answers reveal remaining state. The last one is fatal to a server that does not know the document.
fn probing() -> Vec<Value> {
    let tells = "return JSON.stringify([require('lib/state').seen, typeof planted, ({}).planted, typeof [].map, \
                 Object.isFrozen(Math), Object.keys(this.shows)]);";
    let provides = "provides('planted', function() { return 'planted'; });";
    vec![
        json!(["map_doc", {"_id": "a"}]),
        json!([
            "add_fun",
            "function(doc) { emit(typeof planted, [({}).planted, typeof [].map]); }"
        ]),
        json!(["map_doc", {"_id": "a"}]),
        json!(["add_fun", "function(doc) { require('views/lib/m'); }"]),
        json!(["reduce", ["function() { throw {no: 'text'}; }"], []]),
        json!([
            "reduce",
            [format!("function() {{ return '{}'; }}", "x".repeat(300))],
            []
        ]),
        json!(["ddoc", "new", "_design/d", ddoc(tells)]),
        show("_design/d", json!([{"_id": "a"}, {}])),
        json!(["ddoc", "new", "_design/d", ddoc(provides)]),
        show("_design/d", json!([null, {"query": {"format": "planted"}}])),
        show("_design/secret", json!([null, {}])),
    ]
}

#[test]
fn after_forget_a_server_answers_like_a_new_one() {
    let config = json!({"reduce_limit": true});
    let mut new = vec![json!(["reset", config])];
    new.extend(probing());
    let new = commands(&[], &new);
    let mut used = teaching();
    let taught = used.len();
    used.push(json!(["forget", config]));
    used.extend(probing());
    let used = commands(&[], &used);
    assert_eq!(used.answers()[taught..], new.answers()[..]);
    assert_eq!(used.status, new.status);
    assert_eq!(new.answers().len(), probing().len() + 1);

    // A `reset` is not enough: the probes reveal the difference.
    let mut reset = teaching();
    reset.push(json!(["reset", config]));
    reset.extend(probing());
    let reset = commands(&[], &reset).answers();
    assert_ne!(reset[taught..], new.answers()[..]);
}

#[test]
fn forget_fails_if_functions_took_most_of_the_memory() {
    let takes = "function(doc) { var texts = []; \
                 for (var i = 0; i < 54; i++) texts.push(new Array(1 << 20).join(i % 10)); }";
    let played = commands(
        &[],
        &[
            json!(["reset", {}]),
            json!(["forget", {}]),
            json!(["add_fun", takes]),
            json!(["map_doc", {}]),
            json!(["forget", {}]),
        ],
    );
    let answers = played.answers();
    assert_eq!(answers[1], json!(true));
    let outcome = (&answers[4][0], &answers[4][1]);
    assert_eq!(outcome, (&json!("error"), &json!("not_forgotten")));
}

#[test]
fn forget_takes_the_configuration_of_a_reset() {
    let played = commands(
        &[],
        &[
            json!(["forget"]),
            json!(["forget", {"a": 1}]),
            json!(["forget", 7]),
        ],
    );
    let answers = played.answers();
    assert_eq!(answers[..2], [json!(true), json!(true)]);
    assert_eq!(answers[2][1], json!("query_protocol_error"));
}
