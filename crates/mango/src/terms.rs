//! JSON values as Erlang terms: their order, and their exact equality.
//!
//! SUMMARY   [`order_key`] returns bytes that compare as the terms do, for `_id`; [`exact_key`] returns bytes that
//!           are equal exactly if the terms are, for `$all`.
//! SOURCE    Erlang's term order (`<`) and its exact equality (`=:=`), for JSON as CouchDB decodes it: numbers,
//!           then `false`, `null`, `true`, then objects, arrays, strings.

use json::collation::{END, MEMBER, write_parts};
use json::cursor::Token;
use json::number;

use super::members::{is_integer, last_members};

/// Returns bytes that compare as the terms do: strings byte by byte, numbers by value.
pub(crate) fn order_key(text: &str) -> Vec<u8> {
    write(text, number::write_key)
}

/// Returns bytes that are equal exactly if the terms are: 1 is not 1.0, and the order of members counts.
pub(crate) fn exact_key(text: &str) -> Vec<u8> {
    write(text, write_exact_number)
}

/// Writes bytes in an order-preserving way; those that could be mistaken for an end or an escape are escaped.
fn write_string(text: &[u8], key: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            0 | 1 => key.extend([1, byte + 1]),
            _ => key.push(byte),
        }
    }
    key.push(END);
}

fn write_exact_number(number: &[u8], key: &mut Vec<u8>) {
    let text = std::str::from_utf8(number).unwrap_or_default();
    if is_integer(text) {
        key.push(b'i');
        key.extend_from_slice(if text == "-0" { b"0" } else { number });
    } else {
        key.push(b'f');
        match text.parse::<f64>() {
            // Both zeros are equal.
            Ok(double) if double.is_finite() => {
                key.extend_from_slice(format!("{:?}", double + 0.0).as_bytes());
            }
            // Beyond any double: compared by digits.
            _ => key.extend_from_slice(number),
        }
    }
    key.push(END);
}

/// Returns the key of a valid JSON text; `write_number` appends that of a number.
fn write(text: &str, write_number: impl Fn(&[u8], &mut Vec<u8>)) -> Vec<u8> {
    let text = last_members(text);
    let mut key = Vec::with_capacity(text.len() + 8);
    write_parts(
        text.as_bytes(),
        &mut key,
        first_byte,
        write_number,
        write_string,
    );
    key
}

/// Returns the first byte of a part: for a value, its type's position in the order.
fn first_byte(token: &Token) -> u8 {
    match token {
        Token::End => END,
        Token::Name(_) => MEMBER,
        Token::Number(_) => 1,
        Token::False => 2,
        Token::Null => 3,
        Token::True => 4,
        Token::Object => 5,
        Token::Array => 6,
        Token::String(_) => 7,
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
