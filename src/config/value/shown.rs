//! Values as they are shown to people: with their units, without passwords.

use super::super::keys::{Kind, Unit};
use super::super::password::HIDDEN;
use super::super::stressed::Stressed;

/// One mebibyte, in bytes.
const MIB: u64 = 1 << 20;

/// Returns the text of a value in normal form, for people.
pub(in crate::config) fn display(kind: Kind, value: &serde_json::Value) -> String {
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
pub(in crate::config) fn in_unit(value: &serde_json::Value, unit: Unit) -> Option<u64> {
    let number = value.as_u64()?;
    number
        .is_multiple_of(unit.milliseconds())
        .then(|| number / unit.milliseconds())
}

/// Returns the text with the password of every `scheme://user:password@host` in it hidden.
pub(super) fn hide_credentials(text: &str) -> String {
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
