//! The size of a JSON value in Erlang's external term format, by which `_sum` is limited.
//!
//! SOURCE    erlang:external_size/1 over the terms that CouchDB decodes JSON to: strings are
//!           binaries, objects one-tuples of a list of pairs, literals atoms.

use serde_json::Value;
use serde_json::value::RawValue;

use super::{Number, ReduceRow, parsed};

/// The version byte in front of every term.
const VERSION: u64 = 1;
/// A list's tag and length, without its tail.
const LIST: u64 = 5;
/// The empty list, and the tail of any other.
const NIL: u64 = 1;
/// A small tuple's tag and length.
const TUPLE: u64 = 2;
/// A binary's tag and length.
const BINARY: u64 = 5;
/// An atom's tag and length.
const ATOM: u64 = 3;
/// A byte.
const SMALL_INTEGER: u64 = 2;
/// A list of bytes is written as a string: its tag and length.
const BYTES: u64 = 3;
/// The longest such list.
const BYTES_MAX: usize = 65_535;

/// Returns the size of one value.
pub(super) fn of_value(value: &Value) -> u64 {
    VERSION + term(value)
}

/// Returns the size of a list of values.
pub(super) fn of_values(values: &[Value]) -> u64 {
    VERSION + list(values)
}

/// Returns the size of rows as a reducer gets them: `[[[Key, Id], Value], ...]`.
pub(super) fn of_rows<'a>(rows: impl ExactSizeIterator<Item = ReduceRow<'a>>) -> u64 {
    if rows.len() == 0 {
        return VERSION + NIL;
    }
    let pair = |first: u64, second: u64| LIST + first + second + NIL;
    let raw = |value: &RawValue| term(&parsed(value));
    let elements: u64 = rows
        .map(|row| pair(pair(raw(row.key), raw(row.id)), raw(row.value)))
        .sum();
    VERSION + LIST + elements + NIL
}

fn term(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(true) => ATOM + 4,
        Value::Bool(false) => ATOM + 5,
        Value::String(text) => BINARY + text.len() as u64,
        Value::Array(values) => list(values),
        Value::Object(members) if members.is_empty() => TUPLE + NIL,
        Value::Object(members) => {
            let pairs = members
                .iter()
                .map(|(name, value)| TUPLE + BINARY + name.len() as u64 + term(value));
            TUPLE + LIST + pairs.sum::<u64>() + NIL
        }
        Value::Number(_) => Number::of(value).map_or(0, number),
    }
}

fn list(values: &[Value]) -> u64 {
    let is_byte = |value: &Value| value.as_u64().is_some_and(|number| number < 256);
    if values.is_empty() {
        NIL
    } else if values.len() <= BYTES_MAX && values.iter().all(is_byte) {
        BYTES + values.len() as u64
    } else {
        LIST + values.iter().map(term).sum::<u64>() + NIL
    }
}

fn number(number: Number) -> u64 {
    match number {
        Number::Float(_) => 9,
        Number::Integer(0..256) => SMALL_INTEGER,
        Number::Integer(integer) if i32::try_from(integer).is_ok() => 5,
        Number::Integer(integer) => {
            let bits = u128::BITS - integer.unsigned_abs().leading_zeros();
            3 + u64::from(bits.div_ceil(8))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sizes_are_those_of_erlang() {
        for (value, size) in [
            (json!(0), 3),
            (json!(255), 3),
            (json!(256), 6),
            (json!(-1), 6),
            (json!(1.5), 10),
            (json!(true), 8),
            (json!(null), 8),
            (json!(false), 9),
            (json!(""), 6),
            (json!("abc"), 9),
            (json!([]), 2),
            (json!([1]), 5),
            (json!([1, 256]), 14),
            (json!({}), 4),
            (json!({"a": 1}), 19),
            (json!([[[1, "id"], 1]]), 30),
            (json!(4_294_967_296_u64), 9),
        ] {
            assert_eq!(of_value(&value), size, "{value}");
        }
    }

    #[test]
    fn rows_are_sized_as_the_list_a_reducer_gets() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let (id, key, value) = (raw("\"id\""), raw("1"), raw("1"));
        let row = ReduceRow {
            id: &id,
            key: &key,
            value: &value,
        };
        assert_eq!(of_rows([row].into_iter()), 30);
    }
}
