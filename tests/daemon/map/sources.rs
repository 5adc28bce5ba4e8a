//! `settee map` with functions in all the forms that CouchDB takes, and source that is easy to misparse:
//! the rows are right, even if only part of a document is sent to the function.

use crate::support::program::run;
use crate::support::work::{Work, fails, lines};
use serde_json::{Value, json};

const DOCUMENT: &[u8] = b"{\"_id\":\"x\",\"a\":8,\"b\":2,\"c\":\"c/\"}\n";

#[test]
fn functions_whose_source_is_easy_to_misparse_emit_the_right_rows() {
    let work = Work::new();
    for (source, key) in [
        ("function(doc) { emit('a\\\r\nb', doc.b) }", json!("ab")),
        (
            "function(doc) { var of = 4; emit(of / doc.b / 1, '/') }",
            json!(2),
        ),
        (
            "function(doc) { var await = 4; emit(await / doc.b, '/') }",
            json!(2),
        ),
        (
            "function(doc) { var yield = 4; emit(yield / doc.b, \"/\") }",
            json!(2),
        ),
        (
            "function(doc) { emit(function(){} / 2 + \"/\" + doc.b) }",
            json!("NaN/2"),
        ),
        (
            "function(doc) { L: {} /\"/.test(doc.c) || emit(doc.c + \"\") }",
            json!("c/"),
        ),
        (
            "function(doc) { L: {} /\"/.test(doc.c); emit(doc.c, \"\") }",
            json!("c/"),
        ),
        (
            "function(doc) { emit(doc.a) } function(doc) { emit(doc.b) }",
            json!(2),
        ),
        (
            "function(doc) { emit(h(doc.a)) } function h(n) { return n / 2 }",
            json!(4),
        ),
        (
            "function(doc) { emit(doc.a) } // function(doc) { emit(doc.b) }",
            json!(8),
        ),
        (
            "var of = 2; of / 2\nfunction(doc) { emit('/' + doc.b) }",
            json!("/2"),
        ),
        (
            "function(doc) { if (doc.a) /'/.test(doc.c); emit('' + doc.c) }",
            json!("c/"),
        ),
        (
            "function(doc) { emit(`${`${/`/.test(doc.c)}`}/` + doc.b) }",
            json!("false/2"),
        ),
        (
            "function(doc) { var x = {if: function(n) { return n }}; emit(x.if (doc.a) / 2, '/') }",
            json!(4),
        ),
        (
            "function(doc) { emit('\u{2028}'.length / doc.b, '/') }",
            json!(0.5),
        ),
        ("function(doc) { function(inner) {} emit(doc.a) }", json!(8)),
    ] {
        let rows = lines(&run(&mut work.map(source, &[]), DOCUMENT));
        let keys: Vec<&Value> = rows.iter().map(|row| &row["key"]).collect();
        assert_eq!(keys, [&key], "{source}");
    }
}

#[test]
fn source_that_couchdb_refuses_is_refused() {
    let work = Work::new();
    for source in [
        "if (true) function(doc) { emit(1) }",
        "L: function(doc) { emit(1) }",
        "var a = 5 function(doc) { emit(1) }",
        "function(doc) { emit(1 }",
    ] {
        fails(&mut work.map(source, &[]), DOCUMENT, 65, &["SyntaxError"]);
    }
}
