//! Messages between the ReplicationScheduler and the JobSupervisor, and how a job is started.

use std::time::Duration;

use actix::{Message, Recipient};

use crate::messages::replication_job::{NewRun, StopJob};
use crate::otp::pid::{ExitReason, Pid};
use policy::schedule::Run;
use replication::crash::Crash;

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
