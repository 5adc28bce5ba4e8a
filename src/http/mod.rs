//! HTTP: CouchDB's paths for the pool, and functions by POST.
//!
//! SUMMARY   [`server::HttpServer`] runs an actix-web server on its own threads. A request passes [`entrance`], which
//!           authenticates it; then [`routes`], a table of actix-web resources: each method of a path is declared
//!           with its required rights and its handler. A handler gets its parameters from extractors:
//!           [`access::User`], [`params::Params`], [`request::IsJson`], [`body::AtMost`]. Functions run on the pool's
//!           arbiter, as messages to the [`PoolExecutor`](crate::actors::pool_executor); everything else is requested
//!           from the responsible actor.
//! PROMISES  Every answer with a body has a content type: JSON, except for the dashboard's files, event streams and
//!           Prometheus metrics. Errors are `{"error", "reason"}` with CouchDB's codes. If a client disconnects, its
//!           work ends.
//! CALLED    By [`crate::app`], which supervises [`server::HttpServer`].
//! SOURCE    chttpd, chttpd_node, chttpd_misc, chttpd_auth.
//! LIMITS    HTTP/1.1 only. A malformed request gets a 400 without a body, from actix-web. actix-http frames an answer
//!           for the request that it has read last: pipelined requests with different versions, different `Connection`,
//!           or HEAD among other methods get unusable answers.

mod access;
mod answer;
mod body;
mod compress;
mod config_api;
mod connections;
mod dashboard;
mod entrance;
mod export_api;
mod functions_api;
mod guard;
mod history;
mod info;
mod line_stream;
mod list_stream;
mod map_stream;
mod origin;
mod outgoing;
mod params;
mod pools_api;
mod procs_api;
mod query;
mod replicate;
mod replicator;
mod request;
mod routes;
mod scheduler_api;
pub(crate) mod server;
mod session_api;
mod tasks;
mod tenant_log;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use actix_web::web::Data;
use slog::Logger;
use tokio::sync::watch;

use crate::ConfigWatch;
use crate::actors::client::peer::UserNames;
use crate::actors::config_listener::ConfigListener;
use crate::actors::pool_executor::PoolHandle;
use crate::actors::proc_manager::ProcManager;
use crate::actors::replicator_api::ReplicatorApi;
use crate::audit::AuditLog;
use crate::auth::Authority;
use crate::drain::Drain;
use crate::in_flight::InFlight;
use crate::metrics::Metrics;
use crate::metrics::history::History;
use crate::otp::RegisteredName;
use crate::query_server::known_ddocs::KnownDdocs;
use crate::query_server::tenant_logs::TenantLogs;
use dashboard::state::StateMemo;
use tasks::Tasks;

/// State shared by all requests.
pub(crate) struct HttpContext {
    pub pool: PoolHandle,
    pub manager: RegisteredName<ProcManager>,
    pub config_listener: RegisteredName<ConfigListener>,
    /// The current configuration.
    pub config: ConfigWatch,
    pub authority: Arc<Authority>,
    /// The users of this machine.
    pub user_names: Arc<UserNames>,
    /// The address of HTTP without TLS, if any.
    pub address: Option<SocketAddr>,
    /// The log of orders and changes.
    pub audit: AuditLog,
    pub drain: Drain,
    pub metrics: Metrics,
    pub replications: ReplicatorApi,
    /// The memory of requests and answers in flight.
    pub in_flight: Arc<InFlight>,
    pub ddocs: Arc<KnownDdocs>,
    pub tasks: Tasks,
    /// The logs of each database's functions.
    pub tenant_logs: Arc<TenantLogs>,
    pub dashboard: StateMemo,
    /// Metrics of the last hour.
    pub history: Mutex<History>,
    /// Set when the service is about to end.
    pub stopping: watch::Sender<bool>,
    pub log: Logger,
}

/// The shared state, for handlers.
type Shared = Data<HttpContext>;
