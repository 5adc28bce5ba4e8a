//! When a job makes checkpoints, and its next step after each.
//!
//! SUMMARY   One at a time: on a timer, at the end, and when the job is stopped. A checkpoint in progress holds both
//!           logs. An idle job checks that both databases still exist.
//! PROMISES  Work done after a checkpoint began does not count as recorded. Without progress nothing is recorded. A
//!           failure crashes the job, unless the job is being stopped. A checkpoint ends with the lease at the latest;
//!           its requests have timeouts, the checkpoint as a whole has none.
//! SOURCE    `couch_replicator_scheduler_job:do_checkpoint`, `do_last_checkpoint`.

use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use actix::prelude::*;
use data_encoding::HEXLOWER;
use serde_json::value::RawValue;
use slog::warn;

use super::opening::Opened;
use super::{ReplicationJob, Then};
use crate::config::password::random;
use crate::messages::replication_job::{Completed, JobEnd, JobStart};
use replication::counters::Counter;
use replication::crash::Crash;
use replication::endpoint::Endpoint;
use replication::filter::Filter;
use replication::log::{self, Checkpoint, CheckpointError, CheckpointRun, LogBody, Side};
use replication::progress::Progress;
use replication::seq::Seq;

/// Idle checkpoint intervals before the databases are checked: with 10,000 idle jobs this is 67
/// requests a second.
const CHECK_AFTER: u32 = 10;

/// The state of checkpoints.
#[derive(Debug)]
pub(super) struct Checkpoints {
    pub progress: Progress<Seq>,
    /// For requests other than checkpoints.
    pub source: Endpoint,
    /// Source and target; `None` while a checkpoint is in progress.
    sides: Option<(Side, Side)>,
    run: Rc<CheckpointRun>,
    use_checkpoints: bool,
    /// Checkpoint intervals since there was anything to record or the databases were checked.
    idle: u32,
    /// The result of the replication.
    result: Box<RawValue>,
}

/// The result of a checkpoint.
struct Made {
    sides: (Side, Side),
    through: (u64, Seq),
    body: Result<LogBody, CheckpointError>,
}

impl Checkpoints {
    pub fn new(start: &JobStart, opened: &Opened) -> Self {
        let replication = &start.run.replication;
        let options = &replication.options;
        let run = CheckpointRun {
            // No other run has it.
            session_id: HEXLOWER.encode(&random::<16>()),
            start_seq: opened.start_seq.clone(),
            start_time: replication.start_time,
            history: opened.history.clone(),
            by_doc_ids: matches!(options.filter, Filter::DocIds(_)),
            owner_epoch: start.run.guard.epoch(),
        };
        let result = if options.tuning.use_checkpoints {
            let log = &opened.source.log.body;
            log.with_front(&[("no_changes", true.into())])
        } else {
            LogBody::default()
                .with_front(&[("use_checkpoints", false.into())])
                .into_owned()
        };
        Self {
            progress: Progress::new(opened.start_seq.clone(), Seq::zero()),
            source: opened.source.endpoint.clone(),
            sides: Some((opened.source.clone(), opened.target.clone())),
            run: Rc::new(run),
            use_checkpoints: options.tuning.use_checkpoints,
            idle: 0,
            result: result.to_raw(),
        }
    }

    /// Returns whether there is anything to record.
    fn has_news(&self) -> bool {
        self.use_checkpoints && self.progress.has_news()
    }
}

impl ReplicationJob {
    /// Sets the timer of the next checkpoint.
    pub(super) fn arm_checkpoint(&self, ctx: &mut Context<Self>) {
        let tuning = &self.start.run.replication.options.tuning;
        ctx.run_later(tuning.checkpoint_interval, |job, ctx| {
            if job
                .running()
                .is_some_and(|running| running.then == Then::GoOn)
            {
                job.checkpoint(ctx);
            }
        });
    }

    /// Makes a checkpoint if there is anything to record, and continues according to the job's state.
    pub(super) fn checkpoint(&mut self, ctx: &mut Context<Self>) {
        let stats = self.run_counters.stats();
        let Some(running) = self.running() else {
            return;
        };
        let checkpoints = &mut running.checkpoints;
        if !checkpoints.has_news() {
            checkpoints.idle += 1;
            let is_due = running.then == Then::GoOn && checkpoints.idle >= CHECK_AFTER;
            return match checkpoints.sides.take_if(|_| is_due) {
                Some(sides) => self.check_databases(sides, ctx),
                None => self.after_checkpoint(ctx),
            };
        }
        checkpoints.idle = 0;
        let Some((mut source, mut target)) = checkpoints.sides.take() else {
            // The job continues when the checkpoint or check in progress is done.
            return;
        };
        let through = checkpoints.progress.through().clone();
        let run = Rc::clone(&checkpoints.run);
        let making = async move {
            let checkpoint = Checkpoint {
                run: &run,
                seq: &through.1,
                end_time: SystemTime::now(),
                stats: &stats,
            };
            let body = log::checkpoint(&mut source, &mut target, &checkpoint).await;
            Made {
                sides: (source, target),
                through,
                body,
            }
        };
        let guard = self.start.run.guard.clone();
        let making = async move { guard.while_held(making).await };
        ctx.spawn(making.into_actor(self).map(|made, job, ctx| match made {
            Some(made) => job.checkpoint_made(made, ctx),
            None => job.lease_lost(ctx),
        }));
    }

    /// Checks that both databases still exist; an idle job would not notice otherwise.
    fn check_databases(&mut self, sides: (Side, Side), ctx: &mut Context<Self>) {
        let Some(running) = self.running() else {
            return;
        };
        running.checkpoints.idle = 0;
        let (_, read) = running.checkpoints.progress.through().clone();
        let checking = async move {
            let checked = log::check_databases(&sides.0, &sides.1, &read).await;
            (sides, checked)
        };
        ctx.spawn(checking.into_actor(self).map(|(sides, checked), job, ctx| {
            let Some(running) = job.running() else {
                return;
            };
            running.checkpoints.sides = Some(sides);
            match (checked, running.then) {
                (_, Then::Finish | Then::Stop) => job.checkpoint(ctx),
                (Ok(()), Then::GoOn) => job.after_checkpoint(ctx),
                (Err(crash), Then::GoOn) => job.crash(crash, ctx),
            }
        }));
    }

    /// No further checkpoint may be written: the next owner redoes the work since the last one.
    fn lease_lost(&mut self, ctx: &mut Context<Self>) {
        self.counters().count(Counter::CheckpointsFailure);
        match self.running().map(|running| running.then) {
            Some(Then::Stop) => {
                warn!(self.start.run.log, "no final checkpoint was written"; "error" => %Crash::LeaseLost);
                self.end(JobEnd::Stopped, ctx);
            }
            _ => self.crash(Crash::LeaseLost, ctx),
        }
    }

    fn checkpoint_made(&mut self, made: Made, ctx: &mut Context<Self>) {
        match made.body {
            Ok(_) => self.counters().count(Counter::CheckpointsSuccess),
            Err(_) => self.counters().count(Counter::CheckpointsFailure),
        }
        let Some(running) = self.running() else {
            return;
        };
        let then = running.then;
        let checkpoints = &mut running.checkpoints;
        checkpoints.sides = Some(made.sides);
        match made.body {
            Ok(body) => {
                checkpoints.progress.commit(made.through);
                checkpoints.result = body.with_front(&[]).to_raw();
                self.report_progress(ctx);
                // More work may have been done meanwhile.
                match then {
                    Then::GoOn => self.after_checkpoint(ctx),
                    Then::Finish | Then::Stop => self.checkpoint(ctx),
                }
            }
            Err(error) if then == Then::Stop => {
                warn!(self.start.run.log, "no final checkpoint was written"; "error" => %error);
                self.end(JobEnd::Stopped, ctx);
            }
            Err(error) => self.crash(Crash::CheckpointCommitFailure(error), ctx),
        }
    }

    fn after_checkpoint(&mut self, ctx: &mut Context<Self>) {
        let progress = self.progress_now();
        let Some(running) = self.running() else {
            return;
        };
        let end = match (running.then, progress) {
            (Then::GoOn, _) | (_, None) => return self.arm_checkpoint(ctx),
            (Then::Stop, _) => JobEnd::Stopped,
            (Then::Finish, Some(progress)) => JobEnd::Normal(Arc::new(Completed {
                result: running.checkpoints.result.clone(),
                progress,
            })),
        };
        self.end(end, ctx);
    }
}
