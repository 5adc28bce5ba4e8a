//! Texts of a certain form: names, addresses, one of a few words, lines, secrets.

use std::net::SocketAddr;

use config::ValueKind;

use super::super::keys::Kind;
use super::super::password::{HIDDEN, PasswordHash};
use super::super::services::ServiceAddress;
use super::super::types::language_name;
use super::{Fault, Raw, expectation, misfit};

/// Longest name of a pool, a group or a language, in bytes.
pub(in crate::config) const NAME_BYTES_MAX: usize = 100;

/// What [`is_name`] takes, to follow "use".
pub const NAME_RULE: &str = "1 to 100 of a to z, digits, _, - and inner dots, beginning with a \
                             letter or a digit";

/// Returns whether a text can name a pool, a group, a service or a language, which has a pool of its
/// name: names stand in paths of HTTP, labels of metrics, command lines and the log. What begins with
/// an underscore is kept for paths of HTTP, and what begins with a dash would be an option.
pub fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.len() <= NAME_BYTES_MAX
        && text.chars().all(fits)
        && !text.ends_with('.')
}

/// What [`is_user_name`] takes, to follow "use".
pub(in crate::config) const USER_NAME_RULE: &str =
    "1 to 100 bytes without blanks, slashes, quotes and brackets, not beginning with an underscore";

/// Returns whether a text can name a section `[users.NAME]`: addresses of mail, for example.
pub(in crate::config) fn is_user_name(text: &str) -> bool {
    let unfit = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '"' | '[' | ']');
    !text.is_empty()
        && text.len() <= NAME_BYTES_MAX
        && !text.starts_with('_')
        && !text.contains(unfit)
}

pub(super) fn name(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    match raw {
        Raw::Text(text) if is_name(&language_name(text.trim())) => {
            Ok(ValueKind::String(language_name(text.trim())))
        }
        _ => Err(misfit(kind, raw)),
    }
}

/// What begins with a dash would be an option to the system's tool that looks it up.
pub(super) fn group(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$');
    match raw {
        Raw::Text(text) if !text.starts_with('-') && text.chars().all(fits) => {
            Ok(ValueKind::String(text.clone()))
        }
        Raw::Integer(Some(number)) if u32::try_from(*number).is_ok() => {
            Ok(ValueKind::String(number.to_string()))
        }
        _ => Err(misfit(kind, raw)),
    }
}

pub(super) fn service_address(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
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

/// Longest line that is sent as it is written, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 1000;

/// A text for a program and not for people: a line feed or another control would make it something
/// else.
pub(super) fn line(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    match raw {
        Raw::Text(text) if text.len() <= LINE_BYTES_MAX && !text.contains(char::is_control) => {
            Ok(ValueKind::String(text.trim().to_owned()))
        }
        _ => Err(misfit(kind, raw)),
    }
}

pub(super) fn choice(
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

pub(super) fn address(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
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
pub(super) fn password(raw: &Raw) -> Result<ValueKind, Fault> {
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
pub(super) fn secret(raw: &Raw) -> Result<ValueKind, Fault> {
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
