//! Handlers of the scheduler's messages.

use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use slog::{info, warn};

use super::entry::JobEntry;
use super::{ReplicationScheduler, SHUTDOWN_NOW_MAX};
use crate::actors::past_writer::PastWriter;
use crate::messages::replication_job::{ChildEnded, JobEnd, JobEvent, JobNews, TerminateChild};
use crate::messages::replication_scheduler::{
    ADDS_MAX, AddJob, AddJobError, AddJobs, Added, Configure, Counts, GetCounts, GetJob, GetJobs,
    GetJobsById, GetRunTroubles, JOBS_MAX, JobInfo, JobList, LoseJob, ORDERS_MAX, OrderJobs,
    RemoveJob, Reschedule, RunTroubles, Stalled, Subscribe,
};
use crate::otp::{Deferred, Down, ExitReason, Stop, Tell, deferred};
use crate::replicator::JobOrder;
use policy::ownership::DocId;
use policy::schedule::{End, Event, JobId, Level, NewJob, Run, Server};
use replication::crash::Crash;
use replication::endpoint::SlowServer;
use replication::id::ReplicationId;
use replication::spec::{DocRef, Replication};
use store::fleet::StatusOf;

/// How long a job's removal waits for saving its past.
const SAVED_MAX: Duration = Duration::from_secs(2);

fn job_id(id: &ReplicationId) -> JobId {
    id.to_string().into()
}

/// Returns whose share a job uses: its replicator database's, or its user's.
fn share_key(replication: &Replication) -> Arc<str> {
    let key = match &replication.doc {
        Some(doc) => Some(&doc.database),
        None => replication.user.name.as_ref(),
    };
    key.map_or("", String::as_str).into()
}

impl ReplicationScheduler {
    fn add_job(&mut self, msg: AddJob, ctx: &mut Context<Self>) -> Result<Added, AddJobError> {
        if self.shutting_down {
            return Err(AddJobError::ShuttingDown);
        }
        let id = job_id(&msg.id);
        if let Some(known) = self.entries.get_mut(&id) {
            if known.replication.doc != msg.replication.doc {
                let (id, by) = (msg.id, known.replication.doc.clone());
                return Err(AddJobError::Taken { id, by });
            }
            // A job with an earlier claim of its document can write no checkpoints, so it is replaced.
            let is_same = known.guard.same_as(&msg.guard);
            if is_same && known.replication.same_as(&msg.replication) {
                known.add_waiter(msg.waiter);
                self.metrics.duplicate_adds.one();
                return Ok(Added::Unchanged);
            }
            let (owner, user) = (&known.replication.user, &msg.replication.user);
            let may_replace =
                owner.name == user.name || user.roles.iter().any(|role| role == "_admin");
            if known.replication.is_transient() && !may_replace {
                return Err(AddJobError::Taken {
                    id: msg.id,
                    by: None,
                });
            }
        }
        let new = NewJob {
            id: id.clone(),
            key: share_key(&msg.replication),
            continuous: msg.replication.options.continuous,
            transient: msg.replication.is_transient(),
            level: msg.priority,
            paused: msg.paused,
            earlier: msg.earlier,
        };
        let mut entry = JobEntry {
            in_group: self
                .metrics
                .groups
                .join(msg.replication.managed_by.as_deref()),
            id: msg.id,
            replication: msg.replication,
            guard: msg.guard,
            past_of: None,
            progress: None,
            progress_at: None,
            refused: msg.refused.into(),
            has_new_refused: false,
            waiters: msg.waiter.into_iter().collect(),
        };
        if self.pasts.is_some() {
            entry.past_of = entry.find_past_of();
        }
        let replaced = self.entries.insert(id.clone(), entry);
        self.event(Event::Add(new), ctx);
        Ok(match replaced {
            Some(mut replaced) => {
                // The new job may have the state of the one that it replaced.
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.in_group.set_failing(self.core.failing(&id));
                }
                replaced.resolve(&JobEnd::Stopped);
                Added::Replaced
            }
            None => Added::New,
        })
    }

    /// Handles an event about a job; returns whether there is such a job.
    fn on_job(
        &mut self,
        id: &ReplicationId,
        event: impl FnOnce(JobId) -> Event,
        ctx: &mut Context<Self>,
    ) -> bool {
        let id = job_id(id);
        let is_known = self.entries.contains_key(&id);
        if is_known {
            self.event(event(id), ctx);
        }
        is_known
    }

    /// Whether a job belongs to a document other than `doc`, or to any if that is `None`.
    fn is_of_another(&self, id: &JobId, doc: Option<&DocRef>) -> bool {
        let entry = self.entries.get(id);
        entry.is_some_and(|entry| entry.replication.doc.as_ref() != doc)
    }

    /// Returns the document of a job whose past is not saved yet, with the writer of pasts.
    fn unsaved(&self, id: &JobId) -> Option<(PastWriter, DocId)> {
        let pasts = self.pasts.clone()?;
        let of = self.entries.get(id)?.past_of.as_ref()?;
        pasts.has(&of.doc).then(|| (pasts, DocId::clone(&of.doc)))
    }

    /// Records, for other daemons, that a job changed.
    fn note_changed(&self, id: &ReplicationId) {
        let id = job_id(id);
        match self.entries.get(&id).map(JobEntry::own_doc) {
            Some(Some(doc)) => {
                let of = StatusOf::Document(doc.id.as_str().into());
                self.states.lock().note_changed([of]);
            }
            Some(None) => self.states.lock().note_transient(&id),
            None => {}
        }
    }

    /// Answers once a run has ended; without a run, answers `otherwise` at once.
    fn when_gone(&mut self, run: Option<Run>, otherwise: bool) -> Deferred<bool> {
        match run.and_then(|run| self.runs.get_mut(&run)) {
            Some(row) => {
                let (answer, replier) = deferred();
                row.gone.push(replier);
                answer
            }
            None => Deferred::now(otherwise),
        }
    }

    fn info(&self, id: &str) -> Option<JobInfo> {
        let entry = self.entries.get(id)?;
        let job = self.core.job(id)?;
        Some(JobInfo {
            id: entry.id.clone(),
            replication: Arc::clone(&entry.replication),
            shown: job.shown,
            progress: entry.progress.clone(),
            progress_at: entry.progress_at,
            refused: entry.refused(),
            history: job.history.iter().cloned().collect(),
        })
    }
}

impl Handler<AddJob> for ReplicationScheduler {
    type Result = Result<Added, AddJobError>;

    fn handle(&mut self, msg: AddJob, ctx: &mut Self::Context) -> Self::Result {
        self.add_job(msg, ctx)
    }
}

impl Handler<AddJobs> for ReplicationScheduler {
    type Result = Vec<Result<Added, AddJobError>>;

    fn handle(&mut self, AddJobs(jobs): AddJobs, ctx: &mut Self::Context) -> Self::Result {
        debug_assert!(jobs.len() <= ADDS_MAX, "no turn takes long");
        jobs.into_iter().map(|job| self.add_job(job, ctx)).collect()
    }
}

impl Handler<RemoveJob> for ReplicationScheduler {
    type Result = Deferred<bool>;

    fn handle(&mut self, msg: RemoveJob, ctx: &mut Self::Context) -> Self::Result {
        let id = job_id(&msg.id);
        if self.is_of_another(&id, msg.doc.as_ref()) {
            return Deferred::now(false);
        }
        let run = self.core.job(&id).and_then(|job| job.shown.run);
        let unsaved = self.unsaved(&id).filter(|_| run.is_none());
        let was_known = self.on_job(&msg.id, |id| Event::Remove { id }, ctx);
        match unsaved {
            Some((pasts, doc)) => {
                let (answer, replier) = deferred();
                let saved = actix_rt::time::timeout(SAVED_MAX, pasts.saved(doc));
                ctx.spawn(wrap_future(async move {
                    // If it times out, the past is lost, which is harmless. The caller may be gone.
                    drop(saved.await);
                    let _ = replier.send(was_known);
                }));
                answer
            }
            None => self.when_gone(run, was_known),
        }
    }
}

impl Handler<LoseJob> for ReplicationScheduler {
    type Result = Deferred<bool>;

    fn handle(&mut self, msg: LoseJob, ctx: &mut Self::Context) -> Self::Result {
        let id = job_id(&msg.id);
        if self.is_of_another(&id, Some(&msg.doc)) {
            return Deferred::now(false);
        }
        let was_known = self.entries.contains_key(&id);
        let run = self.core.run_of(&id);
        self.event(Event::Lose { id }, ctx);
        self.when_gone(run, was_known)
    }
}

impl Handler<OrderJobs> for ReplicationScheduler {
    type Result = Vec<bool>;

    fn handle(&mut self, msg: OrderJobs, ctx: &mut Self::Context) -> Self::Result {
        let OrderJobs { ids, order, by } = msg;
        debug_assert!(ids.len() <= ORDERS_MAX, "no turn takes long");
        let event = |id| match order {
            JobOrder::Pause => Event::Pause {
                id,
                by: Arc::clone(&by),
            },
            JobOrder::Resume => Event::Resume { id },
            JobOrder::Restart => Event::Restart { id },
            JobOrder::Priority(level) => Event::SetLevel {
                id,
                level: Level(level),
            },
        };
        let order_one = |id: &ReplicationId| {
            let is_known = self.on_job(id, event, ctx);
            if order == JobOrder::Restart {
                self.note_past(&job_id(id));
            }
            // A priority is not a state, but a change of it is reported as well.
            self.note_changed(id);
            is_known
        };
        ids.iter().map(order_one).collect()
    }
}

impl Handler<Reschedule> for ReplicationScheduler {
    type Result = ();

    fn handle(&mut self, _: Reschedule, ctx: &mut Self::Context) {
        self.event(Event::Cycle, ctx);
    }
}

impl Handler<Configure> for ReplicationScheduler {
    type Result = ();

    fn handle(&mut self, msg: Configure, ctx: &mut Self::Context) {
        if *self.core.settings() == msg.0 {
            return;
        }
        info!(self.log, "settings changed"; "max_jobs" => msg.0.max_jobs,
              "max_churn" => msg.0.max_churn, "max_history" => msg.0.max_history,
              "interval_ms" => u64::try_from(msg.0.interval.as_millis()).unwrap_or(u64::MAX));
        self.event(Event::Configure(msg.0.into()), ctx);
        self.watch_cycle(ctx);
    }
}

impl Handler<GetJob> for ReplicationScheduler {
    type Result = Option<JobInfo>;

    fn handle(&mut self, msg: GetJob, _: &mut Self::Context) -> Self::Result {
        self.info(&msg.id.to_string())
    }
}

impl Handler<GetJobs> for ReplicationScheduler {
    type Result = MessageResult<GetJobs>;

    fn handle(&mut self, msg: GetJobs, _: &mut Self::Context) -> Self::Result {
        let states = &msg.states;
        let ids = self.core.page(
            states,
            msg.after.as_deref(),
            msg.skip,
            msg.limit.min(JOBS_MAX),
        );
        MessageResult(JobList {
            total: self.core.count(states),
            jobs: ids.iter().filter_map(|id| self.info(id)).collect(),
        })
    }
}

impl Handler<GetJobsById> for ReplicationScheduler {
    type Result = Vec<Option<JobInfo>>;

    fn handle(&mut self, msg: GetJobsById, _: &mut Self::Context) -> Self::Result {
        msg.ids
            .iter()
            .map(|id| self.info(&id.to_string()))
            .collect()
    }
}

impl Handler<GetCounts> for ReplicationScheduler {
    type Result = MessageResult<GetCounts>;

    fn handle(&mut self, _: GetCounts, _: &mut Self::Context) -> Self::Result {
        MessageResult(Counts {
            census: *self.core.census(),
            totals: *self.core.totals(),
        })
    }
}

impl Handler<GetRunTroubles> for ReplicationScheduler {
    type Result = MessageResult<GetRunTroubles>;

    fn handle(&mut self, _: GetRunTroubles, _: &mut Self::Context) -> Self::Result {
        MessageResult(RunTroubles {
            stalled: self.stalled(),
            slow: self.slow(),
        })
    }
}

impl ReplicationScheduler {
    /// Finds stalled jobs.
    fn stalled(&self) -> Stalled {
        let now = self.clock.now();
        let entries = self.runs.values().filter_map(|row| {
            let entry = self.entries.get(&row.id)?;
            let started = self.core.job(&row.id)?.shown.last_started?;
            entry.is_stalled(started, now).then_some((&row.id, entry))
        });
        let mut stalled = Stalled::default();
        for (id, entry) in entries {
            stalled.count += 1;
            if stalled.example.is_empty() {
                let doc = entry.replication.doc.as_ref();
                stalled.example = doc.map_or_else(|| id.to_string(), |doc| doc.id.clone());
            }
        }
        stalled
    }

    /// Finds slow servers, each with the number of its running jobs.
    fn slow(&self) -> Vec<(SlowServer, u64)> {
        let slow = self.http.slow_servers();
        if slow.is_empty() {
            return Vec::new();
        }
        let entries = self
            .runs
            .values()
            .filter_map(|row| self.entries.get(&row.id));
        let sides: Vec<[Server; 2]> = entries.map(JobEntry::servers).collect();
        slow.into_iter()
            .map(|slow| {
                let at_it = sides.iter().filter(|sides| sides.contains(&slow.server));
                let count = at_it.count();
                (slow, count as u64)
            })
            .collect()
    }
}

impl Handler<Subscribe> for ReplicationScheduler {
    type Result = ();

    fn handle(&mut self, msg: Subscribe, ctx: &mut Self::Context) {
        // A new ReplicatorDocuments owns no document: the leases of these jobs ended with its predecessor. A new
        // scheduler has none of them.
        let lost = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.guard.epoch().is_some());
        for id in lost.map(|(id, _)| JobId::clone(id)).collect::<Vec<_>>() {
            self.event(Event::Lose { id }, ctx);
        }
        self.subscribers.push(msg.0);
    }
}

/// An event of a run; ignored if the run has ended. A run of a replaced job no longer changes the job.
impl Handler<JobEvent> for ReplicationScheduler {
    type Result = ();

    fn handle(&mut self, msg: JobEvent, ctx: &mut Self::Context) {
        let run = msg.run;
        let Some(row) = self.runs.get_mut(&run) else {
            return;
        };
        let id = row.id.clone();
        let is_start = matches!(msg.news, JobNews::Started(_));
        match msg.news {
            JobNews::Started(progress) | JobNews::Progress(progress) => {
                self.note_progress(run, &id, progress);
                if self
                    .entries
                    .get(&id)
                    .is_some_and(|entry| entry.has_new_refused)
                {
                    self.note_past(&id);
                }
            }
            JobNews::Refused(doc) => {
                let entry = self.entries.get(&id);
                let own = entry.and_then(|entry| entry.own_doc());
                let name = own.map_or_else(|| id.to_string(), |own| own.id.to_string());
                self.metrics.refuse(name);
                warn!(self.log, "document was not replicated"; self.name(&id),
                      "refused" => &doc.id, "error" => &doc.error, "reason" => &doc.reason);
                let is_its_own = self.core.job(&id).is_some_and(|job| job.owns(run));
                if let Some(entry) = self.entries.get_mut(&id).filter(|_| is_its_own) {
                    entry.refuse(doc);
                }
            }
            JobNews::Ended(end) => {
                row.end.get_or_insert(end);
            }
        }
        if is_start
            && self.core.has_unreachable()
            && self.core.job(&id).is_some_and(|job| job.owns(run))
            && let Some(entry) = self.entries.get(&id)
        {
            self.event(Event::Reached(entry.servers()), ctx);
        }
    }
}

impl Handler<ChildEnded> for ReplicationScheduler {
    type Result = ();

    fn handle(&mut self, msg: ChildEnded, ctx: &mut Self::Context) {
        let Some(row) = self.runs.remove(&msg.run) else {
            return;
        };
        let ending = row.end.unwrap_or_else(|| match msg.reason {
            Ok(ExitReason::Shutdown) => JobEnd::Stopped,
            Ok(reason) => JobEnd::Crashed(Crash::JobDied(reason.to_string())),
            Err(crash) => JobEnd::Crashed(crash),
        });
        let end = match &ending {
            JobEnd::Normal(completed) => {
                self.note_progress(msg.run, &row.id, completed.progress.clone());
                End::Normal
            }
            JobEnd::Stopped => End::Stopped,
            JobEnd::Crashed(crash) => self.crashed(&row.id, crash),
        };
        self.ending = Some(ending);
        self.event(Event::Exited { run: msg.run, end }, ctx);
        self.ending = None;
        for waiting in row.gone {
            // The caller may be gone.
            let _ = waiting.send(true);
        }
        self.finish_shutdown(ctx);
    }
}

/// The JobSupervisor has failed, and its children with it: the scheduler ends too, and both are restarted together.
impl Handler<Down> for ReplicationScheduler {
    type Result = ();

    fn handle(&mut self, msg: Down, ctx: &mut Self::Context) {
        if self.supervisors_life == Some(msg.monitor) {
            self.pid_guard.ending(ExitReason::Failed(format!(
                "its job supervisor ended: {}",
                msg.reason
            )));
            ctx.terminate();
        }
    }
}

/// Stops all runs together, and ends after them.
impl Handler<Stop> for ReplicationScheduler {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        if !self.shutting_down {
            info!(self.log, "replication scheduler stops"; "running" => self.runs.len());
        }
        self.shutting_down = true;
        self.event(Event::Shutdown, ctx);
        if msg.now {
            for run in self.runs.keys().copied() {
                let within = SHUTDOWN_NOW_MAX;
                self.supervisor().tell(TerminateChild { run, within });
            }
        }
        self.finish_shutdown(ctx);
    }
}
