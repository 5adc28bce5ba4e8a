//! Opener: starts one process, waits for its answer to the first `reset`, reports the outcome, and ends.
//!
//! SUMMARY   A child has started when it has answered the opener's `reset`, even with a wrong answer. A child that ends
//!           before that, answers with a fatal error, breaks the protocol or is silent for `start_timeout` has failed
//!           to start.
//! PROMISES  The ProcManager gets exactly one [`Exit`], however the opener ends: success, failure, timeout, panic or
//!           stop (PM-7). Except on success, everything it started has ended by then.
//! SOURCE    couch_proc_manager, new_proc/1 and the `spawn_ok`/`spawn_error` exits.
//! DIFFERS   The reference's opener also teaches, leaks the child if that fails, and leaves the slot taken if it dies
//!           unexpectedly (D3, D4, D5). Here the manager's table owns the process once it has started, and teaching
//!           is a state in that table. The reference never checks whether a process works before a client has it.
//! LIMITS    Languages inside this program get no `reset`: a process has started when it has been created.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::{Instant, timeout};
use bytes::Bytes;

use crate::actors::language::{Language, StartContext};
use crate::messages::opener::{Exit, StartError};
use crate::messages::process::{ExitReport, Fault, ProcessRef, PromptError, StopProc};
use crate::metrics::{OpenFailure, PoolMetrics};
use crate::otp::{Clock, Down, Tell};
use crate::query_server::proc_shared::{MANAGER_TOKEN, ProcFlag};
use crate::query_server::prompt_error::shorten;
use policy::pool::ProcId;
use policy::time::Timestamp;

pub(crate) struct Opener {
    language: Arc<dyn Language>,
    context: Option<StartContext>,
    /// A child's first prompt.
    reset: Bytes,
    timeout: Duration,
    /// The child, until it has started.
    child: Option<ProcessRef>,
    /// The failure, while waiting for the child's end.
    failure: Option<(StartError, OpenFailure)>,
    report: Report,
}

impl Opener {
    /// Starts an opener that reports to `manager`. The process must start and answer `reset` within `timeout`.
    pub fn open(
        language: Arc<dyn Language>,
        context: StartContext,
        reset: Bytes,
        timeout: Duration,
        manager: Recipient<Exit>,
    ) -> Addr<Self> {
        let report = Report {
            proc: context.proc,
            manager: Some(manager),
            began: context.clock.now(),
            clock: context.clock,
            metrics: Arc::clone(&context.metrics.pool),
        };
        Self {
            language,
            context: Some(context),
            reset,
            timeout,
            child: None,
            failure: None,
            report,
        }
        .start()
    }

    /// Handles a created process, or its failure.
    fn made(
        &mut self,
        made: Result<ProcessRef, StartError>,
        until: Instant,
        ctx: &mut Context<Self>,
    ) {
        match made {
            Ok(process) if process.shared.os_pid.is_some() => {
                return self.ask(process, until, ctx);
            }
            Ok(process) => self.report.opened(process),
            Err(error) => {
                let why = error.fault.into();
                self.report.failed(error, why);
            }
        }
        ctx.stop();
    }

    /// Sends a child its first `reset`.
    fn ask(&mut self, process: ProcessRef, until: Instant, ctx: &mut Context<Self>) {
        process.shared.assign(MANAGER_TOKEN);
        let left = until.saturating_duration_since(Instant::now());
        let answer = process.prompt(MANAGER_TOKEN, self.reset.clone(), Some(left));
        process.pid.monitor(ctx.address().recipient());
        self.child = Some(process);
        ctx.spawn(answer.into_actor(self).map(|answer, opener, ctx| {
            if opener.failure.is_none() {
                opener.answered(answer, ctx);
            }
        }));
    }

    /// Handles the child's answer or end.
    fn answered(&mut self, answer: Result<Bytes, PromptError>, ctx: &mut Context<Self>) {
        let Some(child) = self.child.take() else {
            return;
        };
        let (mut from_outside, mut fault) = (false, Fault::QueryServer);
        let (reason, why) = match answer {
            Ok(_) | Err(PromptError::Function { fatal: false, .. }) => {
                child.shared.set(ProcFlag::Started, true);
                child.shared.unassign(self.report.clock.now());
                self.report.opened(child);
                return ctx.stop();
            }
            Err(PromptError::Timeout { .. }) => (self.too_slow(), OpenFailure::Timeout),
            Err(PromptError::Protocol { what, excerpt }) => {
                let said = match &*excerpt {
                    "" => String::new(),
                    excerpt => format!(" ({})", shorten(excerpt)),
                };
                let reason = format!(
                    "the query server broke the protocol before it answered its first reset, with \
                     {what}{said}, and was killed"
                );
                (reason, OpenFailure::QueryServer)
            }
            Err(error) => {
                from_outside = error.exit_report().is_some_and(ExitReport::is_from_outside);
                if error.fault() == Fault::Host {
                    fault = Fault::Host;
                }
                (error.to_string(), fault.into())
            }
        };
        let error = StartError {
            from_outside,
            ..StartError::new(reason, fault)
        };
        self.give_up(&child, (error, why), ctx);
    }

    /// Ends a child. The report follows when it has ended.
    fn give_up(
        &mut self,
        child: &ProcessRef,
        failure: (StartError, OpenFailure),
        ctx: &mut Context<Self>,
    ) {
        child.stop.tell(StopProc {
            polite: false,
            by: None,
        });
        self.failure = Some(failure);
        if !child.pid.is_alive() {
            self.child_gone(ctx);
        }
    }

    /// Handles the child's end. If no failure is recorded, the pending answer reports the reason.
    fn child_gone(&mut self, ctx: &mut Context<Self>) {
        if let Some((error, why)) = self.failure.take() {
            self.report.failed(error, why);
            ctx.stop();
        }
    }

    fn too_slow(&self) -> String {
        format!(
            "the query server did not start within {} ms (start_timeout): it has not answered its \
             first reset, and was killed",
            self.timeout.as_millis()
        )
    }
}

impl Actor for Opener {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let Some(context) = self.context.take() else {
            return;
        };
        let until = Instant::now() + self.timeout;
        let start = timeout(self.timeout, self.language.start(context));
        ctx.spawn(start.into_actor(self).map(move |made, opener, ctx| {
            if let Ok(made) = made {
                return opener.made(made, until, ctx);
            }
            let error = StartError::new(opener.too_slow(), Fault::QueryServer);
            opener.report.failed(error, OpenFailure::Timeout);
            ctx.stop();
        }));
    }
}

impl Handler<Down> for Opener {
    type Result = ();

    fn handle(&mut self, _: Down, ctx: &mut Self::Context) {
        self.child_gone(ctx);
    }
}

/// Cancels the opening: the process is no longer needed.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct StopOpening;

impl Handler<StopOpening> for Opener {
    type Result = ();

    fn handle(&mut self, _: StopOpening, ctx: &mut Self::Context) {
        match self.child.take() {
            Some(child) => self.give_up(&child, not_wanted(), ctx),
            None if self.failure.is_some() => {}
            None => ctx.stop(),
        }
    }
}

/// The only report; sent when the opener is dropped, at the latest.
struct Report {
    proc: ProcId,
    manager: Option<Recipient<Exit>>,
    began: Timestamp,
    clock: Clock,
    metrics: Arc<PoolMetrics>,
}

impl Report {
    fn opened(&mut self, process: ProcessRef) {
        let took = self.clock.now().since(self.began);
        self.metrics.count().open.observe(took);
        self.send(Ok(process));
    }

    fn failed(&mut self, error: StartError, why: OpenFailure) {
        if self.manager.is_some() {
            self.metrics.count().open_failures.one(why);
            self.send(Err(error));
        }
    }

    fn send(&mut self, reason: Result<ProcessRef, StartError>) {
        if let Some(manager) = self.manager.take() {
            manager.tell(Exit {
                proc: self.proc,
                reason,
            });
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let (error, why) = not_wanted();
        self.failed(error, why);
    }
}

fn not_wanted() -> (StartError, OpenFailure) {
    let error = StartError::new("its opener was stopped".into(), Fault::Settee);
    (error, OpenFailure::Stopped)
}
