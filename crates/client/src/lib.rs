//! The client library: uses a running service's processes from any tokio program.
//!
//! SUMMARY   [`Client`] is one connection: it borrows processes, prompts them and returns them.
//!           [`attach`] turns a connection into the plain input and output of one process. [`Operator`] manages the
//!           daemon.
//! PROMISES  Calls may be concurrent: requests are pipelined on one connection, and replies matched by id. Every call
//!           ends, with its answer or an error that states whose fault it is and whether a retry may help. Dropping
//!           the client closes the connection, and the service reclaims its processes.
//! LIMITS    Unix sockets only. At most [`REQUESTS_QUEUED_MAX`] requests wait to be sent; a reply has at most
//!           [`REPLY_BYTES_MAX`] bytes.
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
mod ddocs;
mod error;
mod functions;
mod health;
mod jobs;
mod operator;
mod pool_change;
mod report;
pub mod status;
mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::sync::broadcast;

use connection::Connection;
use ddocs::SentDdocs;
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
pub use operator::{Operator, Pieces, operator_socket, path, with_query};
pub use pool_change::PoolChange;
pub use report::{LogLine, Report, Reported};
pub use wire::{Borrowed, Imported, ProcDown, ReturnStatus};

/// A connection to a service. Cheap to clone; it closes after the last clone is dropped, when the runtime next runs.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Connection,
    ddocs: Arc<SentDdocs>,
}

/// The pools that a process may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeFrom<'a> {
    /// The language's own pool.
    Language(&'a str),
    /// The pool of this name.
    Pool(&'a str),
    /// A random pool of this group that has a free process, or may start one.
    Group(&'a str),
    /// Any pool of this language, its own included.
    AnyOf(&'a str),
}

/// The pools that a process may come from, and the database whose functions it will run: the only one, unless
/// processes are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taking<'a> {
    from: TakeFrom<'a>,
    db: Option<&'a str>,
}

impl<'a> TakeFrom<'a> {
    /// Names the database. Without one, the functions belong to this client.
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
    /// Returns the arguments for a request.
    fn arguments(self) -> Value {
        let mut arguments = match self.from {
            TakeFrom::Language(language) => json!({"lang": language}),
            TakeFrom::Pool(name) => json!({"pool": name}),
            TakeFrom::Group(name) => json!({"group": name}),
            TakeFrom::AnyOf(language) => json!({"lang": language, "any": true}),
        };
        if let Some(db) = self.db {
            arguments["db"] = json!(db);
        }
        arguments
    }
}

/// A design document and its database.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DdocIn<'a> {
    /// The database's name.
    pub db: &'a str,
    /// The document: `_id`, `_rev`, `language` and its functions. A long one is sent once for each connection, then
    /// replaced by its digest.
    pub ddoc: &'a RawValue,
}

impl Client {
    /// Connects to the service that listens at `path`. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// [`ClientError::Io`] if nothing listens there, or this user may not connect.
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, ClientError> {
        Ok(Self::on(UnixStream::connect(path).await?))
    }

    /// Creates a client on a connected stream.
    pub fn on(stream: UnixStream) -> Self {
        Self {
            connection: Connection::on(stream),
            ddocs: Arc::default(),
        }
    }

    /// Borrows any process of a language (`get_proc`). Without a `timeout`, the service's applies.
    ///
    /// The first prompt must be `reset` with [`Borrowed::config`].
    ///
    /// # Errors
    /// [`ClientError::Service`]: `unknown_query_language`, `timeout`, `os_process_error`.
    pub async fn get_proc(
        &self,
        language: &str,
        timeout: Option<Duration>,
    ) -> Result<Borrowed, ClientError> {
        self.get_proc_from(TakeFrom::Language(language), timeout)
            .await
    }

    /// Borrows a process that knows a design document (`get_proc`).
    ///
    /// # Errors
    /// As [`Self::get_proc`], and `bad_request` for an invalid design document.
    pub async fn get_proc_for(
        &self,
        ddoc: DdocIn<'_>,
        timeout: Option<Duration>,
    ) -> Result<Borrowed, ClientError> {
        let mut more = BTreeMap::new();
        if let Some(timeout) = timeout {
            more.insert("timeout_ms", functions::raw(&milliseconds(timeout))?);
        }
        wire::typed("get_proc", &self.for_ddoc("get_proc", ddoc, more).await?)
    }

    /// Sends a command to a process and returns its answer, unchanged (`prompt`).
    ///
    /// Several commands may be pending; a process answers them in order.
    ///
    /// # Errors
    /// [`ClientError::Service`]: the process's own error, `timeout`,
    /// `os_process_error`, `not_holder`, `bad_request`.
    pub async fn prompt(
        &self,
        proc: &str,
        command: &impl Serialize,
        timeout: Option<Duration>,
    ) -> Result<Box<RawValue>, ClientError> {
        self.connection
            .call("prompt", &Prompting::new(proc, command, timeout))
            .await
    }

    /// Returns a process (`ret_proc`). `false`: this client does not hold it, and nothing changed.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ret_proc(&self, proc: &str, status: ReturnStatus) -> Result<bool, ClientError> {
        self.typed("ret_proc", &json!({"proc": proc, "status": status}))
            .await
    }

    /// Sets the default timeout of a process's prompts (`set_timeout`).
    ///
    /// # Errors
    /// [`ClientError::Service`]: `not_holder`.
    pub async fn set_timeout(&self, proc: &str, timeout: Duration) -> Result<(), ClientError> {
        self.connection
            .call(
                "set_timeout",
                &json!({"proc": proc, "timeout_ms": milliseconds(timeout)}),
            )
            .await
            .map(drop)
    }

    /// Borrows a process of any language from a pool or a group (`get_proc`).
    ///
    /// # Errors
    /// As [`Self::get_proc`], and `not_found`, `pool_busy`, `tenant_busy`, `pool_removed`, `throttled`.
    pub async fn get_proc_from<'a>(
        &self,
        from: impl Into<Taking<'a>>,
        timeout: Option<Duration>,
    ) -> Result<Borrowed, ClientError> {
        let mut arguments = from.into().arguments();
        if let Some(timeout) = timeout {
            arguments["timeout_ms"] = json!(milliseconds(timeout));
        }
        self.typed("get_proc", &arguments).await
    }

    /// Subscribes to notices about revoked processes of this client. Earlier notices are not repeated; a lagging
    /// receiver misses the oldest.
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

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
