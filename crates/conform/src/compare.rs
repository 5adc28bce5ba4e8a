//! Compares an answer with the expected one.
//!
//! PROMISES  Numbers are compared as doubles; keys may have any order unless the case forbids it; a difference is
//!           reported with its position.

use regex::Regex;
use serde_json::{Map, Value};

/// Maximum number of characters that a difference quotes of a value.
const QUOTED_CHARACTERS: usize = 240;

/// Returns nothing if `got` matches, otherwise a sentence about the first difference.
pub fn difference(want: &Value, got: &Value, ordered: bool) -> Option<String> {
    differs(want, got, ordered, "$")
}

fn differs(want: &Value, got: &Value, ordered: bool, at: &str) -> Option<String> {
    let mismatch = || {
        let (want, got) = (quote(&want.to_string()), quote(&got.to_string()));
        Some(format!("{at}: expected {want}, got {got}"))
    };
    if let Some(fits) = fits_special(want, got, ordered, at) {
        return if fits { None } else { mismatch() };
    }
    match (want, got) {
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .find_map(|(index, (a, b))| differs(a, b, ordered, &format!("{at}[{index}]"))),
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
            objects_differ(a, b, ordered, at)
        }
        (a, b) if a == b => None,
        _ => mismatch(),
    }
}

/// Returns whether a value matches a pattern; `None` if `want` is an ordinary value.
fn fits_special(want: &Value, got: &Value, ordered: bool, at: &str) -> Option<bool> {
    let (name, argument) = want
        .as_object()
        .filter(|special| special.len() == 1)
        .and_then(|special| special.iter().next())?;
    match (name.as_str(), argument) {
        ("$any", _) => Some(true),
        ("$any_of", Value::Array(choices)) => Some(
            choices
                .iter()
                .any(|want| differs(want, got, ordered, at).is_none()),
        ),
        ("$re", Value::String(expression)) => {
            let whole = Regex::new(&format!("^(?:{expression})$"));
            let (Ok(whole), Some(got)) = (whole, got.as_str()) else {
                return Some(false);
            };
            Some(whole.is_match(got))
        }
        _ => None,
    }
}

fn objects_differ(
    want: &Map<String, Value>,
    got: &Map<String, Value>,
    ordered: bool,
    at: &str,
) -> Option<String> {
    if ordered && !want.keys().eq(got.keys()) {
        let order = |object: &Map<String, Value>| {
            let keys: Vec<&str> = object.keys().map(String::as_str).collect();
            quote(&keys.join(", "))
        };
        let (want, got) = (order(want), order(got));
        return Some(format!("{at}: expected the keys {want}, got {got}"));
    }
    want.iter().find_map(|(key, want)| match got.get(key) {
        Some(got) => differs(want, got, ordered, &format!("{at}.{key}")),
        None => Some(format!("{at}: the key {key} is missing")),
    })
}

/// Returns a string, shortened if long.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARACTERS) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_values_fit_whatever_the_notation_and_the_order_of_keys() {
        for (want, got) in [
            (json!(1), json!(1.0)),
            (json!({"a": 1, "b": [null]}), json!({"b": [null], "a": 1e0})),
            (json!({"$any": true}), json!([1])),
            (json!([{"$re": "a|bc"}]), json!(["bc"])),
            (json!({"$any_of": [1, {"$re": "x"}]}), json!("x")),
        ] {
            assert_eq!(difference(&want, &got, false), None);
        }
    }

    #[test]
    fn the_first_difference_is_reported_with_its_place() {
        for (want, got, told) in [
            (
                json!([1, {"a": [2]}]),
                json!([1, {"a": [3]}]),
                "$[1].a[0]: expected 2, got 3",
            ),
            (json!([1]), json!([1, 2]), "$: expected [1], got [1,2]"),
            (
                json!({"a": 1}),
                json!({"b": 1}),
                "$: expected the keys a, got b",
            ),
            (
                json!({"$re": "a"}),
                json!("ab"),
                "$: expected {\"$re\":\"a\"}, got \"ab\"",
            ),
            (json!(true), json!(1), "$: expected true, got 1"),
            (
                json!({"a": 1, "b": 2}),
                json!({"b": 2, "a": 1}),
                "$: expected the keys a, b, got b, a",
            ),
        ] {
            assert_eq!(difference(&want, &got, true).as_deref(), Some(told));
        }
    }

    #[test]
    fn a_missing_key_is_reported() {
        let told = difference(&json!({"a": 1}), &json!({"b": 1}), false);
        assert_eq!(told.as_deref(), Some("$: the key a is missing"));
    }

    #[test]
    fn a_long_value_is_quoted_in_part() {
        let long = "ß".repeat(1000);
        let told = difference(&json!(1), &json!(long), false).unwrap();
        assert!(told.ends_with("... (2002 bytes)"), "{told}");
    }
}
