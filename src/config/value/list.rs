//! Lists: in one text with commas between the entries, or as a list where the source has lists.

use config::ValueKind;

use super::super::keys::Kind;
use super::super::types::language_name;
use super::text::is_name;
use super::{Fault, Raw, expectation, misfit};
use replication::endpoint::rules::{EndpointRules, parse_origin};

/// Returns the entries; the empty text is one empty entry.
fn entries(raw: &Raw) -> Option<Vec<&str>> {
    match raw {
        Raw::Text(text) => Some(text.split(',').map(str::trim).collect()),
        Raw::Texts(texts) => Some(texts.iter().map(|text| text.trim()).collect()),
        _ => None,
    }
}

/// Returns the entries with commas between them, if all are right; there may be none.
fn joined(kind: Kind, raw: &Raw, is_right: impl Fn(&str) -> bool) -> Result<ValueKind, Fault> {
    let mut named = entries(raw).ok_or_else(|| misfit(kind, raw))?;
    if named == [""] {
        named.clear();
    }
    match named.iter().all(|name| is_right(name)) {
        true => Ok(ValueKind::String(named.join(","))),
        false => Err(misfit(kind, raw)),
    }
}

/// Names of hosts, without the dot at the end that a full name may have.
pub(super) fn hosts(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    joined(kind, raw, |name| {
        !name.is_empty() && !name.starts_with('.') && !name.ends_with('.') && name.chars().all(fits)
    })
}

/// Hosts and networks, as they are written.
pub(super) fn endpoints(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    joined(kind, raw, |entry| {
        !entry.is_empty() && EndpointRules::parse(entry, "").is_ok()
    })
}

/// Origins, as they are written.
pub(super) fn origins(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    joined(kind, raw, |entry| parse_origin(entry).is_some())
}

/// Names of pools, in lower case.
pub(super) fn names(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    let named = joined(kind, raw, is_name)?;
    Ok(match named {
        ValueKind::String(text) => ValueKind::String(language_name(&text)),
        other => other,
    })
}

/// The words in the order of the table, each once.
pub(super) fn words(kind: Kind, words: &[&'static str], raw: &Raw) -> Result<ValueKind, Fault> {
    let named = entries(raw).ok_or_else(|| misfit(kind, raw))?;
    if !named.iter().all(|word| words.contains(word)) {
        return Err(misfit(kind, raw));
    }
    let chosen = words.iter().filter(|word| named.contains(word));
    let chosen: Vec<&str> = chosen.copied().collect();
    Ok(ValueKind::String(chosen.join(",")))
}

/// CouchDB drops an entry that it cannot read with a warning, and connects to where it was not to.
pub(super) fn connect_to(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
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
