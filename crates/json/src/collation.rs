//! The order of view keys: JSON texts as bytes that compare like the values in CouchDB.
//!
//! SUMMARY   [`Collation::write_key`] turns a JSON text into a sort key. Comparing two sort keys byte by byte
//!           compares the values.
//! PROMISES  null < false < true < numbers < strings < arrays < objects; numbers by exact value; strings by the
//!           Unicode root collation, Han characters by radical and stroke; arrays element by element, objects member
//!           by member in their order in the text (name, then value), the shorter first. No sort key is a prefix of
//!           another, so that a tie-breaker can be appended.
//! SOURCE    couch_ejson_compare: less/2 and less_json_ids/2.
//! LIMITS    Sort keys are valid for one run: another version of the collation data may produce others.

use std::cmp::Ordering;

use icu_collator::options::CollatorOptions;
use icu_collator::{CollatorBorrowed, CollatorPreferences};

use super::cursor::{Cursor, Token};
use super::number;
use super::string::unescape_bytes;

mod cache;
mod han;

use cache::KeyCache;

/// Ends a string, an array or an object: less than any byte that continues a longer one.
pub const END: u8 = 0;

/// Precedes each member of an object, so that an empty name is not mistaken for the end.
pub const MEMBER: u8 = 1;

/// The collation of view keys.
pub struct Collation {
    strings: CollatorBorrowed<'static>,
}

/// The Unicode root collation at its default strength.
impl Default for Collation {
    fn default() -> Self {
        let strings =
            CollatorBorrowed::try_new(CollatorPreferences::default(), CollatorOptions::default())
                .expect("VW-1: the root collation is compiled in");
        Self { strings }
    }
}

impl Collation {
    /// Appends the sort key of a value to `key`; `json` is its text.
    pub fn write_key(&self, json: &str, key: &mut Vec<u8>) {
        write(json.as_bytes(), key, |text, key| self.write_text(text, key));
    }

    /// Compares two strings, both UTF-8.
    pub fn compare_strings(&self, one: &[u8], other: &[u8]) -> Ordering {
        match han::collator_for(one).or_else(|| han::collator_for(other)) {
            Some(collator) => collator.compare(one, other),
            None => self.strings.compare_utf8(one, other),
        }
    }

    fn write_text(&self, text: &[u8], key: &mut Vec<u8>) {
        match han::collator_for(text) {
            Some(collator) => collator.write_sort_key(text, key),
            None => {
                let Ok(()) = self.strings.write_sort_key_utf8_to(text, key);
            }
        }
        key.push(END);
    }
}

/// A [`Collation`] that caches the sort keys of strings.
#[derive(Default)]
pub struct CachedCollation {
    collation: Collation,
    cache: KeyCache,
}

impl CachedCollation {
    /// Like [`Collation::write_key`].
    pub fn write_key(&mut self, json: &[u8], key: &mut Vec<u8>) {
        let Self { collation, cache } = self;
        write(json, key, |text, key| {
            cache.append(text, key, |text, key| collation.write_text(text, key));
        });
    }
}

/// Appends bytes that are equal exactly if two values are: numbers by value, so that 1 and 1.0 are equal; strings
/// character by character; members in their order.
///
/// # Source
/// Erlang's `==`, with which CouchDB's `$all` compares an array with the whole field.
pub fn write_identity(json: &str, identity: &mut Vec<u8>) {
    write(json.as_bytes(), identity, |text, identity| {
        identity.extend_from_slice(&text.len().to_le_bytes());
        identity.extend_from_slice(text);
    });
}

fn write(json: &[u8], key: &mut Vec<u8>, write_text: impl FnMut(&[u8], &mut Vec<u8>)) {
    write_parts(json, key, first_byte, number::write_key, write_text);
}

/// Returns the first byte of a part: for a value, its type's position in the order.
fn first_byte(token: &Token) -> u8 {
    match token {
        Token::End => END,
        Token::Name(_) => MEMBER,
        Token::Null => 1,
        Token::False => 2,
        Token::True => 3,
        Token::Number(_) => 4,
        Token::String(_) => 5,
        Token::Array => 6,
        Token::Object => 7,
    }
}

/// Appends each part of a valid JSON text to `key`: its first byte, then the digits of a number, or the characters of a
/// string or a name.
pub fn write_parts(
    json: &[u8],
    key: &mut Vec<u8>,
    first_byte: impl Fn(&Token) -> u8,
    write_number: impl Fn(&[u8], &mut Vec<u8>),
    mut write_text: impl FnMut(&[u8], &mut Vec<u8>),
) {
    // The text is valid: the walk does not end early.
    let _ = Cursor::of_valid(json).walk(|token| {
        key.push(first_byte(&token));
        match token {
            Token::Number(place) => write_number(&json[place], key),
            Token::String(place) | Token::Name(place) => {
                write_text(&unescape_bytes(&json[place]), key);
            }
            Token::Null
            | Token::False
            | Token::True
            | Token::Array
            | Token::Object
            | Token::End => {}
        }
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(json: &str) -> Vec<u8> {
        let mut key = Vec::new();
        Collation::default().write_key(json, &mut key);
        key
    }

    fn identity(json: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_identity(json, &mut bytes);
        bytes
    }

    #[test]
    fn values_of_all_types_are_in_couchdbs_order() {
        let sorted = [
            "null",
            "false",
            "true",
            "-1e400",
            "-10",
            "-2.5",
            "-2",
            "-0.001",
            "0",
            "0.5",
            "1",
            "1.5",
            "2",
            "10",
            "9007199254740992",
            "9007199254740993",
            "1e300",
            r#""""#,
            r#""_""#,
            r#""-""#,
            r#""1""#,
            r#""a""#,
            r#""A""#,
            r#""aa""#,
            r#""b""#,
            r#""B""#,
            r#""ba""#,
            r#""bb""#,
            r#""\u00e9""#,
            r#""f""#,
            r#""\ufff0""#,
            "[]",
            "[null]",
            r#"["a"]"#,
            r#"["b"]"#,
            r#"["b","c"]"#,
            r#"["b","c","a"]"#,
            r#"["b","d"]"#,
            r#"["b","d","e"]"#,
            "[[]]",
            "{}",
            r#"{"":1}"#,
            r#"{"a":1}"#,
            r#"{"a":2}"#,
            r#"{"a":[]}"#,
            r#"{"b":1}"#,
            r#"{"b":2}"#,
            r#"{"b":2,"a":1}"#,
            r#"{"b":2,"c":2}"#,
        ];
        for pair in sorted.windows(2) {
            assert!(
                key(pair[0]) < key(pair[1]),
                "{} before {}",
                pair[0],
                pair[1]
            );
        }
    }

    #[test]
    fn equal_values_have_equal_keys_however_they_are_written() {
        for (one, other) in [
            ("1", "1.0"),
            ("1e2", "100"),
            ("0", "-0.0"),
            (r#""\u0061\/""#, r#""a/""#),
            (r#" { "a" : [ 1 , null ] } "#, r#"{"a":[1.0,null]}"#),
            (r#""a\ud834\udd1e""#, "\"a\u{1d11e}\""),
            (r#""\udd1e\ud834""#, r#""\ufffd\ufffd""#),
        ] {
            assert_eq!(key(one), key(other), "{one} {other}");
            assert_eq!(identity(one), identity(other), "{one} {other}");
        }
    }

    #[test]
    fn strings_that_collate_equal_may_differ_in_identity() {
        let (plain, joined) = (r#""ab""#, r#""a\u200db""#);
        assert_eq!(key(plain), key(joined));
        assert_ne!(identity(plain), identity(joined));
        assert_ne!(identity(r#"["a","b"]"#), identity(r#"["ab",""]"#));
    }

    #[test]
    fn depth_has_no_bound() {
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        let mut bytes = Vec::new();
        Collation::default().write_key(&deep, &mut bytes);
        assert_eq!(bytes.len(), 400_000);
    }

    proptest! {
        #[test]
        fn strings_are_ordered_as_the_collation_compares_them(a in ".{0,8}", b in ".{0,8}") {
            let collation = Collation::default();
            let text = |text: &str| key(&serde_json::to_string(text).unwrap());
            let compared = collation.compare_strings(a.as_bytes(), b.as_bytes());
            prop_assert_eq!(text(&a).cmp(&text(&b)), compared);
        }
    }
}
