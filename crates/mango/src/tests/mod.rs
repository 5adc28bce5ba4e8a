//! Selectors, compared with CouchDB: every operator with its edge cases, errors, hostile input.

#![allow(clippy::unwrap_used)]

mod errors;
mod hostile;
mod negation;
mod operators;
mod reference;

use super::Selector;

/// Whether a document matches a selector.
fn matches(selector: &str, document: &str) -> bool {
    let parsed = Selector::parse(selector).unwrap_or_else(|error| panic!("{selector}: {error}"));
    parsed
        .matches(document)
        .unwrap_or_else(|error| panic!("{selector} {document}: {error}"))
}

/// Whether a document with `value` in field `a` meets a condition on `a`.
fn holds(condition: &str, value: &str) -> bool {
    matches(
        &format!(r#"{{"a":{condition}}}"#),
        &format!(r#"{{"_id":"x","a":{value}}}"#),
    )
}

/// Asserts which values meet a condition and which do not; also tests a document without the field.
fn check(condition: &str, yes: &[&str], no: &[&str]) {
    for value in yes {
        assert!(holds(condition, value), "{condition} holds of {value}");
    }
    for value in no {
        assert!(
            !holds(condition, value),
            "{condition} does not hold of {value}"
        );
    }
    let selector = format!(r#"{{"a":{condition}}}"#);
    assert!(
        !matches(&selector, "{}"),
        "{condition} does not hold of a missing field"
    );
}

/// The name of a selector's error.
fn error(selector: &str) -> &'static str {
    let parsed = Selector::parse(selector);
    parsed.map_or_else(|error| error.name(), |_| panic!("{selector} is accepted"))
}
