//! JobSupervisor: starts, monitors and ends the runs of jobs.
//!
//! SUMMARY   A run is a temporary child: the scheduler decides whether and when a crashed job is retried. A run waits
//!           for the end of any earlier run of its replication, even one of an earlier scheduler ([`LiveRuns`]).
//! PROMISES  One [`ChildEnded`] for each run to be started, whether its start fails or panics, or it ends, panics or
//!           does not end in time. All children end with the scheduler, or with this actor. A replication never has
//!           more than one run.
//! CALLED    By the ReplicationScheduler, on whose arbiter it runs. The runs are on other threads
//!           ([`JobThreads`]).
//! SOURCE    couch_replicator_scheduler_sup 004: simple_one_for_one, temporary, shutdown 5000. Its
//!           restart intensity does not apply, as no child is restarted.
//! LIMITS    A child that survives being killed is abandoned, and counts as ended: its slot is free, but no other run
//!           of its replication starts.

mod live;
mod threads;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use actix::dev::channel;
use actix::prelude::*;
use futures_util::future::{AbortHandle, Abortable};
use rustc_hash::FxHashMap;
use slog::{Logger, error, info, o, warn};

use crate::messages::replication_job::{
    ChildEnded, JobName, NewRun, RunningJob, StartChild, StartJobs, StopJob, TerminateChild,
};
use crate::otp::{Down, ExitReason, MonitorRef, Pid, PidGuard, Tell};
pub(crate) use live::LiveRuns;
use policy::schedule::Run;
use replication::crash::Crash;
use replication::id::ReplicationId;
pub(crate) use threads::JobThreads;

/// Messages that may wait for a job before senders have to wait; those of the supervisor never do.
const MAILBOX_MESSAGES_MAX: usize = 16;

/// How long a killed child may take to end.
const KILLED_MAX: Duration = Duration::from_secs(1);

/// How long children may take to end after the scheduler failed.
const ORPHANED_MAX: Duration = Duration::from_millis(4500);

/// Runs an actor as a job on this thread. Its pid ends when all of it is dropped, and it can be killed.
pub fn run<A>(job: A) -> RunningJob
where
    A: Actor<Context = Context<A>> + Handler<StopJob>,
{
    let (running, begin) = prepare(move || job, ());
    begin();
    running
}

/// Prepares a job. The returned closure starts it on the calling thread; dropping the closure ends the job. `held` is
/// dropped after the job.
fn prepare<A, H>(make: impl FnOnce() -> A, held: H) -> (RunningJob, impl FnOnce())
where
    H: 'static,
    A: Actor<Context = Context<A>> + Handler<StopJob>,
{
    let pid_guard = PidGuard::new();
    let pid = pid_guard.pid();
    let (sender, receiver) = channel::channel(MAILBOX_MESSAGES_MAX);
    let stop = Addr::new(sender).recipient();
    let (killer, registration) = AbortHandle::new_pair();
    let begin = move || {
        let life = Context::with_receiver(receiver).into_future(make());
        // Ends with the job, at the latest when it is killed. Its pid guard is dropped last.
        actix_rt::spawn(async move {
            let _held = held;
            if Abortable::new(life, registration).await.is_ok() {
                pid_guard.ending(ExitReason::Normal);
            }
        });
    };
    let kill = Box::new(move || killer.abort());
    (RunningJob { pid, stop, kill }, begin)
}

/// A run, which ends with the supervisor.
struct Child {
    id: ReplicationId,
    name: JobName,
    job: RunningJob,
    monitor: MonitorRef,
    /// Fires when it must be killed after a stop, or abandoned after a kill.
    timer: Option<SpawnHandle>,
}

impl Drop for Child {
    fn drop(&mut self) {
        // Harmless if it has ended.
        (self.job.kill)();
    }
}

/// A run that waits for an earlier one to end.
struct Waiting {
    new: NewRun,
    earlier: Pid,
    monitor: MonitorRef,
}

/// Supervises runs.
pub(crate) struct JobSupervisor {
    jobs: StartJobs,
    /// All live runs, including those of earlier supervisors.
    live: LiveRuns,
    /// The scheduler's pid: children end with it.
    scheduler: Pid,
    reports: Recipient<ChildEnded>,
    children: FxHashMap<Run, Child>,
    waiting: FxHashMap<Run, Waiting>,
    by_monitor: FxHashMap<MonitorRef, Run>,
    /// The monitor on the scheduler.
    parent: Option<MonitorRef>,
    orphaned: bool,
    log: Logger,
    pid_guard: PidGuard,
}

impl JobSupervisor {
    /// Creates a supervisor that starts children with `jobs` and reports to a scheduler.
    pub fn new(
        jobs: StartJobs,
        live: LiveRuns,
        scheduler: Pid,
        reports: Recipient<ChildEnded>,
        log: &Logger,
    ) -> Self {
        Self {
            jobs,
            live,
            scheduler,
            reports,
            children: FxHashMap::default(),
            waiting: FxHashMap::default(),
            by_monitor: FxHashMap::default(),
            parent: None,
            orphaned: false,
            log: log.new(o!("component" => "job_supervisor")),
            pid_guard: PidGuard::new(),
        }
    }

    /// Returns its pid, to monitor it by.
    pub fn pid(&self) -> Pid {
        self.pid_guard.pid()
    }

    fn report(&self, run: Run, reason: Result<ExitReason, Crash>) {
        self.reports.tell(ChildEnded { run, reason });
    }

    /// Starts a run, now or after the earlier one of its replication.
    fn start(&mut self, new: NewRun, ctx: &mut Context<Self>) {
        let run = new.number;
        if let Some(earlier) = self.live.owner(&new.id) {
            info!(self.log, "replication waits until its earlier run is gone";
                  JobName::new(&new.id, &new.replication), "run" => run.0);
            let monitor = earlier.monitor(ctx.address().recipient());
            self.by_monitor.insert(monitor, run);
            self.waiting.insert(
                run,
                Waiting {
                    new,
                    earlier,
                    monitor,
                },
            );
            return;
        }
        let id = new.id.clone();
        let name = JobName::new(&id, &new.replication);
        // A panic while a job starts ends only that job.
        let started = catch_unwind(AssertUnwindSafe(|| (self.jobs)(new)))
            .unwrap_or_else(|_| Err(Crash::JobDied("its start panicked".to_owned())));
        let job = match started {
            Ok(job) => job,
            Err(crash) => return self.report(run, Err(crash)),
        };
        self.live.take(id.clone(), job.pid.clone());
        let monitor = job.pid.monitor(ctx.address().recipient());
        self.by_monitor.insert(monitor, run);
        self.children.insert(
            run,
            Child {
                id,
                name,
                job,
                monitor,
                timer: None,
            },
        );
    }

    /// Forgets a waiting run.
    fn forget_waiting(&mut self, run: Run) -> Option<Waiting> {
        let waiting = self.waiting.remove(&run)?;
        self.by_monitor.remove(&waiting.monitor);
        waiting.earlier.demonitor(waiting.monitor);
        Some(waiting)
    }

    fn terminate(&mut self, run: Run, within: Duration, ctx: &mut Context<Self>) {
        if self.forget_waiting(run).is_some() {
            return self.report(run, Ok(ExitReason::Shutdown));
        }
        let Some(child) = self.children.get_mut(&run) else {
            return;
        };
        if let Some(timer) = child.timer.take() {
            ctx.cancel_future(timer);
        }
        if within.is_zero() {
            return self.kill(run, ctx);
        }
        child.job.stop.tell(StopJob);
        child.timer = Some(ctx.run_later(within, move |supervisor, ctx| {
            if let Some(child) = supervisor.children.get(&run) {
                warn!(supervisor.log,
                      "replication did not stop in time and is ended without a checkpoint";
                      child.name.clone(), "run" => run.0);
                supervisor.kill(run, ctx);
            }
        }));
    }

    fn kill(&mut self, run: Run, ctx: &mut Context<Self>) {
        let Some(child) = self.children.get_mut(&run) else {
            return;
        };
        (child.job.kill)();
        child.timer = Some(ctx.run_later(KILLED_MAX, move |supervisor, ctx| {
            if let Some(child) = supervisor.children.get(&run) {
                error!(supervisor.log, "replication could not be ended and is left behind";
                       child.name.clone(), "run" => run.0);
                child.job.pid.demonitor(child.monitor);
                supervisor.forget(run, ExitReason::Killed, ctx);
            }
        }));
    }

    fn forget(&mut self, run: Run, reason: ExitReason, ctx: &mut Context<Self>) {
        let Some(child) = self.children.remove(&run) else {
            return;
        };
        self.by_monitor.remove(&child.monitor);
        if let Some(timer) = child.timer {
            ctx.cancel_future(timer);
        }
        if !child.job.pid.is_alive() {
            self.live.free(&child.id, &child.job.pid);
        }
        self.report(run, Ok(reason));
        self.finish_if_orphaned(ctx);
    }

    fn orphan(&mut self, ctx: &mut Context<Self>) {
        self.orphaned = true;
        let runs: Vec<_> = self
            .children
            .keys()
            .chain(self.waiting.keys())
            .copied()
            .collect();
        for run in runs {
            self.terminate(run, ORPHANED_MAX, ctx);
        }
        self.finish_if_orphaned(ctx);
    }

    fn finish_if_orphaned(&self, ctx: &mut Context<Self>) {
        if self.orphaned && self.children.is_empty() {
            self.pid_guard.shut_down(ctx);
        }
    }
}

impl Actor for JobSupervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.parent = Some(self.scheduler.monitor(ctx.address().recipient()));
    }
}

impl Handler<StartChild> for JobSupervisor {
    type Result = ();

    fn handle(&mut self, msg: StartChild, ctx: &mut Self::Context) {
        let StartChild(new) = msg;
        // The scheduler is gone.
        if self.orphaned {
            self.report(new.number, Ok(ExitReason::Shutdown))
        } else {
            self.start(new, ctx)
        }
    }
}

impl Handler<TerminateChild> for JobSupervisor {
    type Result = ();

    fn handle(&mut self, msg: TerminateChild, ctx: &mut Self::Context) {
        self.terminate(msg.run, msg.within, ctx);
    }
}

impl Handler<Down> for JobSupervisor {
    type Result = ();

    fn handle(&mut self, msg: Down, ctx: &mut Self::Context) {
        if self.parent == Some(msg.monitor) {
            return self.orphan(ctx);
        }
        let Some(run) = self.by_monitor.get(&msg.monitor).copied() else {
            return;
        };
        match self.forget_waiting(run) {
            Some(waiting) => self.start(waiting.new, ctx),
            None => self.forget(run, msg.reason, ctx),
        }
    }
}
