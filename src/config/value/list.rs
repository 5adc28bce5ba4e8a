//! Lists in one text, with commas between their entries.

use config::ValueKind;

use super::super::keys::Kind;
use super::{Fault, Raw, expectation, misfit};

/// The words in the order of the table, each once.
pub(super) fn words(kind: Kind, words: &[&'static str], raw: &Raw) -> Result<ValueKind, Fault> {
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
