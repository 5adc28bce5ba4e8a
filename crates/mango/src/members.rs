//! The kind of a JSON text, and which of its members apply.
//!
//! SUMMARY   [`checked`] checks that a text is JSON; [`kind_of`] returns its kind; [`last_members`] removes members
//!           that a later one of the same name replaces.
//! PROMISES  No recursion: a document may be nested to any depth. A text that is not JSON is unchanged.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use json::cursor::{Cursor, Token};
use json::string::unescape;

/// The kind of a JSON value, in the order of the collation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `null`.
    Null,
    /// `false`.
    False,
    /// `true`.
    True,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl Kind {
    /// Returns its name for `$type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::False | Self::True => "boolean",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}

/// Returns the kind of a JSON text without white space around it.
pub(crate) fn kind_of(text: &str) -> Kind {
    match text.as_bytes().first() {
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::Array,
        Some(b'"') => Kind::String,
        Some(b'n') => Kind::Null,
        Some(b't') => Kind::True,
        Some(b'f') => Kind::False,
        _ => Kind::Number,
    }
}

/// Returns the text without surrounding white space if it is one JSON value.
///
/// # Errors
/// The syntax error and its position.
pub(crate) fn checked(text: &str) -> Result<&str, serde_json::Error> {
    serde_json::from_str::<&RawValue>(text).map(RawValue::get)
}

/// Whether a number's text is an integer: without a point or an exponent.
pub(crate) fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the text with each member blanked out that has the same name as a later one, at every depth: in CouchDB the
/// last one applies. All others keep their positions in the text.
pub fn last_members(text: &str) -> Cow<'_, str> {
    /// An open object: where its members start, and the index of the last one of each name.
    #[derive(Default)]
    struct Object<'a> {
        starts: Vec<usize>,
        by_name: HashMap<Cow<'a, str>, usize>,
    }
    let mut open: Vec<Object<'_>> = Vec::new();
    let mut repeated = Vec::new();
    let walked = Cursor::of(text.as_bytes()).walk(|token| match token {
        Token::Object | Token::Array => open.push(Object::default()),
        Token::End => drop(open.pop()),
        Token::Name(place) => {
            let Some(object) = open.last_mut() else {
                return;
            };
            let index = object.starts.len();
            object.starts.push(place.start);
            if let Some(earlier) = object.by_name.insert(unescape(&text[place]), index) {
                repeated.push(object.starts[earlier]..object.starts[earlier + 1]);
            }
        }
        _ => {}
    });
    if walked.is_none() || repeated.is_empty() {
        return Cow::Borrowed(text);
    }
    // One may lie inside another: each byte is visited once.
    repeated.sort_unstable_by_key(|range| range.start);
    let mut done = 0;
    let bytes = repeated.into_iter().flat_map(|range| {
        let start = range.start.max(done);
        done = done.max(range.end);
        start..range.end
    });
    let mut blanked = text.as_bytes().to_vec();
    for byte in bytes {
        if blanked[byte] != b'\n' {
            blanked[byte] = b' ';
        }
    }
    String::from_utf8(blanked).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_members_of_one_name_the_last_stays_where_it_was() {
        for (text, expected) in [
            (r#"{"a":1,"b":2,"a":3}"#, r#"{      "b":2,"a":3}"#),
            ("{\"a\":1 ,\n \"\\u0061\":2}", "{       \n \"\\u0061\":2}"),
            (
                r#"[{"é":{"b":1,"b":2},"é":3}]"#,
                r#"[{                   "é":3}]"#,
            ),
            (r#"{"a":1,"a":2,"a":3}"#, r#"{            "a":3}"#),
            (
                r#"{"a":{"a":1},"b":["a","a"]}"#,
                r#"{"a":{"a":1},"b":["a","a"]}"#,
            ),
        ] {
            assert_eq!(last_members(text), expected, "{text}");
        }
        for broken in ["", "{\"a\":1,\"a", "}]", "{,\"a\":\"a\",\"a\"", "\"a\":1"] {
            last_members(broken);
        }
    }
}
