//! Messages to the ReplicationScheduler, and what it tells others.
//!
//! SUMMARY   Jobs are added, removed, paused, resumed, begun anew and asked for. Who adds one may wait
//!           for its end; who subscribes hears of all.
//! CALLED    By the doc processor and by HTTP, from any thread.
//! SOURCE    couch_replicator_scheduler 004: add_job, remove_job, reschedule, rep_state,
//!           find_jobs_by_dbname, find_jobs_by_doc, job_summary, jobs, job;
//!           couch_replicator_notifier: the events.

use std::sync::Arc;

use actix::{Message, Recipient};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::messages::replication_job::JobProgress;
use policy::schedule::{
    Census, HistoryEntry, JobState, Level, Pause, Settings, Summary, Totals, WallTime, WhyNot,
};
use replication::crash::Crash;
use replication::id::ReplicationId;
use replication::refused::RefusedDoc;
use replication::spec::{DocRef, Replication};

/// Adds a job (`add_job`). It runs when it is its turn.
///
/// A job of the same owner that has the id already is left alone if it asks for the same, else
/// replaced.
#[derive(Debug)]
pub struct AddJob {
    /// What is to be replicated.
    pub replication: Arc<Replication>,
    /// Its id.
    pub id: ReplicationId,
    /// Its priority: the higher, the sooner its turn. 0 is ordinary.
    pub priority: Level,
    /// Who paused it, if it is not to run.
    pub paused: Option<Pause>,
    /// Who waits for its end, also if it was there already. May be dropped at any time.
    pub waiter: Option<oneshot::Sender<Outcome>>,
}

impl AddJob {
    /// Adds an ordinary job.
    pub fn new(replication: impl Into<Arc<Replication>>, id: ReplicationId) -> Self {
        Self {
            replication: replication.into(),
            id,
            priority: Level::default(),
            paused: None,
            waiter: None,
        }
    }
}

impl Message for AddJob {
    type Result = Result<Added, AddJobError>;
}

/// What became of [`AddJob`].
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
/// such a job.
#[derive(Clone, Debug)]
pub struct RemoveJob {
    /// Which.
    pub id: ReplicationId,
}

impl Message for RemoveJob {
    type Result = bool;
}

/// Removes all jobs (`stop_clear_all_jobs`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoveAllJobs;

impl Message for RemoveAllJobs {
    type Result = ();
}

/// Begins a job anew, its failures forgotten (`restart_job`). Answers whether there is such a job.
#[derive(Clone, Debug)]
pub(crate) struct RestartJob {
    /// Which.
    pub id: ReplicationId,
}

impl Message for RestartJob {
    type Result = bool;
}

/// Stops a job until it is resumed; one that is paused stays so. Answers whether there is such a job.
#[derive(Clone, Debug)]
pub(crate) struct PauseJob {
    /// Which.
    pub id: ReplicationId,
    /// Who says so; shown to others.
    pub by: Arc<str>,
}

impl Message for PauseJob {
    type Result = bool;
}

/// Lets a paused job run. Answers whether there is such a job.
#[derive(Clone, Debug)]
pub(crate) struct ResumeJob {
    /// Which.
    pub id: ReplicationId,
}

impl Message for ResumeJob {
    type Result = bool;
}

/// Gives a job another priority. Answers whether there is such a job.
#[derive(Clone, Debug)]
pub(crate) struct SetPriority {
    /// Which.
    pub id: ReplicationId,
    /// The higher, the sooner its turn.
    pub priority: Level,
}

impl Message for SetPriority {
    type Result = bool;
}

/// Runs a cycle now (`reschedule`). The next one comes when it would have come.
#[derive(Clone, Copy, Debug)]
pub struct Reschedule;

impl Message for Reschedule {
    type Result = ();
}

/// Works by other settings from now on.
#[derive(Clone, Debug)]
pub struct Configure(pub Settings);

impl Message for Configure {
    type Result = ();
}

/// Asks for a job (`job`).
#[derive(Clone, Debug)]
pub struct GetJob {
    /// Which.
    pub id: ReplicationId,
}

impl Message for GetJob {
    type Result = Option<JobInfo>;
}

/// Asks for jobs (`jobs`), in order of their ids.
#[derive(Clone, Debug)]
pub(crate) struct GetJobs {
    /// Only jobs whose ids come after this one.
    pub after: Option<String>,
    /// Passes over as many.
    pub skip: usize,
    /// At most as many, and at most [`JOBS_MAX`].
    pub limit: usize,
    /// Of which.
    pub of: JobChoice,
}

/// The most jobs that are answered at a time, so that no answer takes long.
pub(crate) const JOBS_MAX: usize = 200;

/// Which jobs are asked for.
#[derive(Clone, Debug)]
pub(crate) enum JobChoice {
    /// All.
    All,
    /// Those that have a run.
    Running,
    /// Those in one of these states.
    In(Vec<JobState>),
}

impl Message for GetJobs {
    type Result = JobList;
}

/// Asks for these jobs; the answers are in the same order.
#[derive(Clone, Debug)]
pub(crate) struct GetJobsById {
    /// Which.
    pub ids: Vec<ReplicationId>,
}

impl Message for GetJobsById {
    type Result = Vec<Option<JobInfo>>;
}

/// Asks for the ids of a document's jobs (`find_jobs_by_doc`), or of a whole database's
/// (`find_jobs_by_dbname`), in order.
#[derive(Clone, Debug)]
pub(crate) struct FindJobs {
    /// The replicator database.
    pub database: String,
    /// The document; none is all of them.
    pub doc_id: Option<String>,
}

impl Message for FindJobs {
    type Result = Vec<ReplicationId>;
}

/// Asks how many jobs there are, and what was counted.
#[derive(Clone, Copy, Debug)]
pub struct GetCounts;

impl Message for GetCounts {
    type Result = Counts;
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
    /// The number of the run that it has, if it has one: shown as its `pid`.
    pub run: Option<u64>,
    /// State, error, number of errors in a row, time of the latest event.
    pub summary: Summary,
    /// How far it is, or was when it ran last.
    pub progress: Option<Arc<JobProgress>>,
    /// When that was.
    pub progress_at: Option<WallTime>,
    /// Documents that were not replicated, and why: the latest ones, the latest last.
    pub refused: Vec<RefusedDoc>,
    /// What happened, the newest first.
    pub history: Vec<HistoryEntry>,
    /// When it was started last.
    pub last_started: Option<WallTime>,
    /// Its priority.
    pub priority: Level,
    /// Who paused it, if it is.
    pub paused: Option<Pause>,
    /// Why it does not run, if it does not; shown in words.
    pub why_not: Option<WhyNot>,
}

/// Tells of everything that happens to jobs from now on, in order.
#[derive(Clone, Debug)]
pub(crate) struct Subscribe(pub Recipient<ReplicationEvent>);

impl Message for Subscribe {
    type Result = ();
}

/// Something happened to a job.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct ReplicationEvent {
    /// Its id.
    pub id: ReplicationId,
    /// What is replicated.
    pub replication: Arc<Replication>,
    /// What happened.
    pub what: Happening,
}

/// What happened to a job.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// A run was begun (`triggered`).
    Triggered,
    /// Both databases are open (`started`).
    Started,
    /// A run crashed; the job will be tried again (`error`).
    Crashed {
        /// Why.
        crash: Crash,
    },
    /// A run was stopped; the job waits for its turn, or is paused.
    Stopped,
    /// The job ended, and is gone.
    Ended(Outcome),
}

/// How a job ended, or, to whoever waits for it, how a run of it did.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Everything is replicated.
    Completed(Arc<Completed>),
    /// It crashed. A job with a document is tried again; one without is gone.
    Crashed(Crash),
    /// It was removed, or replaced.
    Removed,
}

/// What a job that did its work leaves.
#[derive(Clone, Debug)]
pub struct Completed {
    /// What `POST /_replicate` answers, beside `ok`: a JSON object.
    pub result: Box<RawValue>,
    /// How far it came.
    pub progress: JobProgress,
}
