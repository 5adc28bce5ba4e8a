//! One value: from what a source wrote to what the key means, and back to text.
//!
//! SUMMARY   [`parse`] turns a [`Raw`] into the normal form of a [`Kind`]: durations in
//!           milliseconds, sizes in bytes, choices in their canonical word.
//! PROMISES  A source that knows only text (`.ini`, environment) and one that knows types (TOML)
//!           mean the same: `"5000"`, `5000` and `"5s"` are one timeout.
//! LIMITS    Durations of files are whole milliseconds; fractions are refused, not rounded.

use std::net::SocketAddr;

use config::ValueKind;

use super::keys::{INFINITY, Kind, Unit};
use super::password::{HIDDEN, PasswordHash};
use super::services::ServiceAddress;
use super::stressed::Stressed;
use super::types::{LanguageCommand, language_name};

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
    /// Something no key can be: `a table`, `a list`, `a date`.
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
        Kind::Words(words) => self::words(kind, words, raw),
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

/// Longest name of a pool, a group or a language, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 100;

/// Returns whether a text can name a pool, a group or a service. What begins with an underscore is
/// kept for paths of HTTP.
pub fn is_name(text: &str) -> bool {
    let unfit = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '"' | '[' | ']');
    !text.is_empty()
        && text.len() <= NAME_BYTES_MAX
        && !text.starts_with('_')
        && !text.contains(unfit)
}

fn name(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    match raw {
        Raw::Text(text) if is_name(&language_name(text.trim())) => {
            Ok(ValueKind::String(language_name(text.trim())))
        }
        _ => Err(misfit(kind, raw)),
    }
}

fn service_address(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    let Raw::Text(text) = raw else {
        return Err(misfit(kind, raw));
    };
    let address: Result<ServiceAddress, _> = text.trim().parse();
    match address {
        Ok(address) => Ok(ValueKind::String(address.to_string())),
        Err(what) => Err(Fault {
            what: format!("{}: {what}", raw.describe()),
            remedy: format!("it must be {}", expectation(kind)),
        }),
    }
}

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

/// Returns the text of a value in normal form, for people.
pub(super) fn display(kind: Kind, value: &serde_json::Value) -> String {
    let number = value.as_u64().unwrap_or_default();
    match kind.of_value(value) {
        Kind::Password => HIDDEN.to_owned(),
        Kind::Secret if value.as_str() != Some("") => HIDDEN.to_owned(),
        Kind::Duration {
            unit: Unit::Seconds,
            ..
        } if number.is_multiple_of(1000) => {
            format!("{} s", number / 1000)
        }
        Kind::Duration { .. } => format!("{number} ms"),
        Kind::Bytes { .. } if number >= MIB && number.is_multiple_of(MIB) => {
            format!("{} MiB", number / MIB)
        }
        Kind::Bytes { .. } => format!("{number} bytes"),
        Kind::Stressed(inner) => {
            let one = |text: &str| {
                text.parse()
                    .map(|number: u64| display(*inner, &number.into()))
            };
            let both = Stressed::parse(value.as_str().unwrap_or_default(), one);
            both.map_or_else(|_| value.to_string(), |both| both.to_string())
        }
        _ => value
            .as_str()
            .map_or_else(|| value.to_string(), hide_credentials),
    }
}

/// Returns a duration in normal form as a whole number of `unit`, if it is one.
pub(super) fn in_unit(value: &serde_json::Value, unit: Unit) -> Option<u64> {
    let number = value.as_u64()?;
    number
        .is_multiple_of(unit.milliseconds())
        .then(|| number / unit.milliseconds())
}

/// Returns the text with the password of every `scheme://user:password@host` in it hidden.
fn hide_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (head, tail) = rest.split_at(start + 3);
        shown.push_str(head);
        let end = tail
            .find(|c: char| c == '/' || c.is_whitespace())
            .unwrap_or(tail.len());
        let (authority, after) = tail.split_at(end);
        match authority.rsplit_once('@') {
            Some((login, host)) => {
                let user = login.split(':').next().unwrap_or_default();
                shown.push_str(&format!("{user}:***@{host}"));
            }
            None => shown.push_str(authority),
        }
        rest = after;
    }
    shown.push_str(rest);
    shown
}

const MIB: u64 = 1 << 20;

/// Suffixes of durations, in milliseconds.
const DURATION_UNITS: &[(&str, i128)] = &[
    ("ms", 1),
    ("s", 1000),
    ("min", 60_000),
    ("m", 60_000),
    ("h", 3_600_000),
];

/// Suffixes of sizes, in bytes.
const BYTE_UNITS: &[(&str, i128)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

/// Returns the whole number that `raw` is, or that `of_text` makes of its text.
fn whole(raw: &Raw, of_text: impl Fn(&str) -> Option<i128>) -> Option<i128> {
    match raw {
        Raw::Integer(number) => *number,
        Raw::Text(text) => of_text(text.trim()),
        _ => None,
    }
}

/// Returns a plain number in milliseconds; text has been scaled by its own unit already.
fn plain(raw: &Raw, number: i128, scale: i128) -> i128 {
    if matches!(raw, Raw::Integer(_)) {
        number.saturating_mul(scale)
    } else {
        number
    }
}

fn text_count(text: &str) -> Option<i128> {
    text.parse().ok()
}

/// Returns what `text` is in the smallest unit; a number without a unit counts `scale` of them.
fn with_unit(text: &str, scale: i128, units: &[(&str, i128)]) -> Option<i128> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '-' && c != '+');
    let (digits, unit) = text.split_at(digits_end.unwrap_or(text.len()));
    let number: i128 = digits.parse().ok()?;
    let factor = match unit.trim_start() {
        "" => scale,
        suffix => units.iter().find(|(name, _)| *name == suffix)?.1,
    };
    Some(number.saturating_mul(factor))
}

fn within(kind: Kind, number: i128, (min, max): (u64, u64), raw: &Raw) -> Result<ValueKind, Fault> {
    let found = raw.describe();
    let problem = if number < 0 {
        format!("{found} is negative")
    } else if number < i128::from(min) {
        format!("{found} is too small")
    } else if number > i128::from(max) {
        format!("{found} is too large")
    } else {
        let number = u64::try_from(number).expect("value: it lies between two u64");
        return Ok(ValueKind::U64(number));
    };
    Err(Fault {
        what: problem,
        remedy: format!("it must be {}", expectation(kind)),
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

/// A whole number is fine: CouchDB takes `3` for a mistake and falls back to 2.0 without a word.
fn ratio(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    let number = match raw {
        Raw::Float(number) => Some(*number),
        Raw::Integer(number) => number.map(|number| number as f64),
        Raw::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    match number {
        Some(number) if number.is_finite() && number >= 0.0 => Ok(ValueKind::Float(number)),
        Some(number) if number < 0.0 => Err(Fault {
            what: format!("{} is negative", raw.describe()),
            remedy: format!("it must be {}", expectation(kind)),
        }),
        _ => Err(misfit(kind, raw)),
    }
}

/// CouchDB takes what is outside of the range for its end, and what is no float, `1` for example,
/// for nothing.
fn coefficient(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    match ratio(kind, raw)? {
        ValueKind::Float(number) if number > 1.0 => Err(Fault {
            what: format!("{} is too large", raw.describe()),
            remedy: format!("it must be {}", expectation(kind)),
        }),
        value => Ok(value),
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

/// The words in the order of the table, each once.
fn words(kind: Kind, words: &[&'static str], raw: &Raw) -> Result<ValueKind, Fault> {
    let Raw::Text(text) = raw else {
        return Err(misfit(kind, raw));
    };
    let named: Vec<&str> = text.split(',').map(str::trim).collect();
    if !named.iter().all(|word| words.contains(word)) {
        return Err(misfit(kind, raw));
    }
    let chosen = words.iter().filter(|word| named.contains(*word));
    let chosen: Vec<&str> = chosen.copied().collect();
    Ok(ValueKind::String(chosen.join(",")))
}

/// CouchDB drops an entry that it cannot read with a warning, and connects to where it was not to.
fn connect_to(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    let Raw::Text(text) = raw else {
        return Err(misfit(kind, raw));
    };
    let entries: Vec<&str> = text.split(',').map(str::trim).collect();
    let wrong = entries
        .iter()
        .find(|entry| !entry.is_empty() && !is_connect_to(entry));
    match wrong {
        Some(entry) => Err(Fault {
            what: format!("{entry:?} is no pattern:port:target:port"),
            remedy: format!("it must be {}", expectation(kind)),
        }),
        None => Ok(ValueKind::String(text.trim().to_owned())),
    }
}

/// Returns whether this is `pattern:port:target:port`, where the target may be an IPv6 address in
/// brackets.
fn is_connect_to(entry: &str) -> bool {
    let port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
    let Some((pattern, rest)) = entry.split_once(':') else {
        return false;
    };
    let Some((from, rest)) = rest.split_once(':') else {
        return false;
    };
    let Some((target, to)) = rest.rsplit_once(':') else {
        return false;
    };
    let domain = pattern.strip_prefix("*.").unwrap_or(pattern);
    let address = target
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let target_is_right = match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !target.is_empty() && !target.contains([':', '[', ']']),
    };
    let domain_is_right = !domain.is_empty() && !domain.contains(['*', '[', ']']);
    domain_is_right && target_is_right && port(from) && port(to)
}

/// Longest line that is sent as it is written, in bytes.
const LINE_BYTES_MAX: usize = 1000;

/// A text for a program and not for people: a line feed or another control would make it something
/// else.
fn line(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    match raw {
        Raw::Text(text) if text.len() <= LINE_BYTES_MAX && !text.contains(char::is_control) => {
            Ok(ValueKind::String(text.trim().to_owned()))
        }
        _ => Err(misfit(kind, raw)),
    }
}

fn choice(
    kind: Kind,
    words: &[(&'static str, &'static str)],
    raw: &Raw,
) -> Result<ValueKind, Fault> {
    let word = match raw {
        Raw::Text(text) => text.trim(),
        Raw::Boolean(true) => "true",
        Raw::Boolean(false) => "false",
        _ => return Err(misfit(kind, raw)),
    };
    words
        .iter()
        .find(|(written, _)| *written == word)
        .map(|(_, meant)| ValueKind::String((*meant).to_owned()))
        .ok_or_else(|| misfit(kind, raw))
}

fn address(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    let Raw::Text(text) = raw else {
        return Err(misfit(kind, raw));
    };
    let text = text.trim();
    if text == "off" {
        return Ok(ValueKind::String(text.to_owned()));
    }
    let address: SocketAddr = text.parse().map_err(|_| misfit(kind, raw))?;
    Ok(ValueKind::String(address.to_string()))
}

/// The value stands in no message.
fn password(raw: &Raw) -> Result<ValueKind, Fault> {
    let hash = match raw {
        Raw::Text(text) => PasswordHash::of_config(text),
        _ => Err("a password is text"),
    };
    hash.map(|hash| ValueKind::String(hash.text()))
        .map_err(|what| Fault {
            what: what.to_owned(),
            remedy: format!("it must be {}", expectation(Kind::Password)),
        })
}

/// The value stands in no message.
fn secret(raw: &Raw) -> Result<ValueKind, Fault> {
    match raw {
        Raw::Text(text) if text != HIDDEN => Ok(ValueKind::String(text.clone())),
        Raw::Text(_) => Err("this is how a secret is shown, not a secret"),
        _ => Err("a secret is text"),
    }
    .map_err(|what: &str| Fault {
        what: what.to_owned(),
        remedy: format!("it must be {}", expectation(Kind::Secret)),
    })
}

/// Returns what a value of this kind looks like, to follow "it must be".
fn expectation(kind: Kind) -> String {
    match kind {
        Kind::Boolean => "true or false".to_owned(),
        Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
        Kind::CountOrOff { max } => format!("a whole number from 0 to {max}, or {OFF:?}"),
        Kind::Ratio => "a number that is not negative, 2.0 for example".to_owned(),
        Kind::Name => format!(
            "a name: 1 to {NAME_BYTES_MAX} bytes without blanks, slashes, quotes and brackets, \
             not beginning with an underscore"
        ),
        Kind::Coefficient => "a number from 0.0 to 1.0".to_owned(),
        Kind::OrInfinity(inner) => format!("\"{INFINITY}\" or {}", expectation(*inner)),
        Kind::Words(words) => format!("one or more of {}, with commas", words.join(", ")),
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
        Kind::Secret => "text in quotes, or \"\" for a new one at each start".to_owned(),
        Kind::Command => format!(
            "text: the command that starts the query server, or {:?}",
            LanguageCommand::BUILTIN
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
