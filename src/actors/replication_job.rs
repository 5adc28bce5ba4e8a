//! One running replication: opens both databases, runs the pipeline, makes checkpoints.
//!
//! SUMMARY   [`ReplicationJob`] is started with a [`JobStart`] and reports job events. Its parts, each a separate
//!           task, do the work: a changes reader, a changes manager that deals out batches, and workers.
//! PROMISES  [`JobNews::Ended`] is reported exactly once, however the job ends. If a part ends abnormally, the job ends
//!           with its reason. A checkpoint never records unfinished work. A stopped job is gone within [`STOP_MAX`].
//! CALLED    By the scheduler's JobSupervisor, on a thread of JobThreads; by `settee replicate`.
//! SOURCE    `couch_replicator_scheduler_job`: start-up, `seqs_in_progress`, checkpoints, ends.
//! DIFFERS   Database infos are read once at the start, not twice.

mod checkpoints;
mod opening;
mod parts;
mod reports;

use std::rc::Rc;
use std::sync::Arc;

use crate::messages::replication_job::{JobEnd, JobNews, JobStart, STOP_MAX, StopJob};
use actix::prelude::*;
use checkpoints::Checkpoints;
use opening::{Opened, open};
use parts::{Ended, Part, Parts};
use replication::counters::{Counter, Counters, RunCounters};
use replication::crash::Crash;
use replication::progress::BatchNumber;
use replication::seq::Seq;
use reports::Reports;

/// See the module's documentation.
pub struct ReplicationJob {
    start: JobStart,
    run_counters: Rc<RunCounters>,
    reports: Reports,
    /// `None` while the databases are being opened.
    running: Option<Box<Running>>,
}

/// The state of a running job: its parts are running, or the last checkpoint is being made.
#[derive(Debug)]
struct Running {
    parts: Parts,
    checkpoints: Checkpoints,
    /// The step after the current checkpoint.
    then: Then,
}

/// The step after a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Work continues, and the timer starts the next checkpoint.
    GoOn,
    /// The job ends after its last checkpoint: everything is replicated.
    Finish,
    /// The job ends after its last checkpoint: it was stopped.
    Stop,
}

/// News of the parts.
#[derive(Debug, Message)]
#[rtype(result = "()")]
enum PartNews {
    /// A batch is about to be given to a worker.
    BatchBegun(BatchNumber, Seq),
    /// A batch is done.
    BatchDone(BatchNumber, Seq),
    /// All workers ended normally. Follows their last messages in the mailbox.
    AllDone,
    /// The job began to use its own feed, for this reason, or stopped using it.
    OwnFeed(Option<Arc<str>>),
}

impl ReplicationJob {
    /// Makes a job; it begins when the actor starts.
    pub fn new(start: JobStart) -> Self {
        Self {
            run_counters: Rc::new(RunCounters::starting_with(start.run.earlier)),
            reports: Reports::new(&start),
            running: None,
            start,
        }
    }

    fn counters(&self) -> &Counters {
        self.start.settings.http.counters()
    }

    fn running(&mut self) -> Option<&mut Running> {
        self.running.as_deref_mut()
    }

    fn opened(&mut self, opened: Result<Opened, Crash>, ctx: &mut Context<Self>) {
        let opened = match opened {
            Ok(opened) => opened,
            Err(crash) => {
                self.counters().count(Counter::FailedStarts);
                return self.crash(crash, ctx);
            }
        };
        self.run_counters = Rc::new(RunCounters::starting_with(opened.stats));
        let checkpoints = Checkpoints::new(&self.start, &opened);
        let parts = match Parts::start(&self.start, &opened, &self.run_counters, &self.reports, ctx)
        {
            Ok(parts) => parts,
            Err(crash) => return self.crash(crash, ctx),
        };
        self.running = Some(Box::new(Running {
            parts,
            checkpoints,
            then: Then::GoOn,
        }));
        self.arm_checkpoint(ctx);
        self.report_start(ctx);
    }

    /// A part ended, normally or not.
    fn part_ended(&mut self, part: Part, ended: Ended, ctx: &mut Context<Self>) {
        let crash = match ended {
            Ok(Ok(())) => {
                if part == Part::Worker
                    && let Some(running) = self.running()
                    && running.parts.worker_is_done()
                {
                    ctx.notify(PartNews::AllDone);
                }
                return;
            }
            Ok(Err(crash)) => crash,
            Err(died) if died.is_cancelled() => part.died("killed"),
            Err(_) => part.died("panicked"),
        };
        // A job stops its parts itself before its last checkpoint; then their ends are ignored.
        if self
            .running()
            .is_some_and(|running| running.then == Then::GoOn)
        {
            part.count_death(self.counters());
            self.crash(crash, ctx);
        }
    }

    fn crash(&mut self, crash: Crash, ctx: &mut Context<Self>) {
        self.end(JobEnd::Crashed(crash), ctx);
    }

    /// Ends the job. Every end comes through here.
    fn end(&mut self, end: JobEnd, ctx: &mut Context<Self>) {
        if let Some(progress) = self.progress_now() {
            self.reports.tell(JobNews::Progress(progress));
        }
        // Anything still running ends with its task.
        if let Some(running) = self.running() {
            running.parts.stop();
        }
        self.reports.tell(JobNews::Ended(end));
        ctx.stop();
    }
}

impl Actor for ReplicationJob {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.spawn(
            open(self.start.clone())
                .into_actor(self)
                .map(|opened, job, ctx| job.opened(opened, ctx)),
        );
    }
}

impl Handler<PartNews> for ReplicationJob {
    type Result = ();

    fn handle(&mut self, news: PartNews, ctx: &mut Context<Self>) {
        let Some(running) = self.running() else {
            return;
        };
        match news {
            PartNews::BatchBegun(number, seq) => running.checkpoints.progress.begin(number, seq),
            PartNews::BatchDone(number, seq) => {
                running.checkpoints.progress.done(number, seq);
                self.report_progress(ctx);
            }
            PartNews::AllDone if running.then == Then::GoOn => {
                running.parts.stop();
                running.then = Then::Finish;
                self.reports.complete();
                self.checkpoint(ctx);
            }
            PartNews::AllDone => {}
            PartNews::OwnFeed(why) => self.report_own_feed(why, ctx),
        }
    }
}

impl Handler<StopJob> for ReplicationJob {
    type Result = ();

    fn handle(&mut self, _: StopJob, ctx: &mut Context<Self>) {
        let Some(running) = self.running() else {
            return self.end(JobEnd::Stopped, ctx);
        };
        running.parts.stop();
        running.then = Then::Stop;
        ctx.run_later(STOP_MAX, |job, ctx| job.end(JobEnd::Stopped, ctx));
        self.checkpoint(ctx);
    }
}
