//! Rules between keys; rules for single values are in [`super::keys`].
//!
//! SUMMARY   [`adjust`] derives defaults from other keys, [`check`] finds contradictions.

mod cells;
mod pools;
mod services;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;

use strum::VariantNames;

pub use pools::PoolPlace;

use super::keys::{NATIVE_QUERY_SERVERS, QUERY, QUERY_SERVERS, REPLICATOR, SSL, USERS};
use super::nearest::advice;
use super::origin::{Notice, Origin, Problem};
use super::types::Config;
use super::users::{Role, UserConfig};

/// Maximum length of a Unix socket's path, in bytes: the smallest of all platforms (macOS and the BSDs; Linux has
/// 107), so that a configuration is portable.
const SOCKET_PATH_MAX: usize = 103;

/// Maximum length of `[server] socket`, in bytes: the HTTP socket next to `X.sock` is named `X.http.sock`.
const SERVER_SOCKET_MAX: usize = SOCKET_PATH_MAX - ".http.sock".len();

const HARD: &str = "os_process_limit";
const SOFT: &str = "os_process_soft_limit";

/// Lowers the soft limit to the hard limit, and takes over its origin, if the soft limit is unset or a CouchDB file
/// sets it: CouchDB accepts such a file with the same meaning. The latter case is reported as a notice.
pub(super) fn adjust(config: &mut Config) -> Option<Notice> {
    let limits = &config.query_server_config;
    let (hard, soft) = (limits.os_process_limit, limits.os_process_soft_limit);
    let (origin, hard_origin) = (config.origin(QUERY, SOFT), config.origin(QUERY, HARD));
    if soft <= hard || !(origin == Origin::Default || origin.is_ini()) {
        return None;
    }
    config.query_server_config.os_process_soft_limit = hard;
    let text = format!(
        "[{QUERY}] {SOFT} ({soft}) is above {HARD} ({hard}, {hard_origin}), and counts as {hard}"
    );
    config
        .origins
        .insert((QUERY.to_owned(), SOFT.to_owned()), hard_origin);
    (origin != Origin::Default).then_some(Notice { origin, text })
}

/// Returns all contradictions. `service_user` is the service's user, if the configuration is for a service.
pub(super) fn check(config: &Config, service_user: Option<u32>) -> Vec<Problem> {
    let problems = Vec::new();
    let mut rules = Rules { config, problems };
    rules.soft_limit();
    rules.pools_max();
    rules.socket();
    rules.open();
    rules.audit();
    rules.ssl();
    rules.replicator();
    rules.languages_in_two_sections();
    rules.cells(service_user);
    for (name, pool) in &config.pools {
        rules.pool(name, pool);
    }
    for (name, service) in &config.services {
        rules.service(name, service);
    }
    for (name, user) in &config.users {
        rules.user(name, user);
    }
    rules.problems
}

/// The rules and their findings.
struct Rules<'a> {
    config: &'a Config,
    problems: Vec<Problem>,
}

/// A section whose rules are checked.
struct Section<'r> {
    name: String,
    config: &'r Config,
    problems: &'r mut Vec<Problem>,
}

impl Section<'_> {
    /// Reports a problem with a key at the place where the key is set; if it is unset, at another key of the section.
    fn problem(&mut self, key: &str, what: impl Display, remedy: impl Into<String>) {
        let (name, origins) = (&self.name, &self.config.origins);
        let own = origins.get(&(name.clone(), key.to_owned()));
        let other = || origins.iter().find(|((other, _), _)| other == name);
        let place = own
            .or_else(|| other().map(|(_, origin)| origin))
            .map_or_else(|| "configuration".to_owned(), ToString::to_string);
        self.problems
            .push(Problem::new(place, format!("[{name}] {what}"), remedy));
    }
}

impl Rules<'_> {
    fn section(&mut self, name: impl Into<String>) -> Section<'_> {
        Section {
            name: name.into(),
            config: self.config,
            problems: &mut self.problems,
        }
    }

    fn soft_limit(&mut self) {
        let limits = &self.config.query_server_config;
        let (hard, soft) = (limits.os_process_limit, limits.os_process_soft_limit);
        if soft > hard {
            let origin = self.config.origin(QUERY, HARD);
            self.section(QUERY).problem(
                SOFT,
                format!("{SOFT} ({soft}) is above {HARD} ({hard}, {origin})"),
                format!("lower {SOFT} to {hard} or less, or raise {HARD}"),
            );
        }
    }

    fn pools_max(&mut self) {
        let config = self.config;
        let mut names: BTreeSet<&str> = config.language_names().into_iter().collect();
        names.extend(config.pools.keys().map(String::as_str));
        let (count, max) = (names.len(), config.server.pools_max);
        if count > max {
            self.section("server").problem(
                "pools_max",
                format!("pools_max ({max}) is below the {count} pools of the configuration"),
                format!("raise it to {count} or more, or remove pools"),
            );
        }
    }

    fn socket(&mut self) {
        let (server, store) = (&self.config.server, &self.config.store);
        let mut section = self.section("server");
        let length = server.socket.as_os_str().len();
        if length > SERVER_SOCKET_MAX {
            section.problem(
                "socket",
                format!("socket has {length} bytes; at most {SERVER_SOCKET_MAX} are allowed"),
                "use a shorter path",
            );
        }
        // Anyone allowed into the socket's folder could open its other files.
        let folder = store.file().and_then(Path::parent);
        if server.shares_socket() && folder.is_some() && server.socket.parent() == folder {
            let key = if server.socket_group.is_empty() {
                "socket_mode"
            } else {
                "socket_group"
            };
            section.problem(
                key,
                format!("{key} lets others into the folder of the socket, where the store is too"),
                "name a [server] socket in a folder of its own, or a [store] path elsewhere",
            );
        }
    }

    /// With `audit_required`, orders are refused while the audit file cannot be written, so one must be set.
    fn audit(&mut self) {
        let log = &self.config.log;
        if log.audit_required && log.audit.is_none() {
            self.section("log").problem(
                "audit_required",
                "audit_required = true, but no audit file is set",
                "set [log] audit, or leave audit_required out",
            );
        }
    }

    /// With `open` nobody logs in, so only this machine's users may reach HTTP, and no user may be configured.
    fn open(&mut self) {
        let config = self.config;
        if !config.server.open {
            return;
        }
        let mut section = self.section("server");
        let mut addresses = config.server.http.into_iter().chain(config.ssl.address());
        let beyond = addresses.find(|http| !http.ip().is_loopback());
        let named = config.admins.keys().chain(config.users.keys()).next();
        if let Some(address) = beyond {
            section.problem(
                "open",
                format!("open = true, but HTTP on {address} can be reached from other machines"),
                "remove open, so that a login is required, or use a loopback address, \
                 127.0.0.1 or [::1]",
            );
        } else if let Some(name) = named {
            section.problem(
                "open",
                format!(
                    "open = true, which makes everybody an administrator, but {name:?} has a password \
                     to log in with"
                ),
                "remove open, so that a login is required, or name nobody in [admins] and \
                 [users.NAME]",
            );
        }
    }

    fn ssl(&mut self) {
        let ssl = &self.config.ssl;
        let mut section = self.section(SSL);
        for (key, file) in [("cert_file", &ssl.cert_file), ("key_file", &ssl.key_file)] {
            if ssl.is_used() && file.is_none() {
                let used = if ssl.enable { "enable" } else { "tcp" };
                section.problem(
                    used,
                    format!("{used} is set, but there is no {key}"),
                    "name the PEM files of a certificate and of its key as cert_file and key_file",
                );
            }
        }
    }

    fn replicator(&mut self) {
        let settings = &self.config.replicator;
        let mut section = self.section(REPLICATOR);
        if settings.backoff_max < settings.backoff_base {
            section.problem(
                "backoff_max",
                format!(
                    "backoff_max ({} s) is below backoff_base ({} s)",
                    settings.backoff_max.as_secs_f64(),
                    settings.backoff_base.as_secs_f64(),
                ),
                "raise backoff_max to backoff_base or more",
            );
        }
        // Certificate and key are useless without each other.
        let halves = match (&settings.cert_file, &settings.key_file) {
            (Some(_), None) => Some(("cert_file", "key_file")),
            (None, Some(_)) => Some(("key_file", "cert_file")),
            _ => None,
        };
        if let Some((set, missing)) = halves {
            section.problem(
                set,
                format!("{set} is set without {missing}"),
                "name both files, or neither",
            );
        }
        // Encrypted keys are unsupported: report it now rather than at the first connection.
        if !settings.password.is_empty() {
            section.problem(
                "password",
                "password: keys with a password cannot be read",
                "store the key without one (openssl pkey -in KEY -out NEW), readable by its \
                 owner only, and leave the password out",
            );
        }
    }

    fn languages_in_two_sections(&mut self) {
        let config = self.config;
        let is_on = |name: &&String| config.native_languages.get(*name) == Some(&true);
        for name in config.languages.keys().filter(is_on) {
            let native = config.origin(NATIVE_QUERY_SERVERS, name);
            let what = format!(
                "language {name:?} has a command and is on in [{NATIVE_QUERY_SERVERS}] ({native})"
            );
            let remedy = "remove the command or switch the in-process one off";
            self.problems.push(Problem::new(
                config.origin(QUERY_SERVERS, name),
                what,
                remedy,
            ));
        }
    }

    fn user(&mut self, name: &str, user: &UserConfig) {
        let is_admin = self.config.admins.contains_key(name);
        let mut section = self.section(format!("{USERS}.{name}"));
        if user.password.is_none() {
            section.problem(
                "password",
                "has no password",
                "set password, plain or hashed as CouchDB writes it",
            );
        }
        if user.roles.is_empty() {
            section.problem(
                "roles",
                "has no roles",
                format!("set roles to one or more of {}", Role::VARIANTS.join(", ")),
            );
        }
        if name.contains(':') {
            section.problem(
                "password",
                "has a colon in its name, and could never log in",
                "use a name without colons",
            );
        }
        if is_admin {
            section.problem(
                "password",
                "is in [admins] too",
                "keep one of the two; roles = [\"admin\"] means the same",
            );
        }
        if !user.pools.is_empty() && !user.roles.contains(&Role::Caller) {
            section.problem(
                "pools",
                "has pools without the role caller, the only role that pools limit",
                "add the role caller, or leave pools out",
            );
        }
    }
}
