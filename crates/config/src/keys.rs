//! The table of keys: section, name, what a value may be, whether it can change at run time.
//!
//! SUMMARY   One row a key. Parsing, messages, `check-config` and reload read this table; the
//!           defaults stand in `config/default.toml`, the types in [`super::Config`].
//! PROMISES  The three agree: tests compare them.

use strum::VariantNames;

use super::users::Role;
use super::value::{self, Kind, LET_IN, Unit};

/// The section of language commands, whose keys are names of languages.
pub(crate) const QUERY_SERVERS: &str = "query_servers";
/// The section of in-process languages, whose keys are names of languages.
pub(crate) const NATIVE_QUERY_SERVERS: &str = "native_query_servers";
/// In-process languages that can be switched on, in lower case.
pub const NATIVE_LANGUAGES: &[&str] = &["echo"];
/// The in-process language that is always there, whatever is configured: Mango.
pub const MANGO: &str = "query";

/// The family of sections of named pools, `[pools.NAME]`.
pub const POOLS: &str = "pools";

/// The key of a pool that lets callers use a command of the configuration.
pub const CALLERS: &str = "callers";

/// The family of sections of services, `[services.NAME]`.
pub(crate) const SERVICES: &str = "services";

/// The family of sections of users, `[users.NAME]`.
pub(crate) const USERS: &str = "users";

/// The section of HTTP over TLS.
pub const SSL: &str = "ssl";

/// The section of admins, whose keys are names of users.
pub const ADMINS: &str = "admins";

/// The section of the replicator.
pub const REPLICATOR: &str = "replicator";
/// The section of fair shares, whose keys are names of replicator databases and of users.
pub(crate) const SHARES: &str = "replicator.shares";

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its section, or the family of its section.
    pub section: &'static str,
    /// Its name.
    pub name: &'static str,
    pub(super) kind: Kind,
    /// Whether a running service takes a new value.
    pub runtime: bool,
    /// Why it cannot be set over HTTP, if its kind does not tell.
    only_in_files: Option<&'static str>,
}

impl Key {
    /// Marks it: a change takes a restart.
    const fn at_start(mut self) -> Self {
        self.runtime = false;
        self
    }

    /// Marks it: it cannot be set over HTTP.
    const fn only_in_files(mut self, why: &'static str) -> Self {
        self.only_in_files = Some(why);
        self
    }
}

const fn key(section: &'static str, name: &'static str, kind: Kind) -> Key {
    Key {
        section,
        name,
        kind,
        runtime: true,
        only_in_files: None,
    }
}

const fn query(name: &'static str, kind: Kind) -> Key {
    key("query_server_config", name, kind)
}

const fn server(name: &'static str, kind: Kind) -> Key {
    key("server", name, kind)
}

const fn replicator(name: &'static str, kind: Kind) -> Key {
    key(REPLICATOR, name, kind)
}

const fn pool(name: &'static str, kind: Kind) -> Key {
    key(POOLS, name, kind)
}

const fn service(name: &'static str, kind: Kind) -> Key {
    key(SERVICES, name, kind)
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Bytes { min, max }
}

const fn ms(min: u64, max: u64) -> Kind {
    let unit = Unit::Milliseconds;
    Kind::Duration { unit, min, max }
}

const fn seconds(min: u64, max: u64) -> Kind {
    let unit = Unit::Seconds;
    Kind::Duration { unit, min, max }
}

/// Hours, from one to a year.
const HOURS: Kind = Kind::Duration {
    unit: Unit::Hours,
    min: HOUR,
    max: YEAR,
};

const HOUR: u64 = Unit::Hours.milliseconds();
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;
const MIB: u64 = 1 << 20;

/// Why a request cannot set what a cell lets in.
const CELL: &str = "it decides what a query server may do on this machine";

/// Most processes of a pool, or of what is counted in processes.
const PROCESSES: Kind = count(0, 1_000_000);
const REDUCE_LIMIT: Kind = Kind::Choice(&["true", "false", "log"], &[]);
const DB_TAG: Kind = Kind::Choice(&["name", "prefix", "none"], &[]);
const SANDBOX: Kind = Kind::Choice(&["strict", "standard", "off"], &[]);
const REUSE: Kind = Kind::Choice(&["database", "any"], &[]);
const REUSE_BY_LANGUAGE: Kind = Kind::OrNone("", &REUSE);
const MEMORY_MAX: Kind = Kind::OrZero(&bytes(MIB, 1 << 50));
/// In percent of one core.
const CPU_MAX: Kind = count(0, 1_000_000);
const FEED: Kind = Kind::Choice(&["continuous", "db_updates"], &[]);
const RULES: Kind = Kind::Choice(&["current", "2017"], &[]);
const SOCKET_MODE: Kind = Kind::Choice(&["0600", "0660"], &[]);
const FORMAT: Kind = Kind::Choice(&["auto", "terminal", "json"], &[]);
const ON_CLIENT_CRASH: Kind = Kind::Choice(&["return", "replace"], &[]);
const FAIRNESS: Kind = Kind::Choice(&["fifo", "per_db"], &[]);
/// Whether a service can be under stress.
const STRESS: Kind = Kind::Choice(&["yes", "no"], &[("true", "yes"), ("false", "no")]);
/// Severities; CouchDB's names stand for the nearest of ours, so that its files can be used.
const LEVEL: Kind = Kind::Choice(
    &[
        "trace", "debug", "info", "warning", "error", "critical", "off",
    ],
    &[
        ("notice", "info"),
        ("warn", "warning"),
        ("err", "error"),
        ("crit", "critical"),
        ("alert", "critical"),
        ("emergency", "critical"),
        ("emerg", "critical"),
        ("none", "off"),
    ],
);
/// The session plugin of CouchDB's replicator, by the name of its module.
pub const AUTH_SESSION: &str = "couch_replicator_auth_session";
/// The ways of CouchDB's replicator to show credentials, by the names of its modules.
const AUTH_PLUGINS: Kind = Kind::Words(&[AUTH_SESSION, "couch_replicator_auth_noop"]);
const TLS_VERSIONS: Kind = Kind::Words(&["tlsv1.2", "tlsv1.3"]);
const ENDPOINT_PROTOCOLS: Kind = Kind::Words(&["http", "https"]);
const PROXY_PROTOCOLS: Kind = Kind::Words(&["http", "https", "socks5"]);
const REQUEST_TIMEOUT: Kind = Kind::OrNone(value::INFINITY, &ms(1, YEAR));
const THREADS: Kind = Kind::OrNone("cores", &count(1, 256));
const ID_LENGTH: Kind = Kind::OrNone(value::INFINITY, &bytes(1, 1 << 32));
const QUEUE_MAX: Kind = Kind::OrNone(value::OFF, &count(0, 1 << 32));
const MAX_USES: Kind = Kind::Stressed(&count(0, 1 << 53));
const STRESSED_TIME: Kind = Kind::Stressed(&seconds(0, YEAR));
const STOP_GRACE: Kind = Kind::Stressed(&ms(0, HOUR));
const START_TIMEOUT: Kind = Kind::Stressed(&seconds(1, HOUR));

/// Every key with a fixed name. The upper bounds keep sums and timers far from overflow; they are
/// not recommendations.
pub const KEYS: &[Key] = &[
    key("couchdb", "os_process_timeout", ms(1, YEAR)),
    query("os_process_limit", PROCESSES),
    query("os_process_soft_limit", PROCESSES),
    query("os_process_idle_limit", seconds(1, YEAR)),
    query("reduce_limit", REDUCE_LIMIT),
    query("reduce_limit_threshold", count(0, 1 << 53)),
    query("reduce_limit_ratio", Kind::Ratio),
    query("db_tag", DB_TAG),
    query("affinity_wait", ms(0, HOUR)),
    query("attach_idle", ms(0, HOUR)),
    query("limit_follows_pressure", Kind::Boolean),
    query("pressure_interval", seconds(100, HOUR)),
    query("optimize_functions", Kind::Boolean),
    query("revs_limit", count(0, 1_000_000)),
    query("sandbox", SANDBOX).only_in_files(CELL),
    query("reuse", REUSE_BY_LANGUAGE).only_in_files(CELL),
    query("user", value::USER).only_in_files(CELL),
    query("read_paths", value::READ_PATHS).only_in_files(CELL),
    query("env", value::ENV).only_in_files(CELL),
    query("network", Kind::Boolean).only_in_files(CELL),
    query("memory_max", MEMORY_MAX),
    query("processes_max", PROCESSES),
    query("cpu_max", CPU_MAX),
    server("socket", value::SOCKET_PATH).at_start(),
    server("socket_mode", SOCKET_MODE)
        .at_start()
        .only_in_files(LET_IN),
    server("socket_group", value::GROUP)
        .at_start()
        .only_in_files(LET_IN),
    server("tcp", value::ADDRESS).at_start(),
    server("http", value::ADDRESS).at_start(),
    server("hosts", value::HOSTS),
    server("open", Kind::Boolean)
        .at_start()
        .only_in_files(LET_IN),
    server("body_max", bytes(1024, 1 << 32)),
    server("line_max", bytes(1024, 1 << 31)),
    server("max_connections", count(1, 1_000_000)),
    server("backlog", count(1, 65_535)).at_start(),
    server("request_timeout", seconds(1000, HOUR)),
    server("in_flight_max", bytes(0, 1 << 50)),
    server("processes_max", PROCESSES),
    server("shutdown_grace", seconds(0, HOUR)),
    server("stop_grace", ms(0, HOUR)),
    key(SSL, "enable", Kind::Boolean)
        .at_start()
        .only_in_files(LET_IN),
    key(SSL, "bind_address", value::IP_ADDRESS).at_start(),
    key(SSL, "port", count(0, 65_535)).at_start(),
    key(SSL, "tcp", value::ADDRESS).at_start(),
    key(SSL, "cert_file", value::FILE_PATH),
    key(SSL, "key_file", value::FILE_PATH),
    key(SSL, "cacert_file", value::FILE_PATH),
    key(SSL, "tls_versions", TLS_VERSIONS).only_in_files(LET_IN),
    key("chttpd_auth", "timeout", seconds(1000, YEAR)),
    key("chttpd_auth", "secret", value::SECRET),
    replicator("max_jobs", count(0, 10_000_000)),
    replicator("threads", THREADS),
    replicator("interval", ms(1, YEAR)),
    replicator("max_churn", count(0, 10_000_000)),
    replicator("max_history", count(1, 10_000)),
    replicator("health_threshold", seconds(0, YEAR)),
    replicator("backoff_base", seconds(1, YEAR)),
    replicator("backoff_max", seconds(1, YEAR)),
    replicator("usage_coeff", Kind::Coefficient),
    replicator("priority_coeff", Kind::Coefficient),
    replicator("rules", RULES),
    replicator("update_docs", Kind::Boolean),
    replicator("startup_jitter", ms(0, HOUR)),
    replicator("worker_processes", count(1, 1000)),
    replicator("worker_batch_size", count(1, 100_000)),
    replicator("http_connections", count(1, 10_000)),
    replicator("connection_timeout", ms(1, YEAR)),
    replicator("request_timeout", REQUEST_TIMEOUT),
    replicator("retries_per_request", count(0, 1000)),
    replicator("use_checkpoints", Kind::Boolean),
    replicator("use_bulk_get", Kind::Boolean),
    replicator("checkpoint_interval", ms(1, YEAR)),
    replicator("feed", FEED),
    replicator("max_document_id_length", ID_LENGTH),
    replicator("missing_doc_retry_msec", ms(0, HOUR)),
    replicator("session_refresh_interval_sec", seconds(1, YEAR)),
    replicator("session_min_update_interval", seconds(0, YEAR)),
    replicator("connection_close_interval", ms(1, YEAR)),
    replicator("connect_to", value::CONNECT_TO),
    replicator("endpoints_allowed", value::ENDPOINTS),
    replicator("endpoints_denied", value::ENDPOINTS),
    replicator("redirects_to", value::ORIGINS),
    replicator("valid_endpoint_protocols", ENDPOINT_PROTOCOLS),
    replicator("valid_proxy_protocols", PROXY_PROTOCOLS),
    replicator("verify_ssl_certificates", Kind::Boolean)
        .only_in_files("it decides whom credentials are sent to"),
    replicator("ssl_trusted_certificates_file", value::FILE_PATH),
    replicator("cert_file", value::FILE_PATH),
    replicator("key_file", value::FILE_PATH),
    replicator("password", value::SECRET),
    replicator("cacert_reload_interval_hours", HOURS),
    replicator("auth_plugins", AUTH_PLUGINS),
    key("store", "path", value::STORE_PATH).at_start(),
    key("store", "url", value::STORE_URL).at_start(),
    key("store", "deleted_kept_for", seconds(0, 10 * YEAR)),
    key("log", "level", LEVEL),
    key("log", "format", FORMAT).at_start(),
    key("log", "child_lines_max", count(0, 1_000_000)),
    key("log", "pool_bytes_max", bytes(0, 1 << 40)),
    key("log", "slow_log_timeout", seconds(0, YEAR)),
    key("log", "access_log", value::FILE_PATH).at_start(),
    key("sandbox", "javascript_memory_max", bytes(MIB, 1 << 40)),
];

/// Families of sections: `[FAMILY.NAME]`, as many as there are names. There are none by default.
pub const FAMILIES: &[&str] = &[POOLS, SERVICES, USERS];

/// Every key of the sections of a family, in the order in which they are shown.
pub const FAMILY_KEYS: &[Key] = &[
    pool("language", value::NAME).at_start(),
    pool("group", value::NAME),
    pool("init_size", PROCESSES),
    pool("min_free", PROCESSES),
    pool("max", PROCESSES),
    pool("queue_max", QUEUE_MAX),
    pool("on_client_crash", ON_CLIENT_CRASH),
    pool("max_uses", MAX_USES),
    pool("max_age", STRESSED_TIME),
    pool("jitter", count(0, 100)),
    pool("max_memory", bytes(0, 1 << 50)),
    pool("max_memory_hard", bytes(0, 1 << 50)),
    pool("cull_after", STRESSED_TIME),
    pool("cull_interval", seconds(1000, DAY)),
    pool("stop_send", value::LINE),
    pool("stop_grace", STOP_GRACE),
    pool("start_timeout", START_TIMEOUT),
    pool("throttle_delay", seconds(0, DAY)),
    pool("throttle_delay_max", seconds(0, DAY)),
    pool("stress", Kind::Boolean),
    pool("fairness", FAIRNESS),
    pool("interactive_reserved", PROCESSES),
    pool("held_max", PROCESSES),
    pool(CALLERS, Kind::Boolean),
    pool("sandbox", SANDBOX).only_in_files(CELL),
    pool("reuse", REUSE).only_in_files(CELL),
    pool("user", value::USER).only_in_files(CELL),
    pool("read_paths", value::READ_PATHS).only_in_files(CELL),
    pool("env", value::ENV).only_in_files(CELL),
    pool("network", Kind::Boolean).only_in_files(CELL),
    pool("memory_max", MEMORY_MAX),
    pool("processes_max", PROCESSES),
    pool("cpu_max", CPU_MAX),
    service("listen", value::SERVICE_ADDRESS),
    service("pool", value::NAME),
    service("language", value::NAME),
    service("wait_for_pool", Kind::Boolean),
    service("backlog", count(1, 65_535)),
    service("local_only", Kind::Boolean).only_in_files(LET_IN),
    service("open", Kind::Boolean).only_in_files(LET_IN),
    service("throttle_delay", seconds(0, DAY)),
    service("stress", STRESS),
    service("prompt_timeout", STRESSED_TIME),
    service("client_timeout", STRESSED_TIME),
    service("session_timeout", STRESSED_TIME),
    key(USERS, "password", value::PASSWORD),
    key(USERS, "roles", Kind::Words(Role::VARIANTS)).only_in_files(LET_IN),
    key(USERS, "pools", value::NAMES).only_in_files(LET_IN),
];

/// The sections, in the order of `config/default.toml`.
pub(crate) const SECTIONS: &[&str] = &[
    "couchdb",
    "query_server_config",
    QUERY_SERVERS,
    NATIVE_QUERY_SERVERS,
    "server",
    SSL,
    "chttpd_auth",
    ADMINS,
    REPLICATOR,
    SHARES,
    "store",
    "log",
    "sandbox",
];

/// Returns the family and the name of a section `[FAMILY.NAME]`.
pub fn family(section: &str) -> Option<(&'static str, &str)> {
    let (head, name) = section.split_once('.')?;
    let family = FAMILIES.iter().find(|family| **family == head)?;
    Some((family, name))
}

/// Returns where a section stands among the others: that of `config/default.toml`, then families.
pub(super) fn rank(section: &str) -> (usize, &str) {
    let owner = family(section).map_or(section, |(family, _)| family);
    let index = SECTIONS.iter().chain(FAMILIES).position(|s| *s == owner);
    (index.unwrap_or(usize::MAX), section)
}

/// Returns the rows of a section that has fixed keys; none for the others.
fn rows(section: &str) -> impl Iterator<Item = &'static Key> {
    let (table, owner) = match family(section) {
        Some((family, _)) => (FAMILY_KEYS, family),
        None => (KEYS, section),
    };
    table.iter().filter(move |key| key.section == owner)
}

fn find(section: &str, name: &str) -> Option<&'static Key> {
    rows(section).find(|key| key.name == name)
}

/// Returns what the value of `name` in `section` may be, names of languages included.
pub fn kind(section: &str, name: &str) -> Option<Kind> {
    match section {
        QUERY_SERVERS => Some(value::COMMAND),
        NATIVE_QUERY_SERVERS => Some(Kind::Boolean),
        ADMINS => Some(value::PASSWORD),
        SHARES => Some(count(1, 1000)),
        _ => find(section, name).map(|key| key.kind),
    }
}

/// Returns whether a running service takes a new value of this key.
pub fn runtime(section: &str, name: &str) -> bool {
    match find(section, name) {
        Some(key) => key.runtime,
        None => kind(section, name).is_some(),
    }
}

/// Returns why a key cannot be set over HTTP; `None`: it can.
///
/// Whoever reaches the address, an administrator's password in hand, must not thereby become the
/// user whom the service runs as: what runs a program, opens or moves a socket, reads a file, lets
/// somebody in, or sends credentials elsewhere is for who owns the files. Most of it goes by kinds, so
/// that a new key of such a kind is not forgotten.
///
/// # Source
/// CVE-2017-12636; the keys that CouchDB keeps from its configuration over HTTP.
pub fn refused_over_http(section: &str, name: &str) -> Option<&'static str> {
    let own = find(section, name).and_then(|key| key.only_in_files);
    own.or_else(|| kind(section, name)?.only_in_files())
}

/// Returns whether what is set over HTTP in this section holds for all daemons of a database. What a daemon has
/// for itself is not: how it is reached and bounded as a whole, where it logs, services.
pub fn is_shared(section: &str) -> bool {
    let is_own = |(family, _)| family == SERVICES;
    !matches!(section, "server" | "log") && !family(section).is_some_and(is_own)
}

/// Returns the names of the fixed keys of `section`, in order.
pub fn names(section: &str) -> Vec<&'static str> {
    rows(section).map(|key| key.name).collect()
}
