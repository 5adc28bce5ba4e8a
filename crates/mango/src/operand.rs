//! Operands: the values that operators compare fields with.
//!
//! SUMMARY   An [`Operand`] is a selector's value, prepared for many comparisons.
//! PROMISES  Compares by CouchDB's collation, or by Erlang's term order if the field is `_id`. In collation order,
//!           strings without escapes, short integers and values of another type are compared without allocating.
//! SOURCE    couch_ejson_compare, and Erlang's term order.

use std::cmp::Ordering;
use std::sync::LazyLock;

use super::members::{Kind, kind_of, last_members};
use super::terms;
use json::collation::Collation;
use json::number;
use json::string::unescape;

static COLLATION: LazyLock<Collation> = LazyLock::new(Collation::default);

/// The order by which values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The collation of views.
    Collated,
    /// Erlang's term order, for `_id` and fields below it.
    Raw,
}

impl Order {
    /// Returns bytes that compare as the values do.
    pub fn key(self, text: &str) -> Vec<u8> {
        match self {
            Self::Collated => collation_key(text),
            Self::Raw => terms::order_key(text),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Operand {
    order: Order,
    text: Box<str>,
    kind: Kind,
    /// A string's characters, or the sort key of any other value; in raw order always the sort key.
    bytes: Box<[u8]>,
    /// Whether it is a string without characters ignored by the collation.
    plain: bool,
    /// The value of a short integer.
    integer: Option<i64>,
}

impl Operand {
    /// Prepares the value of a JSON text.
    pub fn new(text: &str, order: Order) -> Self {
        let kind = kind_of(text);
        let bytes = match (order, kind) {
            (Order::Raw, _) => terms::order_key(text),
            (Order::Collated, Kind::String) => unescape(text).into_owned().into_bytes(),
            (Order::Collated, Kind::Number) => number_key(text),
            (Order::Collated, _) => collation_key(text),
        };
        Self {
            order,
            text: text.into(),
            plain: kind == Kind::String && is_plain(&bytes),
            bytes: bytes.into(),
            kind,
            integer: short_integer(text),
        }
    }

    /// Compares a value with this one.
    pub fn compare(&self, value: &str) -> Ordering {
        if self.order == Order::Raw {
            return terms::order_key(value).as_slice().cmp(&self.bytes);
        }
        let kind = kind_of(value);
        if kind != self.kind {
            return kind.cmp(&self.kind);
        }
        match kind {
            Kind::Null | Kind::False | Kind::True => Ordering::Equal,
            Kind::Number => match (short_integer(value), self.integer) {
                (Some(one), Some(other)) => one.cmp(&other),
                _ => number_key(value).as_slice().cmp(&self.bytes),
            },
            Kind::String => COLLATION.compare_strings(unescape(value).as_bytes(), &self.bytes),
            Kind::Array | Kind::Object => collation_key(value).as_slice().cmp(&self.bytes),
        }
    }

    /// Whether a value equals this one.
    pub fn equals(&self, value: &str) -> bool {
        if *self.text == *value {
            return true;
        }
        if self.plain && self.order == Order::Collated && kind_of(value) == Kind::String {
            let text = unescape(value);
            if is_plain(text.as_bytes()) {
                return *text.as_bytes() == *self.bytes;
            }
        }
        self.compare(value) == Ordering::Equal
    }
}

/// Whether the collation distinguishes all characters of the text and ignores none.
fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Returns the value of an integer that is short enough for `i64`.
fn short_integer(text: &str) -> Option<i64> {
    let is_integer = |byte: u8| byte.is_ascii_digit() || byte == b'-';
    (text.len() <= 18 && text.bytes().all(is_integer)).then(|| text.parse().ok())?
}

fn number_key(text: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    number::write_key(text.as_bytes(), &mut key);
    key
}

fn collation_key(text: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(text.len() * 2);
    COLLATION.write_key(&last_members(text), &mut key);
    key
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALUES: &[&str] = &[
        "null",
        "false",
        "true",
        "-1",
        "0",
        "1",
        "1.0",
        "1e0",
        "10",
        "2.5",
        "9007199254740993",
        r#""""#,
        r#""a""#,
        r#""A""#,
        r#""\u0061""#,
        r#""aa""#,
        r#""b""#,
        r#""é""#,
        r#""\t""#,
        "\"a\u{200d}\"",
        r#""\u0000""#,
        "[]",
        "[1]",
        "[1.0]",
        r#"["a"]"#,
        "{}",
        r#"{"a":1}"#,
        r#"{"a":1,"b":2}"#,
        r#"{"b":2,"a":1}"#,
    ];

    #[test]
    fn comparisons_agree_with_sort_keys() {
        for one in VALUES {
            for other in VALUES {
                for order in [Order::Collated, Order::Raw] {
                    let operand = Operand::new(other, order);
                    let expected = order.key(one).cmp(&order.key(other));
                    let equals = operand.equals(one);
                    assert_eq!(operand.compare(one), expected, "{order:?} {one} {other}");
                    assert_eq!(equals, expected.is_eq(), "{order:?} {one} {other}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn strings_are_equal_when_their_sort_keys_are(a in "[ -~\\PC]{0,4}", b in "[a-b\u{200d}]{0,3}") {
            for (one, other) in [(&a, &b), (&b, &a), (&a, &a)] {
                let text = |text: &str| serde_json::to_string(text).unwrap();
                let operand = Operand::new(&text(other), Order::Collated);
                let expected = collation_key(&text(one)).cmp(&collation_key(&text(other)));
                prop_assert_eq!(operand.equals(&text(one)), expected.is_eq());
                prop_assert_eq!(operand.compare(&text(one)), expected);
            }
        }
    }
}
