//! Which keys cannot be set over HTTP, and why.
//!
//! SOURCE    CVE-2017-12636; the keys that CouchDB keeps from its configuration over HTTP.

use super::keys::{ADMINS, QUERY_SERVERS, REPLICATOR, SERVICES, USERS, family, kind};

/// Returns why a key cannot be set over HTTP; `None`: it can.
///
/// Whoever reaches the address, an administrator's password in hand, must not thereby become the
/// user whom the service runs as: what runs a program, opens or moves a socket, reads a file, lets
/// somebody in, or sends credentials elsewhere is for who owns the files. It goes by kinds, so that
/// a new key of such a kind is not forgotten.
pub(crate) fn refused_over_http(section: &str, name: &str) -> Option<&'static str> {
    let owner = family(section).map_or(section, |(family, _)| family);
    let listed = NOT_OVER_HTTP
        .iter()
        .find(|(place, key, _)| *place == owner && (key.is_empty() || *key == name));
    match listed {
        Some((_, _, why)) => Some(why),
        None => kind(section, name)?.only_in_files(),
    }
}

/// What cannot be set over HTTP though its kind does not tell: section or family, key (empty is
/// every key), why.
const NOT_OVER_HTTP: &[(&str, &str, &str)] = &[
    (QUERY_SERVERS, "", "it runs a program on this machine"),
    (ADMINS, "", "it decides who is let in"),
    (USERS, "", "it decides who is let in"),
    ("server", "open", "it decides who is let in"),
    ("server", "socket_mode", "it decides who is let in"),
    ("server", "socket_group", "it decides who is let in"),
    (SERVICES, "local_only", "it decides who is let in"),
    (SERVICES, "open", "it decides who is let in"),
    (
        REPLICATOR,
        "verify_ssl_certificates",
        "it decides whom credentials are sent to",
    ),
];
