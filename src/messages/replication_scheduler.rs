//! Messages to the ReplicationScheduler, and what it tells others.
//!
//! SUMMARY   Jobs are added, removed, paused, resumed, restarted and queried. The caller that adds one may wait
//!           for its end; subscribers are notified of all.
//! CALLED    By ReplicatorDocuments and by the ReplicatorApi, from any thread.
//! SOURCE    couch_replicator_scheduler 004: add_job, remove_job, restart_job, reschedule, rep_state,
//!           job_summary, jobs, job; couch_replicator_notifier: the events.

use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use tokio::sync::oneshot;

use crate::messages::replication_job::{JobEnd, JobProgress};
use crate::replicator::selection::JobFacts;
use crate::replicator::{CheckpointGuard, JobOrder};
use policy::schedule::{
    Census, Earlier, HistoryEntry, JobState, Level, Pause, Settings, ShownJob, Totals, WallTime,
    WhyNot,
};
use replication::crash::Crash;
use replication::endpoint::SlowServer;
use replication::id::ReplicationId;
use replication::refused::RefusedDoc;
use replication::spec::{DocRef, Replication};

/// Adds a job (`add_job`). It runs when it is its turn.
///
/// A job of the same owner that has the id already is left alone if it asks for the same under the same lease,
/// else replaced.
#[derive(Debug, Message)]
#[rtype(result = "Result<Added, AddJobError>")]
pub struct AddJob {
    /// What is to be replicated.
    pub replication: Arc<Replication>,
    /// Its id.
    pub id: ReplicationId,
    /// Its priority: the higher, the sooner its turn. 0 is ordinary.
    pub priority: Level,
    /// Who paused it, if it is not to run.
    pub paused: Option<Pause>,
    /// What its runs ask before each checkpoint.
    pub guard: CheckpointGuard,
    /// Its past, if it was another scheduler's.
    pub earlier: Earlier,
    /// The latest documents that were not replicated in its past, the latest last.
    pub refused: Vec<Arc<RefusedDoc>>,
    /// Who waits for its end, also if it was there already. May be dropped at any time.
    pub waiter: Option<oneshot::Sender<JobEnd>>,
}

impl AddJob {
    /// Adds an ordinary job.
    pub fn new(replication: impl Into<Arc<Replication>>, id: ReplicationId) -> Self {
        Self {
            replication: replication.into(),
            id,
            priority: Level::default(),
            paused: None,
            guard: CheckpointGuard::default(),
            earlier: Earlier::default(),
            refused: Vec::new(),
            waiter: None,
        }
    }
}

/// The most jobs that are added in one turn.
pub(crate) const ADDS_MAX: usize = 256;

/// Adds several jobs in one turn, at most [`ADDS_MAX`]. Each has its own answer, in their order.
#[derive(Debug, Message)]
#[rtype(result = "Vec<Result<Added, AddJobError>>")]
pub(crate) struct AddJobs(pub(crate) Vec<AddJob>);

/// The result of [`AddJob`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is new.
    New,
    /// It was there, and asks for the same: nothing changed.
    Unchanged,
    /// It was there, asked for something else, and was replaced.
    Replaced,
}

/// Why no job was added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddJobError {
    /// The id belongs to a job of another document, or of none. Worth a retry once that is gone.
    #[error("{}", taken(.id, .by.as_ref()))]
    Taken {
        /// The id.
        id: ReplicationId,
        /// The document whose job it is; none is a transient job.
        by: Option<DocRef>,
    },
    /// The service is ending. Worth a retry after its start.
    #[error("the service is shutting down")]
    ShuttingDown,
}

fn taken(id: &ReplicationId, by: Option<&DocRef>) -> String {
    match by {
        Some(doc) => format!(
            "Replication `{id}` already started, triggered by document `{}` from db `{}`",
            doc.id, doc.database
        ),
        None => format!(
            "Replication `{id}` already running as a transient replication, started via \
             `_replicate` API endpoint"
        ),
    }
}

/// Removes a job (`remove_job`). Answered once its run, if it had one, is gone: whether there was
/// such a job. Without a run, and where several daemons share jobs, answered when its past is saved, or two seconds
/// later.
#[derive(Clone, Debug, Message)]
#[rtype(result = "bool")]
pub struct RemoveJob {
    /// Which.
    pub id: ReplicationId,
    /// The document that it belongs to; none of a transient job. A job of another one is left alone: two may ask for the
    /// same replication.
    pub doc: Option<DocRef>,
}

/// Removes a job that another daemon owns now: its run is killed and leaves no checkpoint, also one that
/// was told to stop before. Answered once that is gone: whether there was such a job or run.
#[derive(Clone, Debug, Message)]
#[rtype(result = "bool")]
pub struct LoseJob {
    /// Which.
    pub id: ReplicationId,
    /// The document that it belongs to: a job of another one is left alone.
    pub doc: DocRef,
}

/// The most jobs that are ordered in one turn.
pub(crate) const ORDERS_MAX: usize = 100;

/// Tells jobs what to do, at most [`ORDERS_MAX`], all in one turn. One that is paused already stays so. Answers of each whether there is such
/// a job, in the same order.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Vec<bool>")]
pub(crate) struct OrderJobs {
    /// Which.
    pub ids: Vec<ReplicationId>,
    /// What they are to do.
    pub order: JobOrder,
    /// Who says so; shown of a job that is paused.
    pub by: Arc<str>,
}

/// Runs a cycle now (`reschedule`). The next one comes when it would have come.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Reschedule;

/// Works by other settings from now on.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Configure(pub Settings);

/// Asks for a job (`job`).
#[derive(Clone, Debug, Message)]
#[rtype(result = "Option<JobInfo>")]
pub struct GetJob {
    /// Which.
    pub id: ReplicationId,
}

/// Asks for jobs (`jobs`), in order of their ids.
#[derive(Clone, Debug, Message)]
#[rtype(result = "JobList")]
pub(crate) struct GetJobs {
    /// Only jobs whose ids come after this one.
    pub after: Option<String>,
    /// Passes over as many.
    pub skip: usize,
    /// At most as many, and at most [`JOBS_MAX`].
    pub limit: usize,
    /// Only jobs in one of these states.
    pub states: Vec<JobState>,
}

/// The most jobs that are answered at a time, so that no answer takes long.
pub(crate) const JOBS_MAX: usize = 200;

/// Asks for these jobs; the answers are in the same order.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Vec<Option<JobInfo>>")]
pub(crate) struct GetJobsById {
    /// Which.
    pub ids: Vec<ReplicationId>,
}

/// Asks how many jobs there are, and what was counted.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Counts")]
pub struct GetCounts;

/// Asks what is wrong with the jobs that run.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "RunTroubles")]
pub(crate) struct GetRunTroubles;

/// What is wrong with the jobs that run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunTroubles {
    /// Those that have more to replicate and have made no progress for [`STALLED_AFTER`].
    pub stalled: Stalled,
    /// Servers that take long to answer, each with how many jobs that run have their source or their target there.
    pub slow: Vec<(SlowServer, u64)>,
}

/// How long a running job that has more to replicate may make no progress before it counts as stalled.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(10 * 60);

/// Running jobs that make no progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stalled {
    /// How many there are.
    pub count: u64,
    /// One of them: its document, or its id; empty if there is none.
    pub example: String,
}

/// How many jobs there are, and what was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many are in which state.
    pub census: Census,
    /// What was counted since the start.
    pub totals: Totals,
}

/// Some of the jobs.
#[derive(Clone, Debug)]
pub(crate) struct JobList {
    /// How many there are, of the kind that was asked for.
    pub total: usize,
    /// Those that were asked for.
    pub jobs: Vec<JobInfo>,
}

/// A job as it is now: what `_scheduler/jobs`, `_scheduler/docs` and `_active_tasks` are made of.
#[derive(Clone, Debug)]
pub struct JobInfo {
    /// Its id.
    pub id: ReplicationId,
    /// What is replicated.
    pub replication: Arc<Replication>,
    /// What the scheduler reports of it.
    pub shown: ShownJob,
    /// How far it is, or was when it ran last.
    pub progress: Option<Arc<JobProgress>>,
    /// When that was.
    pub progress_at: Option<WallTime>,
    /// Documents that were not replicated, and why: the latest ones, the latest last.
    pub refused: Vec<RefusedDoc>,
    /// What happened, the newest first.
    pub history: Vec<HistoryEntry>,
}

impl JobInfo {
    /// Returns why it does not run in a few words, equal for equal causes; none if it runs.
    pub(crate) fn reason(&self) -> Option<String> {
        match (&self.shown.paused, &self.shown.summary.error) {
            (Some(pause), _) => Some(WhyNot::Paused(pause.clone()).short()),
            (None, Some(error)) => Some(error.short.to_string()),
            (None, None) => Some(self.shown.why_not.as_ref()?.short()),
        }
    }

    /// Returns when a job that waits for a time is retried at the earliest.
    pub(crate) fn next_try(&self) -> Option<WallTime> {
        match self.shown.why_not {
            Some(WhyNot::BackingOff { until, .. } | WhyNot::NotBefore { until }) => Some(until),
            Some(
                WhyNot::NoSlot { .. }
                | WhyNot::NextCycle
                | WhyNot::Paused(_)
                | WhyNot::Stopping
                | WhyNot::Replacing
                | WhyNot::ShuttingDown,
            )
            | None => None,
        }
    }

    /// Hands on what a selection looks at. `daemon` is the address of this one in a fleet.
    pub(crate) fn facts<T>(&self, daemon: Option<&str>, to: impl FnOnce(&JobFacts<'_>) -> T) -> T {
        let replication = &*self.replication;
        to(&JobFacts {
            id: &self.id.to_string(),
            doc: replication.doc.as_ref().map(|doc| &*doc.id),
            state: self.shown.listed.into(),
            source: &replication.source.shown(),
            target: &replication.target.shown(),
            reason: self.reason().as_deref(),
            daemon,
        })
    }
}

/// Tells of everything that happens to jobs from now on, in order.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Subscribe(pub Recipient<ReplicationEvent>);

/// Something happened to a job.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct ReplicationEvent {
    /// Its id.
    pub id: ReplicationId,
    /// What is replicated.
    pub replication: Arc<Replication>,
    /// Documents that were not replicated, where the job ended.
    pub refused: Vec<RefusedDoc>,
    /// What happened.
    pub what: Happening,
}

/// What happened to a job.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// A run was begun (`triggered`).
    Triggered,
    /// A run crashed; the job will be tried again (`error`).
    Crashed(Crash),
    /// The job ended, and is gone.
    Ended(JobEnd),
}
