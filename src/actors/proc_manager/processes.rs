//! The processes of the pools: opened, taught, reset and stopped by others, off the manager's turn.
//!
//! PROMISES  Every opening, lesson, reset and forgetting ends with one report. A process that was told to stop
//!           is kept until it is gone.
//! SOURCE    couch_proc_manager 001: new_proc, teach_ddoc, handle_info('EXIT').

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use slog::o;

use super::turn::Turn;
use super::{Opening, ProcManager};
use crate::actors::language::StartContext;
use crate::actors::opener::{Opener, StopOpening};
use crate::messages::opener::{Exit, StartError};
use crate::messages::proc_manager::{ProcFailure, TeachOrResetDone, What};
use crate::messages::process::{ExitReport, Fault, PromptError, StopProc};
use crate::metrics::{OpenFailure, ProcessMetrics};
use crate::otp::pid::ExitReason;
use crate::otp::tell::Tell;
use crate::query_server::call::{Call, Loan};
use crate::query_server::child_log::LogTerms;
use crate::query_server::proc_shared::MANAGER_TOKEN;
use crate::query_server::prompt;
use crate::query_server::prompt_error::shorten;
use policy::pool::{Event, ProcId, RequestId};

impl ProcManager {
    pub(super) fn open(&mut self, proc: ProcId, ctx: &mut Context<Self>) {
        let pool = self.pools.at(proc.pool);
        let language = pool.language.clone();
        // TERM after half of it, and KILL at its end.
        let stressed = self.core.is_stressed(proc.pool);
        let timeout = pool.section.start_timeout.under(stressed);
        let stop_grace = pool.section.stop_grace;
        let stop_grace = stop_grace.map(|grace| grace.under(stressed) * 2);
        let stop_send = pool.section.stop_send.as_str();
        let stop_send = (!stop_send.is_empty()).then(|| Arc::from(stop_send));
        let Some(starter) = self.settings.languages.get(&language) else {
            // The language was taken out of the configuration while the request waited.
            self.metrics_of(proc.pool).open_failed(OpenFailure::Client);
            let reason = "the language is not configured any more".into();
            let reason = Err(StartError::new(reason, Fault::Client));
            return ctx.notify(Exit { proc, reason });
        };
        let context = StartContext {
            proc,
            clock: self.clock,
            spawner: self.spawner.clone(),
            manager: ctx.address().recipient(),
            owner: self.pid_guard.pid(),
            prompt_timeout: self.settings.os_process_timeout,
            idle_limit: self.settings.idle_limit,
            stop_grace: stop_grace.unwrap_or(self.settings.stop_grace),
            stop_send,
            line_bytes_max: self.settings.line_bytes_max,
            cell: self.settings.cells.of_pool(&pool.section),
            stress: stressed,
            log: self.log.new(
                o!("generation" => proc.number, "pool" => pool.name.to_string(),
                        "language" => language.to_string()),
            ),
            log_terms: LogTerms {
                lines_max: self.settings.log_lines_max,
                pool_bytes_max: self.settings.log_bytes_max,
                pool: Arc::clone(&pool.log),
            },
            metrics: ProcessMetrics {
                pool: Arc::clone(self.metrics_of(proc.pool)),
                language: self.metrics.language(language.as_str()),
            },
            language,
        };
        let reset = prompt::reset(&self.settings.reset_config);
        let opener = Opener::open(starter, context, reset, timeout, ctx.address().recipient());
        let since = self.clock.now();
        self.openers.insert(proc, Opening { opener, since });
    }

    pub(super) fn teach(
        &mut self,
        proc: ProcId,
        request: RequestId,
        turn: &Turn,
        ctx: &mut Context<Self>,
    ) {
        let want = self
            .request(request, turn)
            .map(|request| &request.want.what);
        let Some(What::Ddoc { ddoc, .. }) = want else {
            let result = Err(ProcFailure::of_server("the request is gone"));
            let (call, took) = (None, Duration::ZERO);
            return ctx.notify(TeachOrResetDone {
                proc,
                result,
                call,
                took,
            });
        };
        let line = prompt::teach(ddoc);
        let call = self
            .request(request, turn)
            .and_then(|request| request.call.clone());
        let db = self
            .request(request, turn)
            .and_then(|request| self.bounded_tenant(request));
        self.begin_cost(proc, db, ctx);
        if let Some(process) = self.procs.get(&proc) {
            // Whoever had it before hears nothing of what it learns.
            let config = Arc::clone(&self.settings.reset_config);
            process.shared.reset_first(config);
        }
        self.help(proc, line, call, ctx);
    }

    /// Prompts a process on our own behalf, for a call perhaps, and requires the answer `true`, off our turn (PM-6).
    pub(super) fn help(
        &mut self,
        proc: ProcId,
        line: bytes::Bytes,
        call: Option<Arc<Call>>,
        ctx: &mut Context<Self>,
    ) {
        let Some(process) = self.procs.get(&proc).cloned() else {
            return;
        };
        process.shared.assign(MANAGER_TOKEN);
        let manager = ctx.address();
        let clock = self.clock;
        // Ends with the answer, at the latest with the prompt's deadline.
        actix_rt::spawn(async move {
            let since = clock.now();
            let loan = call.as_ref().map(Loan::of_lesson);
            let answer = process.prompt_for(loan, MANAGER_TOKEN, line, None).await;
            let result = match answer {
                Ok(answer) if answer.trim_ascii() == b"true" => Ok(()),
                Ok(answer) => {
                    let text = String::from_utf8_lossy(&answer);
                    let reason = format!("it answered {} instead of true", shorten(&text));
                    Err(ProcFailure::of_server(reason))
                }
                Err(error) => Err(error.into()),
            };
            manager.tell(TeachOrResetDone {
                proc,
                result,
                call,
                took: clock.now().since(since),
            });
        });
    }

    /// Stops a process, at once where it is asked something. `by`: whose order it is, if it is not our own.
    pub(super) fn stop(&mut self, proc: ProcId, polite: bool, by: Option<Arc<str>>) {
        if let Some(process) = self.procs.get(&proc) {
            let polite = polite && process.shared.in_flight() == 0;
            process.stop.tell(StopProc { polite, by });
        } else if let Some(Opening { opener, .. }) = self.openers.get(&proc) {
            opener.tell(StopOpening);
        }
    }

    pub(super) fn process_down(
        &mut self,
        proc: ProcId,
        reason: ExitReason,
        ctx: &mut Context<Self>,
    ) {
        if let Some((client, token, reason)) = self.holder_to_tell(proc) {
            self.revoke(client, (proc, token), "killed", reason);
        }
        self.charge(proc, ctx);
        self.meters.remove(&proc);
        let process = self.procs.remove(&proc);
        let shared = process.as_ref().map(|process| &process.shared);
        let failed = shared.filter(|shared| shared.has_failed());
        let failed = failed.map(|shared| {
            let how = shared.gone().to_string();
            self.note_failure(proc.pool, &format!("{how}; it had done nothing by then"));
            Event::ProcFailed {
                proc,
                age: shared.age(),
            }
        });
        // What the process knows about its end says more than the reason does.
        let exit_error = shared.and_then(|shared| shared.exit_error().cloned());
        let exit_error = exit_error.map(|exit_error| match exit_error {
            PromptError::NotRun { because } => *because,
            exit_error => exit_error,
        });
        let error = exit_error.unwrap_or_else(|| {
            PromptError::Exited(ExitReport {
                exit: Some(format!("ended: {reason}")),
                ..ExitReport::default()
            })
        });
        let event = failed.unwrap_or(Event::ProcExit { proc });
        self.failed(error.into(), event, ctx);
        self.finish_shutdown(ctx);
    }
}
