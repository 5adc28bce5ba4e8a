//! The table of keys: section, name, what a value may be, whether it can change at run time.
//!
//! SUMMARY   One row a key. Parsing, messages, `check-config` and reload read this table; the
//!           defaults stand in `config/default.toml`, the types in [`super::Config`].
//! PROMISES  The three agree: tests compare them.

use super::users::Role;

/// The section of language commands, whose keys are names of languages.
pub const QUERY_SERVERS: &str = "query_servers";
/// The section of in-process languages, whose keys are names of languages.
pub const NATIVE_QUERY_SERVERS: &str = "native_query_servers";
/// The in-process language that is always there, whatever is configured: Mango.
pub const MANGO: &str = "query";

/// The family of sections of named pools, `[pools.NAME]`.
pub const POOLS: &str = "pools";

/// The key of a pool that lets callers use a command of the configuration.
pub const CALLERS: &str = "callers";

/// The family of sections of services, `[services.NAME]`.
pub const SERVICES: &str = "services";

/// The family of sections of users, `[users.NAME]`.
pub const USERS: &str = "users";

/// The section of admins, whose keys are names of users.
pub const ADMINS: &str = "admins";

/// The section of the replicator.
pub const REPLICATOR: &str = "replicator";
/// The section of fair shares, whose keys are names of replicator databases and of users.
pub const SHARES: &str = "replicator.shares";
/// The smallest and the largest share.
pub const SHARE_RANGE: (u64, u64) = (1, 1000);
/// The word for no limit.
pub const INFINITY: &str = "infinity";

/// The unit of a plain number that stands for a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Thousandths of a second.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Hours.
    Hours,
}

impl Unit {
    /// Returns how many milliseconds one of this unit is.
    pub const fn milliseconds(self) -> u64 {
        match self {
            Self::Milliseconds => 1,
            Self::Seconds => 1000,
            Self::Hours => HOUR,
        }
    }

    /// Returns the unit's symbol.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Hours => "h",
        }
    }
}

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// A whole number between the two, inclusive.
    Count {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A whole number up to the largest, inclusive, or `off`.
    CountOrOff {
        /// Largest.
        max: u64,
    },
    /// The name of a language, a pool or a group.
    Name,
    /// A number that is finite and not negative.
    Ratio,
    /// A span of time between the two, inclusive; a plain number is in `unit`.
    Duration {
        /// Unit of a plain number.
        unit: Unit,
        /// Shortest, in milliseconds.
        min: u64,
        /// Longest, in milliseconds.
        max: u64,
    },
    /// A size in bytes between the two, inclusive.
    Bytes {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// Where a service listens: `unix:PATH` or a TCP address with a port.
    ServiceAddress,
    /// A number or a span of time that may be another one under stress, each as the other kind has it.
    Stressed(&'static Kind),
    /// A number from 0 to 1.
    Coefficient,
    /// What the other may be, or `infinity`.
    OrInfinity(&'static Kind),
    /// One of a few words: as written, and what it stands for (synonyms share the second).
    Choice(&'static [(&'static str, &'static str)]),
    /// One or more of a few words, with commas between them.
    Words(&'static [&'static str]),
    /// The path of a file; empty is none.
    FilePath,
    /// The path of the store; empty is the usual place.
    StorePath,
    /// Names of hosts with commas between them; empty is none.
    Hosts,
    /// A group of the system, by name or number; empty is none.
    Group,
    /// Names of pools with commas between them; empty is none.
    Names,
    /// Hosts and networks, each with a port or without, with commas between them; empty is none.
    Endpoints,
    /// `http://HOST` or `https://HOST`, each with a port or without, with commas between them; empty is none.
    Origins,
    /// Addresses that stand for others: `pattern:port:target:port` with commas between them.
    ConnectTo,
    /// A path of a Unix socket; empty is the usual place.
    SocketPath,
    /// A TCP address with a port, or `off`.
    Address,
    /// One line that is sent to a program as it stands; empty is none.
    Line,
    /// A password, plain or hashed; never shown.
    Password,
    /// Text that is never shown.
    Secret,
    /// A command line for the shell, or `builtin`.
    Command,
}

impl Kind {
    /// Returns what a value of this kind, in normal form, is without its `infinity`, or
    /// without its other value under stress.
    pub(super) fn of_value(self, value: &serde_json::Value) -> Self {
        match self {
            Self::OrInfinity(inner) | Self::Stressed(inner) if value.is_number() => *inner,
            Self::OrInfinity(_) => Self::Choice(&[(INFINITY, INFINITY)]),
            kind => kind,
        }
    }
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its section.
    pub section: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// Whether a running service takes a new value.
    pub runtime: bool,
}

const HOUR: u64 = 3_600_000;
const YEAR: u64 = 365 * 24 * HOUR;
const MIB: u64 = 1 << 20;

/// `true`, `false`, `log`.
const REDUCE_LIMIT: Kind = Kind::Choice(&[("true", "true"), ("false", "false"), ("log", "log")]);
/// The session plugin of CouchDB's replicator, by the name of its module.
pub const AUTH_SESSION: &str = "couch_replicator_auth_session";
/// The ways of CouchDB's replicator to show credentials, by the names of its modules.
const AUTH_PLUGINS: Kind = Kind::Words(&[AUTH_SESSION, "couch_replicator_auth_noop"]);
/// The ways to tag a process.
const DB_TAG: Kind = Kind::Choice(&[("name", "name"), ("prefix", "prefix"), ("none", "none")]);
/// Severities; CouchDB's names stand for the nearest of ours, so that its files can be used.
const LEVEL: Kind = Kind::Choice(&[
    ("trace", "trace"),
    ("debug", "debug"),
    ("info", "info"),
    ("notice", "info"),
    ("warning", "warning"),
    ("warn", "warning"),
    ("error", "error"),
    ("err", "error"),
    ("critical", "critical"),
    ("crit", "critical"),
    ("alert", "critical"),
    ("emergency", "critical"),
    ("emerg", "critical"),
    ("off", "off"),
    ("none", "off"),
]);
/// Permission bits of the Unix socket.
const SOCKET_MODE: Kind = Kind::Choice(&[("0600", "0600"), ("0660", "0660")]);
/// Shapes of a record.
const FORMAT: Kind = Kind::Choice(&[("auto", "auto"), ("terminal", "terminal"), ("json", "json")]);

const fn key(section: &'static str, name: &'static str, kind: Kind) -> Key {
    Key {
        section,
        name,
        kind,
        runtime: true,
    }
}

const fn start_key(section: &'static str, name: &'static str, kind: Kind) -> Key {
    Key {
        section,
        name,
        kind,
        runtime: false,
    }
}

const fn duration(unit: Unit, min: u64, max: u64) -> Kind {
    Kind::Duration { unit, min, max }
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

/// A key of the replicator.
const fn replicator(name: &'static str, kind: Kind) -> Key {
    key(REPLICATOR, name, kind)
}

const fn ms(min: u64, max: u64) -> Kind {
    duration(Unit::Milliseconds, min, max)
}

const fn seconds(min: u64, max: u64) -> Kind {
    duration(Unit::Seconds, min, max)
}

/// How long a request may take.
const REQUEST_TIMEOUT: Kind = Kind::OrInfinity(&ms(1, YEAR));
/// How long an id may be.
const ID_LENGTH: Kind = Kind::OrInfinity(&Kind::Bytes {
    min: 1,
    max: 1 << 32,
});
/// Schemes of databases.
const ENDPOINT_PROTOCOLS: Kind = Kind::Words(&["http", "https"]);
/// Schemes of proxies.
const PROXY_PROTOCOLS: Kind = Kind::Words(&["http", "https", "socks5"]);

/// Every key with a fixed name. The upper bounds keep sums and timers far from overflow; they are
/// not recommendations.
pub const KEYS: &[Key] = &[
    key(
        "couchdb",
        "os_process_timeout",
        duration(Unit::Milliseconds, 1, YEAR),
    ),
    key(
        "query_server_config",
        "os_process_limit",
        count(0, 1_000_000),
    ),
    key(
        "query_server_config",
        "os_process_soft_limit",
        count(0, 1_000_000),
    ),
    key(
        "query_server_config",
        "os_process_idle_limit",
        duration(Unit::Seconds, 1, YEAR),
    ),
    key("query_server_config", "reduce_limit", REDUCE_LIMIT),
    key(
        "query_server_config",
        "reduce_limit_threshold",
        count(0, 1 << 53),
    ),
    key("query_server_config", "reduce_limit_ratio", Kind::Ratio),
    key("query_server_config", "db_tag", DB_TAG),
    key(
        "query_server_config",
        "affinity_wait",
        duration(Unit::Milliseconds, 0, HOUR),
    ),
    key(
        "query_server_config",
        "attach_idle",
        duration(Unit::Milliseconds, 0, HOUR),
    ),
    key(
        "query_server_config",
        "limit_follows_pressure",
        Kind::Boolean,
    ),
    key(
        "query_server_config",
        "pressure_interval",
        duration(Unit::Seconds, 100, HOUR),
    ),
    key("query_server_config", "optimize_functions", Kind::Boolean),
    key("query_server_config", "revs_limit", count(0, 1_000_000)),
    start_key("server", "socket", Kind::SocketPath),
    start_key("server", "socket_mode", SOCKET_MODE),
    start_key("server", "socket_group", Kind::Group),
    start_key("server", "tcp", Kind::Address),
    start_key("server", "http", Kind::Address),
    key("server", "hosts", Kind::Hosts),
    start_key("server", "open", Kind::Boolean),
    key(
        "server",
        "body_max",
        Kind::Bytes {
            min: 1024,
            max: 1 << 32,
        },
    ),
    key(
        "server",
        "line_max",
        Kind::Bytes {
            min: 1024,
            max: 1 << 31,
        },
    ),
    key("server", "max_connections", count(1, 1_000_000)),
    start_key("server", "backlog", count(1, 65_535)),
    key(
        "server",
        "request_timeout",
        duration(Unit::Seconds, 1000, HOUR),
    ),
    key(
        "server",
        "in_flight_max",
        Kind::Bytes {
            min: 0,
            max: 1 << 50,
        },
    ),
    key("server", "processes_max", count(0, PROCESSES_MAX)),
    key("server", "shutdown_grace", duration(Unit::Seconds, 0, HOUR)),
    key(
        "server",
        "stop_grace",
        duration(Unit::Milliseconds, 0, HOUR),
    ),
    key(
        "chttpd_auth",
        "timeout",
        duration(Unit::Seconds, 1000, YEAR),
    ),
    key("chttpd_auth", "secret", Kind::Secret),
    replicator("max_jobs", count(0, 10_000_000)),
    replicator("interval", ms(1, YEAR)),
    replicator("max_churn", count(0, 10_000_000)),
    replicator("max_history", count(1, 10_000)),
    replicator("health_threshold", seconds(0, YEAR)),
    replicator("backoff_base", seconds(1, YEAR)),
    replicator("backoff_max", seconds(1, YEAR)),
    replicator("usage_coeff", Kind::Coefficient),
    replicator("priority_coeff", Kind::Coefficient),
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
    replicator("max_document_id_length", ID_LENGTH),
    replicator("missing_doc_retry_msec", ms(0, HOUR)),
    replicator("session_refresh_interval_sec", seconds(1, YEAR)),
    replicator("session_min_update_interval", seconds(0, YEAR)),
    replicator("connection_close_interval", ms(1, YEAR)),
    replicator("connect_to", Kind::ConnectTo),
    replicator("endpoints_allowed", Kind::Endpoints),
    replicator("endpoints_denied", Kind::Endpoints),
    replicator("redirects_to", Kind::Origins),
    replicator("valid_endpoint_protocols", ENDPOINT_PROTOCOLS),
    replicator("valid_proxy_protocols", PROXY_PROTOCOLS),
    replicator("verify_ssl_certificates", Kind::Boolean),
    replicator("ssl_trusted_certificates_file", Kind::FilePath),
    replicator("cert_file", Kind::FilePath),
    replicator("key_file", Kind::FilePath),
    replicator("password", Kind::Secret),
    replicator(
        "cacert_reload_interval_hours",
        duration(Unit::Hours, HOUR, YEAR),
    ),
    replicator("auth_plugins", AUTH_PLUGINS),
    start_key("store", "path", Kind::StorePath),
    key("store", "deleted_kept_for", seconds(0, 10 * YEAR)),
    key("log", "level", LEVEL),
    start_key("log", "format", FORMAT),
    key("log", "child_lines_max", count(0, 1_000_000)),
    key(
        "log",
        "pool_bytes_max",
        Kind::Bytes {
            min: 0,
            max: 1 << 40,
        },
    ),
    key(
        "sandbox",
        "javascript_memory_max",
        Kind::Bytes {
            min: MIB,
            max: 1 << 40,
        },
    ),
];

/// Families of sections: `[FAMILY.NAME]`, as many as there are names. There are none by default.
pub const FAMILIES: &[&str] = &[POOLS, SERVICES, USERS];

/// Most processes of a pool, or of what is counted in processes.
const PROCESSES_MAX: u64 = 1_000_000;
const DAY: u64 = 24 * HOUR;

/// What becomes of a process whose client crashed.
const ON_CLIENT_CRASH: Kind = Kind::Choice(&[("return", "return"), ("replace", "replace")]);
/// Whether a service can be under stress.
const STRESS: Kind = Kind::Choice(&[
    ("yes", "yes"),
    ("no", "no"),
    ("true", "yes"),
    ("false", "no"),
]);
/// Times of a service.
const STRESSED_TIME: Kind = Kind::Stressed(&Kind::Duration {
    unit: Unit::Seconds,
    min: 0,
    max: YEAR,
});
/// How often a process is lent.
const MAX_USES: Kind = Kind::Stressed(&count(0, 1 << 53));
/// How long a process may take to end.
const STOP_GRACE: Kind = Kind::Stressed(&duration(Unit::Milliseconds, 0, HOUR));
/// How long a process may take to start.
const START_TIMEOUT: Kind = Kind::Stressed(&duration(Unit::Seconds, 1, HOUR));
/// In which order waiters are served.
const FAIRNESS: Kind = Kind::Choice(&[("fifo", "fifo"), ("per_db", "per_db")]);

/// Every key of the sections of a family, in the order in which they are shown.
pub const FAMILY_KEYS: &[Key] = &[
    start_key(POOLS, "language", Kind::Name),
    key(POOLS, "group", Kind::Name),
    key(POOLS, "init_size", count(0, PROCESSES_MAX)),
    key(POOLS, "min_free", count(0, PROCESSES_MAX)),
    key(POOLS, "max", count(0, PROCESSES_MAX)),
    key(POOLS, "queue_max", Kind::CountOrOff { max: 1 << 32 }),
    key(POOLS, "on_client_crash", ON_CLIENT_CRASH),
    key(POOLS, "max_uses", MAX_USES),
    key(POOLS, "max_age", STRESSED_TIME),
    key(POOLS, "jitter", count(0, 100)),
    key(
        POOLS,
        "max_memory",
        Kind::Bytes {
            min: 0,
            max: 1 << 50,
        },
    ),
    key(
        POOLS,
        "max_memory_hard",
        Kind::Bytes {
            min: 0,
            max: 1 << 50,
        },
    ),
    key(POOLS, "cull_after", STRESSED_TIME),
    key(POOLS, "cull_interval", duration(Unit::Seconds, 1000, DAY)),
    key(POOLS, "stop_send", Kind::Line),
    key(POOLS, "stop_grace", STOP_GRACE),
    key(POOLS, "start_timeout", START_TIMEOUT),
    key(POOLS, "throttle_delay", duration(Unit::Seconds, 0, DAY)),
    key(POOLS, "throttle_delay_max", duration(Unit::Seconds, 0, DAY)),
    key(POOLS, "stress", Kind::Boolean),
    key(POOLS, "fairness", FAIRNESS),
    key(POOLS, "interactive_reserved", count(0, PROCESSES_MAX)),
    key(POOLS, "held_max", count(0, PROCESSES_MAX)),
    key(POOLS, CALLERS, Kind::Boolean),
    key(SERVICES, "listen", Kind::ServiceAddress),
    key(SERVICES, "pool", Kind::Name),
    key(SERVICES, "language", Kind::Name),
    key(SERVICES, "wait_for_pool", Kind::Boolean),
    key(SERVICES, "backlog", count(1, 65_535)),
    key(SERVICES, "local_only", Kind::Boolean),
    key(SERVICES, "open", Kind::Boolean),
    key(SERVICES, "throttle_delay", duration(Unit::Seconds, 0, DAY)),
    key(SERVICES, "stress", STRESS),
    key(SERVICES, "prompt_timeout", STRESSED_TIME),
    key(SERVICES, "client_timeout", STRESSED_TIME),
    key(SERVICES, "session_timeout", STRESSED_TIME),
    key(USERS, "password", Kind::Password),
    key(USERS, "roles", Kind::Words(Role::NAMES)),
    key(USERS, "pools", Kind::Names),
];

/// The sections, in the order of `config/default.toml`.
pub const SECTIONS: &[&str] = &[
    "couchdb",
    "query_server_config",
    QUERY_SERVERS,
    NATIVE_QUERY_SERVERS,
    "server",
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

/// Returns whether there is, or may be, a section of this name.
pub fn is_section(section: &str) -> bool {
    SECTIONS.contains(&section) || family(section).is_some()
}

/// Returns where a section stands among the others: that of `config/default.toml`, then families.
pub fn rank(section: &str) -> (usize, &str) {
    let fixed = SECTIONS.iter().position(|name| *name == section);
    let index = fixed.unwrap_or_else(|| {
        let family = family(section).map_or("", |(family, _)| family);
        let index = FAMILIES.iter().position(|name| *name == family);
        SECTIONS.len() + index.unwrap_or(FAMILIES.len())
    });
    (index, section)
}

/// Returns the rows of a section that has fixed keys; none for the others.
fn rows(section: &str) -> impl Iterator<Item = &'static Key> {
    let (table, owner) = match family(section) {
        Some((family, _)) => (FAMILY_KEYS, family),
        None => (KEYS, section),
    };
    let owner = owner.to_owned();
    table.iter().filter(move |key| key.section == owner)
}

/// Returns the row of a key with a fixed name.
pub fn find(section: &str, name: &str) -> Option<&'static Key> {
    rows(section).find(|key| key.name == name)
}

/// Returns what the value of `name` in `section` may be, names of languages included.
pub fn kind(section: &str, name: &str) -> Option<Kind> {
    match section {
        QUERY_SERVERS => Some(Kind::Command),
        NATIVE_QUERY_SERVERS => Some(Kind::Boolean),
        ADMINS => Some(Kind::Password),
        SHARES => Some(count(SHARE_RANGE.0, SHARE_RANGE.1)),
        _ => find(section, name).map(|key| key.kind),
    }
}

/// Returns whether a running service takes a new value of this key.
pub fn runtime(section: &str, name: &str) -> bool {
    matches!(
        section,
        QUERY_SERVERS | NATIVE_QUERY_SERVERS | ADMINS | SHARES
    ) || find(section, name).is_some_and(|key| key.runtime)
}

/// Returns the names of the fixed keys of `section`, in order.
pub fn names(section: &str) -> Vec<&'static str> {
    rows(section).map(|key| key.name).collect()
}
