//! Opener: starts one process, reports by its exit reason, and is gone.
//!
//! PROMISES  The ProcManager gets exactly one [`Exit`], however the opener ends: done, failed, out
//!           of time, panicked or stopped (PM-7). Whatever it had started by then is ended.
//! SOURCE    couch_proc_manager, new_proc/1 and the `spawn_ok`/`spawn_error` exits.
//! DIFFERS   The reference's opener teaches as well, leaks the child when that fails, and leaves the
//!           slot taken when it dies in an unforeseen way (D3, D4, D5). Here the manager's table
//!           owns the process as soon as it runs, and teaching is a state in that table.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;

use crate::messages::opener::{Exit, OpenerExit, StartError};
use crate::messages::process::Fault;
use crate::policy::pool::ProcId;
use crate::query_server::language::{Language, StartContext};

/// Starts one process.
pub struct Opener {
    language: Arc<dyn Language>,
    context: Option<StartContext>,
    timeout: Duration,
    report: Report,
}

impl Opener {
    /// Starts an opener that reports to `manager`.
    pub fn open(
        language: Arc<dyn Language>,
        context: StartContext,
        timeout: Duration,
        manager: Recipient<Exit>,
    ) -> Addr<Self> {
        let report = Report {
            proc: context.proc,
            manager: Some(manager),
        };
        Self {
            language,
            context: Some(context),
            timeout,
            report,
        }
        .start()
    }
}

impl Actor for Opener {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let Some(context) = self.context.take() else {
            return;
        };
        let start = actix_rt::time::timeout(self.timeout, self.language.start(context));
        ctx.spawn(start.into_actor(self).map(|result, opener, ctx| {
            let timeout = opener.timeout;
            opener.report.send(match result {
                Ok(Ok(process)) => OpenerExit::SpawnOk(process),
                Ok(Err(error)) => OpenerExit::SpawnError(error),
                Err(_) => OpenerExit::SpawnError(StartError {
                    reason: format!("it did not start within {} ms", timeout.as_millis()),
                    fault: Fault::QueryServer,
                }),
            });
            ctx.stop();
        }));
    }
}

/// Gives up: the process is not wanted any more.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StopOpening;

impl Handler<StopOpening> for Opener {
    type Result = ();

    fn handle(&mut self, _: StopOpening, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

/// The one report, sent at the latest when the opener is dropped.
struct Report {
    proc: ProcId,
    manager: Option<Recipient<Exit>>,
}

impl Report {
    fn send(&mut self, reason: OpenerExit) {
        if let Some(manager) = self.manager.take() {
            // Ignores the mailbox's bound: it must not be lost, and there is one for each opening.
            manager.do_send(Exit {
                proc: self.proc,
                reason,
            });
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.send(OpenerExit::SpawnError(StartError {
            reason: "its opener was stopped".into(),
            fault: Fault::Settee,
        }));
    }
}
