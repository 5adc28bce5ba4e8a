//! The start of a replication's job, and its reports to its owner.
//!
//! SUMMARY   A job is started with a [`JobStart`], reports [`JobEvent`]s, and ends by itself or after
//!           [`StopJob`].
//! PROMISES  The last event of a run is exactly one [`JobNews::Ended`], however the run ends: even
//!           if the job's actor is dropped or panics. Every event carries the number of its run.
//! SOURCE    `couch_replicator_scheduler_job`: its exits, and the statistics of its task.

use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use serde_json::value::RawValue;
use slog::{KV, Logger, Record, Serializer};

use crate::otp::{ExitReason, Pid};
use policy::schedule::Run;
use replication::counters::Stats;
use replication::crash::Crash;
use replication::endpoint::Http;
use replication::filter::FilterPool;
use replication::id::{Identity, ReplicationId};
use replication::refused::RefusedDoc;
use replication::seq::Seq;
use replication::spec::Replication;

pub use crate::replicator::{CheckpointGuard, JobLease};

/// A run of a job to start.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// The replication.
    pub replication: Arc<Replication>,
    /// Its id.
    pub id: ReplicationId,
    /// The number of the run; the sender chooses it.
    pub number: Run,
    /// Counts of earlier runs, if known.
    pub earlier: Stats,
    /// Consulted before each checkpoint.
    pub guard: CheckpointGuard,
    /// Receives the run's events. The last one reports the run's end.
    pub events: Recipient<JobEvent>,
    /// The log of the run.
    pub log: Logger,
}

/// A job's name in log records: `replication`, its id, and `document` if it has one.
#[derive(Clone, Debug)]
pub(crate) struct JobName {
    id: String,
    doc: Option<String>,
}

impl JobName {
    /// Returns the name of a job with only its id known.
    pub fn of_id(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            doc: None,
        }
    }

    /// Returns the name of a replication.
    pub fn new(id: &ReplicationId, replication: &Replication) -> Self {
        Self {
            id: id.to_string(),
            doc: replication.doc.as_ref().map(|doc| doc.id.clone()),
        }
    }
}

impl KV for JobName {
    fn serialize(&self, _: &Record<'_>, serializer: &mut dyn Serializer) -> slog::Result {
        if let Some(doc) = &self.doc {
            serializer.emit_str("document", doc)?;
        }
        serializer.emit_str("replication", &self.id)
    }
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct JobStart {
    /// The run.
    pub run: NewRun,
    /// How jobs behave.
    pub settings: JobSettings,
}

/// The settings of all jobs.
#[derive(Clone, Debug)]
pub struct JobSettings {
    /// Shared by all replications.
    pub http: Http,
    /// Part of replication ids; needed to compute the ids of older checkpoints.
    pub identity: Identity,
    /// Maximum random delay of a run's start; zero for none.
    pub startup_jitter: Duration,
    /// No request is retried once it has failed for half of this time.
    pub health_threshold: Duration,
    /// Documents with longer ids, in bytes, are skipped; `None` for no limit.
    pub max_document_id_length: Option<u64>,
    /// How long to wait for a revision that the source announced but does not deliver.
    pub missing_doc_retry: Duration,
    /// Runs filters that the source does not run.
    pub filters: FilterPool,
}

/// An event of a job.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct JobEvent {
    /// The run.
    pub run: Run,
    /// The event.
    pub news: JobNews,
}

/// The kind of report.
#[derive(Clone, Debug)]
pub enum JobNews {
    /// Both databases are open, and the start sequence is known.
    Started(JobProgress),
    /// It made progress; at most one a second.
    Progress(JobProgress),
    /// A document was not replicated: the target refused it, or its id is too long or illegal.
    Refused(RefusedDoc),
    /// The run is over.
    Ended(JobEnd),
}

/// The progress of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobProgress {
    /// Its counts, those of earlier runs included.
    pub stats: Stats,
    /// Bytes of documents and attachments sent to the target in this run.
    pub bytes_written: u64,
    /// The highest completed sequence.
    pub source_seq: Seq,
    /// All changes up to this sequence are completed.
    pub through_seq: Seq,
    /// The sequence that the last checkpoint recorded.
    pub checkpointed_source_seq: Seq,
    /// Pending changes at the source, if it reports them; polled occasionally.
    pub changes_pending: Option<u64>,
    /// Why it uses its own feed instead of `_db_updates`, and the remedy.
    pub own_feed: Option<Arc<str>>,
}

/// How a run ended, or the whole job.
#[derive(Clone, Debug)]
pub enum JobEnd {
    /// Everything is replicated.
    Normal(Arc<Completed>),
    /// The run stopped as ordered and tried to leave a checkpoint; or the job was removed or replaced.
    Stopped,
    /// It could not continue. A job with a document is retried; one without has ended.
    Crashed(Crash),
}

/// The result of a completed job.
#[derive(Clone, Debug)]
pub struct Completed {
    /// The JSON object that answers `POST /_replicate`, without `ok`: the replication log's body, preceded by
    /// `no_changes` if nothing was recorded. Without checkpoints it has only `use_checkpoints`.
    pub result: Box<RawValue>,
    /// Its final progress.
    pub progress: JobProgress,
}

/// Orders a job to stop: it drops work in progress, leaves a checkpoint if that takes at most [`STOP_MAX`], and ends.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopJob;

/// Maximum time that a job takes to stop.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(5);

// Messages between the ReplicationScheduler and the JobSupervisor, and how a job is started.

/// Starts runs: real ones in the service, simulated ones in tests. Returns at once, since the run does all slow work.
/// Fails if a run cannot even start.
pub type StartJobs = Box<dyn FnMut(NewRun) -> Result<RunningJob, Crash>>;

/// A started run.
pub struct RunningJob {
    /// Ends once everything that belongs to the run is dropped.
    pub pid: Pid,
    /// Receives the order to stop.
    pub stop: Recipient<StopJob>,
    /// Ends it at once, without a checkpoint.
    pub kill: Box<dyn Fn()>,
}

/// Starts a run (`start_child`); answered by a [`ChildEnded`], even if it cannot be started.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct StartChild(pub NewRun);

/// Ends a run (`terminate_child`): stops it, and kills it after `within`. A [`ChildEnded`] follows.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct TerminateChild {
    /// The run; one that has ended is ignored.
    pub run: Run,
    /// How long it may take; zero ends it at once, without a checkpoint (`brutal_kill`).
    pub within: Duration,
}

/// A run has ended. Sent exactly once for each [`StartChild`].
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct ChildEnded {
    pub run: Run,
    /// The exit reason of its pid, or why it could not start.
    pub reason: Result<ExitReason, Crash>,
}
