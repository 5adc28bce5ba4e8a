//! The configuration as the rest of the service sees it: plain typed values.
//!
//! SUMMARY   One struct a section, one field a key, under the key's own name. Values travel through the
//!           layers in the form that serde gives the field.
//! PROMISES  A `Config` that came from [`super::load`] satisfies every rule of [`super::validate`].
//! SOURCE    Sections, names, units and defaults of CouchDB's keys are CouchDB's.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::origin::Origin;
use super::pools::PoolConfig;
use super::replicator::{Replicator, Store};
use super::services::ServiceConfig;
use super::users::UserConfig;
use crate::password::PasswordHash;

/// The whole configuration. `Config::default()` is `config/default.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// `[couchdb]`.
    pub couchdb: CouchDb,
    /// `[query_server_config]`.
    pub query_server_config: QueryServerConfig,
    /// `[query_servers]`: lower-case name -> how to start a process of that language.
    #[serde(rename = "query_servers")]
    pub languages: BTreeMap<String, LanguageCommand>,
    /// `[native_query_servers]`: lower-case name -> whether the in-process language is on.
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
    /// `[pools.NAME]`: lower-case name -> what was set of the pool.
    #[serde(default)]
    pub pools: BTreeMap<String, PoolConfig>,
    /// `[services.NAME]`: lower-case name -> a socket whose connections are each lent a process.
    #[serde(default)]
    pub services: BTreeMap<String, ServiceConfig>,
    /// `[users.NAME]`: who may log in beside the admins, and what for.
    #[serde(default)]
    pub users: BTreeMap<String, UserConfig>,
    /// (section, key) -> where its value came from; see [`Config::origin`].
    #[serde(skip)]
    pub(super) origins: BTreeMap<(String, String), Origin>,
    /// The files that it was read from, with absolute paths.
    #[serde(skip)]
    pub(super) files: Vec<PathBuf>,
    /// Languages of the program's own.
    #[serde(skip)]
    pub(super) program_languages: Vec<String>,
    /// Name in a key `user` -> the numbers of that user and its group.
    #[serde(skip)]
    pub(super) user_ids: BTreeMap<String, (u32, u32)>,
}

/// `[couchdb]`: the one key of CouchDB's section that concerns processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CouchDb {
    /// How long a client waits for a process, and a process may take over one prompt.
    pub os_process_timeout: Duration,
}

/// `[query_server_config]`: limits of pools, and what query servers are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryServerConfig {
    /// Most processes of one language; 0 lets nobody in.
    pub os_process_limit: u32,
    /// Idle processes beyond this many are stopped after `os_process_idle_limit`. Never above
    /// `os_process_limit`: a default above a limit that was set is lowered to it.
    pub os_process_soft_limit: u32,
    /// How long a process is idle before the soft limit may stop it.
    pub os_process_idle_limit: Duration,
    /// What happens to a reduce answer that is too long.
    pub reduce_limit: ReduceLimit,
    /// Length up to which an answer is never too long, in characters (UTF-16 units) of JSON.
    pub reduce_limit_threshold: u64,
    /// A longer answer is too long when its length times this exceeds the input's length.
    pub reduce_limit_ratio: f64,
    /// Which databases may share a process.
    pub db_tag: DbTag,
    /// How long to wait for a process of one's own database before closing another's. Not in
    /// CouchDB, which never waits.
    pub affinity_wait: Duration,
    /// How long an attached client keeps a process that it has no line for. Not in CouchDB.
    pub attach_idle: Duration,
    /// Whether the limits follow the machine, between the soft one and the hard one. Not in CouchDB.
    pub limit_follows_pressure: bool,
    /// How often the machine is looked at for that.
    pub pressure_interval: Duration,
    /// Whether documents are not frozen, and `settee map` sends parts of them, for JavaScript
    /// functions that cannot tell. Not in CouchDB.
    pub optimize_functions: bool,
    /// Most entries in the `_revisions` of a document sent to a query server.
    pub revs_limit: u32,
    /// How much of a cell query servers are put in, where a pool says nothing else; this goes for all
    /// that follow.
    pub sandbox: SandboxMode,
    /// Whether a process may serve several databases; `None` is as its language isolates functions.
    pub reuse: Option<Reuse>,
    /// The user whom external commands run as, by name or number; empty is the service's own.
    pub user: String,
    /// What external commands may read beside what they are made of.
    pub read_paths: Vec<PathBuf>,
    /// What external commands find in their environment beside the usual: `NAME=VALUE`, or `NAME` for the
    /// service's own value.
    pub env: Vec<String>,
    /// Whether external commands may open network connections.
    pub network: bool,
    /// Most memory of one external command with all its processes, in bytes; 0 is no limit.
    pub memory_max: u64,
    /// Most processes and threads of one external command; 0 is no limit.
    pub processes_max: u32,
    /// Most processor time of one external command, in percent of one core; 0 is no limit.
    pub cpu_max: u32,
}

/// What happens to a reduce answer that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReduceLimit {
    /// It is refused.
    True,
    /// Nothing.
    False,
    /// It is logged, and used.
    Log,
}

/// How much of a cell a query server is put in.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum SandboxMode {
    /// All of it; a process is not started where a layer is missing.
    Strict,
    /// Every layer that the machine offers.
    Standard,
    /// None.
    Off,
}

/// Whether a process that ran code of one database may serve others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reuse {
    /// It never does.
    Database,
    /// It may, as in CouchDB.
    Any,
}

/// Which databases may share a process that knows their design documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DbTag {
    /// Each database has processes of its own.
    Name,
    /// Databases whose names agree up to the first slash share.
    Prefix,
    /// All share.
    None,
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

/// `[server]`: where clients come in, and their limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// The Unix socket. Its directory must be open to its owner only.
    pub socket: PathBuf,
    /// The permission bits of the socket, in octal digits: `0600` or `0660`.
    pub socket_mode: String,
    /// The group whose members may connect to it, by name or number; empty is none.
    pub socket_group: String,
    /// The TCP address for clients, if there is one.
    pub tcp: Option<SocketAddr>,
    /// The HTTP address, if there is one.
    pub http: Option<SocketAddr>,
    /// Names under which HTTP is reached, beside addresses and the machine's own names.
    pub hosts: Vec<String>,
    /// Whether everybody on this machine is an administrator over HTTP: for tests.
    pub open: bool,
    /// Longest body of an HTTP request that is taken whole, in bytes.
    pub body_max: usize,
    /// Longest line a client may send, in bytes.
    pub line_max: usize,
    /// Most connections at a time.
    pub max_connections: usize,
    /// Connections that may wait to be accepted.
    pub backlog: u32,
    /// How long a client may take over a kibibyte, or take nothing of an answer.
    pub request_timeout: Duration,
    /// What requests and answers in flight take at most, in bytes; 0 is a quarter of the memory.
    pub in_flight_max: usize,
    /// Most processes of all pools together; 0 is any number.
    pub processes_max: u32,
    /// How long work in hand may take when the service is told to stop.
    pub shutdown_grace: Duration,
    /// How long a process that was told to stop may take before TERM, and again before KILL.
    pub stop_grace: Duration,
}

/// `[ssl]`: TLS over HTTP and for clients on TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ssl {
    /// Whether there is HTTP over TLS.
    pub enable: bool,
    /// The address that it listens on.
    pub bind_address: IpAddr,
    /// The port that it listens on.
    pub port: u16,
    /// Where clients connect over TLS; none and they cannot.
    pub tcp: Option<SocketAddr>,
    /// The PEM file of the certificate, followed by those of who signed it.
    pub cert_file: Option<PathBuf>,
    /// The PEM file of the certificate's private key.
    pub key_file: Option<PathBuf>,
    /// The PEM file of who signs the certificates of clients; none and they are not asked for any.
    pub cacert_file: Option<PathBuf>,
    /// The versions that are spoken, as CouchDB names them.
    pub tls_versions: Vec<String>,
}

impl Ssl {
    /// Returns where HTTP over TLS listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.enable
            .then(|| SocketAddr::new(self.bind_address, self.port))
    }

    /// Returns whether TLS is spoken anywhere.
    pub fn is_used(&self) -> bool {
        self.enable || self.tcp.is_some()
    }
}

/// `[chttpd_auth]`: sessions.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChttpdAuth {
    /// How long a session lasts after its last use.
    pub timeout: Duration,
    /// What signs session cookies; empty is a new one at each start.
    pub secret: String,
}

/// Without the secret.
impl std::fmt::Debug for ChttpdAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChttpdAuth")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Log {
    /// Least severe records written.
    pub level: LogLevel,
    /// Shape of a record.
    pub format: LogFormat,
    /// Lines of one process that are logged in a second.
    pub child_lines_max: usize,
    /// Bytes of lines of one pool's processes that are logged in a minute.
    pub pool_bytes_max: usize,
    /// Function calls that take longer are logged; zero logs none.
    pub slow_log_timeout: Duration,
    /// Where every function call is logged.
    pub access_log: Option<PathBuf>,
}

/// Severity of the least severe log record that is written, with the numbers of `slog::FilterLevel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// `Terminal` when standard error is one, `Json` otherwise.
    Auto,
    /// For people.
    Terminal,
    /// One JSON object a line.
    Json,
}

/// `[sandbox]`: limits of processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Most memory that the functions of one built-in JavaScript process take, with what is held for
    /// them, in bytes.
    pub javascript_memory_max: u64,
}

impl Server {
    /// Returns whether others than the service's user may connect to the socket.
    pub fn shares_socket(&self) -> bool {
        !self.socket_group.is_empty() || self.socket_mode == "0660"
    }
}

impl Config {
    /// Returns the addresses of TCP that the service itself listens on, each with its section and key.
    pub fn own_addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let own = [
            ("[server] tcp", self.server.tcp),
            ("[server] http", self.server.http),
            ("[ssl] port", self.ssl.address()),
            ("[ssl] tcp", self.ssl.tcp),
        ];
        let own = own.into_iter();
        own.filter_map(|(key, address)| Some((key, address?)))
            .collect()
    }

    /// Returns whether there is HTTP, with or without TLS.
    pub fn has_http(&self) -> bool {
        self.server.http.is_some() || self.ssl.enable
    }

    /// Returns where the value of `key` in `section` came from.
    pub fn origin(&self, section: &str, key: &str) -> Origin {
        let place = (section.to_owned(), key.to_owned());
        self.origins.get(&place).cloned().unwrap_or(Origin::Default)
    }

    /// Returns the object that a process is given with `reset`, as JSON text.
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
        let told = json!({
            "reduce_limit": reduce_limit,
            "reduce_limit_threshold": config.reduce_limit_threshold,
            "reduce_limit_ratio": config.reduce_limit_ratio,
            "timeout": self.couchdb.os_process_timeout.as_millis(),
        });
        told.to_string()
    }
}

/// Returns the one name of a language's pool, whatever case a design document spells it in.
pub fn language_name(spelling: &str) -> String {
    spelling.to_lowercase()
}
