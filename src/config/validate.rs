//! Rules between keys; what a single value may be stands in [`super::keys`].
//!
//! SUMMARY   [`adjust`] settles defaults that depend on other keys, [`check`] finds what does not
//!           fit together.

mod pools;
mod services;

use std::path::Path;

use super::keys::{NATIVE_QUERY_SERVERS, QUERY_SERVERS, REPLICATOR};
use super::origin::{Notice, Origin, Problem};
use super::types::Config;

/// Longest path of a Unix socket, in bytes: the smallest of the platforms' (macOS and the BSDs;
/// Linux has 107), so that a configuration can move.
const SOCKET_PATH_MAX: usize = 103;

const SECTION: &str = "query_server_config";
const HARD: &str = "os_process_limit";
const SOFT: &str = "os_process_soft_limit";

/// Lowers the soft limit to the hard limit, whose origin it then has, where nobody set it, and also
/// where a file of CouchDB's did: CouchDB takes such a file, and means the same by it. The latter is
/// noted.
pub(super) fn adjust(config: &mut Config) -> Option<Notice> {
    let limits = &config.query_server_config;
    let (hard, soft) = (limits.os_process_limit, limits.os_process_soft_limit);
    let (origin, hard_origin) = (config.origin(SECTION, SOFT), config.origin(SECTION, HARD));
    if soft <= hard || !(origin == Origin::Default || origin.is_ini()) {
        return None;
    }
    config.query_server_config.os_process_soft_limit = hard;
    let text = format!(
        "[{SECTION}] {SOFT} ({soft}) is above {HARD} ({hard}, {hard_origin}), and counts as {hard}"
    );
    config
        .origins
        .insert((SECTION.to_owned(), SOFT.to_owned()), hard_origin);
    (origin != Origin::Default).then_some(Notice { origin, text })
}

/// Returns everything that does not fit together.
pub(super) fn check(config: &Config) -> Vec<Problem> {
    let rules = [
        soft_limit,
        socket_path,
        shared_folder,
        open,
        backoff,
        certificate,
        key_password,
    ];
    let mut problems: Vec<Problem> = rules.iter().filter_map(|rule| rule(config)).collect();
    problems.extend(languages_in_two_sections(config));
    problems.extend(
        config
            .pools
            .iter()
            .flat_map(|(name, pool)| pools::check(config, name, pool)),
    );
    problems.extend(services::check(config));
    problems.extend(super::users::check(config));
    problems
}

fn soft_limit(config: &Config) -> Option<Problem> {
    let limits = &config.query_server_config;
    let (hard, soft) = (limits.os_process_limit, limits.os_process_soft_limit);
    (soft > hard).then(|| {
        let what = format!(
            "[{SECTION}] {SOFT} ({soft}) is above {HARD} ({hard}, {})",
            config.origin(SECTION, HARD),
        );
        let remedy = format!("lower {SOFT} to {hard} or less, or raise {HARD}");
        Problem::new(config.origin(SECTION, SOFT), what, remedy)
    })
}

fn socket_path(config: &Config) -> Option<Problem> {
    let length = config.server.socket.as_os_str().len();
    (length > SOCKET_PATH_MAX).then(|| {
        let what = format!("[server] socket has {length} bytes; a socket's path can have 103");
        Problem::new(
            config.origin("server", "socket"),
            what,
            "use a shorter path",
        )
    })
}

/// Who may enter the folder of the socket could open what else stands there.
fn shared_folder(config: &Config) -> Option<Problem> {
    let socket = config.server.socket.parent();
    let store = config.store.file().and_then(Path::parent);
    (config.server.shares_socket() && store.is_some() && socket == store).then(|| {
        let key = match config.server.socket_group.is_empty() {
            true => "socket_mode",
            false => "socket_group",
        };
        Problem::new(
            config.origin("server", key),
            format!(
                "[server] {key} lets others into the folder of the socket, where the store is too"
            ),
            "name a [server] socket in a folder of its own, or a [store] path elsewhere",
        )
    })
}

/// Without logins nobody but this machine's users may reach HTTP, and nobody can be told from others.
fn open(config: &Config) -> Option<Problem> {
    let server = &config.server;
    let beyond = server.http.filter(|address| !address.ip().is_loopback());
    let named = config.admins.keys().chain(config.users.keys()).next();
    let (what, remedy) = match (server.open, beyond, named) {
        (true, Some(address), _) => (
            format!("but http = \"{address}\" can be reached from other machines"),
            "leave open out, so that a login is required, or use a loopback address, 127.0.0.1 or \
             [::1]",
        ),
        (true, None, Some(name)) => (
            format!(
                "which makes everybody an administrator, but {name:?} has a password to log in with"
            ),
            "leave open out, so that a login is required, or name nobody in [admins] and [users.NAME]",
        ),
        _ => return None,
    };
    let origin = config.origin("server", "open");
    Some(Problem::new(
        origin,
        format!("[server] open = true, {what}"),
        remedy,
    ))
}

fn backoff(config: &Config) -> Option<Problem> {
    let settings = &config.replicator;
    (settings.backoff_max < settings.backoff_base).then(|| {
        let what = format!(
            "[{REPLICATOR}] backoff_max ({} s) is below backoff_base ({} s)",
            settings.backoff_max.as_secs_f64(),
            settings.backoff_base.as_secs_f64(),
        );
        let remedy = "raise backoff_max to backoff_base or more";
        Problem::new(config.origin(REPLICATOR, "backoff_max"), what, remedy)
    })
}

/// A certificate is worth nothing without its key, and the other way round.
fn certificate(config: &Config) -> Option<Problem> {
    let settings = &config.replicator;
    let (set, missing) = match (&settings.cert_file, &settings.key_file) {
        (Some(_), None) => ("cert_file", "key_file"),
        (None, Some(_)) => ("key_file", "cert_file"),
        _ => return None,
    };
    Some(Problem::new(
        config.origin(REPLICATOR, set),
        format!("[{REPLICATOR}] {set} stands without {missing}"),
        "name both files, or neither",
    ))
}

/// Nothing here can open an encrypted key: better said now than at the first connection.
fn key_password(config: &Config) -> Option<Problem> {
    let is_set = !config.replicator.password.is_empty();
    is_set.then(|| {
        Problem::new(
            config.origin(REPLICATOR, "password"),
            format!("[{REPLICATOR}] password: keys with a password cannot be read"),
            "store the key without one (openssl pkey -in KEY -out NEW), readable by its owner \
             only, and leave the password out",
        )
    })
}

fn languages_in_two_sections(config: &Config) -> impl Iterator<Item = Problem> {
    let both = config.languages.keys().filter(|name| {
        config
            .native_languages
            .get(name.as_str())
            .is_some_and(|enabled| *enabled)
    });
    both.map(|name| {
        let what = format!(
            "language {name:?} has a command and is on in [{NATIVE_QUERY_SERVERS}] ({})",
            config.origin(NATIVE_QUERY_SERVERS, name),
        );
        let remedy = "remove the command or switch the in-process one off";
        Problem::new(config.origin(QUERY_SERVERS, name), what, remedy)
    })
}
