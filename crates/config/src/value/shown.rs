//! Display form of values: with units, without passwords.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Kind, Unit};
use crate::kinds::MIB;
use crate::password::HIDDEN;

/// Returns a value with the kind to show it as: for an optional value that is set, the inner kind.
pub(crate) fn resolved(kind: Kind, value: &Value) -> (Kind, &Value) {
    match kind {
        Kind::OrNone(_, inner) if !value.is_null() => resolved(*inner, value),
        Kind::OrZero(inner) => resolved(*inner, value),
        kind => (kind, value),
    }
}

/// Returns the text that displays a value in normal form.
pub(crate) fn display(kind: Kind, value: &Value) -> String {
    match resolved(kind, value) {
        (kind, Value::Null) => kind.none().unwrap_or_default().to_owned(),
        (Kind::Text(form), value) if form.is_hidden && value != "" => HIDDEN.to_owned(),
        (kind @ Kind::Duration { unit, .. }, value) => match number(kind, value) {
            Some(number) if unit == Unit::Seconds => format!("{number} s"),
            _ => format!("{} ms", milliseconds(value)),
        },
        (Kind::Bytes { .. }, value) => match value.as_u64().unwrap_or_default() {
            number if number >= MIB && number.is_multiple_of(MIB) => {
                format!("{} MiB", number / MIB)
            }
            number => format!("{number} bytes"),
        },
        (_, Value::String(text)) => hide_credentials(text),
        (kind, Value::Array(entries)) => {
            let hides = matches!(kind, Kind::Text(form) if form.hides_values);
            entries
                .iter()
                .filter_map(Value::as_str)
                .map(|entry| match entry.split_once('=') {
                    Some((name, _)) if hides => format!("{name}={HIDDEN}"),
                    _ => entry.to_owned(),
                })
                .collect::<Vec<_>>()
                .join(",")
        }
        (_, value) => value.to_string(),
    }
}

/// Returns a value in the unit of its key; `None` if that is not a whole number.
pub(crate) fn number(kind: Kind, value: &Value) -> Option<u64> {
    match kind {
        Kind::Duration { unit, .. } => {
            let (length, unit) = (milliseconds(value), unit.milliseconds());
            length.is_multiple_of(unit).then(|| length / unit)
        }
        _ => value.as_u64(),
    }
}

pub(super) fn milliseconds(value: &Value) -> u64 {
    u64::try_from(Duration::deserialize(value).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Returns the text with the password of every `scheme://user:password@host` in it hidden.
pub(super) fn hide_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (head, tail) = rest.split_at(start + 3);
        shown.push_str(head);
        // The next address may follow without a slash or a blank.
        let next = tail.find("://").unwrap_or(tail.len());
        let end = tail[..next]
            .find(|c: char| c == '/' || c.is_whitespace())
            .unwrap_or(next);
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
