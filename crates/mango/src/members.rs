//! Walking through JSON text without building anything from it.
//!
//! SUMMARY   [`checked`] makes sure that a text is JSON; [`Members`] and [`Elements`] cut an object
//!           or an array into the texts of its parts; [`kind_of`] tells what a text is;
//!           [`last_members`] leaves of members of one name the last.
//! PROMISES  No recursion and no copies: a document may be nested as deeply as it likes. On a text
//!           that is not JSON the walk ends early; it never panics.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use json::collation::{string_bytes, string_length};

/// What a JSON text is, in the order of the collation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
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
    /// Returns the name by which `$type` knows it.
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

/// Tells what a JSON text without white space around it is.
pub fn kind_of(text: &str) -> Kind {
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

/// Returns the text without white space around it if it is one JSON value.
///
/// # Errors
/// What is wrong with it, and where.
pub fn checked(text: &str) -> Result<&str, serde_json::Error> {
    serde_json::from_str::<&RawValue>(text).map(RawValue::get)
}

/// Whether a number's text is an integer's: without a point and without an exponent.
pub fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Replaces members that a later one of the same name follows by white space, at every depth: in
/// CouchDB the last counts. What stays is where it was.
pub fn last_members(text: &str) -> Cow<'_, str> {
    /// An object that is open: where its members start, and which of them has a name.
    #[derive(Default)]
    struct Object<'a> {
        starts: Vec<usize>,
        by_name: HashMap<Cow<'a, [u8]>, usize>,
    }
    let bytes = text.as_bytes();
    let mut open: Vec<Option<Object<'_>>> = Vec::new();
    let mut repeated = Vec::new();
    let mut at_name = false;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' => open.push(Some(Object::default())),
            b'[' => open.push(None),
            b'}' | b']' => drop(open.pop()),
            b'"' => {
                let end = at + string_length(&bytes[at..]);
                if at_name && let Some(Some(object)) = open.last_mut() {
                    object.starts.push(at);
                    let index = object.starts.len() - 1;
                    let name = string_bytes(&bytes[at..end]);
                    if let Some(earlier) = object.by_name.insert(name, index) {
                        repeated.push(object.starts[earlier]..object.starts[earlier + 1]);
                    }
                }
                at = end;
                at_name = false;
                continue;
            }
            _ => {}
        }
        at_name = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => at_name,
            b'{' => true,
            b',' => matches!(open.last(), Some(Some(_))),
            _ => false,
        };
        at += 1;
    }
    if repeated.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut blanked = bytes.to_vec();
    for byte in repeated.into_iter().flatten() {
        if blanked[byte] != b'\n' {
            blanked[byte] = b' ';
        }
    }
    String::from_utf8(blanked).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The members of an object: names with their quotes, and values.
pub struct Members<'a>(Parts<'a>);

impl<'a> Members<'a> {
    /// Walks through the object that `text` is.
    pub fn of(text: &'a str) -> Self {
        Self(Parts::of(text))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }
}

/// The elements of an array.
pub struct Elements<'a>(Parts<'a>);

impl<'a> Elements<'a> {
    /// Walks through the array that `text` is.
    pub fn of(text: &'a str) -> Self {
        Self(Parts::of(text))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

/// The values inside a pair of brackets, names included.
struct Parts<'a> {
    rest: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Self {
        let rest = text.get(1..).unwrap_or_default();
        Self { rest }
    }

    fn next(&mut self) -> Option<&'a str> {
        let between = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':');
        let bytes = self.rest.as_bytes();
        let start = bytes.iter().position(|byte| !between(byte))?;
        if matches!(bytes[start], b']' | b'}') {
            return None;
        }
        let end = start + length(&bytes[start..]);
        let part = self.rest.get(start..end)?;
        self.rest = &self.rest[end..];
        Some(part)
    }
}

/// Returns the length of the value that a text begins with.
fn length(bytes: &[u8]) -> usize {
    match bytes[0] {
        b'"' => string_length(bytes),
        b'{' | b'[' => nested_length(bytes),
        _ => bytes
            .iter()
            .position(|byte| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n'))
            .unwrap_or(bytes.len()),
    }
}

fn nested_length(bytes: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at += string_length(&bytes[at..]);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_arrays_are_cut_into_their_parts() {
        let text = r#"{ "a" : 1 ,"b":[{"x":"]}"},2], "c":"\"," ,"d":{} }"#;
        let members: Vec<_> = Members::of(text).collect();
        let expected = [
            ("\"a\"", "1"),
            ("\"b\"", r#"[{"x":"]}"},2]"#),
            ("\"c\"", r#""\",""#),
            ("\"d\"", "{}"),
        ];
        assert_eq!(members, expected);
        let elements: Vec<_> = Elements::of("[ 1,-2.5e3 ,[ ],null]").collect();
        assert_eq!(elements, ["1", "-2.5e3", "[ ]", "null"]);
        assert_eq!(
            Elements::of("[]").count() + Elements::of("[ \n]").count(),
            0
        );
    }

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

    #[test]
    fn what_is_not_json_ends_the_walk() {
        for text in [
            "",
            "{",
            "[",
            "{\"a",
            "[1,[2",
            "{\"a\":{\"b\"",
            "[\"\\",
            "x",
            "}",
        ] {
            let parts = Members::of(text).count() + Elements::of(text).count();
            assert!(parts <= 3, "{text}");
            assert!(checked(text).is_err(), "{text}");
        }
    }

    #[test]
    fn depth_has_no_bound() {
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        let text = checked(&deep).unwrap();
        assert_eq!(Elements::of(text).next().unwrap().len(), deep.len() - 2);
    }
}
