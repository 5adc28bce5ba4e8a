//! Selectors over a document's text, beside `serde_json` parsing the same text into a `Value`.
//!
//! Matching should cost no more than that parse.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde_json::Value;
use settee::mango::{Index, Selector};

/// How long each figure is measured.
const TIME: Duration = Duration::from_millis(500);

const SELECTORS: &[(&str, &str)] = &[
    ("one field equal", r#"{"type":"order"}"#),
    ("a missing field", r#"{"nothing":{"$gt":1}}"#),
    (
        "three fields",
        r#"{"type":"order","total":{"$gte":50},"state":{"$in":["paid","open"]}}"#,
    ),
    ("order of strings", r#"{"customer":{"$gt":"B","$lt":"Z"}}"#),
    ("a nested field", r#"{"address.city":{"$ne":"Paris"}}"#),
    (
        "elements of an array",
        r#"{"lines":{"$elemMatch":{"price":{"$gte":30},"article":"cup"}}}"#,
    ),
    ("$all", r#"{"tags":{"$all":["b","c"]}}"#),
    ("an expression", r#"{"customer":{"$regex":"^[A-M]"}}"#),
    (
        "or, not",
        r#"{"$or":[{"state":"open"},{"$not":{"total":{"$lt":10}}}]}"#,
    ),
];

fn main() {
    for (what, lines) in [("300 B", 2), ("9 KB", 150)] {
        let document = document(lines);
        let floor = nanoseconds(|| serde_json::from_str::<Value>(&document).is_ok());
        println!(
            "\n{what} ({} bytes): serde_json parses it in {floor:.0} ns",
            document.len()
        );
        for (name, selector) in SELECTORS {
            let selector = Selector::parse(selector).expect("a valid selector");
            let checked = nanoseconds(|| selector.matches(&document) == Ok(true));
            let known = nanoseconds(|| selector.matches_checked(&document) == Ok(true));
            let ratio = checked / floor;
            let verdict = if ratio <= 1.0 { "ok" } else { "over" };
            println!(
                "{name:<24} {checked:>9.0} ns   {known:>9.0} ns on text that was checked   ratio {ratio:.2}   wanted 1.00 {verdict}"
            );
        }
        let index =
            Index::parse(r#"{"fields":{"customer":"asc","total":"asc"}}"#).expect("a valid index");
        let row = nanoseconds(|| index.rows(&document).is_ok());
        let text = Index::parse("{}").expect("a valid index");
        let entries = nanoseconds(|| text.text_entries(&document).is_ok());
        println!(
            "{:<24} {row:>9.0} ns\n{:<24} {entries:>9.0} ns",
            "a row of two fields", "text entries"
        );
    }
}

/// An order with this many lines.
fn document(lines: usize) -> String {
    let line = |number: usize| {
        format!(
            r#"{{"article":"cup {number}","price":{}.5,"quantity":{}}}"#,
            number % 40,
            number % 7
        )
    };
    let lines: Vec<String> = (0..lines).map(line).collect();
    format!(
        r#"{{"_id":"order-000001","_rev":"1-78e510617311d8a3c2ce6f447ed4d57b","type":"order","customer":"Gökhan","date":[2026,4,4],"address":{{"street":"Main \"9\"","city":"Lyon"}},"lines":[{}],"tags":["a","b","c"],"total":99.5,"state":"paid"}}"#,
        lines.join(",")
    )
}

fn nanoseconds(mut operation: impl FnMut() -> bool) -> f64 {
    for _ in 0..100 {
        black_box(operation());
    }
    let start = Instant::now();
    let mut count = 0_u32;
    while start.elapsed() < TIME {
        for _ in 0..100 {
            black_box(operation());
        }
        count += 100;
    }
    start.elapsed().as_nanos() as f64 / f64::from(count)
}
