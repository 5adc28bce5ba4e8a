//! ProcManager: supervises the processes of all pools and lends them to clients.
//!
//! SUMMARY   Converts calls, casts and exits to events of [`Pools`] and carries out its actions.
//! PROMISES  Decides nothing and never blocks: other actors open, teach, reset and stop processes, and report. Every
//!           call is answered once.
//! CALLED    By clients (`GetProc`, `RetProc`), openers (`Exit`), processes (`OsProcIdle`), monitors
//!           (`Down`), and operators (`SetThresholdTs`, `TerminateStaleProcs`, `ReloadConfig`, ..).
//! SOURCE    couch_proc_manager 000, 001 and HEAD: the same messages. Defects D1 to D16 are not ported.
//! LIMITS    Its processes end with it, as if linked.

mod pools;
mod processes;
mod reload;
mod requests;
mod resting;
mod snapshot;
mod status;
mod table;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use rustc_hash::FxHashMap;
use slog::{Logger, info, o};
use tokio::sync::watch;

use crate::actors::language::{Language, Registry};
use crate::actors::opener::Opener;
use crate::actors::pool_prober::PoolProber;
use crate::actors::pool_reporter::PoolReporter;
use crate::config::password::random;
use crate::config::{PoolConfig, PoolTerms, ServiceTerms};
use crate::drain::Drain;
use crate::functions::caller::Manager;
use crate::logging::RepeatLimiter;
use crate::messages::pools::PoolState;
use crate::messages::pools::ProcRevoked;
use crate::messages::proc_manager::ManagerAddress;
use crate::messages::process::ProcessRef;
use crate::metrics::{Metrics, PoolMetrics};
use crate::otp::clock::Clock;
use crate::otp::deadline::DeadlineTimer;
use crate::otp::pid::{ActorId, Down, ExitReason, Pid, PidGuard};
use crate::otp::registered_name::RegisteredName;
use crate::otp::supervisor::Stop;
use crate::otp::tell::Tell;
use crate::query_server::cells::Cells;
use crate::query_server::language::LanguageName;
use crate::query_server::status::Holder;
use child::Spawner;
use policy::pool::{
    ClientId, Event, Limits, PoolAction, PoolId, Pools, ProcId, RequestId, Reuse, TenantRules,
};
use policy::pressure::Level;
use policy::time::Timestamp;
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
    /// Returns which tenants a process of a language may serve: as configured, otherwise by the language. Tenants share
    /// the processes of a language that isolates functions or tenants itself.
    fn reuse_of(&self, language: Option<&dyn Language>) -> Reuse {
        let by_language = if language.is_some_and(|language| language.has_isolates()) {
            Reuse::Isolates
        } else if language.is_some_and(|language| language.isolates_functions()) {
            Reuse::Any
        } else {
            Reuse::Database
        };
        self.reuse.unwrap_or(by_language)
    }

    pub(super) fn terms_of(&self, language: &LanguageName) -> PoolTerms {
        let language = self.languages.get(language);
        PoolTerms {
            limits: self.limits,
            reuse: self.reuse_of(language.as_deref()),
            can_forget: language
                .as_ref()
                .is_some_and(|language| language.can_forget()),
            isolates_max: language
                .as_ref()
                .filter(|language| language.has_isolates())
                .map_or(0, |_| self.isolates_max),
            isolates_functions: language.is_some_and(|language| language.isolates_functions()),
        }
    }
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
    /// Probes the pools' query servers.
    prober: Addr<PoolProber>,
    /// Reports on the pools to operators.
    reporter: Addr<PoolReporter>,
    /// Its companion actors, linked to it, by name: if one ends, all do.
    beside: [(&'static str, Pid); 2],
    /// Whether lending is suspended.
    drain: Drain,
    /// Whether it ends as soon as the last process is gone.
    shutting_down: bool,
    pid_guard: PidGuard,
}

impl ProcManager {
    /// Creates a manager with one pool for each language, and starts its companion actors on the current arbiter: start
    /// the manager there too.
    pub fn new(settings: Arc<ManagerSettings>, spawner: Spawner, log: &Logger) -> Self {
        let (pid_guard, clock) = (PidGuard::new(), Clock::new());
        let log = log.new(o!("component" => "proc_manager"));
        let prober = PoolProber::new(spawner.clone(), log.clone());
        let reporter = PoolReporter::new(clock, log.clone());
        let beside = [
            ("PoolProber", prober.pid()),
            ("PoolReporter", reporter.pid()),
        ];
        let (prober, reporter) = (prober.start(), reporter.start());
        pid_guard.pid().link(prober.clone().recipient());
        pid_guard.pid().link(reporter.clone().recipient());
        Self {
            settings,
            spawner,
            clock,
            log,
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
            beside,
            prober,
            reporter,
            drain: Drain::default(),
            shutting_down: false,
            pid_guard,
        }
    }

    /// Uses shared metrics instead of a private set.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Lends nothing while the daemon is drained.
    #[must_use]
    pub(crate) fn with_drain(mut self, drain: Drain) -> Self {
        self.drain = drain;
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
        let is_left = !self.procs.is_empty() || !self.openers.is_empty();
        if !self.shutting_down || is_left {
            return;
        }
        // The reporter has received all messages by now.
        self.reporter.tell(Stop { now: true });
        if !self.beside.iter().any(|(_, pid)| pid.is_alive()) {
            self.pid_guard.ending(ExitReason::Shutdown);
            ctx.stop();
        }
    }
}

impl ProcManager {
    /// Returns the name of an actor linked to it.
    fn name_of_beside(&self, actor: ActorId) -> Option<&'static str> {
        let mut beside = self.beside.iter();
        beside
            .find(|(_, pid)| pid.id() == actor)
            .map(|(name, _)| *name)
    }

    /// A companion actor has ended: as ordered in a shutdown, otherwise a failure that also ends the manager.
    fn beside_down(&mut self, name: &str, reason: &ExitReason, ctx: &mut Context<Self>) {
        if self.shutting_down {
            return self.finish_shutdown(ctx);
        }
        let reason = format!("its companion {name} ended: {reason}");
        self.pid_guard.ending(ExitReason::Failed(reason));
        ctx.stop();
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
        for (_, pid) in &self.beside {
            pid.monitor(ctx.address().recipient());
        }
        self.start_self_check(ctx);
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
        } else if let Some(name) = self.name_of_beside(msg.actor) {
            self.beside_down(name, &msg.reason, ctx);
        }
    }
}

/// Ends all processes, then itself: its end implies that no child remains (PM-9).
impl Handler<Stop> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        self.shutting_down = true;
        self.prober.tell(msg);
        self.event(Event::Shutdown, ctx);
        if msg.now {
            let all = self.procs.keys().chain(self.openers.keys());
            let all: Vec<_> = all.copied().collect();
            all.into_iter()
                .for_each(|proc| self.stop(proc, false, None));
        }
        self.finish_shutdown(ctx);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use slog::Discard;

    use super::*;
    use crate::app::settings::manager_settings;
    use crate::config::Config;
    use crate::otp::pid::Down;
    use test_support::{Probe, eventually};

    impl ManagerSettings {
        /// Returns the default settings of a manager without languages.
        pub(crate) fn without_languages() -> Arc<Self> {
            let config = Arc::new(Config::default());
            let settings = manager_settings(&config, Path::new("settee"), &Registry::new(), &[]);
            Arc::new(settings)
        }
    }

    /// A manager, the pids of its companion actors, and a probe for its end.
    fn manager() -> (ProcManager, [Pid; 2], Probe<Down>) {
        let settings = ManagerSettings::without_languages();
        let spawner = Spawner::start().unwrap();
        let manager = ProcManager::new(settings, spawner, &Logger::root(Discard, o!()));
        let probe = Probe::start();
        manager.pid().monitor(probe.recipient());
        let beside = manager.beside.clone().map(|(_, pid)| pid);
        (manager, beside, probe)
    }

    #[actix_rt::test]
    async fn the_manager_fails_and_names_the_companion_actor_that_ended() {
        for (index, name) in ["PoolProber", "PoolReporter"].into_iter().enumerate() {
            let (manager, beside, mut down) = manager();
            let stops = [
                manager.prober.clone().recipient(),
                manager.reporter.clone().recipient(),
            ];
            let _address = manager.start();
            stops[index].tell(Stop { now: true });
            let reason = format!("its companion {name} ended: shutdown");
            assert_eq!(down.next().await.reason, ExitReason::Failed(reason));
            eventually("the end of both", async || {
                !beside.iter().any(Pid::is_alive)
            })
            .await;
        }
    }

    #[actix_rt::test]
    async fn companion_actors_end_with_a_manager_that_ends_without_an_announcement() {
        // As after a panic, without an announcement.
        let (manager, beside, mut down) = manager();
        drop(manager);
        assert_eq!(down.next().await.reason, ExitReason::Killed);
        eventually("the end of both", async || {
            !beside.iter().any(Pid::is_alive)
        })
        .await;
    }
}
