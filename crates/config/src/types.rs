//! The configuration as the rest of the service sees it: plain typed values.
//!
//! SUMMARY   One struct for each section, one field for each key, with the key's name. Values pass through the layers
//!           in the field's serde form.
//! PROMISES  A `Config` from [`super::load`] satisfies every rule of [`super::validate`].
//! SOURCE    Sections, names, units and defaults of CouchDB's keys are CouchDB's.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use child::cell::UserIds;
use child::cell::user::UserRange;
use policy::pool::db_tag::DbTag;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::cells::CellKeys;
use super::kinds::*;
use super::origin::Origin;
use super::pools::PoolConfig;
use super::replicator::{Replicator, Store};
use super::section::section;
use super::services::ServiceConfig;
use super::tenants::TenantConfig;
use super::users::UserConfig;
use super::value::{self, Kind, LET_IN};
use crate::password::PasswordHash;

/// The whole configuration. `Config::default()` is `config/default.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// `[couchdb]`.
    pub couchdb: CouchDb,
    /// `[query_server_config]`.
    pub query_server_config: QueryServerConfig,
    /// `[query_servers]`: lower-case name -> how to start a process of the language.
    #[serde(rename = "query_servers")]
    pub languages: BTreeMap<String, LanguageCommand>,
    /// `[native_query_servers]`: lower-case name -> whether the in-process language is enabled.
    #[serde(rename = "native_query_servers")]
    pub native_languages: BTreeMap<String, bool>,
    /// `[server]`.
    pub server: Server,
    /// `[ssl]`.
    pub ssl: Ssl,
    /// `[chttpd_auth]`.
    pub chttpd_auth: ChttpdAuth,
    /// `[admins]`: name -> password.
    #[serde(default)]
    pub admins: BTreeMap<String, PasswordHash>,
    /// `[replicator]`, and `[replicator.shares]` in it.
    pub replicator: Replicator,
    /// `[store]`.
    pub store: Store,
    /// `[log]`.
    pub log: Log,
    /// `[sandbox]`.
    pub sandbox: Sandbox,
    /// `[pools.NAME]`: lower-case name -> the pool's settings.
    #[serde(default)]
    pub pools: BTreeMap<String, PoolConfig>,
    /// `[services.NAME]`: lower-case name -> a socket whose connections are each lent a process.
    #[serde(default)]
    pub services: BTreeMap<String, ServiceConfig>,
    /// `[tenants.NAME]`: name of a database, or pattern -> its limits.
    #[serde(default)]
    pub tenants: BTreeMap<String, TenantConfig>,
    /// `[users.NAME]`: users besides the admins, with their roles.
    #[serde(default)]
    pub users: BTreeMap<String, UserConfig>,
    /// (section, key) -> where its value came from; see [`Config::origin`].
    #[serde(skip)]
    pub(super) origins: BTreeMap<(String, String), Origin>,
    /// The files that it was read from, with absolute paths.
    #[serde(skip)]
    pub(super) files: Vec<PathBuf>,
    /// Languages that the program itself registers.
    #[serde(skip)]
    pub(super) program_languages: Vec<String>,
    /// Value of a key `user` -> its user id and group id.
    #[serde(skip)]
    pub(super) user_ids: BTreeMap<String, UserIds>,
}

section! {
    /// `[couchdb]`: the one key of CouchDB's section that concerns processes.
    #[derive(Debug)]
    pub struct CouchDb {
        /// How long a client waits for a process, and how long a process may take to answer a prompt. A request may ask
        /// for more.
        os_process_timeout: Duration = 5000, ms(1, YEAR);
    }
}

section! {
    /// `[query_server_config]`: limits of pools, and what query servers are told.
    #[derive(Debug)]
    pub struct QueryServerConfig {
        /// Maximum processes of a language; further requests wait. 0 allows none. A lower limit takes effect as
        /// processes are returned.
        os_process_limit: u32 = 100, PROCESSES, unit("processes"), of_machine();
        /// At this many processes of a language or more, those idle for `os_process_idle_limit` are stopped; those that
        /// know design documents are stopped at any number. At most `os_process_limit`; if not set, lowered with it.
        os_process_soft_limit: u32 = 100, PROCESSES, unit("processes"), of_machine();
        /// How long a process may be idle before it may be stopped.
        os_process_idle_limit: Duration = 300, seconds(1, YEAR);
        /// User and group ids that nothing else on the machine uses, `"FIRST-LAST"`. A service that runs as root gives
        /// one to each [cell](cells.md#its-own-user) of a command without `user`; any other service uses its
        /// subordinate ids. Empty: no cell has its own user.
        user_range: Option<UserRange> = "2100000000-2104194303", value::USER_RANGE, only_in_files(CELL), of_machine();
        /// A reduce answer that is too long is refused (`true`), only logged (`"log"`), or accepted (`false`).
        reduce_limit: ReduceLimit = true, one_of::<ReduceLimit>();
        /// Answers up to this length are never too long.
        reduce_limit_threshold: u64 = 5000, count(0, 1 << 53), unit("characters");
        /// A longer answer is too long if its length times this exceeds the length of the input.
        reduce_limit_ratio: f64 = 2.0, Kind::Ratio;
        /// Databases that may share a process, and see state that others left in it: `"name"` none, `"prefix"` those
        /// with the same name up to the first slash, `"none"` all.
        db_tag: DbTag = "name", one_of::<DbTag>();
        /// How long a client waits for a process of its own database before it takes another's, and the minimum time
        /// between two such exchanges. 0: no wait, as in CouchDB.
        affinity_wait: Duration = 20, ms(0, HOUR);
        /// Databases, users and connections that may have an isolate in a process at a time, with `reuse = "isolates"`.
        isolates_max: u32 = 32, count(1, 1024), unit("isolates");
        /// How long [`settee attach`](socket.md#attach-with-the-clients-own-pipes) keeps a process between two lines. 0
        /// returns it after each line. Applies to new connections.
        attach_idle: Duration = 1000, ms(0, HOUR);
        /// [Lowers the limit of pools](pools.md#limits-that-follow-the-machine), down to `os_process_soft_limit`, while
        /// the machine is overloaded.
        limit_follows_pressure: bool = false, Kind::Boolean, of_machine();
        /// How often `limit_follows_pressure` samples the load.
        pressure_interval: Duration = 5, seconds(100, HOUR), of_machine();
        /// Skips work that a function does not need: freezing documents that it only reads, unused keys of a reduce
        /// function, unread members (`settee map`). Rows stay the same.
        optimize_functions: bool = true, Kind::Boolean;
        /// Accepted for CouchDB's files, and not used.
        revs_limit: u32 = 20, count(0, 1_000_000), unit("revisions");
    }
    beside {
        /// The keys of cells.
        #[serde(flatten)]
        cell: CellKeys;
    }
}

/// What happens to a reduce answer that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::VariantNames)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ReduceLimit {
    /// It is refused.
    True,
    /// Nothing.
    False,
    /// It is logged, and used.
    Log,
}

/// How to start a process of a language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LanguageCommand {
    /// The query server inside this program.
    #[serde(rename = "builtin")]
    Builtin,
    /// A command for the shell.
    #[serde(untagged)]
    Command(String),
}

impl LanguageCommand {
    /// The word that stands for the query server inside this program.
    pub(crate) const BUILTIN: &'static str = "builtin";
}

section! {
    /// `[server]`: where clients connect, and their limits.
    #[derive(Debug)]
    pub struct Server {
        /// The Unix socket for clients, at most 93 bytes, in a directory that only its owner may enter;
        /// [HTTP's](http.md#the-unix-socket) is beside it. Empty: `$XDG_RUNTIME_DIR/settee/settee.sock`; without that
        /// variable `/run/settee/settee.sock` for root, `settee/settee.sock` in `$XDG_STATE_HOME` or `~/.local/state`
        /// for others, `/tmp/settee-UID/settee.sock` for a user without a home.
        socket: PathBuf = "", value::SOCKET_PATH, at_start();
        /// Mode of the socket: `"0600"`, or `"0660"` to admit its group as [callers](http.md#who-may-do-what).
        socket_mode: String = "0600", Kind::Choice(&["0600", "0660"], &[]), at_start(), only_in_files(LET_IN);
        /// The group of the socket, by name or number; the service's user must be a member. The socket then has mode
        /// 0660, its directory, which must not hold the store, 0750 (or 0755 if it has that already). Empty: none.
        socket_group: String = "", value::GROUP, at_start(), only_in_files(LET_IN);
        /// A [TCP](socket.md#tcp) address for clients, such as `"127.0.0.1:5994"`. Not encrypted: for other machines
        /// use `[ssl] tcp`.
        tcp: Option<SocketAddr> = "off", value::ADDRESS, at_start();
        /// The address of [HTTP](http.md); `"off"` leaves only its Unix socket.
        http: Option<SocketAddr> = "127.0.0.1:5995", value::ADDRESS, at_start();
        /// More host names of this HTTP server, without ports. A `Host` other than these, an IP address, `localhost` or
        /// the machine's name is refused, against DNS rebinding.
        hosts: Vec<String> = "", value::HOSTS;
        /// For tests: makes everybody on this machine an administrator over HTTP, without a login. Needs a loopback
        /// address, no `[admins]` and no `[users.NAME]`, and refuses requests from a proxy (`Forwarded`,
        /// `X-Forwarded-*`).
        open: bool = false, Kind::Boolean, at_start(), only_in_files(LET_IN);
        /// Maximum body of an HTTP request; in streams `line_max` bounds each line instead.
        body_max: usize = 67108864, bytes(1024, 1 << 32);
        /// Maximum line of a client; a longer one closes its connection, or ends its stream over HTTP. Applies to new
        /// connections.
        line_max: usize = 67108864, bytes(1024, 1 << 31);
        /// Maximum client connections, on the Unix socket and TCP together; more wait to be accepted. HTTP allows as
        /// many again, and applies a new value at a restart.
        max_connections: usize = 16384, count(1, 1_000_000), unit("connections");
        /// Maximum connections in the system's queue of each socket; `net.core.somaxconn` may allow fewer.
        backlog: u32 = 1024, count(1, 65_535), at_start(), unit("connections");
        /// A client must send 1 KiB a second of a body or line over this period, and read some of an answer within it,
        /// or its connection is closed.
        request_timeout: Duration = 60, seconds(1000, HOUR);
        /// Maximum memory of requests and answers in flight. 0: a quarter of the machine's memory, or of the service's
        /// cgroup.
        in_flight_max: usize = 0, bytes(0, 1 << 50);
        /// Maximum processes of [all pools together](pools.md#the-ceiling-over-all-pools), including those being
        /// started or stopped. Bounds each pool's `max`, `init_size` and `min_free`, but not `os_process_limit`. 0: no
        /// limit.
        processes_max: u32 = 1000, PROCESSES, unit("processes");
        /// Maximum pools, including those of languages and those that operators add. Lowering it removes none.
        pools_max: usize = 256, count(1, 4096), unit("pools");
        /// How long requests in progress may take to finish when the service stops.
        shutdown_grace: Duration = 10, seconds(0, HOUR);
        /// How long a process may take to end after its input is closed, before TERM, and again before KILL.
        stop_grace: Duration = 2000, ms(0, HOUR);
    }
}

section! {
    /// `[ssl]`: TLS over HTTP and for clients on TCP.
    #[derive(Debug, Eq)]
    pub struct Ssl {
        /// Turns on HTTP over TLS.
        enable: bool = false, Kind::Boolean, at_start(), only_in_files(LET_IN);
        /// The IP address of HTTP over TLS; "0.0.0.0" or "::" for all addresses. Not in CouchDB.
        bind_address: IpAddr = "127.0.0.1", value::IP_ADDRESS, at_start();
        /// The port of HTTP over TLS.
        port: u16 = 6984, count(0, 65_535), at_start();
        /// The address for clients on TCP over TLS, such as "0.0.0.0:7984". Not in CouchDB.
        tcp: Option<SocketAddr> = "off", value::ADDRESS, at_start();
        /// The PEM file of the certificate, followed by its issuers' certificates.
        cert_file: Option<PathBuf> = "", value::FILE_PATH;
        /// The PEM file of its private key; only the service's user should be able to read it.
        key_file: Option<PathBuf> = "", value::FILE_PATH;
        /// The PEM file of the authorities for [client certificates](tls.md#certificates-of-clients). Empty: none are
        /// requested.
        cacert_file: Option<PathBuf> = "", value::FILE_PATH;
        /// The TLS versions offered; no others are supported.
        tls_versions: Vec<String> = "tlsv1.2,tlsv1.3", Kind::Words(&["tlsv1.2", "tlsv1.3"]), only_in_files(LET_IN);
    }
}

impl Ssl {
    /// Returns the address of HTTP over TLS, if enabled.
    pub fn address(&self) -> Option<SocketAddr> {
        self.enable
            .then(|| SocketAddr::new(self.bind_address, self.port))
    }

    /// Returns whether TLS is used anywhere.
    pub fn is_used(&self) -> bool {
        self.enable || self.tcp.is_some()
    }
}

section! {
    /// `[chttpd_auth]`: sessions.
    #[derive(Eq)]
    pub struct ChttpdAuth {
        /// How long a session of `POST /_session` lasts after its last use.
        timeout: Duration = 600, seconds(1000, YEAR);
        /// The key that signs session cookies; a new one ends all sessions. Empty: a random one in the file
        /// `cookie-secret` beside `admin-password`; if it cannot be written, sessions end with the service. Never
        /// shown.
        secret: String = "", value::SECRET;
    }
}

/// Without the secret.
impl std::fmt::Debug for ChttpdAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChttpdAuth")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

section! {
    /// `[log]`.
    #[derive(Debug)]
    pub struct Log {
        /// Minimum severity: `trace` (development builds only), `debug`, `info`, `warning`, `error`, `critical`, `off`.
        /// CouchDB's names map to the nearest of these.
        level: LogLevel = "info", LEVEL;
        /// `terminal` for people, `json` one object a line; `auto`: `terminal` if standard error is one.
        format: LogFormat = "auto", one_of::<LogFormat>(), at_start();
        /// The file that records are appended to, [reopened on HUP](logging.md#rotation). Empty: standard error.
        /// Ignored in an `.ini`, where it is CouchDB's log.
        file: Option<PathBuf> = "", value::FILE_PATH, at_start();
        /// Maximum logged lines of a process per second. Applies to new processes.
        child_lines_max: usize = 100, count(0, 1_000_000), unit("lines");
        /// Maximum logged bytes of a pool's lines per minute. Applies to new processes.
        pool_bytes_max: usize = 1000000, bytes(0, 1 << 40);
        /// Calls that take longer [are logged with their cost](logging.md#slow-calls); 0 logs none.
        slow_log_timeout: Duration = 1, seconds(0, YEAR);
        /// The file for [a line per function call](logging.md#the-access-log), reopened on HUP; `/dev/stderr` is
        /// standard error. Empty: none.
        access_log: Option<PathBuf> = "", value::FILE_PATH, at_start();
        /// The file for [orders and changes](logging.md#who-did-what), reopened on HUP; `/dev/stderr` is standard
        /// error. Empty: they go to the log.
        audit: Option<PathBuf> = "", value::FILE_PATH, at_start();
        /// Refuses orders (503 `audit_unavailable`) [while records cannot be written](logging.md#who-did-what) to
        /// `[log] audit`. The first order after a failure is carried out; its record is lost, and counted.
        audit_required: bool = false, Kind::Boolean, at_start();
        /// The file that keeps [what databases have cost](http.md#what-databases-cost) across restarts, one per
        /// service.
        costs: Option<PathBuf> = "", value::FILE_PATH, at_start();
    }
}

/// Severity of the least severe log record that is written, with the numbers of `slog::FilterLevel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::VariantNames)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum LogLevel {
    /// Nothing at all.
    Off,
    /// The service cannot go on.
    Critical,
    /// Something failed.
    Error,
    /// Something an operator should look at.
    Warning,
    /// What an operator wants to know.
    Info,
    /// What a developer wants to know.
    Debug,
    /// Every step; not in release builds.
    Trace,
}

/// Shape of a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::VariantNames)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum LogFormat {
    /// `Terminal` when standard error is one, `Json` otherwise.
    Auto,
    /// For people.
    Terminal,
    /// One JSON object a line.
    Json,
}

section! {
    /// `[sandbox]`: limits of processes.
    #[derive(Debug)]
    pub struct Sandbox {
        /// Maximum memory of the functions of a built-in JavaScript process, including all lines, answers, design
        /// documents and tables held for them; beyond it they fail with `out_of_memory`. The process takes at most 32
        /// MiB more; with [isolates](pools.md#isolates), twice the limit plus 32 MiB. A document takes about three
        /// times its length while it is mapped; rows may take half the limit (1,000,000 rows of `emit(i, null)` take a
        /// quarter of the default). Applies to new processes.
        javascript_memory_max: u64 = 67108864, bytes(MIB, 1 << 40);
    }
}

impl Server {
    /// Returns whether users other than the service's may connect to the socket.
    pub fn shares_socket(&self) -> bool {
        !self.socket_group.is_empty() || self.socket_mode == "0660"
    }
}

impl Config {
    /// Returns the service's own TCP addresses, each with its section and key.
    pub fn own_addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        [
            ("[server] tcp", self.server.tcp),
            ("[server] http", self.server.http),
            ("[ssl] port", self.ssl.address()),
            ("[ssl] tcp", self.ssl.tcp),
        ]
        .into_iter()
        .filter_map(|(key, address)| Some((key, address?)))
        .collect()
    }

    /// Returns where the value of `key` in `section` came from.
    pub fn origin(&self, section: &str, key: &str) -> Origin {
        self.origins
            .get(&(section.to_owned(), key.to_owned()))
            .cloned()
            .unwrap_or(Origin::Default)
    }

    /// Returns the argument of a process's `reset`, as JSON text.
    ///
    /// # Source
    /// `couch_proc_manager`, `get_query_server_config`: these four, in this order.
    pub fn reset_config(&self) -> String {
        let config = &self.query_server_config;
        let reduce_limit = match config.reduce_limit {
            ReduceLimit::True => json!(true),
            ReduceLimit::False => json!(false),
            ReduceLimit::Log => json!("log"),
        };
        json!({
            "reduce_limit": reduce_limit,
            "reduce_limit_threshold": config.reduce_limit_threshold,
            "reduce_limit_ratio": config.reduce_limit_ratio,
            "timeout": self.couchdb.os_process_timeout.as_millis(),
        })
        .to_string()
    }
}

/// Returns the canonical name of a language's pool, for any case of the spelling.
pub fn language_name(spelling: &str) -> String {
    spelling.to_lowercase()
}
