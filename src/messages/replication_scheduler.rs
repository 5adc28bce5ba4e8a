//! Messages to the ReplicationScheduler, and its events.
//!
//! SUMMARY   Jobs are added, removed, paused, resumed, restarted and queried. The caller that adds one may wait for
//!           its end; subscribers are notified of the events of all jobs.
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

/// Adds a job (`add_job`), to run when it is its turn.
///
/// An existing job of the same owner with this id is kept if it requests the same under the same lease, otherwise
/// replaced.
#[derive(Debug, Message)]
#[rtype(result = "Result<Added, AddJobError>")]
pub struct AddJob {
    /// The replication.
    pub replication: Arc<Replication>,
    /// Its id.
    pub id: ReplicationId,
    /// Its priority: higher ones run sooner. 0 is normal.
    pub priority: Level,
    /// The pause, if it is paused.
    pub paused: Option<Pause>,
    /// Consulted by its runs before each checkpoint.
    pub guard: CheckpointGuard,
    /// Its past in another scheduler, if any.
    pub earlier: Earlier,
    /// The latest documents that its earlier runs did not replicate, newest last.
    pub refused: Vec<Arc<RefusedDoc>>,
    /// Notified of its end, even if it already existed. May be dropped at any time.
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

/// Maximum jobs added in one turn.
pub(crate) const ADDS_MAX: usize = 256;

/// Adds several jobs in one turn, at most [`ADDS_MAX`]. Returns an answer for each, in order.
#[derive(Debug, Message)]
#[rtype(result = "Vec<Result<Added, AddJobError>>")]
pub(crate) struct AddJobs(pub(crate) Vec<AddJob>);

/// The result of [`AddJob`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is new.
    New,
    /// It existed and requests the same: nothing changed.
    Unchanged,
    /// It existed, requested something else, and was replaced.
    Replaced,
}

/// Why no job was added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddJobError {
    /// The id belongs to a job of another document or user, or to a transient job. Worth a retry once that is gone.
    #[error("{}", taken(.id, .by.as_ref()))]
    Taken {
        /// The id.
        id: ReplicationId,
        /// The document of that job; `None` for a transient job.
        by: Option<DocRef>,
    },
    /// The service is shutting down. Worth a retry after its restart.
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
             `_replicate` API endpoint; only its user and administrators may change its options"
        ),
    }
}

/// Removes a job (`remove_job`). Answers, once its run is gone, whether there was such a job. Without a run, if
/// several daemons share jobs, answers once its past is saved, but after two seconds at most.
#[derive(Clone, Debug, Message)]
#[rtype(result = "bool")]
pub struct RemoveJob {
    /// The job's id.
    pub id: ReplicationId,
    /// Its document; `None` for a transient job. A job of another document is kept: two documents may request
    /// the same replication.
    pub doc: Option<DocRef>,
}

/// Removes a job that another daemon owns now: its run is killed without a checkpoint, even if it was stopping.
/// Answers, once that is gone, whether there was such a job or run.
#[derive(Clone, Debug, Message)]
#[rtype(result = "bool")]
pub struct LoseJob {
    /// The job's id.
    pub id: ReplicationId,
    /// Its document: a job of another one is kept.
    pub doc: DocRef,
}

/// Maximum jobs ordered in one turn.
pub(crate) const ORDERS_MAX: usize = 100;

/// Gives an order to at most [`ORDERS_MAX`] jobs in one turn. Pausing a paused job keeps its first pause; resuming or
/// restarting it ends the pause. Answers, in order, whether each job exists.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Vec<bool>")]
pub(crate) struct OrderJobs {
    pub ids: Vec<ReplicationId>,
    pub order: JobOrder,
    /// The user who gives the order; shown for paused jobs.
    pub by: Arc<str>,
}

/// Runs a cycle now (`reschedule`). The next one keeps its time.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Reschedule;

/// Replaces the settings.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Configure(pub Settings);

/// Requests a job (`job`).
#[derive(Clone, Debug, Message)]
#[rtype(result = "Option<JobInfo>")]
pub struct GetJob {
    /// The job's id.
    pub id: ReplicationId,
}

/// Requests jobs (`jobs`), in order of their ids.
#[derive(Clone, Debug, Message)]
#[rtype(result = "JobList")]
pub(crate) struct GetJobs {
    /// Only ids after this one.
    pub after: Option<String>,
    /// Skips this many.
    pub skip: usize,
    /// Maximum number, and never more than [`JOBS_MAX`].
    pub limit: usize,
    /// Only jobs in one of these states.
    pub states: Vec<JobState>,
}

/// Maximum jobs in an answer, so that it does not take long.
pub(crate) const JOBS_MAX: usize = 200;

/// Requests these jobs; the answers are in order.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Vec<Option<JobInfo>>")]
pub(crate) struct GetJobsById {
    pub ids: Vec<ReplicationId>,
}

/// Requests the number of jobs, and the counters.
#[derive(Debug, Message)]
#[rtype(result = "Counts")]
pub struct GetCounts;

/// Requests the problems of running jobs.
#[derive(Debug, Message)]
#[rtype(result = "RunTroubles")]
pub(crate) struct GetRunTroubles;

/// The problems of running jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunTroubles {
    /// Jobs that have more to replicate, but made no progress for [`STALLED_AFTER`].
    pub stalled: Stalled,
    /// Slow servers, each with the number of running jobs with their source or target there.
    pub slow: Vec<(SlowServer, u64)>,
}

/// Time without progress after which a running job with more to replicate counts as stalled.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(10 * 60);

/// Stalled jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stalled {
    /// Their number.
    pub count: u64,
    /// The document or id of one of them; empty if there is none.
    pub example: String,
}

/// The number of jobs, and the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of jobs in each state.
    pub census: Census,
    /// The counters since the start.
    pub totals: Totals,
}

/// A list of jobs.
#[derive(Clone, Debug)]
pub(crate) struct JobList {
    /// The number of matching jobs.
    pub total: usize,
    pub jobs: Vec<JobInfo>,
}

/// A job's current state, for `_scheduler/jobs`, `_scheduler/docs` and `_active_tasks`.
#[derive(Clone, Debug)]
pub struct JobInfo {
    /// Its id.
    pub id: ReplicationId,
    /// The replication.
    pub replication: Arc<Replication>,
    /// Its state in the scheduler.
    pub shown: ShownJob,
    /// The progress of its current or latest run.
    pub progress: Option<Arc<JobProgress>>,
    /// When that was reported.
    pub progress_at: Option<WallTime>,
    /// The latest documents that were not replicated, and why; newest last.
    pub refused: Vec<RefusedDoc>,
    /// Its history, newest first.
    pub history: Vec<HistoryEntry>,
}

impl JobInfo {
    /// Returns the short reason why it does not run, equal for equal causes; `None` if it runs.
    pub(crate) fn reason(&self) -> Option<String> {
        match (&self.shown.paused, &self.shown.summary.error) {
            (Some(pause), _) => Some(WhyNot::Paused(pause.clone()).short()),
            (None, Some(error)) => Some(error.short.to_string()),
            (None, None) => Some(self.shown.why_not.as_ref()?.short()),
        }
    }

    /// Returns when a job that backs off, or must not start yet, may start; `None` for other jobs.
    pub(crate) fn next_try(&self) -> Option<WallTime> {
        match self.shown.why_not {
            Some(WhyNot::BackingOff { until, .. } | WhyNot::NotBefore { until }) => Some(until),
            _ => None,
        }
    }

    /// Calls `to` with the facts for a selection, and returns its result. `daemon` is this daemon's address in a fleet.
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

/// Subscribes to all later events of jobs, in order.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Subscribe(pub Recipient<ReplicationEvent>);

/// An event of a job.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct ReplicationEvent {
    /// Its id.
    pub id: ReplicationId,
    pub replication: Arc<Replication>,
    /// Documents that were not replicated, if the job ended.
    pub refused: Vec<RefusedDoc>,
    pub what: Happening,
}

/// The kind of a job's event.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// A run started (`triggered`).
    Triggered,
    /// A run crashed; the job will be retried (`error`).
    Crashed(Crash),
    /// The job ended, and is gone.
    Ended(JobEnd),
}
