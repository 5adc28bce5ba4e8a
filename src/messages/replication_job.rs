//! The start of a replication's job, and its reports to its owner.
//!
//! SUMMARY   A job is started with a [`JobStart`], reports [`JobEvent`]s, and ends on its own or when
//!           told to with [`StopJob`].
//! PROMISES  The last event of a run is [`JobNews::Ended`], exactly one, however the run ends: also
//!           when the job's actor is dropped or panics. Every event carries the number of its run.
//! SOURCE    `couch_replicator_scheduler_job`: its exits, and the statistics of its task.

use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use serde_json::value::RawValue;
use slog::{KV, Logger, Record, Serializer};

use crate::otp::pid::{ExitReason, Pid};
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

/// A run of a job that is to be begun.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// What is to be replicated.
    pub replication: Arc<Replication>,
    /// Its id.
    pub id: ReplicationId,
    /// The number of the run; the sender chooses it.
    pub number: Run,
    /// What runs before this one counted, as far as it is known here.
    pub earlier: Stats,
    /// Asked before each checkpoint.
    pub guard: CheckpointGuard,
    /// Who is notified. The last news is how the run ended.
    pub events: Recipient<JobEvent>,
    /// For what is worth a line.
    pub log: Logger,
}

/// Names a job in records of the log: `replication`, its id, and `document` if it belongs to one.
#[derive(Clone, Debug)]
pub(crate) struct JobName {
    id: String,
    doc: Option<String>,
}

impl JobName {
    /// Returns the name of one of which no more is known.
    pub fn of_id(id: &str) -> Self {
        let (id, doc) = (id.to_owned(), None);
        Self { id, doc }
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

/// Everything that a run needs.
#[derive(Clone, Debug)]
pub struct JobStart {
    /// The run.
    pub run: NewRun,
    /// How jobs behave.
    pub settings: JobSettings,
}

/// What is the same for all jobs.
#[derive(Clone, Debug)]
pub struct JobSettings {
    /// What all replications share.
    pub http: Http,
    /// Who computes ids: older checkpoints are found by it.
    pub identity: Identity,
    /// The longest random wait before a run begins; zero for none.
    pub startup_jitter: Duration,
    /// No request is retried after half of it.
    pub health_threshold: Duration,
    /// Documents with longer ids, in bytes, are skipped; `None` for no limit.
    pub max_document_id_length: Option<u64>,
    /// How long to wait for a revision that the source announced and does not deliver.
    pub missing_doc_retry: Duration,
    /// Who runs filters that the source does not run.
    pub filters: FilterPool,
}

/// What a job tells.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct JobEvent {
    /// Which run.
    pub run: Run,
    /// What.
    pub news: JobNews,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum JobNews {
    /// Both databases are open, and it is known where to begin.
    Started(JobProgress),
    /// It made progress; at most one a second.
    Progress(JobProgress),
    /// The target did not take a document.
    Refused(RefusedDoc),
    /// The run is over.
    Ended(JobEnd),
}

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobProgress {
    /// What it counted, together with runs before it.
    pub stats: Stats,
    /// Bytes of documents and attachments sent to the target in this run.
    pub bytes_written: u64,
    /// The highest sequence that is done.
    pub source_seq: Seq,
    /// Up to where everything is done.
    pub through_seq: Seq,
    /// What the last checkpoint recorded.
    pub checkpointed_source_seq: Seq,
    /// Changes at the source that are still to come, if it tells; asked now and then.
    pub changes_pending: Option<u64>,
    /// Why it has a feed of its own although it was to go by `_db_updates`, and what to do.
    pub own_feed: Option<Arc<str>>,
}

/// How a run ended, or the whole job.
#[derive(Clone, Debug)]
pub enum JobEnd {
    /// Everything is replicated.
    Normal(Arc<Completed>),
    /// The run was told to stop, and tried to leave a checkpoint; the job was removed, or replaced.
    Stopped,
    /// It could not go on. A job with a document is retried; one without is gone.
    Crashed(Crash),
}

/// What a job that did its work leaves.
#[derive(Clone, Debug)]
pub struct Completed {
    /// What `POST /_replicate` answers, beside `ok`: a JSON object, the log's body or what stands for it when
    /// nothing was to be done.
    pub result: Box<RawValue>,
    /// How far it came.
    pub progress: JobProgress,
}

/// Tells a job to stop: it drops what it is at, leaves a checkpoint if that takes no more than
/// [`STOP_MAX`], and ends.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopJob;

/// How long a job takes to stop, at most.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(5);

// Messages between the ReplicationScheduler and the JobSupervisor, and how a job is started.

/// Starts runs: real ones in the service, others in tests. Returns at once: what takes time, the run does. Fails
/// if a run cannot even be begun.
pub type StartJobs = Box<dyn FnMut(NewRun) -> Result<RunningJob, Crash>>;

/// A run that was begun.
pub struct RunningJob {
    /// Its life: when that ends, nothing of it is left.
    pub pid: Pid,
    /// Where to ask it to end.
    pub stop: Recipient<StopJob>,
    /// Ends it at once, without a checkpoint.
    pub kill: Box<dyn Fn()>,
}

/// Starts a run (`start_child`); answered by a [`ChildEnded`], also when it cannot be started.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct StartChild(pub NewRun);

/// Ends a run (`terminate_child`): politely, and surely when its time is up. A [`ChildEnded`] follows.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct TerminateChild {
    /// Which; one that is gone is no mistake.
    pub run: Run,
    /// How long it may take; zero ends it at once, without a checkpoint (`brutal_kill`).
    pub within: Duration,
}

/// A run is gone. Exactly one for each that was to be started.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct ChildEnded {
    /// Which.
    pub run: Run,
    /// Why, as its life says, or as its start said.
    pub reason: Result<ExitReason, Crash>,
}
