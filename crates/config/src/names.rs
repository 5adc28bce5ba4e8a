//! Names of sections and keys.
//!
//! SUMMARY   [`is_section`] and [`key_name`] recognize known names. An unknown one is a problem whose remedy is the
//!           nearest known name, or a notice if another part of CouchDB uses it.

use super::keys::{
    self, ADMINS, LOG, MANGO, NATIVE_LANGUAGES, NATIVE_QUERY_SERVERS, QUERY, QUERY_SERVERS,
    REPLICATOR, SHARES, SSL, TENANTS, USERS,
};
use super::layer::Entry;
use super::nearest::{advice, slip};
use super::tenants::{TENANT_NAME_RULE, is_tenant_name};
use super::types::language_name;
use super::value::{Fault, Kind, NAME_RULE, Raw, USER_NAME_RULE, is_name, is_user_name};

/// Maximum length of the name of an admin, a replicator database, or a user with a share, in bytes.
const NAME_MAX: usize = 256;

/// Sections with keys of other parts of CouchDB.
const SHARED_SECTIONS: &[&str] = &["couchdb", LOG, "chttpd_auth"];

/// Keys of `[query_server_config]` that belong to other parts of CouchDB.
const FOREIGN_KEYS: &[&str] = &[
    "commit_freq",
    "group_info_timeout",
    "query_limit",
    "partition_query_limit",
];

/// Keys of CouchDB's replicator without a counterpart here: clustering, Erlang's sockets and HTTP client.
const KEYS_WITHOUT_MEANING: &[&str] = &[
    "cluster_quiet_period",
    "cluster_start_period",
    "db",
    "ibrowse_options",
    "socket_options",
    "ssl_certificate_max_depth",
    "valid_endpoint_protocols_log",
    "valid_ibrowse_options",
    "valid_socket_options",
    "verify_ssl_certificates_log",
];

/// What to report about a name that is not used.
pub(super) enum NameVerdict {
    Problem(Fault),
    Notice(String),
}

fn problem(what: String, remedy: impl Into<String>) -> NameVerdict {
    NameVerdict::Problem(Fault::new(what, remedy))
}

/// Returns whether a section may have this name.
pub(super) fn is_section(section: &str) -> bool {
    match keys::family(section) {
        Some((USERS, name)) => is_user_name(name),
        Some((TENANTS, name)) => is_tenant_name(name),
        Some((_, name)) => is_name(name),
        None => keys::sections().any(|known| known == section),
    }
}

/// Returns what to report about an unknown section. An `.ini` file may have sections of other parts of CouchDB.
pub(super) fn unknown_section(section: &str, ini: bool) -> NameVerdict {
    if let Some((family, name)) = keys::family(section) {
        let what = format!("{name:?} cannot be the name of a section [{family}.NAME]");
        let rule = match family {
            USERS => USER_NAME_RULE,
            TENANTS => TENANT_NAME_RULE,
            _ => NAME_RULE,
        };
        return problem(what, format!("use {rule}"));
    }
    let shown = section.escape_debug();
    let what = format!("there is no section [{shown}]");
    let (head, name) = section.split_once('.').unwrap_or((section, "NAME"));
    let (families, sections): (Vec<_>, Vec<_>) =
        (keys::families().collect(), keys::sections().collect());
    if let Some(family) = slip(head, &families) {
        return problem(
            what,
            format!("did you mean [{family}.{}]?", name.escape_debug()),
        );
    }
    if ini && slip(section, &sections).is_none() {
        NameVerdict::Notice(format!(
            "[{shown}] belongs to another part of CouchDB and was ignored"
        ))
    } else {
        problem(what, advice(section, &sections, ""))
    }
}

/// Returns the canonical name of an entry's key; its section is valid.
pub(super) fn key_name(entry: &Entry) -> Result<String, NameVerdict> {
    let key = &entry.key;
    let unfit = |more: &[char]| {
        key.is_empty()
            || key.len() > NAME_MAX
            || key.contains(char::is_control)
            || key.contains(more)
    };
    match entry.section.as_str() {
        QUERY_SERVERS => language(key),
        SSL if entry.origin.is_ini() => Err(NameVerdict::Notice(format!(
            "[{SSL}] {} is where CouchDB listens and was ignored",
            key.escape_debug()
        ))),
        LOG if key == "file" && entry.origin.is_ini() => Err(NameVerdict::Notice(format!(
            "[{LOG}] file is where CouchDB logs and was ignored"
        ))),
        NATIVE_QUERY_SERVERS => native_language(entry),
        // A name with a colon could never log in.
        ADMINS if unfit(&[':']) => Err(problem(
            format!("{key:?} cannot be the name of an admin"),
            format!("use 1 to {NAME_MAX} bytes without colons"),
        )),
        SHARES if unfit(&[]) => Err(problem(
            format!("{key:?} cannot be the name of a database or a user"),
            format!("use 1 to {NAME_MAX} bytes"),
        )),
        section if keys::kind(section, key).is_none() => {
            Err(unknown_key(section, key, entry.origin.is_ini()))
        }
        _ => Ok(key.clone()),
    }
}

fn unknown_key(section: &str, key: &str, ini: bool) -> NameVerdict {
    if section == REPLICATOR && KEYS_WITHOUT_MEANING.contains(&key) {
        return NameVerdict::Notice(format!(
            "[{section}] {key} has no meaning here and was ignored"
        ));
    }
    let known = keys::names(section);
    let is_foreign =
        SHARED_SECTIONS.contains(&section) || section == QUERY && FOREIGN_KEYS.contains(&key);
    if ini && is_foreign && slip(key, &known).is_none() {
        let key = key.escape_debug();
        return NameVerdict::Notice(format!(
            "[{section}] {key} belongs to another part of CouchDB and was ignored"
        ));
    }
    let elsewhere = keys::fixed().find(|(_, other)| other.name == key);
    let remedy = match elsewhere.filter(|_| keys::family(section).is_none()) {
        Some((other, _)) => format!("it belongs in section [{other}]"),
        None if is_foreign => advice(key, &known, "leave out what is CouchDB's alone, or "),
        None => advice(key, &known, ""),
    };
    problem(
        format!("there is no key {key:?} in section [{section}]"),
        remedy,
    )
}

fn language(key: &str) -> Result<String, NameVerdict> {
    let name = language_name(key);
    if name == MANGO {
        return Err(problem(
            format!("language {name:?}, Mango, is inside this program and takes no command"),
            "leave it out, or give the language another name",
        ));
    }
    is_name(&name).then_some(name).ok_or_else(|| {
        problem(
            format!("{key:?} cannot be the name of a language"),
            format!("use {NAME_RULE}"),
        )
    })
}

fn native_language(entry: &Entry) -> Result<String, NameVerdict> {
    let Entry { key, raw, .. } = entry;
    let name = language_name(key);
    if name == MANGO {
        let what = format!("[{NATIVE_QUERY_SERVERS}] {key}, Mango, is always on");
        return Err(if Kind::Boolean.read(raw) == Ok(true.into()) {
            NameVerdict::Notice(format!("{what}; the key has no effect"))
        } else {
            problem(what, "leave the key out")
        });
    }
    if NATIVE_LANGUAGES.contains(&name.as_str()) {
        return Ok(name);
    }
    let is_off = *raw == Raw::Unset || *raw == Raw::Text("false".to_owned());
    Err(if entry.origin.is_ini() && is_off {
        NameVerdict::Notice(format!(
            "[{NATIVE_QUERY_SERVERS}] {name} is off and not known here"
        ))
    } else {
        problem(
            format!("there is no in-process language {key:?}"),
            advice(&name, NATIVE_LANGUAGES, ""),
        )
    })
}

/// Returns the remedy for a key outside of any section: the section that it belongs to, or all of them.
pub(super) fn home_of(key: &str) -> String {
    let known: Vec<&str> = keys::fixed().map(|(_, known)| known.name).collect();
    let slip = slip(key, &known);
    match keys::fixed().find(|(_, known)| Some(known.name) == slip) {
        Some((section, known)) => format!("put {} under [{section}]", known.name),
        None => {
            let sections: Vec<_> = keys::sections().collect();
            format!("put it under one of [{}]", sections.join("], ["))
        }
    }
}
