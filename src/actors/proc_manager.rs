//! ProcManager: supervises the processes of all pools and lends them to clients.
//!
//! SUMMARY   Turns calls, casts and exits into events of [`Pools`] and carries out its actions.
//! PROMISES  Decides nothing and never waits: opening, teaching, resetting and stopping are done by
//!           others, who report. Every call is answered once.
//! CALLED    By clients (`GetProc`, `RetProc`), openers (`Exit`), processes (`OsProcIdle`), monitors
//!           (`Down`), and operators (`SetThresholdTs`, `TerminateStaleProcs`, `ReloadConfig`, ..).
//! SOURCE    couch_proc_manager 000, 001 and HEAD: the same messages. Defects D1 to D16 are not ported.
//! LIMITS    When it ends, its processes end with it, as linked ones do.

mod callers;
mod follow;
mod handlers;
mod holders;
mod in_force;
mod news;
mod pools;
mod probes;
mod processes;
mod ps;
mod requests;
mod self_check;
mod settings;
mod status;
mod table;
mod watches;

use std::sync::Arc;

use actix::prelude::*;
use rustc_hash::FxHashMap;
use slog::{Logger, info, o};
use tokio::sync::watch;

use crate::actors::opener::Opener;
use crate::actors::pool_prober::PoolProber;
use crate::actors::pool_reporter::PoolReporter;
use crate::config::password::random;
use crate::functions::caller::Manager;
use crate::logging::RepeatLimiter;
use crate::messages::pool_watch::PoolState;
use crate::messages::pools::ProcRevoked;
use crate::messages::proc_manager::{ManagerAddress, ProcFailure};
use crate::messages::process::ProcessRef;
use crate::metrics::{Metrics, PoolMetrics};
use crate::otp::clock::Clock;
use crate::otp::pid::{ActorId, ExitReason, Pid, PidGuard};
use crate::otp::registered_name::RegisteredName;
use crate::otp::supervisor::Stop;
use crate::query_server::proc_shared::ProcFlag;
use crate::query_server::prompt;
use crate::query_server::status::Holder;
use child::Spawner;
use policy::pool::{ClientId, Event, PoolAction, PoolId, Pools, ProcId, RequestId};
use policy::pressure::Level;
use policy::time::Timestamp;
use requests::{Answer, Waiting};
use table::PoolTable;

pub use settings::{ManagerSettings, ReloadConfig};

/// How many messages may wait for the manager before senders have to wait.
const MAILBOX_MESSAGES_MAX: usize = 1024;

/// What the actor keeps of a client, from its first request to its end.
#[derive(Default)]
struct PoolClient {
    /// Where it is told that a process is taken from it.
    revoked: Option<Recipient<ProcRevoked>>,
    /// Who that is, for people.
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
    /// How much of the range between soft and hard limits pools may use.
    level: Level,
    /// The pools whose stress began or ended in the current event.
    turned: Vec<PoolId>,
    /// Whether the current event is one of several that belong together.
    settling: bool,
    /// Process -> how to reach it; one that was told to stop stays until it is gone.
    procs: FxHashMap<ProcId, Arc<ProcessRef>>,
    /// Process to be -> what opens it.
    openers: FxHashMap<ProcId, Opening>,
    /// Request -> who waits for it.
    requests: FxHashMap<RequestId, Waiting>,
    /// The clients that are watched; a client's number is that of its pid.
    clients: FxHashMap<ClientId, PoolClient>,
    /// Actor of a process -> the process.
    actors: FxHashMap<ActorId, ProcId>,
    next_request: u64,
    /// The request that is being handled, before it is known whether it has to wait in the table.
    arriving: Option<(RequestId, Waiting)>,
    /// Its answer, when it has one at once.
    immediate: Option<Answer>,
    /// The actions of the current event; kept for its memory.
    actions: Vec<PoolAction>,
    /// What failed in the current event, for those who are refused because of it.
    cause: Option<ProcFailure>,
    /// When the timer fires, and how to cancel it.
    timer: Option<(Timestamp, SpawnHandle)>,
    /// What its checks of itself found.
    findings: self_check::Findings,
    /// Pool -> whom to tell of its changes.
    watchers: FxHashMap<PoolId, watch::Sender<PoolState>>,
    /// The warning that all pools together are full.
    full: RepeatLimiter,
    /// What finds out what nobody knows yet of the pools' query servers.
    prober: Addr<PoolProber>,
    /// What tells people of the pools.
    reporter: Addr<PoolReporter>,
    /// The lives of the actors beside it, which end with it, as it does with them.
    beside: [Pid; 2],
    /// Whether it ends as soon as the last process is gone.
    shutting_down: bool,
    pid_guard: PidGuard,
}

impl ProcManager {
    /// Makes a manager with one pool for each language, and starts the actors beside it. Start it on the same
    /// arbiter, the pool's.
    pub fn new(settings: Arc<ManagerSettings>, spawner: Spawner, log: &Logger) -> Self {
        let (pid_guard, clock) = (PidGuard::new(), Clock::new());
        let log = log.new(o!("component" => "proc_manager"));
        let prober = PoolProber::new(spawner.clone(), pid_guard.pid(), log.clone());
        let reporter = PoolReporter::new(pid_guard.pid(), clock, log.clone());
        Self {
            settings,
            spawner,
            clock,
            log,
            metrics: Metrics::new(),
            core: Pools::with_seed(u64::from_le_bytes(random())),
            pools: PoolTable::default(),
            level: Level::FULL,
            turned: Vec::new(),
            settling: false,
            procs: FxHashMap::default(),
            openers: FxHashMap::default(),
            requests: FxHashMap::default(),
            clients: FxHashMap::default(),
            actors: FxHashMap::default(),
            next_request: 0,
            arriving: None,
            immediate: None,
            actions: Vec::new(),
            cause: None,
            timer: None,
            findings: self_check::Findings::default(),
            watchers: FxHashMap::default(),
            full: RepeatLimiter::default(),
            beside: [prober.pid(), reporter.pid()],
            prober: prober.start(),
            reporter: reporter.start(),
            shutting_down: false,
            pid_guard,
        }
    }

    /// Uses shared metrics instead of a private set.
    #[must_use]
    pub(crate) fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Returns the name by which its life can be watched.
    pub fn pid(&self) -> Pid {
        self.pid_guard.pid()
    }

    /// Tells the core what happened and does what it says.
    fn event(&mut self, event: Event, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        self.event_at(now, event, ctx);
    }

    fn event_at(&mut self, now: Timestamp, event: Event, ctx: &mut Context<Self>) {
        let mut actions = std::mem::take(&mut self.actions);
        self.core.handle(event, now, &mut actions);
        for action in actions.drain(..) {
            self.perform(action, now, ctx);
        }
        self.actions = actions;
        self.cause = None;
        self.tell_watchers();
        self.warn_if_full(now);
        self.watch_deadline(now, ctx);
        if !self.settling {
            self.assert_invariants();
        }
        self.follow_stress(now, ctx);
    }

    /// Tells the core several things that belong together: the invariants hold only after the last one.
    fn events(&mut self, events: Vec<Event>, ctx: &mut Context<Self>) {
        self.settling = true;
        for event in events {
            self.event(event, ctx);
        }
        self.settling = false;
        self.assert_invariants();
    }

    fn perform(&mut self, action: PoolAction, now: Timestamp, ctx: &mut Context<Self>) {
        match action {
            PoolAction::Open { proc, .. } => self.open(proc, ctx),
            PoolAction::Teach { proc, request } => self.teach(proc, request, ctx),
            PoolAction::Reset { proc } => {
                let line = prompt::reset(&self.settings.reset_config);
                self.help(proc, line, None, ctx);
            }
            PoolAction::Forget { proc } => {
                self.metrics_of(proc.pool).forgets();
                if let Some(process) = self.procs.get(&proc) {
                    // What clients have taught goes with the rest. If it does not, the process goes.
                    process.shared.set(ProcFlag::TaughtByClient, false);
                }
                let line = prompt::forget(&self.settings.reset_config);
                self.help(proc, line, None, ctx);
            }
            PoolAction::Assign {
                request,
                proc,
                token,
                reset,
            } => self.assign(request, (proc, token), reset, now, ctx),
            PoolAction::Refuse { request, why } => self.refuse(request, why, now),
            PoolAction::ProcRevoked {
                client,
                proc,
                token,
                why,
            } => self.tell_holder(client, (proc, token), why),
            PoolAction::PoolGone { pool } => self.pool_gone(pool),
            PoolAction::Warn(warning) => self.warn(warning, now),
            PoolAction::Stop { proc, why } => {
                self.metrics_of(proc.pool).stopped(why);
                self.stop(proc, why.is_polite(), None);
            }
        }
    }

    fn metrics_of(&self, pool: PoolId) -> &Arc<PoolMetrics> {
        &self.pools.at(pool).metrics
    }

    fn watch_deadline(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        let Some(deadline) = self.core.next_deadline() else {
            return;
        };
        if let Some((fires, handle)) = self.timer {
            if fires <= deadline {
                return;
            }
            ctx.cancel_future(handle);
        }
        let handle = ctx.run_later(deadline.since(now), |manager, ctx| {
            manager.timer = None;
            manager.event(Event::Tick, ctx);
        });
        self.timer = Some((deadline, handle));
    }

    fn watch_client(&mut self, pid: &Pid, ctx: &mut Context<Self>) -> (ClientId, &mut PoolClient) {
        let id = ClientId(pid.id().0);
        let client = self.clients.entry(id).or_insert_with(|| {
            pid.monitor(ctx.address().recipient());
            PoolClient::default()
        });
        (id, client)
    }

    /// Ends once nothing is left of what was started.
    fn finish_shutdown(&mut self, ctx: &mut Context<Self>) {
        let is_left = !self.procs.is_empty() || !self.openers.is_empty();
        if !self.shutting_down || is_left {
            return;
        }
        // Now it has been told everything. Ignores the mailbox's bound: the order must not be lost.
        self.reporter.do_send(Stop { now: true });
        if !self.beside.iter().any(Pid::is_alive) {
            self.pid_guard.ending(ExitReason::Shutdown);
            ctx.stop();
        }
    }
}

impl ProcManager {
    /// An actor beside it has ended: in a shutdown by order, otherwise a failure of its own.
    fn beside_down(&mut self, reason: &ExitReason, ctx: &mut Context<Self>) {
        if self.shutting_down {
            return self.finish_shutdown(ctx);
        }
        let reason = format!("an actor beside it ended: {reason}");
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
                reset_config: address.recipient(),
            }
        })
    }
}

impl Actor for ProcManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX_MESSAGES_MAX);
        for pid in &self.beside {
            pid.monitor(ctx.address().recipient());
        }
        self.start_self_check(ctx);
        let events = self.follow_settings(None);
        self.events(events, ctx);
        self.watch_memory(ctx);
        self.try_all_cells();
        info!(self.log, "process manager started"; "count" => self.pools.len());
    }
}
