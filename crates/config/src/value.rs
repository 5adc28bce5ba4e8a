//! Values: parsing them from a source's text, and formatting them.
//!
//! SUMMARY   [`Kind::read`] converts a [`Raw`] to the normal form: the JSON that serde produces for the key's Rust
//!           type, so that each type has a single form.
//! PROMISES  Text-only sources (`.ini`, environment) and typed ones (TOML) agree: `"5000"`, `5000` and `"5s"` are the
//!           same timeout.
//! LIMITS    Durations in files are whole milliseconds; fractions are refused, not rounded.

mod environment;
mod number;
mod shown;
mod text;

use serde_json::{Value, json};

pub(super) use shown::{display, number, resolved};
use text::Form;
pub(super) use text::{
    ADDRESS, COMMAND, CONNECT_TO, ENDPOINTS, ENV, FILE_PATH, GROUP, HOSTS, IP_ADDRESS, LET_IN,
    LINE, NAME, NAME_BYTES_MAX, NAMES, ORIGINS, PASSWORD, READ_PATHS, SECRET, SERVICE_ADDRESS,
    SOCKET_PATH, STORE_PATH, STORE_URL, SYSTEM_CALLS, USER, USER_NAME_RULE, USER_RANGE,
    is_user_name,
};
pub use text::{NAME_RULE, is_name};

/// The unit of a duration given as a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Unit {
    Milliseconds,
    Seconds,
    Hours,
}

impl Unit {
    /// Returns the milliseconds of one unit.
    pub(super) const fn milliseconds(self) -> u64 {
        match self {
            Self::Milliseconds => 1,
            Self::Seconds => 1000,
            Self::Hours => 3_600_000,
        }
    }
}

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Boolean,
    /// An integer in this range, inclusive.
    Count {
        min: u64,
        max: u64,
    },
    /// A finite number that is not negative.
    Ratio,
    /// A number from 0 to 1.
    Coefficient,
    /// A duration in this range, in milliseconds, inclusive; a plain number is in `unit`.
    Duration {
        unit: Unit,
        min: u64,
        max: u64,
    },
    /// A size in bytes in this range, inclusive.
    Bytes {
        min: u64,
        max: u64,
    },
    /// One of a few words, or a synonym of one.
    Choice(
        &'static [&'static str],
        &'static [(&'static str, &'static str)],
    ),
    /// One or more of a few words.
    Words(&'static [&'static str]),
    /// Text in a given form.
    Text(&'static Form),
    /// A value of the other kind, or 0 for none.
    OrZero(&'static Kind),
    /// A value of the other kind, or this word for none.
    OrNone(&'static str, &'static Kind),
}

/// The word for no limit.
pub(super) const INFINITY: &str = "infinity";
/// The word for an absent value.
pub(super) const OFF: &str = "off";

/// A value as written in its source.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Raw {
    Text(String),
    /// An integer; `None` if it does not even fit 128 bits.
    Integer(Option<i128>),
    /// A number with a decimal point or an exponent.
    Float(f64),
    Boolean(bool),
    /// Strings in order.
    Texts(Vec<String>),
    /// A type that no key has: `a table`, `a date`, a list of numbers.
    Other(&'static str),
    /// Nothing (`key =` in an `.ini`): reset to the built-in default.
    Unset,
}

impl Raw {
    /// Returns the value for a message: its type and text.
    fn describe(&self) -> String {
        match self {
            Self::Text(text) => format!("the text {text:?}"),
            Self::Integer(Some(number)) => format!("the number {number}"),
            Self::Integer(None) => "a number of more than 128 bits".to_owned(),
            Self::Float(number) => format!("the number {number:?}"),
            Self::Boolean(value) => format!("the boolean {value}"),
            Self::Texts(texts) => format!("the list {texts:?}"),
            Self::Other(what) => (*what).to_owned(),
            Self::Unset => "nothing".to_owned(),
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text.trim()),
            _ => None,
        }
    }

    fn word(&self) -> Option<&str> {
        match self {
            Self::Boolean(true) => Some("true"),
            Self::Boolean(false) => Some("false"),
            other => other.text(),
        }
    }

    /// Returns the entries of a list, which may be one string with commas; the empty string is one empty entry.
    fn entries(&self) -> Option<Vec<&str>> {
        match self {
            Self::Text(text) => Some(text.split(',').map(str::trim).collect()),
            Self::Texts(texts) => Some(texts.iter().map(|text| text.trim()).collect()),
            _ => None,
        }
    }

    fn misfit(&self) -> String {
        format!("{} is not valid for this key", self.describe())
    }
}

/// Why a value is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {remedy}")]
pub struct Fault {
    pub what: String,
    /// How to correct it.
    pub remedy: String,
}

impl Fault {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (what, remedy) = (what.into(), remedy.into());
        Self { what, remedy }
    }
}

impl Kind {
    /// Returns the normal form of a value of this kind.
    pub(super) fn read(self, raw: &Raw) -> Result<Value, Fault> {
        self.normal(raw)
            .map_err(|what| Fault::new(what, format!("it must be {}", self.expectation())))
    }

    /// Returns the normal form, or the mistake in the value.
    fn normal(self, raw: &Raw) -> Result<Value, String> {
        let whole = |scale, units, min, max| number::whole(raw, scale, units, min..=max);
        match self {
            Self::Boolean => match raw {
                Raw::Boolean(value) => Ok((*value).into()),
                Raw::Text(text) => text.parse().map(Value::Bool).map_err(|_| raw.misfit()),
                _ => Err(raw.misfit()),
            },
            Self::Count { min, max } => whole(1, &[], min, max).map(Value::from),
            Self::Bytes { min, max } => whole(1, number::BYTES, min, max).map(Value::from),
            Self::Duration { unit, min, max } => {
                let length = whole(unit.milliseconds(), number::DURATIONS, min, max)?;
                Ok(json!(std::time::Duration::from_millis(length)))
            }
            Self::Ratio => number::ratio(raw, f64::MAX).map(Value::from),
            Self::Coefficient => number::ratio(raw, 1.0).map(Value::from),
            Self::Choice(words, synonyms) => {
                let word = raw.word().ok_or(raw.misfit())?;
                let word = synonyms
                    .iter()
                    .find(|(written, _)| *written == word)
                    .map_or(word, |(_, meant)| meant);
                words
                    .contains(&word)
                    .then(|| word.into())
                    .ok_or(raw.misfit())
            }
            Self::Words(words) => {
                let entries = raw.entries().ok_or(raw.misfit())?;
                if !entries.iter().all(|word| words.contains(word)) {
                    return Err(raw.misfit());
                }
                Ok(words
                    .iter()
                    .filter(|word| entries.contains(word))
                    .copied()
                    .collect())
            }
            Self::Text(form) => (form.read)(raw),
            Self::OrZero(_) if raw.text() == Some("0") || *raw == Raw::Integer(Some(0)) => {
                Ok(0.into())
            }
            Self::OrZero(inner) => inner.normal(raw),
            Self::OrNone(none, _) if raw.text() == Some(none) => Ok(Value::Null),
            Self::OrNone(OFF, _) if *raw == Raw::Boolean(false) => Ok(Value::Null),
            Self::OrNone(_, inner) => inner.normal(raw),
        }
    }

    /// Returns the word for none, if allowed.
    pub(super) fn none(self) -> Option<&'static str> {
        match self {
            Self::OrNone(word, _) => Some(word),
            Self::Text(form) => form.none,
            _ => None,
        }
    }

    /// Returns why a value of this kind cannot be set over HTTP, if it cannot.
    pub(super) fn only_in_files(self) -> Option<&'static str> {
        match self {
            Self::Text(form) => form.only_in_files,
            _ => None,
        }
    }

    /// Returns the description of a value of this kind, to follow "it must be".
    fn expectation(self) -> String {
        match self {
            Self::Boolean => "true or false".to_owned(),
            Self::Count { min, max } => format!("a whole number from {min} to {max}"),
            Self::Ratio => "a number that is not negative, 2.0 for example".to_owned(),
            Self::Coefficient => "a number from 0.0 to 1.0".to_owned(),
            Self::Duration { unit, min, max } => format!(
                "a whole number of {unit} or text with a unit (\"250ms\", \"5s\", \"2min\", \"1h\"), \
                 from {min} ms to {} h",
                max / Unit::Hours.milliseconds(),
            ),
            Self::Bytes { min, max } => format!(
                "a whole number of bytes or text with a unit (\"64KiB\", \"64MiB\", \"1GiB\"), \
                 from {min} to {max}"
            ),
            Self::Choice(words, _) => format!("one of {}", words.join(", ")),
            Self::Words(words) => format!("one or more of {}, with commas", words.join(", ")),
            Self::Text(form) => form.expected.to_owned(),
            Self::OrZero(inner) => format!("0 for none, or {}", inner.expectation()),
            Self::OrNone(OFF, inner) => format!("{}, or {OFF:?}", inner.expectation()),
            Self::OrNone(none, inner) => format!("{none:?} or {}", inner.expectation()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::shown::hide_credentials;
    use super::*;
    use crate::keys::{SECTIONS, Section};

    const TIMEOUT: Kind = Kind::Duration {
        unit: Unit::Seconds,
        min: 0,
        max: u64::MAX,
    };
    const SIZE: Kind = Kind::Bytes {
        min: 0,
        max: u64::MAX,
    };

    fn text(kind: Kind, text: &str) -> Result<Value, Fault> {
        kind.read(&Raw::Text(text.to_owned()))
    }

    /// Returns a size, or a duration in milliseconds.
    fn number(kind: Kind, written: &str) -> Option<u64> {
        let value = text(kind, written).ok()?;
        match value.is_object() {
            true => Some(shown::milliseconds(&value)),
            false => value.as_u64(),
        }
    }

    #[test]
    fn a_plain_number_is_in_the_unit_of_its_key() {
        assert_eq!(number(TIMEOUT, "3"), Some(3000));
        let plain = TIMEOUT.read(&Raw::Integer(Some(3)));
        assert_eq!(plain, text(TIMEOUT, "3000ms"));
        assert_eq!(number(SIZE, "3"), Some(3));
    }

    #[test]
    fn units_scale() {
        let durations = [("1ms", 1), ("1 s", 1000), ("1m", 60_000), ("1min", 60_000)];
        for (text, milliseconds) in durations.into_iter().chain([("1h", 3_600_000)]) {
            assert_eq!(number(TIMEOUT, text), Some(milliseconds), "{text}");
        }
        let sizes = [
            ("1B", 1),
            ("1KiB", 1 << 10),
            ("1MiB", 1 << 20),
            ("1GiB", 1 << 30),
        ];
        let decimal = [
            ("1kB", 1000),
            ("1KB", 1000),
            ("1MB", 1_000_000),
            ("1GB", 1_000_000_000),
        ];
        for (text, bytes) in sizes.into_iter().chain(decimal) {
            assert_eq!(number(SIZE, text), Some(bytes), "{text}");
        }
        for text in ["1K", "1mib", "1 5", "1.5s", "s", "", "--1", "1-", "0x10"] {
            assert_eq!(
                (number(TIMEOUT, text), number(SIZE, text)),
                (None, None),
                "{text}"
            );
        }
    }

    #[test]
    fn every_password_in_an_address_is_hidden() {
        let shown = hide_credentials("a http://u:p@h:1/x@y --to=ftp://v:q:r@i http://j k://l@m");
        assert_eq!(
            shown,
            "a http://u:***@h:1/x@y --to=ftp://v:***@i http://j k://l:***@m"
        );
        assert_eq!(hide_credentials("://"), "://");
        assert_eq!(hide_credentials("é://é:é@é"), "é://é:***@é");
        let two = hide_credentials("http://u:p@h,http://v:q@i");
        assert_eq!(two, "http://u:***@h,http://v:***@i");
    }

    #[test]
    fn values_that_couchdb_would_ignore_or_adjust_are_refused() {
        for wrong in ["-0.1", "1.1", "junk", "", "nan"] {
            assert!(text(Kind::Coefficient, wrong).is_err(), "{wrong}");
        }
        assert_eq!(text(Kind::Coefficient, "1"), Ok(json!(1.0)));
        let protocols = Kind::Words(&["http", "https"]);
        for wrong in ["", "ftp", "http,", "http ftp"] {
            assert!(text(protocols, wrong).is_err(), "{wrong}");
        }
        let both = Ok(json!(["http", "https"]));
        assert_eq!(text(protocols, "https, http,http"), both);
        for right in [
            "",
            "a.example:443:10.0.0.1:8443",
            "*.a.example:80:[::1]:81 , b:1:c:2",
        ] {
            assert!(text(CONNECT_TO, right).is_ok(), "{right}");
        }
        for wrong in [
            "a",
            "a:1",
            "a:1:b",
            "a:1:b:0",
            "a:x:b:1",
            "[::1]:1:b:2",
            "a:1:::1:2",
            "*:1:b:2",
        ] {
            assert!(text(CONNECT_TO, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn infinity_is_allowed_where_a_limit_is_optional() {
        let kind = Kind::OrNone(INFINITY, &TIMEOUT);
        assert_eq!(number(kind, "3"), Some(3000));
        assert_eq!(text(kind, "infinity"), Ok(Value::Null));
        assert_eq!(display(kind, &Value::Null), "infinity");
        assert_eq!(display(kind, &text(kind, "3").unwrap()), "3 s");
        let fault = text(kind, "for ever").unwrap_err();
        assert!(
            fault.remedy.starts_with("it must be \"infinity\" or "),
            "{}",
            fault.remedy
        );
    }

    proptest! {
        #[test]
        fn any_string_is_refused_or_read_as_its_kind(written in "[-+0-9.eEnaif]{0,50}[a-zA-Z ]{0,4}|\\PC*") {
            for key in SECTIONS.iter().flat_map(Section::rows) {
                if let Ok(value) = text(key.kind, &written) {
                    let kind_is_kept = match key.kind {
                        Kind::Count { min, max } | Kind::Bytes { min, max } => {
                            value.as_u64().is_some_and(|n| (min..=max).contains(&n))
                        }
                        Kind::Duration { min, max, .. } => {
                            (min..=max).contains(&shown::milliseconds(&value))
                        }
                        Kind::Ratio => value.as_f64().is_some_and(|n| n >= 0.0),
                        Kind::Coefficient => {
                            value.as_f64().is_some_and(|n| (0.0..=1.0).contains(&n))
                        }
                        Kind::OrZero(_) => value.is_u64(),
                        // The other kind may be words.
                        Kind::OrNone(none, _) => none.is_empty() || !value.is_string(),
                        Kind::Boolean => value.is_boolean(),
                        Kind::Words(_) => value.is_array(),
                        Kind::Choice(..) => value.is_string(),
                        Kind::Text(form) => {
                            value.is_string() || value.is_array() || form.none.is_some()
                        }
                    };
                    prop_assert!(kind_is_kept, "{}: {value:?}", key.name);
                }
            }
        }

        #[test]
        fn a_value_as_shown_can_be_read_back(wanted in 0..1u64 << 50) {
            let length = json!(std::time::Duration::from_millis(wanted));
            for (kind, value) in [(TIMEOUT, length), (SIZE, wanted.into())] {
                let shown = display(kind, &value).replace(" bytes", "");
                let read = number(kind, &shown);
                prop_assert_eq!(read, Some(wanted), "{}", shown);
            }
        }
    }
}
