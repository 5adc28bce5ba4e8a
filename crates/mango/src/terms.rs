//! JSON values as Erlang terms: their order, and their exact equality.
//!
//! SUMMARY   [`order_key`] returns bytes that compare as the terms do, for `_id`; [`exact_key`] returns bytes that
//!           are equal exactly if the terms are, for `$all`.
//! SOURCE    Erlang's term order (`<`) and its exact equality (`=:=`), for JSON as CouchDB decodes it: numbers,
//!           then `false`, `null`, `true`, then objects, arrays, strings.

use json::cursor::{Cursor, Token};
use json::number;
use json::string::unescape;

use super::members::{is_integer, last_members};

/// First byte of a value in an order key.
const RANK_NUMBER: u8 = 1;
const RANK_FALSE: u8 = 2;
const RANK_NULL: u8 = 3;
const RANK_TRUE: u8 = 4;
const RANK_OBJECT: u8 = 5;
const RANK_ARRAY: u8 = 6;
const RANK_STRING: u8 = 7;

/// Ends a compound value: less than any byte that could continue it.
const END: u8 = 0;

/// Precedes each member of an object.
const MEMBER: u8 = 1;

/// Returns bytes that compare as the terms do: strings byte by byte, numbers by value.
pub(crate) fn order_key(text: &str) -> Vec<u8> {
    write(text, |number, key| {
        number::write_key(number.as_bytes(), key)
    })
}

/// Returns bytes that are equal exactly if the terms are: 1 is not 1.0, and the order of members counts.
pub(crate) fn exact_key(text: &str) -> Vec<u8> {
    write(text, |number, key| {
        write_exact_number(number, key);
        key.push(END);
    })
}

/// Writes bytes in an order-preserving way; those that could be mistaken for an end or an escape are escaped.
fn write_string(text: &str, key: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            0 | 1 => key.extend([1, byte + 1]),
            _ => key.push(byte),
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
        // Both zeros are equal.
        Ok(double) if double.is_finite() => {
            key.extend_from_slice(format!("{:?}", double + 0.0).as_bytes());
        }
        // Beyond any double: compared by digits.
        _ => key.extend_from_slice(text.as_bytes()),
    }
}

/// Returns the key of a valid JSON text; `write_number` appends that of a number.
fn write(text: &str, write_number: impl Fn(&str, &mut Vec<u8>)) -> Vec<u8> {
    let text = &*last_members(text);
    let mut key = Vec::with_capacity(text.len() + 8);
    // The text is valid: the walk does not end early.
    let _ = Cursor::of_valid(text.as_bytes()).walk(|token| {
        key.push(match &token {
            Token::Null => RANK_NULL,
            Token::False => RANK_FALSE,
            Token::True => RANK_TRUE,
            Token::Number(_) => RANK_NUMBER,
            Token::String(_) => RANK_STRING,
            Token::Array => RANK_ARRAY,
            Token::Object => RANK_OBJECT,
            Token::Name(_) => MEMBER,
            Token::End => END,
        });
        match token {
            Token::Number(place) => write_number(&text[place], &mut key),
            Token::String(place) | Token::Name(place) => {
                write_string(&unescape(&text[place]), &mut key)
            }
            _ => {}
        }
    });
    key
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
    fn exact_keys_are_equal_for_equal_terms_only() {
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
