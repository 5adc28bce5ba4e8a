//! Parses a query server's answers.
//!
//! SUMMARY   [`decode`] reads a value, [`elements`] takes an answer apart, [`excerpt`] quotes one.
//! SOURCE    couch_query_servers, raw_to_ejson/1.
//! DIFFERS   Values that are only passed on are not decoded, and so stay unchanged.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::FunctionError;
use crate::messages::client_error::Place;
use json::string::replace_halves;

/// Maximum characters of an answer quoted in an error.
const EXCERPT_CHARACTERS: usize = 200;

/// Parses a JSON text. Halves of surrogate pairs become U+FFFD.
pub(super) fn decode<T: DeserializeOwned>(json: &str) -> Option<T> {
    match serde_json::from_str(json) {
        Ok(value) => Some(value),
        Err(_) => match replace_halves(json) {
            Cow::Owned(repaired) => serde_json::from_str(&repaired).ok(),
            Cow::Borrowed(_) => None,
        },
    }
}

/// Returns an answer's text.
pub(super) fn text(answer: &Bytes) -> &str {
    // A line that is not UTF-8 ends its process and is not an answer.
    std::str::from_utf8(answer).unwrap_or_default().trim()
}

/// Splits an answer that is an array; the elements stay text.
pub(super) fn elements(answer: &Bytes) -> Option<Vec<&RawValue>> {
    serde_json::from_str(text(answer)).ok()
}

/// Returns an element of a [`json::JsonList`] in a form that a command can hold.
pub(super) fn element(json: &str) -> &RawValue {
    serde_json::from_str(json).expect("JSON: an element of a list is JSON")
}

/// Returns whether a JSON text is this string.
pub(super) fn is_word(json: &RawValue, word: &str) -> bool {
    decode::<String>(json.get()).is_some_and(|text| text == word)
}

/// Returns the place that names a document in errors, by its id.
pub(super) fn document_place(doc: &str) -> Place {
    #[derive(Deserialize)]
    struct Members {
        #[serde(rename = "_id")]
        id: Option<String>,
    }
    Place {
        doc: decode::<Members>(doc).and_then(|members| members.id),
        ..Place::default()
    }
}

/// Returns the member of an object with exactly one.
pub(super) fn single_member(json: &str) -> Option<(String, Box<RawValue>)> {
    let mut members: BTreeMap<String, Box<RawValue>> = decode(json)?;
    let first = members.pop_first()?;
    members.is_empty().then_some(first)
}

/// Quotes an answer.
pub(super) fn excerpt(json: &str) -> String {
    let mut characters = json.chars();
    let mut quoted: String = characters.by_ref().take(EXCERPT_CHARACTERS).collect();
    if characters.next().is_some() {
        quoted.push_str(" ..");
    }
    quoted
}

/// The error of an answer that breaks the protocol.
pub(super) fn broken(answer: &Bytes, expected: &str) -> FunctionError {
    FunctionError::protocol(not_expected(answer, expected))
}

/// Quotes an unexpected answer in an error's text.
pub(super) fn not_expected(answer: &Bytes, expected: &str) -> String {
    let came = excerpt(text(answer));
    format!("the query server answered {came} instead of {expected}")
}

/// Parses `[true, VALUES]` with this number of values.
pub(super) fn done_with<T: DeserializeOwned>(answer: &Bytes, count: usize) -> Option<Vec<T>> {
    let (done, values): (bool, Vec<T>) = serde_json::from_slice(answer).ok()?;
    (done && values.len() == count).then_some(values)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn half_a_surrogate_pair_becomes_a_replacement_character_and_a_pair_stays() {
        for (json, expected) in [
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""\uDCA9\uD83D""#, "\u{fffd}\u{fffd}"),
            (r#""a\uD83D\uDCA9b\udca9c""#, "a\u{1f4a9}b\u{fffd}c"),
            (r#""\\uD83D \ud83dx""#, "\\uD83D \u{fffd}x"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
            (r#""\ud83d\ud83d\udca9""#, "\u{fffd}\u{1f4a9}"),
        ] {
            assert_eq!(decode::<String>(json).as_deref(), Some(expected), "{json}");
        }
        assert_eq!(
            decode::<Value>(r#"{"\ud800":["\udfff"]}"#),
            Some(json!({"\u{fffd}": ["\u{fffd}"]}))
        );
    }

    #[test]
    fn json_that_is_invalid_for_another_reason_is_not_repaired() {
        for json in [
            r#""\u0FA"#,
            r#""\u0FA""#,
            r#""\ud83"#,
            "\"\\",
            "[1",
            "\"\\\u{e9}",
        ] {
            assert_eq!(decode::<Value>(json), None, "{json}");
            assert_eq!(replace_halves(json), json);
        }
    }

    #[test]
    fn the_last_of_several_members_with_one_name_counts() {
        assert_eq!(decode::<Value>(r#"{"a":1,"a":2}"#), Some(json!({"a": 2})));
    }

    #[test]
    fn a_long_answer_is_quoted_in_part() {
        assert_eq!(excerpt("[1]"), "[1]");
        assert_eq!(excerpt(&"\u{e9}".repeat(300)).chars().count(), 203);
    }
}
