//! ReplicationScheduler: runs replications in turns, as many at a time as allowed.
//!
//! SUMMARY   Turns calls and the ends of runs into events of [`Scheduler`] and executes its actions; keeps each job's
//!           replication and progress; notifies waiters and subscribers.
//! PROMISES  Decides nothing and never waits. A run that ends in any way, including a panic, is noticed once.
//!           All who wait for a job's end are notified, or find the channel closed.
//! CALLED    By ReplicatorDocuments and, through the ReplicatorApi, by HTTP and clients of the socket; by jobs
//!           ([`JobEvent`](crate::messages::replication_job::JobEvent)) and the JobSupervisor
//!           ([`ChildEnded`](crate::messages::replication_job::ChildEnded)).
//! SOURCE    couch_replicator_scheduler 004 and HEAD: the same calls, casts and infos.
//! DIFFERS   Changed settings apply at once, including the interval; an unset one returns to its default. The end of
//!           an unknown run is ignored.

mod entry;
mod handlers;
mod probe;

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::Instant;
use rustc_hash::FxHashMap;
use slog::{Logger, info, o, warn};
use tokio::sync::broadcast;

use crate::actors::job_supervisor::{JobSupervisor, LiveRuns};
use crate::actors::past_writer::PastWriter;
use crate::logging::SUMMARY_PERIOD;
use crate::messages::fleet_member::ServerReach;
use crate::messages::replication_job::{
    JobEnd, JobName, JobProgress, NewRun, STOP_MAX, StartChild, StartJobs, TerminateChild,
};
use crate::messages::replication_scheduler::{Happening, ReplicationEvent};
use crate::metrics::ReplicationMetrics;
use crate::otp::{DeadlineTimer, MonitorRef, PidGuard, Replier, Tell, WallClock};
use crate::replicator::DocStates;
use policy::schedule::{
    Census, End, Event, JobId, Reason, Run, ScheduleAction, Scheduler, Server, Settings,
    StopReason, WallTime,
};
use replication::crash::Crash;
use replication::endpoint::Http;

use entry::JobEntry;

/// Maximum queued messages before senders have to wait.
const MAILBOX_MESSAGES_MAX: usize = 1024;

/// How long runs may take to make a checkpoint on shutdown.
const SHUTDOWN_MAX: Duration = Duration::from_millis(4500);

/// The same for an immediate shutdown.
const SHUTDOWN_NOW_MAX: Duration = Duration::from_secs(1);

/// A scheduler's dependencies.
pub struct SchedulerOptions {
    /// `[replicator]` as now in force.
    pub settings: Settings,
    /// How jobs are started.
    pub jobs: StartJobs,
    /// The existing runs, shared by successive schedulers.
    pub live: LiveRuns,
    /// The states of documents, notified of their jobs.
    pub states: Arc<DocStates>,
    /// Probes servers.
    pub http: Http,
    /// Its counters.
    pub metrics: Arc<ReplicationMetrics>,
    /// The log.
    pub log: Logger,
}

/// The state of a run.
struct RunRow {
    id: JobId,
    /// Its end, as reported.
    end: Option<JobEnd>,
    /// Waiters for its end.
    gone: Vec<Replier<bool>>,
}

/// The scheduler of all replications.
pub struct ReplicationScheduler {
    /// All decisions.
    core: Scheduler,
    /// Job -> its replication, progress, and waiters for its end.
    entries: FxHashMap<JobId, JobEntry>,
    /// Run -> its job, from its start until it is gone.
    runs: FxHashMap<Run, RunRow>,
    subscribers: Vec<Recipient<ReplicationEvent>>,
    /// Given to the supervisor when that starts.
    jobs: Option<StartJobs>,
    supervisor: Option<Addr<JobSupervisor>>,
    supervisors_life: Option<MonitorRef>,
    live: LiveRuns,
    clock: WallClock,
    states: Arc<DocStates>,
    pasts: Option<PastWriter>,
    /// Notified of servers that are unreachable for long, and of their return, if several daemons share jobs.
    servers: Option<broadcast::Sender<ServerReach>>,
    http: Http,
    metrics: Arc<ReplicationMetrics>,
    /// The actions of the current event; kept to reuse the memory.
    actions: Vec<ScheduleAction>,
    /// The end of the run whose end is being handled, for waiters.
    ending: Option<JobEnd>,
    /// Repeated crashes that are not logged yet.
    crashed_again: u64,
    /// The end of the latest cycle, or the start of the scheduler.
    last_cycle: Instant,
    /// The timer of the next cycle.
    cycle_timer: Option<SpawnHandle>,
    /// Fires when a back-off ends while a slot is free, or a server is due for a probe.
    wake_timer: DeadlineTimer<WallTime>,
    shutting_down: bool,
    log: Logger,
    pid_guard: PidGuard,
}

impl ReplicationScheduler {
    /// Makes a scheduler without jobs; its supervisor may already monitor it. Its `jobs` option decides on which thread
    /// a run starts.
    pub fn new(options: SchedulerOptions, pid_guard: PidGuard) -> Self {
        Self {
            core: Scheduler::new(options.settings),
            entries: FxHashMap::default(),
            runs: FxHashMap::default(),
            subscribers: Vec::new(),
            jobs: Some(options.jobs),
            supervisor: None,
            supervisors_life: None,
            live: options.live,
            clock: WallClock::new(),
            states: options.states,
            pasts: None,
            servers: None,
            http: options.http,
            metrics: options.metrics,
            actions: Vec::new(),
            ending: None,
            last_cycle: Instant::now(),
            cycle_timer: None,
            wake_timer: DeadlineTimer::default(),
            shutting_down: false,
            crashed_again: 0,
            log: options.log.new(o!("component" => "replication_scheduler")),
            pid_guard,
        }
    }

    /// Sets what serves other daemons that share the jobs: the writer of jobs' histories, and the receiver of servers
    /// that are unreachable for long, and of their return.
    pub(crate) fn with_fleet(
        self,
        pasts: Option<PastWriter>,
        servers: Option<broadcast::Sender<ServerReach>>,
    ) -> Self {
        Self {
            pasts,
            servers,
            ..self
        }
    }

    /// Reports that a server is unreachable for long, or answers again.
    fn tell_reach(&self, server: Server, answers: bool) {
        if let Some(servers) = &self.servers {
            // Lost while the fleet member is being restarted.
            drop(servers.send(ServerReach { server, answers }));
        }
    }

    /// Passes an event to the core, and executes its actions.
    fn event(&mut self, event: Event, ctx: &mut Context<Self>) {
        let (now, before) = (self.clock.now(), *self.core.totals());
        let mut actions = std::mem::take(&mut self.actions);
        self.core.handle(event, now, &mut actions);
        for action in actions.drain(..) {
            self.perform(action, ctx);
        }
        self.actions = actions;
        self.tell_states();
        self.metrics
            .publish(self.core.census(), &before, self.core.totals());
        self.watch_wake(now, ctx);
    }

    /// Reports changed states of documents' jobs.
    fn tell_states(&mut self) {
        for id in self.core.take_changed() {
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            entry.in_group.set_failing(self.core.failing(&id));
            match entry.own_doc() {
                Some(doc) => {
                    let state = self.core.state(&id);
                    self.states.lock().set_job(&doc.id, &id, state);
                }
                None => self.states.lock().note_transient(&id),
            }
        }
    }

    fn perform(&mut self, action: ScheduleAction, ctx: &mut Context<Self>) {
        match action {
            ScheduleAction::Start { id, run, eased } => {
                self.note_past(&id);
                self.start_job(id, run, eased, ctx);
            }
            ScheduleAction::Stop { id, run, why } => {
                info!(self.log, "replication is stopped"; self.name(&id), "run" => run.0,
                      "because" => why.because());
                self.stop_job(run, why);
            }
            ScheduleAction::Stopped { id } => self.note_past(&id),
            ScheduleAction::Crashed { id, reason, until } => {
                self.note_past(&id);
                self.job_crashed(&id, &reason, until);
            }
            ScheduleAction::Probe { server, id } => self.ask_server(server, &id, ctx),
            ScheduleAction::ServerLost { server, jobs } => {
                warn!(self.log, "server cannot be reached"; "server" => &*server, "count" => jobs);
            }
            ScheduleAction::ServerUnreachable { server } => self.tell_reach(server, false),
            ScheduleAction::ServerBack { server, jobs } => {
                info!(self.log, "server answers again"; "server" => &*server, "count" => jobs);
                self.tell_reach(server, true);
            }
            ScheduleAction::Left { id, how } => self.job_left(&id, how),
        }
    }

    /// Saves the history of a job, for the next owner of its document.
    fn note_past(&mut self, id: &JobId) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.has_new_refused = false;
        if let (Some(pasts), Some(of)) = (&self.pasts, &entry.past_of)
            && let Some(job) = self.core.job(id)
        {
            pasts.note(of, &job, &entry.refused);
        }
    }

    fn start_job(&mut self, id: JobId, run: Run, eased: bool, ctx: &Context<Self>) {
        let entry = self
            .entries
            .get(&id)
            .expect("SCH-1: a job that is started is registered");
        let mut replication = Arc::clone(&entry.replication);
        let name = entry.name();
        if eased {
            let tuning = &mut Arc::make_mut(&mut replication).options.tuning;
            for lowered in tuning.lower_for_rate_limit() {
                warn!(self.log, "option lowered, because a server limits the rate of requests";
                      name.clone(), "option" => lowered.name,
                      "from" => lowered.from, "to" => lowered.to);
            }
        }
        info!(self.log, "replication is started"; name.clone(), "run" => run.0);
        let new = NewRun {
            replication,
            id: entry.id.clone(),
            number: run,
            earlier: entry
                .progress
                .as_ref()
                .map(|last| last.stats)
                .unwrap_or_default(),
            guard: entry.guard.clone(),
            events: ctx.address().recipient(),
            log: self.log.new(o!(name, "run" => run.0)),
        };
        self.supervisor().tell(StartChild(new));
        self.tell(&id, Happening::Triggered);
        let row = RunRow {
            id,
            end: None,
            gone: Vec::new(),
        };
        self.runs.insert(run, row);
    }

    /// Returns the name of a job in the log.
    fn name(&self, id: &JobId) -> JobName {
        self.entries
            .get(id)
            .map_or_else(|| JobName::of_id(id), JobEntry::name)
    }

    fn stop_job(&self, run: Run, why: StopReason) {
        let within = match why {
            StopReason::Lost => Duration::ZERO,
            StopReason::Shutdown => SHUTDOWN_MAX,
            StopReason::Excess
            | StopReason::Rotated
            | StopReason::Paused
            | StopReason::Removed
            | StopReason::Replaced => STOP_MAX,
        };
        self.supervisor().tell(TerminateChild { run, within });
    }

    fn supervisor(&self) -> &Addr<JobSupervisor> {
        self.supervisor
            .as_ref()
            .expect("SCH-2: jobs are started after the scheduler")
    }

    fn job_crashed(&mut self, id: &JobId, reason: &Reason, until: WallTime) {
        let crashes = self
            .core
            .job(id)
            .map_or(0, |job| job.shown.summary.error_count);
        // An outage of a server with many jobs would fill the log: repeated crashes are only counted.
        match crashes {
            ..=1 => warn!(self.log, "replication crashed"; self.name(id), "error" => &*reason.text,
                          "next_try" => until.to_string()),
            _ => self.crashed_again += 1,
        }
        let crash = self.crash(reason);
        if let Some(entry) = self.entries.get_mut(id) {
            entry.resolve(&JobEnd::Crashed(crash.clone()));
        }
        self.tell(id, Happening::Crashed(crash));
    }

    /// Logs the counted crashes.
    fn tell_crashes(&mut self) {
        let count = std::mem::take(&mut self.crashed_again);
        if count > 0 {
            warn!(self.log, "replications crashed again"; "count" => count,
                  "remedy" => "settee jobs --states crashing --group-by reason says how many fail, and why");
        }
    }

    fn job_left(&mut self, id: &JobId, how: End) {
        let end = match how {
            End::Stopped => JobEnd::Stopped,
            End::Normal => {
                info!(self.log, "replication completed"; self.name(id));
                self.ending
                    .clone()
                    .expect("SCH-3: a job completes when its run says so")
            }
            End::Crashed(reason) | End::Unreachable(reason, _) => {
                warn!(self.log, "replication without a document failed and is removed";
                      self.name(id), "error" => &*reason.text);
                JobEnd::Crashed(self.crash(&reason))
            }
        };
        self.tell(id, Happening::Ended(end.clone()));
        if let Some(mut entry) = self.entries.remove(id) {
            match entry.own_doc() {
                Some(doc) => self.states.lock().set_job(&doc.id, id, None),
                None => self.states.lock().note_transient(id),
            }
            entry.resolve(&end);
        }
    }

    /// Returns the crash that the ending run reported.
    fn crash(&self, reason: &Reason) -> Crash {
        match &self.ending {
            Some(JobEnd::Crashed(crash)) => crash.clone(),
            Some(JobEnd::Normal(_) | JobEnd::Stopped) | None => {
                Crash::JobDied(reason.text.to_string())
            }
        }
    }

    /// Notifies subscribers.
    fn tell(&mut self, id: &JobId, what: Happening) {
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let refused = match what {
            Happening::Ended(_) => entry.refused(),
            Happening::Triggered | Happening::Crashed(_) => Vec::new(),
        };
        let event = ReplicationEvent {
            id: entry.id.clone(),
            replication: Arc::clone(&entry.replication),
            refused,
            what,
        };
        self.subscribers.retain(Recipient::connected);
        for subscriber in &self.subscribers {
            subscriber.tell(event.clone());
        }
    }

    /// Records a job's progress, unless its run was replaced.
    fn note_progress(&mut self, run: Run, id: &JobId, progress: JobProgress) {
        let now = self.clock.now();
        let is_its_own = self.core.job(id).is_some_and(|job| job.owns(run));
        if let Some(entry) = self.entries.get_mut(id).filter(|_| is_its_own) {
            entry.in_group.set_lag(progress.changes_pending);
            entry.progress = Some(Arc::new(progress));
            entry.progress_at = Some(now);
        }
    }

    /// Ends once nothing runs.
    fn finish_shutdown(&mut self, ctx: &mut Context<Self>) {
        if self.shutting_down && self.runs.is_empty() {
            self.tell_crashes();
            let totals = self.core.totals();
            self.metrics.publish(&Census::default(), totals, totals);
            self.pid_guard.shut_down(ctx);
        }
    }

    fn watch_cycle(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.cycle_timer.take() {
            ctx.cancel_future(timer);
        }
        let wait = self
            .core
            .settings()
            .interval
            .saturating_sub(self.last_cycle.elapsed());
        self.cycle_timer = Some(ctx.run_later(wait, |scheduler, ctx| {
            scheduler.event(Event::Cycle, ctx);
            // From its end: a slow cycle delays the next one, and never causes two.
            scheduler.last_cycle = Instant::now();
            scheduler.watch_cycle(ctx);
        }));
    }

    fn watch_wake(&mut self, now: WallTime, ctx: &mut Context<Self>) {
        if let Some(at) = self.core.next_wake() {
            let look = |scheduler: &mut Self, ctx: &mut Context<Self>| {
                scheduler.wake_timer.fired();
                scheduler.event(Event::Tick, ctx);
            };
            self.wake_timer.look_by(at, at.since(now), ctx, look);
        }
    }
}

impl Actor for ReplicationScheduler {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX_MESSAGES_MAX);
        self.supervisor = self.jobs.take().map(|jobs| {
            let supervisor = JobSupervisor::new(
                jobs,
                self.live.clone(),
                self.pid_guard.pid(),
                ctx.address().recipient(),
                &self.log,
            );
            self.supervisors_life = Some(supervisor.pid().monitor(ctx.address().recipient()));
            supervisor.start()
        });
        self.last_cycle = Instant::now();
        self.watch_cycle(ctx);
        ctx.run_interval(SUMMARY_PERIOD, |scheduler, _| scheduler.tell_crashes());
        info!(self.log, "replication scheduler started";
              "max_jobs" => self.core.settings().max_jobs);
    }
}

#[cfg(test)]
mod tests;
