//! JSON values as Erlang's terms: their order, and their exact equality.
//!
//! SUMMARY   [`order_key`] gives bytes that compare as the terms do, for `_id`; [`exact_key`] gives
//!           bytes that are equal exactly when the terms are the same, for `$all`.
//! SOURCE    Erlang's order of terms (`<`) and its exact equality (`=:=`), over CouchDB's form of
//!           JSON: numbers, then `false`, `null`, `true`, then objects, arrays, strings.

use json::collation::{string_bytes, string_length};
use json::number;

use super::members::{is_integer, last_members};

/// First byte of a value in an order key.
mod rank {
    pub(super) const NUMBER: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const NULL: u8 = 3;
    pub(super) const TRUE: u8 = 4;
    pub(super) const OBJECT: u8 = 5;
    pub(super) const ARRAY: u8 = 6;
    pub(super) const STRING: u8 = 7;
}

/// Ends what has parts: less than anything that could follow in a longer one.
const END: u8 = 0;

/// Stands before each member of an object.
const MEMBER: u8 = 1;

/// Returns bytes that compare as the terms do: strings byte by byte, numbers by value.
pub fn order_key(text: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(text.len() + 8);
    walk(text, &mut key, write_ordered, |text, key| {
        key.push(rank::NUMBER);
        number::write_key(text.as_bytes(), key);
    });
    key
}

/// Returns bytes that are equal exactly when the terms are the same: 1 is not 1.0, and members
/// stand in the same order.
pub fn exact_key(text: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(text.len() + 8);
    walk(text, &mut key, write_ordered, |text, key| {
        key.push(rank::NUMBER);
        write_exact_number(text, key);
        key.push(END);
    });
    key
}

/// Bytes in their order; those that could be taken for an end get out of its way.
fn write_ordered(bytes: &[u8], key: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            0 | 1 => key.extend([1, byte + 1]),
            _ => key.push(*byte),
        }
    }
    key.push(END);
}

fn write_exact_number(text: &str, key: &mut Vec<u8>) {
    if is_integer(text) {
        key.push(b'i');
        let zero = text == "-0";
        key.extend_from_slice(if zero { b"0" } else { text.as_bytes() });
        return;
    }
    key.push(b'f');
    match text.parse::<f64>() {
        // Both zeros are one.
        Ok(double) if double.is_finite() => {
            key.extend_from_slice(format!("{:?}", double + 0.0).as_bytes());
        }
        // Beyond any double: by its digits.
        _ => key.extend_from_slice(text.as_bytes()),
    }
}

/// Walks through a valid JSON text from left to right, without recursion.
fn walk(
    text: &str,
    key: &mut Vec<u8>,
    write_text: impl Fn(&[u8], &mut Vec<u8>),
    write_number: impl Fn(&str, &mut Vec<u8>),
) {
    let text = &*last_members(text);
    let bytes = text.as_bytes();
    // Whether each value that is open is an object.
    let mut open: Vec<bool> = Vec::new();
    let mut at_name = false;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let mut length = 1;
        match byte {
            b'{' | b'[' => {
                at_name = byte == b'{';
                key.push(if at_name { rank::OBJECT } else { rank::ARRAY });
                open.push(at_name);
            }
            b'}' | b']' => {
                key.push(END);
                open.pop();
            }
            b',' => at_name = open.last() == Some(&true),
            b':' => at_name = false,
            b'"' => {
                length = string_length(&bytes[at..]);
                key.push(if at_name { MEMBER } else { rank::STRING });
                write_text(&string_bytes(&bytes[at..at + length]), key);
            }
            b'n' | b't' | b'f' => {
                length = if byte == b'f' { 5 } else { 4 };
                key.push(match byte {
                    b'n' => rank::NULL,
                    b't' => rank::TRUE,
                    _ => rank::FALSE,
                });
            }
            b'-' | b'0'..=b'9' => {
                let is_part =
                    |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let rest = &bytes[at..];
                length = rest
                    .iter()
                    .position(|byte| !is_part(byte))
                    .unwrap_or(rest.len());
                write_number(&text[at..at + length], key);
            }
            // White space.
            _ => {}
        }
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_in_erlangs_order() {
        let sorted = [
            "-1",
            "0",
            "0.5",
            "1",
            "false",
            "null",
            "true",
            "{}",
            r#"{"a":1}"#,
            r#"{"a":2}"#,
            r#"{"b":0}"#,
            "[]",
            "[1]",
            "[1,2]",
            "[2]",
            r#""""#,
            r#""\u0000""#,
            r#""A""#,
            r#""Aa""#,
            r#""B""#,
            r#""a""#,
            r#""é""#,
        ];
        for pair in sorted.windows(2) {
            assert!(
                order_key(pair[0]) < order_key(pair[1]),
                "{} before {}",
                pair[0],
                pair[1]
            );
        }
        assert_eq!(order_key("1"), order_key("1.0"));
    }

    #[test]
    fn terms_are_the_same_only_when_they_are() {
        for (one, other) in [
            ("1.0", "1.00"),
            ("1e2", "100.0"),
            ("0", "-0"),
            ("0.0", "-0.0"),
            (r#"["\u0061"]"#, r#"[ "a" ]"#),
            (r#"{"a":[null,true]}"#, r#"{"a" : [null, true]}"#),
        ] {
            assert_eq!(exact_key(one), exact_key(other), "{one} {other}");
        }
        for (one, other) in [
            ("1", "1.0"),
            ("100", "1e2"),
            ("1", "\"1\""),
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#),
            (r#"["ab",""]"#, r#"["a","b"]"#),
            (r#""ab""#, "\"a\u{200d}b\""),
            ("[[1],2]", "[[1,2]]"),
        ] {
            assert_ne!(exact_key(one), exact_key(other), "{one} {other}");
        }
    }
}
