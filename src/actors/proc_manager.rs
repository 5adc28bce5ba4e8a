//! ProcManager: supervises the processes of all pools and lends them to clients.
//!
//! SUMMARY   Converts calls, casts and exits to events of [`Pools`] and carries out its actions.
//! PROMISES  Decides nothing and never blocks: other actors open, teach, reset and stop processes, and report; system
//!           state is read on other threads. Every call is answered once.
//! CALLED    By clients (`GetProc`, `RetProc`), openers (`Exit`), processes (`OsProcIdle`), monitors
//!           (`Down`), and operators (`SetThresholdTs`, `TerminateStaleProcs`, `ReloadConfig`, ..).
//! SOURCE    couch_proc_manager 000, 001 and HEAD: the same messages. Defects D1 to D16 are not ported.
//! LIMITS    Its processes end with it, as if linked.

mod news;
mod pools;
mod probes;
mod processes;
pub(crate) mod procs;
mod reload;
mod requests;
mod resting;
mod snapshot;
mod table;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use rustc_hash::FxHashMap;
use slog::{Logger, info, o};
use tokio::sync::watch;

use crate::actors::language::Registry;
use crate::actors::opener::Opener;
use crate::config::password::random;
use crate::config::{PoolConfig, PoolTerms, ServiceTerms};
use crate::drain::Drain;
use crate::functions::caller::Manager;
use crate::logging::RepeatLimiter;
use crate::messages::pools::{PoolState, ProcRevoked};
use crate::messages::proc_manager::ManagerAddress;
use crate::messages::process::ProcessRef;
use crate::metrics::{Metrics, PoolMetrics};
use crate::otp::{
    ActorId, Clock, DeadlineTimer, Down, ExitReason, Pid, PidGuard, RegisteredName, Stop,
};
use crate::query_server::cells::Cells;
use crate::query_server::language::LanguageName;
use crate::query_server::status::Holder;
use child::Spawner;
use policy::pool::{
    ClientId, Event, Limits, PoolAction, PoolId, Pools, ProcId, RequestId, Reuse, TenantRules,
};
use policy::pressure::Level;
use policy::time::Timestamp;
use probes::Probes;
use requests::Waiting;
use table::PoolTable;

pub use reload::ReloadConfig;
pub use snapshot::{GetStatus, PoolsSnapshot};

/// Maximum queued messages before senders have to wait.
const MAILBOX_MESSAGES_MAX: usize = 1024;

/// The manager's part of the configuration.
#[derive(Clone)]
pub struct ManagerSettings {
    /// The limits of every language's pool, unless its section sets others.
    pub limits: Limits,
    /// `processes_max`: maximum processes of all pools together; `None`: no limit.
    pub processes_max: Option<u32>,
    /// Maximum pools, including those of languages.
    pub pools_max: usize,
    /// The limits of each tenant, over all pools.
    pub tenants: TenantRules,
    /// Lower-case name -> section of a pool: a language's own, or a named one. Shared with the pool as long as the pool
    /// has the configured section.
    pub pools: BTreeMap<String, Arc<PoolConfig>>,
    /// Lower-case name -> the services' terms for a pool without a section.
    pub service_terms: BTreeMap<String, ServiceTerms>,
    /// `os_process_timeout`: for a request, a reset, a lesson and a prompt.
    pub os_process_timeout: Duration,
    /// `os_process_idle_limit`.
    pub idle_limit: Duration,
    /// How long a stopping process may take before it is killed.
    pub stop_grace: Duration,
    /// Maximum length of a process's line, in bytes.
    pub line_bytes_max: usize,
    /// Maximum logged lines per second of a process.
    pub log_lines_max: usize,
    /// Maximum logged bytes per minute of a pool's processes.
    pub log_bytes_max: usize,
    /// Which tenants a process may serve; `None`: depends on the language.
    pub reuse: Option<Reuse>,
    /// Maximum tenants with an isolate in a process.
    pub isolates_max: u32,
    /// How a database's name becomes a tag.
    pub db_tag: policy::pool::db_tag::DbTag,
    /// The arguments of `reset`: a JSON object.
    pub reset_config: Arc<str>,
    /// The languages and how their processes are started.
    pub languages: Registry,
    /// The languages whose processes are commands put into cells by the service.
    pub external: BTreeSet<LanguageName>,
    /// The configuration of processes' cells.
    pub cells: Cells,
}

impl ManagerSettings {
    /// Returns the terms of a language's pools. Unless `reuse` is configured, tenants share the processes of a language
    /// that isolates functions or tenants itself.
    fn terms_of(&self, language: &LanguageName) -> PoolTerms {
        let language = self.languages.get(language);
        let language = language.as_ref();
        let has_isolates = language.is_some_and(|language| language.has_isolates());
        let isolates_functions = language.is_some_and(|language| language.isolates_functions());
        let by_language = if has_isolates {
            Reuse::Isolates
        } else if isolates_functions {
            Reuse::Any
        } else {
            Reuse::Database
        };
        PoolTerms {
            limits: self.limits,
            reuse: self.reuse.unwrap_or(by_language),
            can_forget: language.is_some_and(|language| language.can_forget()),
            isolates_max: if has_isolates { self.isolates_max } else { 0 },
            isolates_functions,
        }
    }
}

/// Converts a time for the log and for display.
fn milliseconds(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

/// The actor's state of a client, from its first request to its end.
#[derive(Default)]
struct PoolClient {
    /// Notified when a process of the client is revoked.
    revoked: Option<Recipient<ProcRevoked>>,
    /// The client's description for display.
    who: Option<Arc<Holder>>,
}

/// A process that is being opened.
struct Opening {
    opener: Addr<Opener>,
    since: Timestamp,
}

/// The manager of all pools.
pub struct ProcManager {
    settings: Arc<ManagerSettings>,
    spawner: Spawner,
    clock: Clock,
    log: Logger,
    metrics: Metrics,
    /// All decisions.
    core: Pools,
    /// Names, languages, groups, commands.
    pools: PoolTable,
    /// The part of the range between soft and hard limits that pools may use.
    level: Level,
    /// Process -> its address; a stopping one stays until it has ended.
    procs: FxHashMap<ProcId, Arc<ProcessRef>>,
    /// Future process -> its opener.
    openers: FxHashMap<ProcId, Opening>,
    /// Request -> its waiter.
    requests: FxHashMap<RequestId, Waiting>,
    /// The monitored clients; a client's number is that of its pid.
    clients: FxHashMap<ClientId, PoolClient>,
    /// Actor of a process -> the process.
    actors: FxHashMap<ActorId, ProcId>,
    next_request: u64,
    /// Empty between turns; kept for its memory.
    actions: Vec<PoolAction>,
    /// Fires at the next deadline.
    timer: DeadlineTimer<Timestamp>,
    /// Process -> its current or latest work for a tenant with a share of processor time.
    meters: FxHashMap<ProcId, processes::Meter>,
    /// Returned processes that may have to be suspended.
    resting: resting::Due,
    /// Findings of its self-checks.
    findings: turn::Findings,
    /// The reload in progress.
    following: Option<reload::Following>,
    /// Pool -> its watchers.
    watchers: FxHashMap<PoolId, watch::Sender<PoolState>>,
    /// Limits the warning that all pools together are full.
    full: RepeatLimiter,
    /// Its probes of query servers and tests of cells.
    probes: Probes,
    /// Whether a timer for start summaries is set.
    sums_starts_up: bool,
    /// Whether memory is being read, or a timer for that is set.
    checks_memory: bool,
    /// Whether lending is suspended.
    drain: Drain,
    /// Whether it ends as soon as the last process is gone.
    shutting_down: bool,
    pid_guard: PidGuard,
}

impl ProcManager {
    /// Creates a manager with one pool for each language.
    pub fn new(settings: Arc<ManagerSettings>, spawner: Spawner, log: &Logger) -> Self {
        Self {
            settings,
            spawner,
            clock: Clock::new(),
            log: log.new(o!("component" => "proc_manager")),
            metrics: Metrics::new(),
            core: Pools::with_seed(u64::from_le_bytes(random())),
            pools: PoolTable::default(),
            level: Level::FULL,
            procs: FxHashMap::default(),
            openers: FxHashMap::default(),
            requests: FxHashMap::default(),
            clients: FxHashMap::default(),
            actors: FxHashMap::default(),
            next_request: 0,
            actions: Vec::new(),
            timer: DeadlineTimer::default(),
            meters: FxHashMap::default(),
            resting: resting::Due::default(),
            findings: turn::Findings::default(),
            following: None,
            watchers: FxHashMap::default(),
            full: RepeatLimiter::default(),
            probes: Probes::default(),
            sums_starts_up: false,
            checks_memory: false,
            drain: Drain::default(),
            shutting_down: false,
            pid_guard: PidGuard::new(),
        }
    }

    /// Uses shared metrics instead of a private set.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Makes it part of a daemon: monitored, and lending nothing while the daemon is drained.
    #[must_use]
    pub(crate) fn of_daemon(mut self, drain: Drain, pid_guard: PidGuard) -> Self {
        self.drain = drain;
        self.pid_guard = pid_guard;
        self
    }

    /// Returns the pid by which it can be monitored.
    pub fn pid(&self) -> Pid {
        self.pid_guard.pid()
    }

    fn metrics_of(&self, pool: PoolId) -> &Arc<PoolMetrics> {
        &self.pools.at(pool).metrics
    }

    fn watch_client(&mut self, pid: &Pid, ctx: &mut Context<Self>) -> (ClientId, &mut PoolClient) {
        let id = ClientId(pid.id().0);
        let client = self.clients.entry(id).or_insert_with(|| {
            pid.monitor(ctx.address().recipient());
            PoolClient::default()
        });
        (id, client)
    }

    /// Ends once everything it started has ended.
    fn finish_shutdown(&mut self, ctx: &mut Context<Self>) {
        let has_procs = !self.procs.is_empty() || !self.openers.is_empty();
        if self.shutting_down && !has_procs && self.probes.count == 0 {
            self.tell_last_starts();
            self.pid_guard.shut_down(ctx);
        }
    }
}

impl From<RegisteredName<ProcManager>> for Manager {
    fn from(manager: RegisteredName<ProcManager>) -> Self {
        Self::new(move || {
            let address = manager.address();
            ManagerAddress {
                get_proc: address.clone().recipient(),
                require: address.clone().recipient(),
                language: address.clone().recipient(),
                reset_config: address.recipient(),
            }
        })
    }
}

impl Actor for ProcManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX_MESSAGES_MAX);
        Self::check_after(turn::PERIOD, ctx);
        self.follow_first_settings(ctx);
        info!(self.log, "process manager started"; "count" => self.pools.len());
    }
}

impl Handler<Down> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: Down, ctx: &mut Self::Context) {
        let client = ClientId(msg.actor.0);
        if let Some(proc) = self.actors.remove(&msg.actor) {
            self.process_down(proc, msg.reason, ctx);
        } else if self.clients.remove(&client).is_some() {
            self.client_down(client, msg.reason == ExitReason::Normal, ctx);
        }
    }
}

/// Ends all processes, then itself: its end implies that no child remains (PM-9).
impl Handler<Stop> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        self.shutting_down = true;
        for probe in self.probes.running.drain(..) {
            ctx.cancel_future(probe);
        }
        self.event(Event::Shutdown, ctx);
        if msg.now {
            for proc in self.procs.keys().chain(self.openers.keys()) {
                self.stop(*proc, false, None);
            }
        }
        self.finish_shutdown(ctx);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::app::settings::manager_settings;
    use crate::config::Config;

    impl ManagerSettings {
        /// Returns the default settings of a manager without languages.
        pub(crate) fn without_languages() -> Arc<Self> {
            let config = Arc::new(Config::default());
            let settings = manager_settings(&config, Path::new("settee"), &Registry::new(), &[]);
            Arc::new(settings)
        }
    }
}
