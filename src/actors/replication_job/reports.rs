//! The reports of a job: start, progress, end.
//!
//! SUMMARY   [`Reports`] sends events; the job decides when: progress at most once per [`PERIOD`].
//! PROMISES  The last event is [`JobNews::Ended`], exactly once, even if the job is dropped or panics. While nothing
//!           changes, nothing is sent and no timer runs.
//! SOURCE    `couch_task_status`: its update interval. `couch_replicator_scheduler_job`: `changes_pending`, and its
//!           polling interval.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use tokio::time::Instant;

use super::ReplicationJob;
use crate::messages::replication_job::{JobEnd, JobEvent, JobNews, JobProgress, JobStart};
use crate::otp::Tell;
use policy::schedule::Run;
use replication::crash::Crash;
use replication::open::changes_pending;
use replication::refused::RefusalListener;

/// Minimum time between two progress reports.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// Time without progress after which the pending changes are polled early.
const QUIET: Duration = Duration::from_millis(500);

/// See the module's documentation.
pub(super) struct Reports {
    line: Rc<Line>,
    last: Option<Instant>,
    /// Whether a report is due at the end of the period.
    is_due: bool,
    pending: Option<u64>,
    /// Whether all pending changes are done: no further poll is needed.
    is_complete: bool,
    pending_asked: Option<Instant>,
    pending_is_due: bool,
    /// The number of polls.
    questions: u64,
    /// Whether anything was done since the last idle check; `None` without checks.
    moved: Option<bool>,
    /// Why the job has its own feed despite `feed = "db_updates"`.
    own_feed: Option<Arc<str>>,
}

/// Sends events. Reports the job's end on drop, if nothing else did.
struct Line {
    run: Run,
    events: Recipient<JobEvent>,
    is_over: Cell<bool>,
}

impl Line {
    /// Sends an event, unless the end has been reported.
    fn tell(&self, news: JobNews) {
        let is_end = matches!(news, JobNews::Ended(_));
        if self.is_over.replace(self.is_over.get() || is_end) {
            return;
        }
        self.events.tell(JobEvent {
            run: self.run,
            news,
        });
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let crash = Crash::JobDied("it ended without a report".to_owned());
        self.tell(JobNews::Ended(JobEnd::Crashed(crash)));
    }
}

impl Reports {
    pub fn new(start: &JobStart) -> Self {
        Self {
            line: Rc::new(Line {
                run: start.run.number,
                events: start.run.events.clone(),
                is_over: Cell::new(false),
            }),
            last: None,
            is_due: false,
            pending: None,
            is_complete: false,
            pending_asked: None,
            pending_is_due: false,
            questions: 0,
            moved: None,
            own_feed: None,
        }
    }

    /// Returns the listener for refused documents.
    pub fn refused(&self) -> RefusalListener {
        let line = Rc::clone(&self.line);
        Rc::new(move |doc| line.tell(JobNews::Refused(doc)))
    }

    /// Records that nothing is pending.
    pub fn complete(&mut self) {
        self.is_complete = true;
        self.pending = Some(0);
    }

    pub fn tell(&self, news: JobNews) {
        self.line.tell(news);
    }
}

impl ReplicationJob {
    /// Returns the progress; `None` before the run has begun.
    pub(super) fn progress_now(&self) -> Option<JobProgress> {
        let progress = &self.running.as_deref()?.checkpoints.progress;
        Some(JobProgress {
            stats: self.run_counters.stats(),
            bytes_written: self.run_counters.bytes_written(),
            source_seq: progress.highest_done().1.clone(),
            through_seq: progress.through().1.clone(),
            checkpointed_source_seq: progress.committed().1.clone(),
            changes_pending: self.reports.pending,
            own_feed: self.reports.own_feed.clone(),
        })
    }

    pub(super) fn report_start(&mut self, ctx: &mut Context<Self>) {
        self.report(JobNews::Started);
        self.ask_pending(ctx);
    }

    fn report(&mut self, news: fn(JobProgress) -> JobNews) {
        if let Some(progress) = self.progress_now() {
            self.reports.last = Some(Instant::now());
            self.reports.tell(news(progress));
        }
    }

    /// Reports the progress now, or at the end of the period.
    pub(super) fn report_progress(&mut self, ctx: &mut Context<Self>) {
        self.ask_pending(ctx);
        if self.reports.moved.replace(true).is_none() {
            self.look_for_quiet(ctx);
        }
        self.report_in_time(ctx);
    }

    /// Reports that the job has its own feed, or no longer has one.
    pub(super) fn report_own_feed(&mut self, why: Option<Arc<str>>, ctx: &mut Context<Self>) {
        self.reports.own_feed = why;
        self.report_in_time(ctx);
    }

    fn report_in_time(&mut self, ctx: &mut Context<Self>) {
        if self.reports.is_due {
            return;
        }
        let since = self.reports.last.map(|last| last.elapsed());
        let Some(wait) = since.and_then(|since| PERIOD.checked_sub(since)) else {
            return self.report_now();
        };
        self.reports.is_due = true;
        ctx.run_later(wait, |job, _| job.report_now());
    }

    fn report_now(&mut self) {
        self.reports.is_due = false;
        self.report(JobNews::Progress);
    }

    /// Polls the source for pending changes, at most once per connection timeout.
    fn ask_pending(&mut self, ctx: &mut Context<Self>) {
        if self.reports.pending_is_due || self.reports.is_complete {
            return;
        }
        let period = self.start.run.replication.options.tuning.connection_timeout;
        let since = self.reports.pending_asked.map(|asked| asked.elapsed());
        let wait = since.and_then(|since| period.checked_sub(since));
        self.reports.pending_is_due = true;
        ctx.run_later(wait.unwrap_or_default(), |job, ctx| {
            job.reports.pending_is_due = false;
            job.ask_pending_now(ctx);
        });
    }

    /// Polls again when nothing was done for [`QUIET`]: the last answer is then outdated.
    fn look_for_quiet(&mut self, ctx: &mut Context<Self>) {
        self.reports.moved = Some(false);
        ctx.run_later(QUIET, |job, ctx| match job.reports.moved.take() {
            Some(true) => job.look_for_quiet(ctx),
            _ => job.ask_pending_now(ctx),
        });
    }

    fn ask_pending_now(&mut self, ctx: &mut Context<Self>) {
        let reports = &mut self.reports;
        if reports.is_complete {
            return;
        }
        reports.pending_asked = Some(Instant::now());
        reports.questions += 1;
        let question = reports.questions;
        let Some(running) = self.running() else {
            return;
        };
        let source = running.checkpoints.source.clone();
        let since = running.checkpoints.progress.through().1.clone();
        let asking = async move { changes_pending(&source, &since).await };
        ctx.spawn(asking.into_actor(self).map(move |pending, job, ctx| {
            // An answer to an earlier poll is outdated.
            let is_current = !job.reports.is_complete && job.reports.questions == question;
            if is_current && job.reports.pending != pending {
                job.reports.pending = pending;
                job.report_in_time(ctx);
            }
        }));
    }
}
