//! ProcManager: supervises the processes of all pools and lends them to clients.
//!
//! SUMMARY   Turns calls, casts and exits into events of [`Pools`] and carries out its actions.
//! PROMISES  Decides nothing and never waits: opening, teaching, resetting and stopping are done by
//!           others, who report. Every call is answered once.
//! CALLED    By clients (`GetProc`, `RetProc`), openers (`Exit`), processes (`OsProcIdle`), lifelines
//!           (`Down`), and operators (`SetThresholdTs`, `TerminateStaleProcs`, `ReloadConfig`, ..).
//! SOURCE    couch_proc_manager 000, 001 and HEAD: the same messages. Defects D1 to D16 are not ported.
//! LIMITS    When it ends, its processes end with it, as linked ones do.

mod abilities;
mod handlers;
mod holders;
mod memory;
mod pool_settings;
mod pools;
mod self_check;
mod status;
mod table;
mod warnings;
mod watch;

use std::sync::Arc;

use actix::prelude::*;
use rustc_hash::FxHashMap;
use slog::{Logger, info, o};

use crate::actors::clock::Clock;
use crate::actors::deferred::Replier;
use crate::actors::lifeline::{ExitReason, Lifeline, MonitorRef, PartyId, Pulse};
use crate::actors::opener::{Opener, StopOpening};
use crate::config::password::random;
use crate::messages::opener::{Exit, OpenerExit, StartError};
use crate::messages::pools::HolderDown;
use crate::messages::proc_manager::{
    GetProcError, HelpError, HelperDone, Lease, ManagerSettings, RetProc, Want, What,
};
use crate::messages::process::{
    Fault, MANAGER_TOKEN, Obituary, ProcessRef, Prompt, PromptError, StopProc,
};
use crate::metrics::{Metrics, OpenFailure, PoolMetrics, ProcessMetrics, Refused};
use crate::policy::pool::{
    Action, ClientId, Event, PoolId, Pools, ProcId, Refusal, RequestId, Target, Token,
};
use crate::policy::time::Timestamp;
use crate::query_server::child::Spawner;
use crate::query_server::language::StartContext;
use crate::query_server::prompt;
use table::PoolTable;
use warnings::Repeats;
use watch::Watched;

/// How many messages may wait for the manager before senders have to wait.
const MAILBOX_MESSAGES_MAX: usize = 1024;

/// Whom a `Down` is about.
#[derive(Clone, Copy)]
enum Party {
    Client(ClientId),
    Proc(ProcId),
}

/// What the actor keeps of a request that is not answered yet.
struct Request {
    /// None while its call is being handled: then the answer is the handler's result.
    replier: Option<Replier<Result<Lease, GetProcError>>>,
    client: ClientId,
    want: Want,
    /// The pools that may serve it.
    target: Target,
    /// What they are called: a pool's name, or a group's.
    label: Arc<str>,
    asked: Timestamp,
}

/// Why a process could not be opened, taught or reset.
#[derive(Clone)]
struct Cause {
    reason: String,
    fault: Fault,
    /// How the process failed, if that is what happened.
    error: Option<PromptError>,
}

impl From<StartError> for Cause {
    fn from(error: StartError) -> Self {
        Self {
            reason: error.reason,
            fault: error.fault,
            error: None,
        }
    }
}

impl From<HelpError> for Cause {
    fn from(error: HelpError) -> Self {
        Self {
            reason: error.reason,
            fault: Fault::QueryServer,
            error: error.error,
        }
    }
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
    /// What the core is to be told as soon as there is somebody who can carry it out.
    first_events: Vec<Event>,
    /// Whether the event at hand is one of several that belong together.
    settling: bool,
    /// Process -> how to reach it; those that are told to stop stay until they are gone.
    procs: FxHashMap<ProcId, Arc<ProcessRef>>,
    /// Process to be -> its opener.
    openers: FxHashMap<ProcId, Addr<Opener>>,
    /// Request -> who waits for it.
    requests: FxHashMap<RequestId, Request>,
    /// Client -> the monitor on it, from its first request to its end.
    clients: FxHashMap<ClientId, (Pulse, MonitorRef)>,
    /// Watched party -> what it is to us.
    parties: FxHashMap<PartyId, Party>,
    next_request: u64,
    /// The request at hand, before it is known whether it has to wait in the table.
    arriving: Option<(RequestId, Request)>,
    /// Its answer, when it has one at once.
    immediate: Option<Result<Lease, GetProcError>>,
    /// Where leases go back; one for all of them, because making one costs several allocations.
    returns: Option<Arc<Recipient<RetProc>>>,
    /// The actions of the event at hand; kept for its memory.
    actions: Vec<Action>,
    /// Why the event at hand failed, for those who are refused over it.
    cause: Option<Cause>,
    /// When the timer fires, and how to cancel it.
    timer: Option<(Timestamp, SpawnHandle)>,
    /// What its checks of itself found.
    findings: self_check::Findings,
    /// Client -> where it is told that a process is taken from it.
    holders: FxHashMap<ClientId, Recipient<HolderDown>>,
    /// Whom to tell of every change of a pool.
    watchers: Vec<Watched>,
    /// Whether a timer is set for reading the memory of processes.
    memory_timer: bool,
    /// Whether the memory of processes is being read.
    reading_memory: bool,
    /// Warnings that repeat.
    repeats: Repeats,
    /// Probes of abilities that are under way; each has a child at most.
    probes: Vec<SpawnHandle>,
    /// How many of them have not said that they are done.
    probing: usize,
    /// Whether it ends as soon as the last process is gone.
    shutting_down: bool,
    lifeline: Lifeline,
}

impl ProcManager {
    /// Makes a manager with one pool for each language. Start it on the pool's arbiter.
    pub fn new(settings: Arc<ManagerSettings>, spawner: Spawner, log: &Logger) -> Self {
        let mut manager = Self {
            settings,
            spawner,
            clock: Clock::new(),
            log: log.new(o!("component" => "proc_manager")),
            metrics: Metrics::new(),
            core: Pools::with_seed(u64::from_le_bytes(random())),
            pools: PoolTable::default(),
            first_events: Vec::new(),
            settling: false,
            procs: FxHashMap::default(),
            openers: FxHashMap::default(),
            requests: FxHashMap::default(),
            clients: FxHashMap::default(),
            parties: FxHashMap::default(),
            next_request: 0,
            arriving: None,
            immediate: None,
            returns: None,
            actions: Vec::new(),
            cause: None,
            timer: None,
            findings: self_check::Findings::default(),
            holders: FxHashMap::default(),
            watchers: Vec::new(),
            memory_timer: false,
            reading_memory: false,
            repeats: Repeats::default(),
            probes: Vec::new(),
            probing: 0,
            shutting_down: false,
            lifeline: Lifeline::new(),
        };
        manager.first_events = manager.follow_settings(None);
        manager
    }

    /// Counts in `metrics`, and not in numbers that nobody sees.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        for pool in self.pools.iter_mut() {
            pool.metrics = metrics.pool(&pool.name);
        }
        self.metrics = metrics;
        self
    }

    /// Returns the name by which its life can be watched.
    pub fn pulse(&self) -> Pulse {
        self.lifeline.pulse()
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
        self.watch_deadline(now, ctx);
        if !self.settling {
            self.assert_invariants();
        }
    }

    /// Tells the core several things that belong together: only after the last one everything is as
    /// it should be.
    fn events(&mut self, events: Vec<Event>, ctx: &mut Context<Self>) {
        self.settling = true;
        for event in events {
            self.event(event, ctx);
        }
        self.settling = false;
        self.assert_invariants();
    }

    fn perform(&mut self, action: Action, now: Timestamp, ctx: &mut Context<Self>) {
        match action {
            Action::Open { proc, .. } => self.open(proc, ctx),
            Action::Teach { proc, request } => self.teach(proc, request, ctx),
            Action::Reset { proc } => {
                let line = prompt::reset(&self.settings.reset_config);
                self.help(proc, line, ctx);
            }
            Action::Assign {
                request,
                proc,
                token,
            } => self.assign(request, proc, token, now),
            Action::Refuse { request, why } => self.refuse(request, why, now),
            Action::HolderDown {
                client,
                proc,
                token,
                why,
            } => self.tell_holder(client, (proc, token), why),
            Action::PoolGone { pool } => self.pool_gone(pool),
            Action::Warn(warning) => self.warn(warning, now),
            Action::Stop { proc, why } => {
                self.metrics_of(proc.pool).stopped(why);
                self.stop(proc, why.is_polite());
            }
        }
    }

    fn open(&mut self, proc: ProcId, ctx: &mut Context<Self>) {
        let pool = self.pools.at(proc.pool);
        let language = pool.language.clone();
        // TERM after half of it, and KILL at its end.
        let stop_grace = pool.section.stop_grace.map(|grace| grace * 2);
        let Some(starter) = self.settings.languages.get(&language) else {
            // The language was taken out of the configuration while the request waited.
            self.metrics_of(proc.pool).open_failed(OpenFailure::Client);
            let reason = OpenerExit::SpawnError(StartError {
                reason: "the language is not configured any more".into(),
                fault: Fault::Client,
            });
            return ctx.notify(Exit { proc, reason });
        };
        let context = StartContext {
            proc,
            clock: self.clock,
            spawner: self.spawner.clone(),
            manager: ctx.address().recipient(),
            owner: self.lifeline.pulse(),
            prompt_timeout: self.settings.os_process_timeout,
            idle_limit: self.settings.idle_limit,
            stop_grace: stop_grace.unwrap_or(self.settings.stop_grace),
            memory_max: None,
            line_bytes_max: self.settings.line_bytes_max,
            stress: self.core.is_stressed(proc.pool),
            log: self
                .log
                .new(o!("generation" => proc.number, "language" => language.to_string())),
            metrics: ProcessMetrics {
                pool: Arc::clone(self.metrics_of(proc.pool)),
                language: self.metrics.language(language.as_str()),
            },
            language,
        };
        let timeout = self.settings.os_process_timeout;
        let opener = Opener::open(starter, context, timeout, ctx.address().recipient());
        self.openers.insert(proc, opener);
    }

    fn teach(&mut self, proc: ProcId, request: RequestId, ctx: &mut Context<Self>) {
        let want = self.request(request).map(|request| &request.want.what);
        let Some(What::Ddoc { ddoc, .. }) = want else {
            let result = Err(HelpError {
                reason: "the request is gone".to_owned(),
                error: None,
            });
            return ctx.notify(HelperDone { proc, result });
        };
        let line = prompt::teach(ddoc);
        self.help(proc, line, ctx);
    }

    /// Prompts a process on our own behalf and requires the answer `true`, off our turn (PM-6).
    fn help(&mut self, proc: ProcId, line: bytes::Bytes, ctx: &mut Context<Self>) {
        let Some(process) = self.procs.get(&proc).cloned() else {
            return;
        };
        process.shared.assign(MANAGER_TOKEN);
        let manager = ctx.address();
        let clock = self.clock;
        let order = Prompt {
            token: MANAGER_TOKEN,
            line,
            timeout: None,
            verbatim: false,
        };
        // Ends with the answer, at the latest with the prompt's deadline.
        actix_rt::spawn(async move {
            let result = match process.prompt.send(order).await {
                Ok(Ok(answer)) if answer.trim_ascii() == b"true" => Ok(()),
                Ok(Ok(answer)) => {
                    let text = String::from_utf8_lossy(&answer);
                    Err(HelpError {
                        reason: format!("it answered {} instead of true", shorten(&text)),
                        error: None,
                    })
                }
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(process.shared.gone().into()),
            };
            process.shared.unassign(clock.now());
            // Ignores the mailbox's bound: there is one such report for each process at most.
            manager.do_send(HelperDone { proc, result });
        });
    }

    fn metrics_of(&self, pool: PoolId) -> &Arc<PoolMetrics> {
        &self.pools.at(pool).metrics
    }

    fn request(&self, id: RequestId) -> Option<&Request> {
        match &self.arriving {
            Some((arriving, request)) if *arriving == id => Some(request),
            _ => self.requests.get(&id),
        }
    }

    fn take_request(&mut self, id: RequestId) -> Option<Request> {
        match self.arriving.take_if(|(arriving, _)| *arriving == id) {
            Some((_, request)) => Some(request),
            None => self.requests.remove(&id),
        }
    }

    fn assign(&mut self, id: RequestId, proc: ProcId, token: Token, now: Timestamp) {
        let request = self
            .take_request(id)
            .expect("PM-4: an open request has a caller");
        let waited = now.since(request.asked);
        self.metrics_of(proc.pool).acquired(waited);
        let process = self
            .procs
            .get(&proc)
            .expect("PM-2: an assigned process is known")
            .clone();
        process.shared.assign(token);
        let pool = self.pools.at(proc.pool);
        let lease = Lease {
            proc,
            token,
            pool: Arc::clone(&pool.name),
            language: pool.language.clone(),
            config: Arc::clone(&self.settings.reset_config),
            process,
            client: request.client,
            manager: self.returns.clone(),
        };
        // A caller that is gone gives the lease back by dropping it.
        self.answer(request.replier, Ok(lease));
    }

    fn answer(
        &mut self,
        replier: Option<Replier<Result<Lease, GetProcError>>>,
        answer: Result<Lease, GetProcError>,
    ) {
        match replier {
            Some(replier) => drop(replier.send(answer)),
            None => self.immediate = Some(answer),
        }
    }

    fn refuse(&mut self, id: RequestId, why: Refusal, now: Timestamp) {
        let request = self
            .take_request(id)
            .expect("PM-4: an open request has a caller");
        let pool = self.pools.of_target(request.target);
        let language = pool.map(|pool| self.pools.at(pool).language.to_string());
        let language = language.unwrap_or_else(|| request.label.to_string());
        let label = Arc::clone(&request.label);
        let cause = self.cause.clone().unwrap_or_else(|| Cause {
            reason: "the query server ended".into(),
            fault: Fault::QueryServer,
            error: None,
        });
        let refused = match why {
            Refusal::PoolBusy => Some(Refused::Busy),
            Refusal::Throttled { .. } => Some(Refused::Throttled),
            Refusal::PoolRemoved | Refusal::NoPool => Some(Refused::Removed),
            _ => None,
        };
        if let Some((pool, why)) = pool.zip(refused) {
            self.metrics_of(pool).refused(why);
        }
        let error = match why {
            Refusal::Timeout { phase } => {
                if let Some(pool) = pool {
                    self.metrics_of(pool).request_timed_out(phase);
                }
                GetProcError::Timeout {
                    phase,
                    waited: now.since(request.asked),
                }
            }
            Refusal::SpawnFailed => GetProcError::SpawnFailed {
                language,
                reason: cause.reason,
                fault: cause.fault,
            },
            Refusal::TeachFailed => GetProcError::TeachFailed {
                language,
                ddoc: request.want.ddoc_id(),
                reason: cause.reason,
                error: cause.error.map(Box::new),
            },
            Refusal::PoolBusy => GetProcError::PoolBusy { pool: label },
            Refusal::PoolRemoved => GetProcError::PoolRemoved { pool: label },
            Refusal::NoPool => GetProcError::NoSuchPool(format!("there is no pool in '{label}'")),
            Refusal::Throttled { until } => GetProcError::Throttled {
                pool: label,
                reason: self.failure_of(request.target),
                retry_in: until.since(now),
            },
            Refusal::ShuttingDown => GetProcError::ShuttingDown,
        };
        self.answer(request.replier, Err(error));
    }

    fn stop(&mut self, proc: ProcId, polite: bool) {
        let polite = polite
            && self
                .procs
                .get(&proc)
                .is_none_or(|p| p.shared.in_flight() == 0);
        if let Some(process) = self.procs.get(&proc) {
            // Ignores the mailbox's bound: it must not be lost, and it is sent once.
            process.stop.do_send(StopProc { polite });
        } else if let Some(opener) = self.openers.get(&proc) {
            opener.do_send(StopOpening);
        }
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

    fn watch_client(&mut self, client: &Pulse, ctx: &mut Context<Self>) -> ClientId {
        let id = ClientId(client.party().0);
        self.clients.entry(id).or_insert_with(|| {
            self.parties.insert(client.party(), Party::Client(id));
            (client.clone(), client.monitor(ctx.address().recipient()))
        });
        id
    }

    fn process_down(&mut self, proc: ProcId, reason: ExitReason, ctx: &mut Context<Self>) {
        let process = self.procs.remove(&proc);
        // What the process knows about its end says more than the reason does.
        let served = process.as_ref().is_some_and(|p| p.shared.has_served());
        let doom = process.and_then(|process| process.shared.doom().cloned());
        let by_itself = doom.as_ref().is_some_and(PromptError::is_own_end);
        let error = doom.unwrap_or_else(|| {
            PromptError::Exited(Obituary {
                exit: Some(format!("ended: {reason}")),
                ..Obituary::default()
            })
        });
        if by_itself {
            self.note_failure(proc.pool, &error.to_string());
        }
        self.cause = Some(HelpError::from(error).into());
        // One that has served somebody started well, also when its client has not returned it yet.
        let by_itself = by_itself && !served;
        self.event(Event::ProcExit { proc, by_itself }, ctx);
        self.finish_shutdown(ctx);
    }

    /// Ends once nothing is left of what was started.
    fn finish_shutdown(&mut self, ctx: &mut Context<Self>) {
        let nothing_left = self.procs.is_empty() && self.openers.is_empty() && self.probing == 0;
        if self.shutting_down && nothing_left {
            self.lifeline.ending(ExitReason::Shutdown);
            ctx.stop();
        }
    }
}

/// How much of an unexpected answer an error quotes, in characters.
const QUOTED_CHARACTERS: usize = 200;

fn shorten(text: &str) -> String {
    text.chars().take(QUOTED_CHARACTERS).collect()
}

impl Actor for ProcManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX_MESSAGES_MAX);
        self.returns = Some(Arc::new(ctx.address().recipient()));
        self.start_self_check(ctx);
        self.start_memory_check(ctx);
        let events = std::mem::take(&mut self.first_events);
        self.events(events, ctx);
        info!(self.log, "process manager started"; "count" => self.pools.len());
    }
}
