//! Names of sections and keys: which there are, which belong to other parts of CouchDB, and what a wrong
//! one was probably meant to be.

use super::keys::{
    self, ADMINS, FAMILIES, KEYS, MANGO, NATIVE_QUERY_SERVERS, QUERY_SERVERS, REPLICATOR, SECTIONS,
    SHARES, USERS,
};
use super::layer::Entry;
use super::nearest::{nearest, slip};
use super::origin::Origin;
use super::types::language_name;
use super::value::{Kind, NAME_RULE, Raw, USER_NAME_RULE, is_name, is_user_name};

/// Longest name of an admin, of a replicator database, or of a user with a share, in bytes.
const NAME_MAX: usize = 256;

/// Keys of CouchDB that stand in sections of ours and belong to other parts of it. `None` is every
/// key: those sections are shared by many parts.
const FOREIGN_KEYS: &[(&str, Option<&[&str]>)] = &[
    ("couchdb", None),
    ("log", None),
    ("chttpd_auth", None),
    (
        "query_server_config",
        Some(&[
            "commit_freq",
            "group_info_timeout",
            "query_limit",
            "partition_query_limit",
        ]),
    ),
];

/// Keys of CouchDB's replicator that concern what there is none of here: a cluster, Erlang's sockets and
/// HTTP client.
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

/// What is to be told of a name that is not used.
pub(super) enum Told {
    Problem { what: String, remedy: String },
    Notice(String),
}

fn problem<T>(what: String, remedy: impl Into<String>) -> Result<T, Told> {
    let remedy = remedy.into();
    Err(Told::Problem { what, remedy })
}

/// Checks the name of a section. In an `.ini` there are those of other parts of CouchDB too.
pub(super) fn check_section(section: &str, ini: bool) -> Result<(), Told> {
    if let Some((family, name)) = keys::family(section) {
        let (fits, rule) = match family {
            USERS => (is_user_name(name), USER_NAME_RULE),
            _ => (is_name(name), NAME_RULE),
        };
        return match fits {
            true => Ok(()),
            false => problem(
                format!("{name:?} cannot be the name of a section [{family}.NAME]"),
                format!("use {rule}"),
            ),
        };
    }
    if SECTIONS.contains(&section) {
        return Ok(());
    }
    let shown = section.escape_debug();
    let what = format!("there is no section [{shown}]");
    let (head, name) = section.split_once('.').unwrap_or((section, "NAME"));
    if let Some(family) = slip(head, FAMILIES) {
        let name = name.escape_debug();
        return problem(what, format!("did you mean [{family}.{name}]?"));
    }
    if ini && slip(section, SECTIONS).is_none() {
        let text = format!("[{shown}] is another part of CouchDB's and was passed over");
        return Err(Told::Notice(text));
    }
    problem(what, suggestion(section, SECTIONS))
}

/// Returns the canonical name of the key of an entry, whose section is right.
pub(super) fn key_name(entry: &Entry, ini: bool, natives: &[&str]) -> Result<String, Told> {
    let key = &entry.key;
    let unfit = |more: &[char]| {
        key.is_empty()
            || key.len() > NAME_MAX
            || key.contains(char::is_control)
            || key.contains(more)
    };
    match entry.section.as_str() {
        QUERY_SERVERS => language(key),
        NATIVE_QUERY_SERVERS => native_language(entry, ini, natives),
        // A name with a colon could never log in.
        ADMINS if unfit(&[':']) => problem(
            format!("{key:?} cannot be the name of an admin"),
            format!("use 1 to {NAME_MAX} bytes without colons"),
        ),
        SHARES if unfit(&[]) => problem(
            format!("{key:?} cannot be the name of a database or a user"),
            format!("use 1 to {NAME_MAX} bytes"),
        ),
        section if keys::kind(section, key).is_none() => unknown_key(section, key, ini),
        _ => Ok(key.clone()),
    }
}

fn unknown_key(section: &str, key: &str, ini: bool) -> Result<String, Told> {
    if section == REPLICATOR && KEYS_WITHOUT_MEANING.contains(&key) {
        let text = format!("[{section}] {key} has no meaning here and was passed over");
        return Err(Told::Notice(text));
    }
    let known = keys::names(section);
    let is_foreign = FOREIGN_KEYS.iter().any(|(shared, names)| {
        *shared == section && names.is_none_or(|names| names.contains(&key))
    });
    if ini && is_foreign && slip(key, &known).is_none() {
        let key = key.escape_debug();
        let text = format!("[{section}] {key} is another part of CouchDB's and was passed over");
        return Err(Told::Notice(text));
    }
    let elsewhere = KEYS.iter().find(|other| other.name == key);
    let remedy = match elsewhere.filter(|_| keys::family(section).is_none()) {
        Some(other) => format!("it belongs in section [{}]", other.section),
        None => suggestion(key, &known),
    };
    problem(
        format!("there is no key {key:?} in section [{section}]"),
        remedy,
    )
}

fn language(key: &str) -> Result<String, Told> {
    let name = language_name(key);
    if name == MANGO {
        return problem(
            format!("language {name:?}, Mango, is inside this program and takes no command"),
            "leave it out, or give the language another name",
        );
    }
    match is_name(&name) {
        true => Ok(name),
        false => problem(
            format!("{key:?} cannot be the name of a language"),
            format!("use {NAME_RULE}"),
        ),
    }
}

fn native_language(entry: &Entry, ini: bool, natives: &[&str]) -> Result<String, Told> {
    let Entry { key, raw, .. } = entry;
    let name = language_name(key);
    if name == MANGO {
        let what = format!("[{NATIVE_QUERY_SERVERS}] {key}, Mango, is always on");
        return match Kind::Boolean.read(raw) == Ok(true.into()) {
            true => Err(Told::Notice(format!("{what}; the key has no effect"))),
            false => problem(what, "leave the key out"),
        };
    }
    if natives.contains(&name.as_str()) || entry.origin == Origin::Default {
        return Ok(name);
    }
    if ini && (*raw == Raw::Unset || *raw == Raw::Text("false".to_owned())) {
        let text = format!("[{NATIVE_QUERY_SERVERS}] {name} is off and not known here");
        return Err(Told::Notice(text));
    }
    problem(
        format!("there is no in-process language {key:?}"),
        suggestion(&name, natives),
    )
}

/// Returns where a key that stands outside of any section belongs.
pub(super) fn home_of(key: &str) -> String {
    let known: Vec<&str> = KEYS.iter().map(|known| known.name).collect();
    let slip = slip(key, &known);
    match KEYS.iter().find(|known| Some(known.name) == slip) {
        Some(known) => format!("put {} under [{}]", known.name, known.section),
        None => format!("put it under one of [{}]", SECTIONS.join("], [")),
    }
}

/// Returns the advice for an unknown name: the nearest known one, or all when none is near.
fn suggestion(asked: &str, known: &[&str]) -> String {
    match nearest(asked, known.iter().copied()) {
        None => "there are none yet".to_owned(),
        Some(near) if near.likely => format!("did you mean {:?}?", near.name),
        Some(near) => format!(
            "the nearest known one is {:?}, of {}",
            near.name,
            known.join(", ")
        ),
    }
}
