//! The operations of the daemon: the list of calls and paths, and who may use them.
//!
//! SUMMARY   A row is a sentence, then `(call of the socket) [methods and paths of HTTP] => who may, effect`, without the
//!           parentheses if there is no call. The effect is `changes` for an order or a change, otherwise `reads`. The
//!           rows define two enums, [`CallName`] and [`Route`]; the handlers are a `match` over these, so a row
//!           without a handler does not compile.
//! PROMISES  The socket lends processes and runs functions; HTTP does everything else. Calls and paths without a row
//!           do not exist. The call and the path of an operation have the same permissions. [`check_name`] bounds the
//!           length of the names in a call or path; the bounds are here.
//! CALLED    By `messages::client`, which parses calls; by a client's connection, for rights; by `http::routes` and
//!           `http::entrance`. Tests compare `docs/socket.md`, `docs/http.md` and `docs/openapi.json` with the rows.
//! LIMITS    The content of a request can require another right than its row: see `http::pools_api` and
//!           `http::scheduler_api`. If several routes match a path, the first one applies.

use actix_web::http::Method;
use strum::{EnumString, IntoStaticStr, VariantArray};

use self::Who::{AllOrOwn, Anybody, Local, OnPage, With};
use crate::auth::rights::Right::{self, Administer, Call, Inspect, Look, Operate, Replicate};

/// Maximum length of a name in a call, a path or a design document, in bytes: of a database, a design document, a
/// function, a step of its path, a pool, a group, a language, a service, a process, a user.
///
/// # Differs
/// CouchDB's databases have at most 238; it does not limit document ids unless configured to.
pub const NAME_BYTES_MAX: usize = 1024;

/// Maximum length of a string made of names, in bytes: a function's path, a view's context, the id of a replicator
/// document or its replication, a URL parameter.
pub const LONG_NAME_BYTES_MAX: usize = 4096;

/// Checks the length of a received name; `what` is the member or parameter that it was received in.
///
/// # Errors
/// It is longer than `bytes_max`; the sender's fault.
pub(crate) fn check_name(what: &str, name: &str, bytes_max: usize) -> Result<(), String> {
    match name.len() {
        length if length > bytes_max => Err(format!(
            "'{what}' has {length} bytes, the limit is {bytes_max}: use a shorter one"
        )),
        _ => Ok(()),
    }
}

/// The users allowed to use an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Everyone, over HTTP even without a login. On the socket these calls need a held process or a password instead.
    Anybody,
    /// Users with this right.
    With(Right),
    /// Like [`Self::With`], without a `WWW-Authenticate` challenge: the dashboard has a login form.
    OnPage(Right),
    /// Users with this right; for their own jobs and documents also users who may replicate.
    AllOrOwn(Right),
    /// Users with this right on the Unix socket: users of this machine.
    Local(Right),
}

impl Who {
    /// Returns the right required, except for one's own data.
    pub const fn right(self) -> Option<Right> {
        match self {
            Self::Anybody => None,
            Self::With(right)
            | Self::OnPage(right)
            | Self::AllOrOwn(right)
            | Self::Local(right) => Some(right),
        }
    }
}

/// CouchDB's paths for copying a database with all revisions.
const REVISIONS: &str =
    "/_replicator/{name:_bulk_get|_revs_diff|_missing_revs|_revs_limit|_ensure_full_commit}";

macro_rules! operations {
    (@changes reads) => { false };
    (@changes changes) => { true };
    ($(
        #[doc = $sentence:literal]
        $(($call:ident))? [$($route:ident $method:ident $path:expr),*] => $who:expr, $effect:ident;
    )*) => {
        /// A call of the client socket.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
        #[strum(serialize_all = "snake_case")]
        pub enum CallName {
            $($(#[doc = $sentence] $call,)?)*
        }

        impl CallName {
            /// Returns the access required to call it.
            pub const fn who(self) -> Who {
                match self {
                    $($(Self::$call => $who,)?)*
                }
            }
        }

        /// A method and path of HTTP.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
        #[strum(serialize_all = "snake_case")]
        pub enum Route {
            $($(#[doc = $sentence] $route,)*)*
        }

        impl Route {
            /// Returns the method; `HEAD` is allowed wherever `GET` is.
            pub const fn method(self) -> Method {
                match self {
                    $($(Self::$route => Method::$method,)*)*
                }
            }

            /// Returns the path, a pattern for actix-web.
            pub const fn path(self) -> &'static str {
                match self {
                    $($(Self::$route => $path,)*)*
                }
            }

            /// Returns the summary of its operation.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $($(Self::$route => $sentence,)*)*
                }
            }

            /// Returns the access required to use it.
            pub const fn who(self) -> Who {
                match self {
                    $($(Self::$route => $who,)*)*
                }
            }

            /// Returns whether it is an order or a change, and so gets an `audit` record.
            pub const fn changes(self) -> bool {
                match self {
                    $($(Self::$route => operations!(@changes $effect),)*)*
                }
            }
        }
    };
}

impl Route {
    /// Returns whether it is a request of CouchDB's or Prometheus's protocol, and so ignores unknown parameters and
    /// body members as they do. All others refuse unknown ones.
    pub fn ignores_unknown(self) -> bool {
        const COUCHDBS: [&str; 8] = [
            "/_active_tasks",
            "/_node/",
            "/_reload_query_servers",
            "/_replicat",
            "/_scheduler/docs",
            "/_session",
            "/_up",
            "/metrics",
        ];
        self.path() == "/" || COUCHDBS.iter().any(|own| self.path().starts_with(own))
    }
}

operations! {
    // Processes for clients of the socket.

    /// Lends a process.
    (GetProc) [] => With(Call), reads;
    /// Sends a command to a process that is held.
    (Prompt) [] => Anybody, reads;
    /// Gives back a process that is held.
    (RetProc) [] => Anybody, reads;
    /// Sets the timeout of a held process for prompts that bring none.
    (SetTimeout) [] => Anybody, reads;
    /// Cancels a call of this connection that runs functions.
    (Cancel) [] => Anybody, reads;
    /// Turns the connection into a tunnel to one process.
    (Attach) [] => With(Call), reads;

    // The caller.

    /// Welcomes, with the version.
    [Welcome GET "/"] => Anybody, reads;
    /// Says whether the daemon takes requests.
    [Up GET "/_up"] => Anybody, reads;
    /// Describes all paths to programs.
    [OpenApi GET "/_openapi"] => Anybody, reads;
    /// Shows the user of the request.
    [ShowSession GET "/_session"] => Anybody, reads;
    /// Logs in.
    (Auth) [LogIn POST "/_session"] => Anybody, reads;
    /// Ends a session.
    [LogOut DELETE "/_session"] => Anybody, reads;

    // Functions.

    /// Maps documents as they come, a line each.
    [MapStream POST "/_query/map"] => With(Call), reads;
    /// Maps documents.
    (MapDocs) [MapDocs POST "/_query/map"] => With(Call), reads;
    /// Reduces rows.
    (Reduce) [Reduce POST "/_query/reduce"] => With(Call), reads;
    /// Reduces earlier results.
    (Rereduce) [Rereduce POST "/_query/rereduce"] => With(Call), reads;
    /// Finalizes results.
    (Finalize) [Finalize POST "/_query/finalize"] => With(Call), reads;
    /// Makes index entries of documents.
    (IndexDocs) [IndexDocs POST "/_query/index"] => With(Call), reads;
    /// Checks whether a function compiles.
    (TryCompile) [TryCompile POST "/_query/compile"] => With(Call), reads;
    /// Runs any function of a design document.
    (DdocPrompt) [DdocPrompt POST "/_query/ddoc"] => With(Call), reads;
    /// Asks the validate function of a design document about documents.
    (ValidateDocs) [ValidateDocs POST "/_query/validate"] => With(Call), reads;
    /// Asks a filter function about documents.
    (FilterDocs) [FilterDocs POST "/_query/filter"] => With(Call), reads;
    /// Asks a map function whether it emits anything for documents.
    (FilterView) [FilterView POST "/_query/filter_view"] => With(Call), reads;
    /// Renders a document.
    (Show) [Show POST "/_query/show"] => With(Call), reads;
    /// Renders rows as they come, a line each.
    [ListStream POST "/_query/list"] => With(Call), reads;
    /// Renders rows.
    (List) [List POST "/_query/list"] => With(Call), reads;
    /// Creates or changes a document, without writing it.
    (Update) [Update POST "/_query/update"] => With(Call), reads;
    /// Rewrites a request.
    (Rewrite) [Rewrite POST "/_query/rewrite"] => With(Call), reads;
    /// Returns the longest line and body of a call.
    (Limits) [Limits GET "/_query/limits"] => With(Call), reads;
    /// Returns the functions that cost most lately.
    [Functions GET "/_functions"] => With(Look), reads;
    /// Returns the costs of databases.
    [Tenants GET "/_tenants"] => With(Look), reads;
    /// Returns the log lines and errors of a database's functions.
    [TenantLog GET "/_tenants/{db}/log"] => With(Inspect), reads;

    // Pools and processes.

    /// Returns the problems, their beginnings, and their remedies.
    [Health GET "/_health"] => With(Look), reads;
    /// Acknowledges losses: they are no longer reported.
    [AcknowledgeLosses DELETE "/_health/{kind}"] => With(Operate), changes;
    /// Returns whether the daemon is drained, and its remaining work.
    [DrainState GET "/_drain"] => With(Look), reads;
    /// Drains the daemon: it takes no calls and runs no replications; calls that it has taken may end.
    [Drain PUT "/_drain"] => With(Operate), changes;
    /// Has a drained daemon take work again.
    [Undrain DELETE "/_drain"] => With(Operate), changes;
    /// Returns the orders and changes with their users, the latest first.
    [Audit GET "/_audit"] => With(Inspect), reads;
    /// Returns the state of pools with their processes and services.
    [Status GET "/_status"] => With(Look), reads;
    /// Returns the state of pools.
    [Pools GET "/_pools", Pool GET "/_pools/{name}", PoolProcs GET "/_pools/{name}/_procs"] => With(Look), reads;
    /// Adds a pool, or changes settings of one. Only an administrator may set whether callers may use it.
    [PutPool PUT "/_pools/{name}"] => With(Operate), changes;
    /// Removes a pool.
    [RemovePool DELETE "/_pools/{name}"] => With(Operate), changes;
    /// Starts processes of a pool again, before the time of its throttle is up.
    [UnthrottlePool POST "/_pools/{name}/_unthrottle"] => With(Operate), changes;
    /// Stops idle processes of a pool from before the last reload.
    [TerminateStale POST "/_pools/{name}/_terminate_stale"] => With(Operate), changes;
    /// Replaces all processes.
    [Reload POST "/_reload_query_servers"] => With(Operate), changes;
    /// Returns what processes do now.
    [Procs GET "/_procs"] => With(Look), reads;
    /// Ends a process.
    [KillProc DELETE "/_procs/{pool}/{number}"] => With(Operate), changes;
    /// Counts processes, and those from before the last reload.
    [System GET "/_node/_local/_system"] => With(Look), reads;
    /// Returns the running streams and replications.
    [Tasks GET "/_active_tasks"] => With(Look), reads;
    /// Returns all metrics in CouchDB's form, or a part of them.
    [Stats GET "/_node/_local/_stats", StatsPart GET "/_node/_local/_stats/{below:.*}"] => With(Look), reads;
    /// Returns all metrics in Prometheus' form.
    [Metrics GET "/metrics", Prometheus GET "/_node/_local/_prometheus"] => With(Look), reads;

    // The configuration.

    /// Reads the files of the configuration again.
    [ReloadConfig POST "/_node/_local/_config/_reload"] => With(Administer), changes;
    /// Returns what a reload of the configuration would change, and changes nothing.
    [PlanConfig POST "/_node/_local/_config/_plan"] => Local(Administer), reads;
    /// Shows the configuration, a section or a value of it.
    [
        Config GET "/_node/_local/_config",
        ConfigSection GET "/_node/_local/_config/{section}",
        ConfigValue GET "/_node/_local/_config/{section}/{key}"
    ] => With(Inspect), reads;
    /// Sets a value of the configuration.
    [SetConfig PUT "/_node/_local/_config/{section}/{key}"] => With(Administer), changes;
    /// Takes back a value of the configuration that was set.
    [UnsetConfig DELETE "/_node/_local/_config/{section}/{key}"] => With(Administer), changes;

    // The dashboard.

    /// Makes a URL that lets a browser in to the dashboard.
    [DashboardLink POST "/_dashboard_link"] => Local(Administer), changes;
    /// Returns the dashboard's page, without data.
    [DashboardPage GET "/_dashboard"] => Anybody, reads;
    /// Returns what the dashboard shows.
    [DashboardState GET "/_dashboard/state"] => OnPage(Look), reads;
    /// Returns the metrics of the last hour.
    [DashboardHistory GET "/_dashboard/history"] => OnPage(Look), reads;
    /// Gives a file of the dashboard.
    [DashboardFile GET "/_dashboard/{file}"] => Anybody, reads;

    // Replications.

    /// Replicates without a document, or ends such a replication.
    [Replicate POST "/_replicate"] => With(Replicate), changes;
    /// Lists jobs. States that only documents have require an operator, except for one's own.
    [Jobs GET "/_scheduler/jobs"] => AllOrOwn(Look), reads;
    /// Shows a job.
    [Job GET "/_scheduler/jobs/{id}"] => AllOrOwn(Look), reads;
    /// Gives an order to all jobs of a selection. Cancelling and deleting take an administrator.
    [OrderJobs POST "/_scheduler/_bulk"] => AllOrOwn(Operate), changes;
    /// Pauses a job.
    [PauseJob POST "/_scheduler/jobs/{id}/_pause"] => AllOrOwn(Operate), changes;
    /// Resumes a job.
    [ResumeJob POST "/_scheduler/jobs/{id}/_resume"] => AllOrOwn(Operate), changes;
    /// Restarts a job.
    [RestartJob POST "/_scheduler/jobs/{id}/_restart"] => AllOrOwn(Operate), changes;
    /// Gives a job a priority.
    [SetJobPriority POST "/_scheduler/jobs/{id}/_priority"] => AllOrOwn(Operate), changes;
    /// Lists documents with the states of their replications, or shows one.
    [Docs GET "/_scheduler/docs", DocsBelow GET "/_scheduler/docs/{below:.*}"] => AllOrOwn(Inspect), reads;
    /// Lists the daemons that share the store.
    [Fleet GET "/_fleet"] => With(Look), reads;
    /// Sends all replications as they are at one moment, as lines that restore them.
    [ExportJobs GET "/_scheduler/_export"] => Local(Administer), reads;
    /// Writes the documents of an export that do not exist yet.
    [ImportJobs POST "/_scheduler/_import"] => Local(Administer), changes;

    // The replicator database. Users who may replicate see and write their own documents.

    /// Returns the state of the replicator database.
    [Database GET "/_replicator"] => With(Replicate), reads;
    /// Reports that the replicator database exists.
    [CreateDatabase PUT "/_replicator"] => With(Replicate), reads;
    /// Writes a document, with an id of its own or a new one. An id that begins with `_` takes an administrator.
    [PostDoc POST "/_replicator"] => With(Replicate), changes;
    /// Lists documents in the order of their ids.
    [AllDocs GET "/_replicator/_all_docs", PostAllDocs POST "/_replicator/_all_docs"] => With(Administer), reads;
    /// Lists documents in the order of their updates.
    [Changes GET "/_replicator/_changes", PostChanges POST "/_replicator/_changes"] => With(Administer), reads;
    /// Writes documents.
    [BulkDocs POST "/_replicator/_bulk_docs"] => With(Replicate), changes;
    /// Returns the database's security object: CouchDB's default.
    [Security GET "/_replicator/_security"] => With(Administer), reads;
    /// Refuses to change who may do what.
    [SetSecurity PUT "/_replicator/_security"] => With(Administer), reads;
    /// Refuses what takes more than one revision of a document.
    [GetRevisions GET REVISIONS, PutRevisions PUT REVISIONS, PostRevisions POST REVISIONS] => With(Administer), reads;
    /// Reads a document. An id that begins with `_` takes an administrator.
    [GetDoc GET "/_replicator/{id}"] => With(Replicate), reads;
    /// Writes a document. An id that begins with `_` takes an administrator.
    [PutDoc PUT "/_replicator/{id}"] => With(Replicate), changes;
    /// Deletes a document. An id that begins with `_` takes an administrator.
    [DeleteDoc DELETE "/_replicator/{id}"] => With(Replicate), changes;
    /// Reads a design document or a checkpoint.
    [GetReserved GET "/_replicator/{kind:_design|_local}/{id}"] => With(Administer), reads;
    /// Writes a design document or a checkpoint.
    [PutReserved PUT "/_replicator/{kind:_design|_local}/{id}"] => With(Administer), changes;
    /// Deletes a design document or a checkpoint.
    [DeleteReserved DELETE "/_replicator/{kind:_design|_local}/{id}"] => With(Administer), changes;
}
