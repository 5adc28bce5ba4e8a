//! One value: from what a source wrote to what the key means, and back to text.
//!
//! SUMMARY   [`parse`] turns a [`Raw`] into the normal form of a [`Kind`]: durations in
//!           milliseconds, sizes in bytes, choices in their canonical word.
//! PROMISES  A source that knows only text (`.ini`, environment) and one that knows types (TOML)
//!           mean the same: `"5000"`, `5000` and `"5s"` are one timeout.
//! LIMITS    Durations of files are whole milliseconds; fractions are refused, not rounded.

mod list;
mod number;
mod shown;
mod text;

use config::ValueKind;

use super::keys::{INFINITY, Kind, Unit};
use super::stressed::Stressed;
use super::types::LanguageCommand;
use list::connect_to;
use number::{
    BYTE_UNITS, DURATION_UNITS, coefficient, plain, ratio, text_count, whole, with_unit, within,
};
pub(super) use shown::{display, in_unit};
use text::{LINE_BYTES_MAX, address, choice, line, name, password, secret, service_address};
pub(super) use text::{NAME_BYTES_MAX, USER_NAME_RULE, is_user_name};
pub use text::{NAME_RULE, is_name};

/// A value as its source wrote it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Raw {
    /// Text.
    Text(String),
    /// A whole number; `None` when it does not even fit 128 bits.
    Integer(Option<i128>),
    /// A number with a point or an exponent.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// Texts, in the order in which they stand.
    Texts(Vec<String>),
    /// Something no key can be: `a table`, `a date`, a list of numbers.
    Other(&'static str),
    /// Nothing (`key =` in an `.ini`): back to the built-in default.
    Unset,
}

impl Raw {
    /// Returns the value in a message: what type it has and what it says.
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
}

/// Why a value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// What is wrong with it.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

/// Returns the normal form of a value of this kind.
pub(super) fn parse(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    match kind {
        Kind::Boolean => boolean(raw),
        Kind::Count { min, max } => {
            let count = whole(raw, text_count).ok_or_else(|| misfit(kind, raw))?;
            within(kind, count, (min, max), raw)
        }
        Kind::CountOrOff { max } => match raw {
            Raw::Text(text) if text.trim() == OFF => Ok(ValueKind::String(OFF.to_owned())),
            Raw::Boolean(false) => Ok(ValueKind::String(OFF.to_owned())),
            _ => {
                let count = whole(raw, text_count).ok_or_else(|| misfit(kind, raw))?;
                within(kind, count, (0, max), raw)
            }
        },
        Kind::Ratio => ratio(kind, raw),
        Kind::Name => name(kind, raw),
        Kind::ServiceAddress => service_address(kind, raw),
        Kind::Stressed(inner) => stressed(*inner, raw).map_err(|fault| Fault {
            remedy: format!("it must be {}", expectation(kind)),
            ..fault
        }),
        Kind::Coefficient => coefficient(kind, raw),
        Kind::OrInfinity(inner) => or_infinity(kind, *inner, raw),
        Kind::Words(words) => list::words(kind, words, raw),
        Kind::Hosts => list::hosts(kind, raw),
        Kind::Names => list::names(kind, raw),
        Kind::Group => text::group(kind, raw),
        Kind::Endpoints => list::endpoints(kind, raw),
        Kind::Origins => list::origins(kind, raw),
        Kind::ConnectTo => connect_to(kind, raw),
        Kind::Duration { unit, min, max } => {
            let scale = i128::from(unit.milliseconds());
            let length = whole(raw, |text| with_unit(text, scale, DURATION_UNITS))
                .map(|number| plain(raw, number, scale))
                .ok_or_else(|| misfit(kind, raw))?;
            within(kind, length, (min, max), raw)
        }
        Kind::Bytes { min, max } => {
            let size = whole(raw, |text| with_unit(text, 1, BYTE_UNITS))
                .ok_or_else(|| misfit(kind, raw))?;
            within(kind, size, (min, max), raw)
        }
        Kind::Choice(words) => choice(kind, words, raw),
        Kind::SocketPath | Kind::Command | Kind::FilePath | Kind::StorePath => match raw {
            Raw::Text(text) if !text.contains('\0') => {
                Ok(ValueKind::String(text.trim().to_owned()))
            }
            _ => Err(misfit(kind, raw)),
        },
        Kind::Line => line(kind, raw),
        Kind::Address => address(kind, raw),
        Kind::Password => password(raw),
        Kind::Secret => secret(raw),
    }
}

/// The word for a number that is none.
pub(super) const OFF: &str = "off";

/// Returns both values of a number that may depend on stress: as text, where they differ.
fn stressed(inner: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    let one = |raw: &Raw| match parse(inner, raw)? {
        ValueKind::U64(number) => Ok(number),
        _ => Err(misfit(inner, raw)),
    };
    let both = match raw {
        Raw::Text(text) => Stressed::parse(text, |text| one(&Raw::Text(text.to_owned())))?,
        raw => one(raw)?.into(),
    };
    Ok(match both.normal == both.stressed {
        true => ValueKind::U64(both.normal),
        false => ValueKind::String(both.to_string()),
    })
}

fn misfit(kind: Kind, raw: &Raw) -> Fault {
    Fault {
        what: format!("{} is not what this key takes", raw.describe()),
        remedy: format!("it must be {}", expectation(kind)),
    }
}

fn boolean(raw: &Raw) -> Result<ValueKind, Fault> {
    match raw {
        Raw::Boolean(value) => Ok(ValueKind::Boolean(*value)),
        Raw::Text(text) if text == "true" => Ok(ValueKind::Boolean(true)),
        Raw::Text(text) if text == "false" => Ok(ValueKind::Boolean(false)),
        _ => Err(misfit(Kind::Boolean, raw)),
    }
}

fn or_infinity(kind: Kind, inner: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    match raw {
        Raw::Text(text) if text.trim() == INFINITY => Ok(ValueKind::String(INFINITY.to_owned())),
        _ => parse(inner, raw).map_err(|fault| Fault {
            remedy: format!("it must be {}", expectation(kind)),
            ..fault
        }),
    }
}

/// Returns what a value of this kind looks like, to follow "it must be".
fn expectation(kind: Kind) -> String {
    match kind {
        Kind::Boolean => "true or false".to_owned(),
        Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
        Kind::CountOrOff { max } => format!("a whole number from 0 to {max}, or {OFF:?}"),
        Kind::Ratio => "a number that is not negative, 2.0 for example".to_owned(),
        Kind::Name => format!("a name: {NAME_RULE}"),
        Kind::Coefficient => "a number from 0.0 to 1.0".to_owned(),
        Kind::OrInfinity(inner) => format!("\"{INFINITY}\" or {}", expectation(*inner)),
        Kind::Words(words) => format!("one or more of {}, with commas", words.join(", ")),
        Kind::Group => {
            "the name or the number of a group of the system, or \"\" for none".to_owned()
        }
        Kind::Names => "names of pools, as a list or with commas".to_owned(),
        Kind::Hosts => "names of hosts without ports, as a list or with commas".to_owned(),
        Kind::Endpoints => {
            "hosts, \"*.domain\", addresses or networks, each with :port or without and IPv6 with a port in \
             brackets, as a list or with commas; \"*\" is all"
                .to_owned()
        }
        Kind::Origins => {
            "\"https://host\" or \"http://host:port\" without a path, as a list or with commas".to_owned()
        }
        Kind::FilePath => "text: the path of a file, or \"\" for none".to_owned(),
        Kind::StorePath => format!(
            "text: the path of a file, {:?} for one that ends with the service, or \"\" for the \
             usual place",
            crate::config::Store::MEMORY
        ),
        Kind::ConnectTo => {
            "text: \"host:port:target:port\" with commas between several, where host may be \
             *.domain and an IPv6 target stands in brackets"
                .to_owned()
        }
        Kind::Duration { unit, min, max } => format!(
            "a whole number of {} or text with a unit (\"250ms\", \"5s\", \"2min\", \"1h\"), \
             from {min} ms to {} h",
            match unit {
                Unit::Milliseconds => "milliseconds",
                Unit::Seconds => "seconds",
                Unit::Hours => "hours",
            },
            max / 3_600_000,
        ),
        Kind::Bytes { min, max } => format!(
            "a whole number of bytes or text with a unit (\"64KiB\", \"64MiB\", \"1GiB\"), \
             from {min} to {max}"
        ),
        Kind::Choice(words) => {
            let own: Vec<&str> = words
                .iter()
                .filter(|(word, meant)| word == meant)
                .map(|(word, _)| *word)
                .collect();
            format!("one of {}", own.join(", "))
        }
        Kind::SocketPath => "text: the path of a Unix socket, or \"\" for the usual place".into(),
        Kind::Line => format!(
            "one line of text, at most {LINE_BYTES_MAX} bytes without control characters, or \"\" for \
             none"
        ),
        Kind::Address => {
            "text: \"off\" or an IP address with a port, \"127.0.0.1:5994\" or \"[::1]:5994\""
                .to_owned()
        }
        Kind::ServiceAddress => {
            "text: \"unix:/PATH\", or an IP address or localhost with a port, \"127.0.0.1:5996\""
                .to_owned()
        }
        Kind::Stressed(inner) => format!(
            "{}; with another value under stress \"${{stress?{{10}}:{{300}}}}\"",
            expectation(*inner)
        ),
        Kind::Password => "text in quotes: a password, or its hash as CouchDB writes it".to_owned(),
        Kind::Secret => "text in quotes, or \"\" for none of your own".to_owned(),
        Kind::Command => format!(
            "text: the command that starts the query server, or {:?}",
            LanguageCommand::BUILTIN
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::shown::hide_credentials;
    use super::*;
    use crate::config::keys::KEYS;

    const TIMEOUT: Kind = Kind::Duration {
        unit: Unit::Seconds,
        min: 0,
        max: u64::MAX,
    };
    const SIZE: Kind = Kind::Bytes {
        min: 0,
        max: u64::MAX,
    };

    fn number(kind: Kind, text: &str) -> Option<u64> {
        match parse(kind, &Raw::Text(text.to_owned())) {
            Ok(ValueKind::U64(number)) => Some(number),
            _ => None,
        }
    }

    #[test]
    fn a_plain_number_is_in_the_unit_of_its_key() {
        assert_eq!(number(TIMEOUT, "3"), Some(3000));
        assert_eq!(
            parse(TIMEOUT, &Raw::Integer(Some(3))),
            Ok(ValueKind::U64(3000))
        );
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
    }

    #[test]
    fn what_couchdb_would_pass_over_or_bend_is_refused() {
        let text = |kind, text: &str| parse(kind, &Raw::Text(text.to_owned()));
        for wrong in ["-0.1", "1.1", "junk", "", "nan"] {
            assert!(text(Kind::Coefficient, wrong).is_err(), "{wrong}");
        }
        assert_eq!(text(Kind::Coefficient, "1"), Ok(ValueKind::Float(1.0)));
        let protocols = Kind::Words(&["http", "https"]);
        for wrong in ["", "ftp", "http,", "http ftp"] {
            assert!(text(protocols, wrong).is_err(), "{wrong}");
        }
        let both = Ok(ValueKind::String("http,https".to_owned()));
        assert_eq!(text(protocols, "https, http,http"), both);
        for right in [
            "",
            "a.example:443:10.0.0.1:8443",
            "*.a.example:80:[::1]:81 , b:1:c:2",
        ] {
            assert!(text(Kind::ConnectTo, right).is_ok(), "{right}");
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
            assert!(text(Kind::ConnectTo, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn infinity_stands_where_a_limit_may_be_none() {
        let kind = Kind::OrInfinity(&TIMEOUT);
        assert_eq!(number(kind, "3"), Some(3000));
        let none = parse(kind, &Raw::Text("infinity".to_owned()));
        assert_eq!(none, Ok(ValueKind::String("infinity".to_owned())));
        assert_eq!(display(kind, &"infinity".into()), "infinity");
        assert_eq!(display(kind, &3000.into()), "3 s");
        let fault = parse(kind, &Raw::Text("for ever".to_owned())).unwrap_err();
        assert!(
            fault.remedy.starts_with("it must be \"infinity\" or "),
            "{}",
            fault.remedy
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_a_value_panic(text in "[-+0-9.eEnaif]{0,50}[a-zA-Z ]{0,4}|\\PC*") {
            for key in KEYS {
                if let Ok(value) = parse(key.kind, &Raw::Text(text.clone())) {
                    let kind_is_kept = match key.kind {
                        Kind::Count { min, max }
                        | Kind::Bytes { min, max }
                        | Kind::Duration { min, max, .. } => {
                            matches!(value, ValueKind::U64(n) if (min..=max).contains(&n))
                        }
                        Kind::Ratio => matches!(value, ValueKind::Float(n) if n >= 0.0),
                        Kind::Coefficient => {
                            matches!(value, ValueKind::Float(n) if (0.0..=1.0).contains(&n))
                        }
                        Kind::OrInfinity(_) => match &value {
                            ValueKind::String(word) => word == INFINITY,
                            other => matches!(other, ValueKind::U64(_)),
                        },
                        Kind::Boolean => matches!(value, ValueKind::Boolean(_)),
                        _ => matches!(value, ValueKind::String(_)),
                    };
                    prop_assert!(kind_is_kept, "{}: {value:?}", key.name);
                }
            }
        }

        #[test]
        fn what_is_shown_can_be_written(wanted in 0..1u64 << 50) {
            for kind in [TIMEOUT, SIZE] {
                let shown = display(kind, &wanted.into()).replace(" bytes", "");
                let read = number(kind, &shown);
                prop_assert_eq!(read, Some(wanted), "{}", shown);
            }
        }
    }
}
