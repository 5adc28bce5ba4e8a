//! Starts runs for the job supervisor.
//!
//! SOURCE    `couch_replicator_scheduler_sup:start_child`.

use actix::prelude::*;

use super::ReplicationJob;
use crate::messages::job_supervisor::{JobOrder, RunningJob, StartJobs};
use crate::messages::replication_job::{JobSettings, JobStart};
use replication::crash::Crash;

/// Starts runs on the arbiter that it is called on, all with the same settings.
#[derive(Clone, Debug)]
pub struct JobStarter {
    /// The settings of the runs that are started from now on.
    pub settings: JobSettings,
}

impl StartJobs for JobStarter {
    fn start(&mut self, order: JobOrder) -> Result<RunningJob, Crash> {
        let job = ReplicationJob::new(JobStart {
            replication: order.replication,
            id: order.id,
            run: order.run.0,
            earlier: order.earlier,
            settings: self.settings.clone(),
            events: order.events,
            log: order.log,
        });
        let pid = job.pid();
        let address = job.start();
        let stop = address.clone().recipient();
        let kill = move || address.do_send(KillJob);
        Ok(RunningJob {
            pid,
            stop,
            kill: Box::new(kill),
        })
    }
}

/// Ends a job at once, without a checkpoint.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
struct KillJob;

impl Handler<KillJob> for ReplicationJob {
    type Result = ();

    fn handle(&mut self, _: KillJob, ctx: &mut Context<Self>) {
        ctx.terminate();
    }
}
