//! The client library: a running service's processes from any tokio program.
//!
//! SUMMARY   [`Client`] is one connection: it borrows processes, prompts them and gives them back.
//!           [`attach`] turns a connection into the plain input and output of one process.
//! PROMISES  Calls may be made at the same time: requests are pipelined on one connection and replies
//!           matched by their id. Every call ends: with its answer, or with an error that says
//!           whose fault it is and whether a retry may help. Dropping the client closes the
//!           connection, and the service takes back what it held.
//! LIMITS    Unix sockets. At most [`REQUESTS_QUEUED_MAX`] requests wait for being sent, at most
//!           [`REPLY_BYTES_MAX`] bytes are read for one reply.
//!
//! ```no_run
//! # async fn example() -> Result<(), settee_client::ClientError> {
//! use serde_json::json;
//! use settee_client::{Client, ReturnStatus};
//!
//! let client = Client::connect("/run/settee/settee.sock").await?;
//! let proc = client.get_proc("javascript", None).await?;
//! client.prompt(&proc.proc, &json!(["reset", proc.config]), None).await?;
//! let source = "function(doc) { emit(doc.name, 1) }";
//! client.prompt(&proc.proc, &json!(["add_fun", source]), None).await?;
//! let rows = client.prompt(&proc.proc, &json!(["map_doc", {"_id": "a", "name": "x"}]),
//! None).await?;
//! assert_eq!(rows.get(), r#"[[["x",1]]]"#);
//! client.ret_proc(&proc.proc, ReturnStatus::Ok).await?;
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod attach;
mod audit;
mod connection;
mod error;
mod functions;
mod health;
mod jobs;
mod pool_change;
mod report;
pub mod status;
mod wire;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::net::UnixStream;
use tokio::sync::broadcast;

use connection::Connection;
use status::DaemonStatus;
use wire::Prompting;

pub use attach::{
    AttachEnd, Attached, AttachedPipes, END_MARK, RESUME_BYTES_MAX, attach, attach_pipes,
};
pub use audit::{AuditPage, AuditRecord};
pub use connection::{REPLY_BYTES_MAX, REQUESTS_QUEUED_MAX};
pub use error::{ClientError, ServiceError};
pub use functions::{Compiling, Indexing, Mapping, Reducing};
pub use health::{DrainState, FleetHealth, Health, Problem};
pub use jobs::{
    BulkAnswer, BulkOrder, BulkOrderName, JobGroup, JobOrder, JobResult, JobSelection, JobsQuery,
    JobsSort,
};
pub use pool_change::PoolChange;
pub use report::{LogLine, Report, Reported};
pub use wire::{Borrowed, Imported, ProcDown, ReturnStatus};

/// A connection to a service. Cheap to clone; the last clone closes it, as soon as the runtime has
/// a turn for that.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Connection,
}

/// The pools that a process may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeFrom<'a> {
    /// The own one of this language.
    Language(&'a str),
    /// The one of this name.
    Pool(&'a str),
    /// Any of this group: one at random that has a free process, or may start one.
    Group(&'a str),
    /// Any of this language, its own among them.
    AnyOf(&'a str),
}

impl TakeFrom<'_> {
    /// Returns the arguments that say so in a request.
    fn arguments(self) -> Value {
        match self {
            Self::Language(language) => json!({"lang": language}),
            Self::Pool(name) => json!({"pool": name}),
            Self::Group(name) => json!({"group": name}),
            Self::AnyOf(language) => json!({"lang": language, "any": true}),
        }
    }
}

/// The pools that a process may come from, and the database whose functions it is to run. Where processes
/// are not shared, it serves nobody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taking<'a> {
    from: TakeFrom<'a>,
    db: Option<&'a str>,
}

impl<'a> TakeFrom<'a> {
    /// Names the database. Otherwise the functions are this client's own.
    pub fn for_db(self, db: &'a str) -> Taking<'a> {
        let db = Some(db);
        Taking { from: self, db }
    }
}

impl<'a> From<TakeFrom<'a>> for Taking<'a> {
    fn from(from: TakeFrom<'a>) -> Self {
        Self { from, db: None }
    }
}

impl Taking<'_> {
    fn arguments(self) -> Value {
        let mut arguments = self.from.arguments();
        if let Some(db) = self.db {
            arguments["db"] = json!(db);
        }
        arguments
    }
}

/// A design document, and the database that it stands in.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DdocIn<'a> {
    /// The database's name.
    pub db: &'a str,
    /// The document: `_id`, `_rev`, `language` and its functions.
    pub ddoc: &'a RawValue,
}

impl Client {
    /// Connects to the service that listens at `path`. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// [`ClientError::Io`] when nobody listens there or this user may not enter.
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, ClientError> {
        Ok(Self::on(UnixStream::connect(path).await?))
    }

    /// Makes a client of a stream that is connected already.
    pub fn on(stream: UnixStream) -> Self {
        Self {
            connection: Connection::on(stream),
        }
    }

    /// Borrows any process of a language (`get_proc`). `None` as timeout is the service's own.
    ///
    /// The first prompt is to be `reset` with the [`Borrowed::config`] that comes along.
    ///
    /// # Errors
    /// [`ClientError::Service`]: `unknown_query_language`, `timeout`, `os_process_error`.
    pub async fn get_proc(
        &self,
        language: &str,
        timeout: Option<Duration>,
    ) -> Result<Borrowed, ClientError> {
        self.get(json!({"lang": language}), timeout).await
    }

    /// Borrows a process that knows a design document (`get_proc`).
    ///
    /// # Errors
    /// As [`Self::get_proc`], and `bad_request` for a document that is none.
    pub async fn get_proc_for(
        &self,
        ddoc: DdocIn<'_>,
        timeout: Option<Duration>,
    ) -> Result<Borrowed, ClientError> {
        self.get(json!({"db": ddoc.db, "ddoc": ddoc.ddoc}), timeout)
            .await
    }

    async fn get(
        &self,
        mut arguments: Value,
        timeout: Option<Duration>,
    ) -> Result<Borrowed, ClientError> {
        if let Some(timeout) = timeout {
            arguments["timeout_ms"] = json!(milliseconds(timeout));
        }
        self.typed("get_proc", &arguments).await
    }

    /// Sends a command to a process and returns its answer, unchanged (`prompt`).
    ///
    /// Several may be sent before the first is answered; one process answers in their order.
    ///
    /// # Errors
    /// [`ClientError::Service`]: what the process's error line said, `timeout`,
    /// `os_process_error`, `not_holder`, `bad_request`.
    pub async fn prompt(
        &self,
        proc: &str,
        command: &impl Serialize,
        timeout: Option<Duration>,
    ) -> Result<Box<RawValue>, ClientError> {
        let arguments = Prompting::new(proc, command, timeout);
        self.connection.call("prompt", &arguments).await
    }

    /// Gives a process back (`ret_proc`). `false`: this client does not hold it, nothing changed.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ret_proc(&self, proc: &str, status: ReturnStatus) -> Result<bool, ClientError> {
        self.typed("ret_proc", &json!({"proc": proc, "status": status}))
            .await
    }

    /// Sets the timeout of prompts that bring none (`set_timeout`).
    ///
    /// # Errors
    /// [`ClientError::Service`]: `not_holder`.
    pub async fn set_timeout(&self, proc: &str, timeout: Duration) -> Result<(), ClientError> {
        let arguments = json!({"proc": proc, "timeout_ms": milliseconds(timeout)});
        self.connection
            .call("set_timeout", &arguments)
            .await
            .map(drop)
    }

    /// Counts the service's processes, those being opened included (`get_proc_count`).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get_proc_count(&self) -> Result<u32, ClientError> {
        self.typed("get_proc_count", &json!({})).await
    }

    /// Counts the processes started before the last reload (`get_stale_proc_count`).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get_stale_proc_count(&self) -> Result<u32, ClientError> {
        self.typed("get_stale_proc_count", &json!({})).await
    }

    /// Has all processes replaced: idle ones now, the others when they come back (`reload`).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reload(&self) -> Result<(), ClientError> {
        self.connection.call("reload", &json!({})).await.map(drop)
    }

    /// Has the configuration read again (`reload_config`) and returns the changes that hold now, and the
    /// values that HTTP overrides.
    ///
    /// # Errors
    /// [`ClientError::Service`] when the configuration is wrong: then nothing has changed.
    pub async fn reload_config(&self) -> Result<Box<RawValue>, ClientError> {
        self.connection.call("reload_config", &json!({})).await
    }

    /// Returns what reading the configuration again would change (`plan_config`). Changes nothing.
    ///
    /// # Errors
    /// [`ClientError::Service`] when the configuration is wrong: then a reload would change nothing.
    pub async fn plan_config(&self) -> Result<Box<RawValue>, ClientError> {
        self.connection.call("plan_config", &json!({})).await
    }

    /// Stops idle processes started before the last reload (`terminate_stale_procs`).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn terminate_stale_procs(&self) -> Result<(), ClientError> {
        let arguments = json!({});
        let done = self.connection.call("terminate_stale_procs", &arguments);
        done.await.map(drop)
    }

    /// Returns what the service is doing (`status`), of one pool or of all.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn status(&self, pool: Option<&str>) -> Result<DaemonStatus, ClientError> {
        wire::typed("status", &self.raw_status(pool).await?)
    }

    /// Returns the status as the service wrote it, with members that this version does not know.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn raw_status(&self, pool: Option<&str>) -> Result<Box<RawValue>, ClientError> {
        let arguments = pool.map_or_else(|| json!({}), |pool| json!({"pool": pool}));
        self.connection.call("status", &arguments).await
    }

    /// Returns the latest orders and changes, at most so many (`audit`).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn audit(&self, limit: usize) -> Result<AuditPage, ClientError> {
        let page = self
            .connection
            .call("audit", &json!({"limit": limit}))
            .await?;
        wire::typed("audit", &page)
    }

    /// Returns what is wrong (`health`).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn health(&self) -> Result<Health, ClientError> {
        let health = self.connection.call("health", &json!({})).await?;
        wire::typed("health", &health)
    }

    /// Returns what is wrong at all daemons of the fleet (`health` with `fleet`).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn fleet_health(&self) -> Result<FleetHealth, ClientError> {
        let arguments = json!({"fleet": true});
        let health = self.connection.call("health", &arguments).await?;
        wire::typed("health", &health)
    }

    /// Drains the daemon, or has it take work again (`drain`, `undrain`), and returns what is left of what it had.
    ///
    /// # Errors
    /// [`ClientError::Service`]: `forbidden`.
    pub async fn set_drained(&self, is_drained: bool) -> Result<DrainState, ClientError> {
        let call = if is_drained { "drain" } else { "undrain" };
        let state = self.connection.call(call, &json!({})).await?;
        wire::typed(call, &state)
    }

    /// Returns whether the daemon is drained, and what is left of what it had (`drain_state`).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn drain_state(&self) -> Result<DrainState, ClientError> {
        let state = self.connection.call("drain_state", &json!({})).await?;
        wire::typed("drain_state", &state)
    }

    /// Returns the processes with what they do now (`procs`), of one pool or of all: the value as the service wrote it,
    /// a [`status::ProcPage`].
    ///
    /// # Errors
    /// [`ClientError::Service`]: `not_found` for a pool that does not exist.
    pub async fn raw_procs(&self, pool: Option<&str>) -> Result<Box<RawValue>, ClientError> {
        let arguments = pool.map_or_else(|| json!({}), |pool| json!({"pool": pool}));
        self.connection.call("procs", &arguments).await
    }

    /// Ends a process by its name, `POOL/NUMBER` (`kill_proc`): at once if it runs something or `now` is said, otherwise
    /// as every process is stopped. Returns the value as the service wrote it, a [`status::KilledProc`].
    ///
    /// # Errors
    /// [`ClientError::Service`]: `not_found`; `conflict` for a process that is being started; `forbidden`.
    pub async fn raw_kill_proc(&self, name: &str, now: bool) -> Result<Box<RawValue>, ClientError> {
        let arguments = json!({"name": name, "now": now});
        self.connection.call("kill_proc", &arguments).await
    }

    /// Returns the functions that cost most in a `period`, `minute` or `hour`, in the order of `sort` (`functions`).
    ///
    /// # Errors
    /// [`ClientError::Service`]: `bad_request` for another period or order.
    pub async fn functions(
        &self,
        period: &str,
        sort: &str,
        limit: usize,
    ) -> Result<Box<RawValue>, ClientError> {
        let arguments = json!({"period": period, "sort": sort, "limit": limit});
        self.connection.call("functions", &arguments).await
    }

    /// Returns what each database has cost since counting began (`tenants`).
    ///
    /// # Errors
    /// [`ClientError::Service`]: `forbidden`.
    pub async fn tenants(&self) -> Result<Box<RawValue>, ClientError> {
        self.connection.call("tenants", &json!({})).await
    }

    /// Returns what functions of a database have logged after the line with this number (`tenant_log`).
    ///
    /// # Errors
    /// [`ClientError::Service`]: `forbidden`.
    pub async fn tenant_log(&self, db: &str, since: u64) -> Result<Box<RawValue>, ClientError> {
        let arguments = json!({"db": db, "since": since});
        self.connection.call("tenant_log", &arguments).await
    }

    /// Returns a URL that lets a browser in to the dashboard once (`dashboard`).
    ///
    /// # Errors
    /// [`ClientError::Service`]: `not_found` for a service without an HTTP address, `forbidden`.
    pub async fn dashboard(&self) -> Result<String, ClientError> {
        self.typed("dashboard", &json!({})).await
    }

    /// Borrows a process from a pool or a group (`get_proc`), of whatever language that is.
    ///
    /// # Errors
    /// As [`Self::get_proc`], and `not_found`, `pool_busy`, `tenant_busy`, `pool_removed`, `throttled`.
    pub async fn get_proc_from<'a>(
        &self,
        from: impl Into<Taking<'a>>,
        timeout: Option<Duration>,
    ) -> Result<Borrowed, ClientError> {
        self.get(from.into().arguments(), timeout).await
    }

    /// Adds a pool (`add_pool`): an object of settings, `language` among them. Returns what changed.
    ///
    /// # Errors
    /// [`ClientError::Service`]: `file_exists`, `bad_request`.
    pub async fn add_pool(
        &self,
        name: &str,
        settings: &Map<String, Value>,
    ) -> Result<Vec<PoolChange>, ClientError> {
        self.typed("add_pool", &with_name(name, settings)).await
    }

    /// Changes settings of a pool (`reconfigure_pool`). Returns what changed.
    ///
    /// # Errors
    /// [`ClientError::Service`]: `not_found`, `bad_request`; then nothing has changed.
    pub async fn reconfigure_pool(
        &self,
        name: &str,
        settings: &Map<String, Value>,
    ) -> Result<Vec<PoolChange>, ClientError> {
        self.typed("reconfigure_pool", &with_name(name, settings))
            .await
    }

    /// Removes a pool (`remove_pool`), at once or as its processes come back. Returns what changed.
    ///
    /// # Errors
    /// [`ClientError::Service`]: `not_found`, `bad_request`.
    pub async fn remove_pool(
        &self,
        name: &str,
        immediately: bool,
    ) -> Result<Vec<PoolChange>, ClientError> {
        let mode = if immediately { "immediate" } else { "graceful" };
        self.typed("remove_pool", &json!({"name": name, "mode": mode}))
            .await
    }

    /// Returns what [`Self::remove_pool`] would change, and changes nothing. The other two tell it
    /// where their settings have a member `dry_run`.
    ///
    /// # Errors
    /// [`ClientError::Service`]: `not_found`, `bad_request`.
    pub async fn plan_removal(
        &self,
        name: &str,
        immediately: bool,
    ) -> Result<Vec<PoolChange>, ClientError> {
        let mode = if immediately { "immediate" } else { "graceful" };
        let order = json!({"name": name, "mode": mode, "dry_run": true});
        self.typed("remove_pool", &order).await
    }

    /// Has processes of a pool started again before the time of its throttle is up
    /// (`unthrottle_pool`). Returns whether it was throttled.
    ///
    /// # Errors
    /// [`ClientError::Service`]: `not_found`.
    pub async fn unthrottle_pool(&self, name: &str) -> Result<bool, ClientError> {
        self.typed("unthrottle_pool", &json!({"name": name})).await
    }

    /// Returns where it is told that a process which this client holds is taken from it. What was
    /// told before is not told again; who listens too slowly misses the oldest.
    pub fn downs(&self) -> broadcast::Receiver<ProcDown> {
        self.connection.downs()
    }

    async fn typed<T: serde::de::DeserializeOwned>(
        &self,
        call: &'static str,
        arguments: &impl Serialize,
    ) -> Result<T, ClientError> {
        wire::typed(call, &self.connection.call(call, arguments).await?)
    }
}

fn with_name(name: &str, settings: &Map<String, Value>) -> Value {
    let mut arguments = settings.clone();
    arguments.insert("name".to_owned(), name.into());
    Value::Object(arguments)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
