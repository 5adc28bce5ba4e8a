//! The processes of the pools: opened, taught, reset and stopped by others, off the manager's turn; and their cost for
//! tenants with a share of processor time (`cpu_share`).
//!
//! SUMMARY   A process's usage is read when it is lent to such a tenant or begins to learn for it, when that loan or
//!           lesson ends, and when the process works for the next tenant. The core gets the differences, so usage after
//!           a loan, and while suspended, is charged to the tenant of that loan.
//! PROMISES  Every opening, teaching, reset and forgetting ends with one report. A process that is stopping is kept
//!           until it is gone. Subscribed clients are notified when a process that they hold is revoked. No processor
//!           time is read for tenants without a share.
//! SOURCE    couch_proc_manager 001: new_proc, teach_ddoc, handle_info('EXIT'); pidq: notice to consumers of
//!           remove_pool(immediate).
//! LIMITS    The processor time of a process within this program is unknown. A use is charged only when it ends.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use slog::{o, warn};

use super::turn::Turn;
use super::{Opening, ProcManager};
use crate::actors::language::StartContext;
use crate::actors::opener::{Opener, StopOpening};
use crate::messages::opener::{Exit, StartError};
use crate::messages::pools::{PoolError, ProcRevoked, SubscribeRevocation};
use crate::messages::proc_manager::{
    OsProcIdle, ProcFailure, RetProc, SetThresholdTs, TeachOrResetDone, TerminateStaleProcs, What,
};
use crate::messages::process::{Fault, StopProc, is_true};
use crate::metrics::{IsolateEvent, OpenFailure, ProcessMetrics};
use crate::otp::{ExitReason, Tell};
use crate::query_server::call::{Call, Loan, call_log};
use crate::query_server::child_log::LogTerms;
use crate::query_server::isolates::IsolateTerms;
use crate::query_server::proc_shared::{MANAGER_TOKEN, ProcFlag};
use crate::query_server::prompt;
use crate::query_server::prompt_error::{ExitReport, PromptError, shorten};
use child::cell::terms::CellTerms;
use policy::pool::{
    ClientId, Event, ProcId, RequestId, ReturnStatus, Select, StopReason, TenantBound, Token,
};

/// The current or latest use of a process by a tenant with a share.
pub(super) struct Meter {
    db: Arc<str>,
    /// The usage of the process at its latest charge.
    before: Duration,
}

impl Handler<Exit> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: Exit, ctx: &mut Self::Context) {
        let proc = msg.proc;
        self.openers.remove(&proc);
        match msg.reason {
            Ok(process) => {
                self.actors.insert(process.pid.id(), proc);
                process.pid.monitor(ctx.address().recipient());
                self.tell_start(proc, process.shared.os_pid, ctx);
                self.pools.at_mut(proc.pool).failure = None;
                self.procs.insert(proc, Arc::new(process));
                self.rest_later(proc, ctx);
                self.event(Event::SpawnOk { proc }, ctx);
                self.watch_exchanges(proc.pool);
            }
            Err(error) => {
                warn!(self.log, "cannot start a query server";
                      "generation" => proc.number, "pool" => &*self.pools.at(proc.pool).name,
                      "error" => &error.reason);
                self.note_failure(proc.pool, &error.reason);
                let event = if error.from_outside {
                    Event::SpawnKilled { proc }
                } else {
                    Event::SpawnError { proc }
                };
                self.failed(error.into(), event, ctx);
                self.finish_shutdown(ctx);
            }
        }
    }
}

impl Handler<TeachOrResetDone> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: TeachOrResetDone, ctx: &mut Self::Context) {
        let (proc, ok) = (msg.proc, msg.result.is_ok());
        let now = self.clock.now();
        if let Some(process) = self.procs.get(&proc) {
            process.shared.unassign(now);
            process.shared.set_lesson(msg.took);
        }
        if let Err(failure) = &msg.result {
            let log = call_log(msg.call.as_ref(), &self.log);
            warn!(log, "a process failed to learn, reset or forget";
                  "generation" => proc.number, "pool" => &*self.pools.at(proc.pool).name,
                  "error" => &failure.reason);
        }
        self.charge(proc, ctx);
        self.note_evicted(proc, ctx);
        self.rest_later(proc, ctx);
        let mut turn = Turn::at(now);
        turn.cause = msg.result.err();
        self.turn(&mut turn, Event::TeachOrResetDone { proc, ok }, ctx);
    }
}

impl Handler<RetProc> for ProcManager {
    type Result = bool;

    fn handle(&mut self, msg: RetProc, ctx: &mut Self::Context) -> bool {
        let RetProc {
            client,
            proc,
            token,
            status,
        } = msg;
        if !self.core.holds(client, proc, token) {
            return false;
        }
        let process = self
            .procs
            .get(&proc)
            .expect("PM-2: an assigned process is known");
        let now = self.clock.now();
        if status == ReturnStatus::Fail {
            // Set first, so that a prompt still on its way from the holder gets this error.
            let told = PromptError::Exited(ExitReport::stopped(None));
            process.shared.set_exit_error(told);
        }
        process.shared.unassign(now);
        let condition = match status {
            ReturnStatus::Lost => process.shared.condition_on_loss(token),
            ReturnStatus::Ok | ReturnStatus::Fail => process.shared.condition_on_return(),
        };
        process.shared.set(ProcFlag::TaughtByClient, false);
        self.charge(proc, ctx);
        self.note_evicted(proc, ctx);
        self.rest_later(proc, ctx);
        let metrics = self.metrics_of(proc.pool);
        metrics.count().returns.one(status);
        self.turn(
            &mut Turn::at(now),
            Event::RetProc {
                client,
                proc,
                token,
                status,
                condition,
            },
            ctx,
        );
        true
    }
}

impl Handler<OsProcIdle> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: OsProcIdle, ctx: &mut Self::Context) {
        self.event(Event::OsProcIdle { proc: msg.proc }, ctx);
    }
}

impl Handler<SetThresholdTs> for ProcManager {
    type Result = u32;

    fn handle(&mut self, _: SetThresholdTs, ctx: &mut Self::Context) -> u32 {
        let count = self.core.proc_count();
        self.event(Event::SetThresholdTs, ctx);
        for pool in self.pools.ids() {
            self.try_again(pool, ctx);
        }
        count
    }
}

impl Handler<TerminateStaleProcs> for ProcManager {
    type Result = Result<(), PoolError>;

    fn handle(&mut self, msg: TerminateStaleProcs, _: &mut Self::Context) -> Self::Result {
        // Nothing to stop: no stale process becomes idle (PM-13).
        self.named(&msg.name)?;
        Ok(())
    }
}

impl Handler<SubscribeRevocation> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: SubscribeRevocation, ctx: &mut Self::Context) {
        let (_, client) = self.watch_client(&msg.client, ctx);
        client.revoked = Some(msg.down);
    }
}

/// The life of a process.
impl ProcManager {
    pub(super) fn open(&mut self, proc: ProcId, ctx: &mut Context<Self>) {
        let pool = self.pools.at(proc.pool);
        let language = pool.language.clone();
        let timeout = pool.section.start_timeout;
        let stop_send = pool.section.stop_send.as_str();
        let stop_send = (!stop_send.is_empty()).then(|| Arc::from(stop_send));
        let Some(starter) = self.settings.languages.get(&language) else {
            // The language was removed from the configuration while the request waited.
            let metrics = self.metrics_of(proc.pool);
            metrics.count().open_failures.one(OpenFailure::Client);
            let reason = "the language is not configured any more".into();
            let reason = Err(StartError::new(reason, Fault::Client));
            return ctx.notify(Exit { proc, reason });
        };
        let settings = self.core.settings(proc.pool);
        let isolates_max = settings.map_or(0, |settings| settings.isolates_max);
        let context = StartContext {
            proc,
            clock: self.clock,
            spawner: self.spawner.clone(),
            manager: ctx.address().recipient(),
            owner: self.pid_guard.pid(),
            prompt_timeout: self.settings.os_process_timeout,
            idle_limit: self.settings.idle_limit,
            // TERM is sent after half of the doubled time, and KILL at its end.
            stop_grace: (pool.section.stop_grace)
                .map_or(self.settings.stop_grace, |grace| grace * 2),
            stop_send,
            line_bytes_max: self.settings.line_bytes_max,
            cell: CellTerms::clone(&pool.cell_terms),
            isolates: (isolates_max > 0).then(|| IsolateTerms::new(isolates_max)),
            stress: self.core.is_stressed(proc.pool),
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
        select: Option<Select>,
        turn: &Turn,
        ctx: &mut Context<Self>,
    ) {
        let request = self.request(request, turn);
        let asked = request.map(|request| (request, &request.want.what));
        let Some((request, What::Ddoc { ddoc, .. })) = asked else {
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
        let (call, db) = (request.call.clone(), self.bounded_tenant(request));
        self.begin_cost(proc, db, ctx);
        if let Some(process) = self.procs.get(&proc) {
            // A reset keeps one borrower's data from the next.
            let config = Arc::clone(&self.settings.reset_config);
            process.shared.reset_first(config, select);
        }
        self.help(proc, line, call, ctx);
    }

    /// Prompts a process for the manager, possibly because of a call, and requires the answer `true`. Does not wait for
    /// it in the manager's turn (PM-6).
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
                Ok(answer) if is_true(&answer) => Ok(()),
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

    /// Reports to the core the isolates that a process in use has evicted.
    pub(super) fn note_evicted(&mut self, proc: ProcId, ctx: &mut Context<Self>) {
        let process = self.procs.get(&proc);
        let tenants = process.map_or_else(Vec::new, |process| process.shared.take_evicted());
        if !tenants.is_empty() {
            let isolates = &self.metrics_of(proc.pool).count().isolates;
            (tenants.iter()).for_each(|_| isolates.one(IsolateEvent::Evicted));
            self.event(Event::Evicted { proc, tenants }, ctx);
        }
    }

    /// Stops a process, at once if a prompt is pending. `by`: the sender of the order, if any.
    pub(super) fn stop(&self, proc: ProcId, polite: bool, by: Option<Arc<str>>) {
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
        let event = match shared {
            Some(shared) if shared.has_failed() => {
                let how = format!("{}; it had done nothing by then", shared.gone());
                self.note_failure(proc.pool, &how);
                let age = shared.age();
                Event::ProcFailed { proc, age }
            }
            _ => Event::ProcExit { proc },
        };
        // The process's own error is more specific than the exit reason.
        let error = match shared.and_then(|shared| shared.exit_error().cloned()) {
            Some(PromptError::NotRun { because }) => *because,
            Some(exit_error) => exit_error,
            None => PromptError::Exited(ExitReport {
                exit: Some(format!("ended: {reason}")),
                ..ExitReport::default()
            }),
        };
        self.failed(error.into(), event, ctx);
        self.finish_shutdown(ctx);
    }
}

/// Notices to holders.
impl ProcManager {
    /// Notifies a client that a process that it holds has ended.
    pub(super) fn tell_holder(
        &self,
        client: ClientId,
        (proc, token): (ProcId, Token),
        why: StopReason,
    ) {
        let pool = &self.pools.at(proc.pool).name;
        let (name, reason) = match why {
            StopReason::MemoryHard => (
                "memory_exceeded",
                format!(
                    "the process took more memory than it may ({} bytes, max_memory_hard of the \
                     pool '{pool}') and was stopped",
                    self.pools.at(proc.pool).section.max_memory_hard
                ),
            ),
            StopReason::Shutdown => ("shutting_down", "the service is shutting down".to_owned()),
            StopReason::Removed => ("pool_removed", format!("the pool '{pool}' was removed")),
            StopReason::Idle
            | StopReason::Stale
            | StopReason::Reaped
            | StopReason::OverLimit
            | StopReason::Failed
            | StopReason::Broken
            | StopReason::TeachFailed
            | StopReason::ResetFailed
            | StopReason::ForgetFailed
            | StopReason::Uses
            | StopReason::Age
            | StopReason::Memory
            | StopReason::Culled
            | StopReason::ClientCrashed
            | StopReason::TenantGone
            | StopReason::Stress => ("killed", "the process was stopped".to_owned()),
        };
        self.revoke(client, (proc, token), name, reason);
    }

    /// Notifies a client that a process it holds is revoked: `name` is the reason for programs, `reason` for users.
    fn revoke(
        &self,
        client: ClientId,
        (proc, token): (ProcId, Token),
        name: &'static str,
        reason: String,
    ) {
        let holder = self.clients.get(&client);
        if let Some(revoked) = holder.and_then(|holder| holder.revoked.as_ref()) {
            revoked.tell(ProcRevoked {
                proc,
                token,
                name,
                reason,
            });
        }
    }

    /// Returns the holder of a process that an operator's order has ended, its token, and the notice to send.
    fn holder_to_tell(&self, proc: ProcId) -> Option<(ClientId, Token, String)> {
        let shared = &self.procs.get(&proc)?.shared;
        let report = shared
            .exit_error()?
            .exit_report()
            .filter(|report| report.is_hosts_fault)?;
        let status = self.core.status(proc.pool, self.clock.now());
        let held = status.procs.iter().find(|held| held.proc == proc)?;
        let reason = format!("the process {}", report.told());
        Some((held.holder?, shared.token()?, reason))
    }
}

/// Charges tenants for the processor time that their uses of processes cost.
impl ProcManager {
    /// Meters a process that begins to work for a database with a share of processor time, and charges the process's
    /// previous use.
    pub(super) fn begin_cost(
        &mut self,
        proc: ProcId,
        db: Option<Arc<str>>,
        ctx: &mut Context<Self>,
    ) {
        if let Some(rest) = self.take_charge(proc) {
            // The current turn has not ended.
            ctx.run_later(Duration::ZERO, |manager, ctx| manager.event(rest, ctx));
        }
        self.meters.remove(&proc);
        let rules = &self.settings.tenants;
        if let Some(db) = db.filter(|_| rules.has_shares())
            && rules.bound(&db, TenantBound::CpuShare).is_some()
            && let Some(process) = self.procs.get(&proc)
            && let Some(before) = process.shared.cpu_time()
        {
            self.meters.insert(proc, Meter { db, before });
        }
    }

    /// Charges a process's last tenant for the processor time used so far. Called before the core learns that the use
    /// is over.
    pub(super) fn charge(&mut self, proc: ProcId, ctx: &mut Context<Self>) {
        if let Some(charge) = self.take_charge(proc) {
            self.event(charge, ctx);
        }
    }

    fn take_charge(&mut self, proc: ProcId) -> Option<Event> {
        let meter = self.meters.get_mut(&proc)?;
        let after = self.procs.get(&proc)?.shared.cpu_time()?;
        let cost = after.saturating_sub(meter.before);
        meter.before = after.max(meter.before);
        let db = Arc::clone(&meter.db);
        (!cost.is_zero()).then_some(Event::Charge { db, cost })
    }
}
