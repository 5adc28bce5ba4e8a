//! Messages between the ReplicationScheduler and the JobSupervisor, and how a job is started.

use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use slog::Logger;

use crate::messages::replication_job::{JobEvent, StopJob};
use crate::otp::pid::{ExitReason, Pid};
use policy::schedule::Run;
use replication::crash::Crash;
use replication::id::ReplicationId;
use replication::spec::Replication;
use replication::stats::Stats;

/// Starts jobs: the real ones in the service, others in tests.
pub trait StartJobs {
    /// Starts a run. Returns at once: what takes time, the run does.
    ///
    /// # Errors
    /// It cannot even be begun.
    fn start(&mut self, order: JobOrder) -> Result<RunningJob, Crash>;
}

/// A run that is to be begun.
#[derive(Clone, Debug)]
pub struct JobOrder {
    /// What is to be replicated.
    pub replication: Arc<Replication>,
    /// Its id.
    pub id: ReplicationId,
    /// The run.
    pub run: Run,
    /// What runs before this one counted.
    pub earlier: Stats,
    /// Who is told. The last news is how the run ended.
    pub events: Recipient<JobEvent>,
    /// For what is worth a line.
    pub log: Logger,
}

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
pub(crate) struct StartChild(pub JobOrder);

/// Ends a run (`terminate_child`): politely, and surely when its time is up. A [`ChildEnded`] follows.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct TerminateChild {
    /// Which; one that is gone is no mistake.
    pub run: Run,
    /// How long it may take.
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
