//! The sections and their keys, as one table.
//!
//! SUMMARY   [`SECTIONS`] lists the sections, each with the keys that its struct declares ([`section`](super::section)).
//!           Parsing, messages, `check-config`, reload, HTTP and the pages read this table.

use super::cells::CellKeys;
use super::kinds::count;
use super::pools::PoolConfig;
use super::replicator::{Replicator, Store};
use super::section::{Declared, Key};
use super::services::ServiceConfig;
use super::tenants::TenantConfig;
use super::types::{
    ChttpdAuth, CouchDb, Log, QueryServerConfig, Sandbox, Server, Ssl, language_name,
};
use super::users::UserConfig;
use super::value::{self, Kind};

/// The section of pools' limits, and of the settings sent to query servers.
pub(crate) const QUERY: &str = "query_server_config";
/// The section of language commands, whose keys are names of languages.
pub(crate) const QUERY_SERVERS: &str = "query_servers";
/// The section of in-process languages, whose keys are names of languages.
pub(crate) const NATIVE_QUERY_SERVERS: &str = "native_query_servers";
/// In-process languages that can be switched on, in lower case.
pub const NATIVE_LANGUAGES: &[&str] = &["echo"];
/// The in-process language that always exists: Mango.
pub const MANGO: &str = "query";

/// The family of sections of named pools, `[pools.NAME]`.
pub const POOLS: &str = "pools";

/// The key of a pool that lets callers use a command of the configuration.
pub const CALLERS: &str = "callers";

/// The family of sections of services, `[services.NAME]`.
pub(crate) const SERVICES: &str = "services";

/// The family of sections of tenants, `[tenants.NAME]`.
pub(crate) const TENANTS: &str = "tenants";

/// The family of sections of users, `[users.NAME]`.
pub(crate) const USERS: &str = "users";

/// The section of HTTP over TLS.
pub const SSL: &str = "ssl";

/// The section of the log.
pub(crate) const LOG: &str = "log";

/// The section of admins, whose keys are names of users.
pub const ADMINS: &str = "admins";

/// The section of the replicator.
pub const REPLICATOR: &str = "replicator";
/// The section of fair shares, whose keys are names of replicator databases and of users.
pub(crate) const SHARES: &str = "replicator.shares";

/// The session plugin of CouchDB's replicator, by the name of its module.
pub const AUTH_SESSION: &str = "couch_replicator_auth_session";

/// A section, or a family of sections `[FAMILY.NAME]`: one section for each name, none by default.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Its keys with a fixed name, in the order in which they are shown, without those of cells.
    pub(super) keys: &'static [Key],
    /// Whether the keys of cells follow them.
    has_cells: bool,
    /// Whether it is a family.
    pub is_family: bool,
    /// The kind of keys with other names.
    others: Option<Kind>,
    /// Its comment in `config/default.toml`.
    pub(super) about: &'static str,
}

impl Section {
    const fn of<S: Declared>(name: &'static str) -> Self {
        Self {
            name,
            keys: S::KEYS,
            has_cells: false,
            is_family: false,
            others: None,
            about: "",
        }
    }

    const fn family<S: Declared>(name: &'static str, about: &'static str) -> Self {
        Self {
            is_family: true,
            about,
            ..Self::of::<S>(name)
        }
    }

    /// A section whose keys are names.
    const fn names(
        name: &'static str,
        keys: &'static [Key],
        kind: Kind,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            keys,
            has_cells: false,
            is_family: false,
            others: Some(kind),
            about,
        }
    }

    const fn with_cells(self) -> Self {
        Self {
            has_cells: true,
            ..self
        }
    }

    /// Returns its keys, those of cells included.
    pub fn rows(&self) -> impl Iterator<Item = &'static Key> + use<> {
        let of_cells: &[Key] = if self.has_cells { CellKeys::KEYS } else { &[] };
        self.keys.iter().chain(of_cells)
    }
}

/// Every section, in the order of `config/default.toml`; families come last wherever they are listed.
pub const SECTIONS: &[Section] = &[
    Section::of::<CouchDb>("couchdb"),
    Section::of::<QueryServerConfig>(QUERY).with_cells(),
    Section::names(
        QUERY_SERVERS,
        &[JAVASCRIPT],
        value::COMMAND,
        "LANGUAGE = \"command to run\"; names are case-insensitive. \"builtin\" is the JavaScript query server \
         inside this program. Only files and the environment can set a command, never a client. (now)",
    ),
    Section::names(
        NATIVE_QUERY_SERVERS,
        &[ECHO],
        Kind::Boolean,
        "Languages that run inside the service, on (true) or off (false). (now)",
    ),
    Section::of::<Server>("server"),
    Section::of::<Ssl>(SSL),
    Section::of::<ChttpdAuth>("chttpd_auth"),
    Section::names(
        ADMINS,
        &[],
        value::PASSWORD,
        "NAME = \"password\", plain or hashed as CouchDB writes it. Without an administrator, the first start \
         creates \"admin\", with its password in the file admin-password beside the store. Never shown. (now)",
    ),
    Section::of::<Replicator>(REPLICATOR),
    Section::names(
        SHARES,
        &[],
        count(1, 1000),
        "NAME = SHARE, from 1 to 1000, of a replicator database (_replicator), or of a user for replications \
         without a document; 100 for others. (now)",
    ),
    Section::of::<Store>("store"),
    Section::of::<Log>(LOG),
    Section::of::<Sandbox>("sandbox"),
    Section::family::<PoolConfig>(
        POOLS,
        "A pool of processes; with the name of a language, that language's own pool.",
    )
    .with_cells(),
    Section::family::<ServiceConfig>(SERVICES, "A socket that lends each connection one process."),
    Section::family::<TenantConfig>(
        TENANTS,
        "Bounds of the database of this name, or of each one with this start: [tenants.\"acme-*\"]; \
         [tenants.\"*\"] is for all.",
    ),
    Section::family::<UserConfig>(USERS, "Further users."),
];

const JAVASCRIPT: Key = Key::new(
    "javascript",
    "The query server for JavaScript.",
    value::COMMAND,
)
.default("\"builtin\"");

const ECHO: Key = Key::new(
    "echo",
    "Answers every prompt with the prompt: an example for language authors, and a probe.",
    Kind::Boolean,
)
.default("false");

/// Returns the section, or the family, of a name.
fn find_section(section: &str) -> Option<&'static Section> {
    let (name, is_family) = match family(section) {
        Some((family, _)) => (family, true),
        None => (section, false),
    };
    let mut sections = SECTIONS.iter();
    sections.find(|known| known.name == name && known.is_family == is_family)
}

/// Returns the family and the name of a section `[FAMILY.NAME]`.
pub fn family(section: &str) -> Option<(&'static str, &str)> {
    let (head, name) = section.split_once('.')?;
    Some((families().find(|family| *family == head)?, name))
}

/// Returns a section's canonical name.
pub fn section_name(section: &str) -> String {
    match family(section) {
        // Names of users and databases keep their case.
        Some((family, name)) if !matches!(family, USERS | TENANTS) => {
            format!("{family}.{}", language_name(name))
        }
        _ => section.to_owned(),
    }
}

/// Returns a section and a key in their canonical spelling.
pub fn canonical((section, key): (String, String)) -> (String, String) {
    let key = match section.as_str() {
        QUERY_SERVERS | NATIVE_QUERY_SERVERS => language_name(&key),
        _ => key,
    };
    (section_name(&section), key)
}

/// Returns the names of the families.
pub fn families() -> impl Iterator<Item = &'static str> {
    SECTIONS
        .iter()
        .filter(|section| section.is_family)
        .map(|family| family.name)
}

/// Returns the names of the sections that are not families.
pub(super) fn sections() -> impl Iterator<Item = &'static str> {
    SECTIONS
        .iter()
        .filter(|section| !section.is_family)
        .map(|section| section.name)
}

/// Returns the keys of all sections that are neither families nor lists of names, each with its section.
pub(super) fn fixed() -> impl Iterator<Item = (&'static str, &'static Key)> {
    SECTIONS
        .iter()
        .filter(|section| !section.is_family && section.others.is_none())
        .flat_map(|section| section.rows().map(|key| (section.name, key)))
}

/// Returns the sort key of a section: its position in [`SECTIONS`] (or its family's), then its name.
pub(super) fn rank(section: &str) -> (usize, &str) {
    let owner = family(section).map_or(section, |(family, _)| family);
    let index = SECTIONS.iter().position(|known| known.name == owner);
    (index.unwrap_or(usize::MAX), section)
}

fn find(section: &str, name: &str) -> Option<&'static Key> {
    find_section(section)?.rows().find(|key| key.name == name)
}

/// Returns the kind of the value of `name` in `section`, names of languages included.
pub fn kind(section: &str, name: &str) -> Option<Kind> {
    let others = || find_section(section)?.others;
    find(section, name).map(|key| key.kind).or_else(others)
}

/// Returns whether a running service applies a new value of this key.
pub fn runtime(section: &str, name: &str) -> bool {
    match find(section, name) {
        Some(key) => key.runtime,
        None => kind(section, name).is_some(),
    }
}

/// Returns why a key cannot be set over HTTP; `None`: it can.
///
/// Anyone who reaches the address with an administrator's password must not thereby become the user that the service
/// runs as: so a key that runs a program, opens or moves a socket, reads a file, admits users, or sends credentials
/// elsewhere can be set only by the owner of the files. Most of these keys are recognized by their kind, so that a
/// new key of such a kind is not forgotten.
///
/// # Source
/// CVE-2017-12636; the keys that CouchDB keeps from its configuration over HTTP.
pub fn refused_over_http(section: &str, name: &str) -> Option<&'static str> {
    find(section, name)
        .and_then(|key| key.only_in_files)
        .or_else(|| kind(section, name)?.only_in_files())
}

/// Returns whether settings made over HTTP in this section apply to all daemons of a database. Those of one daemon do
/// not: its addresses, its overall limits, its log, services.
pub fn is_shared(section: &str) -> bool {
    let is_own = |(family, _)| family == SERVICES;
    !matches!(section, "server" | LOG) && !family(section).is_some_and(is_own)
}

/// The sections, and families, that decide how replications and functions run, which should be the same at all
/// daemons of a fleet. The other sections determine a daemon's addresses, where it stores and logs data, which
/// resources of the machine it may use, and who may log in.
const OF_FLEET: [&str; 8] = [
    "couchdb",
    QUERY,
    QUERY_SERVERS,
    NATIVE_QUERY_SERVERS,
    REPLICATOR,
    SHARES,
    POOLS,
    TENANTS,
];

/// Returns whether a key should have the same value at all daemons of a fleet.
pub(super) fn is_of_fleet(section: &str, name: &str) -> bool {
    let owner = family(section).map_or(section, |(family, _)| family);
    let is_of_machine = find(section, name).is_some_and(|key| key.is_of_machine);
    OF_FLEET.contains(&owner) && !is_of_machine
}

/// Returns the fixed keys of `section`, in order.
pub fn rows(section: &str) -> impl Iterator<Item = &'static Key> {
    find_section(section).into_iter().flat_map(Section::rows)
}

/// Returns the names of the fixed keys of `section`, in order.
pub fn names(section: &str) -> Vec<&'static str> {
    rows(section).map(|key| key.name).collect()
}
