//! The calls, casts and infos of the ProcManager, one handler each.

use std::sync::Arc;

use actix::prelude::*;
use slog::warn;

use super::requests::{Answer, Waiting};
use super::turn::Turn;
use super::{ProcManager, ReloadConfig};
use crate::messages::opener::Exit;
use crate::messages::proc_manager::{
    GetProc, GetProcCount, GetProcError, GetResetConfig, GetStaleProcCount, OsProcIdle, Require,
    RetProc, SetThresholdTs, TeachOrResetDone, TerminateStaleProcs,
};
use crate::metrics::ReturnKind;
use crate::otp::deferred::{Deferred, deferred};
use crate::otp::pid::{Down, ExitReason};
use crate::otp::supervisor::Stop;
use crate::otp::tell::Tell;
use crate::query_server::call::call_log;
use crate::query_server::prompt_error::{ExitReport, PromptError};
use policy::pool::{ClientId, Event, RequestId, ReturnStatus, Target};

impl Handler<GetProc> for ProcManager {
    type Result = Deferred<Answer>;

    fn handle(&mut self, mut msg: GetProc, ctx: &mut Self::Context) -> Self::Result {
        if self.drain.is_on() {
            return Deferred::now(Err(Box::new(GetProcError::Draining)));
        }
        let asked = self.clock.now();
        let time = msg.timeout.unwrap_or(self.settings.os_process_timeout);
        let (target, pool) = match self.pools.resolve(&msg.want) {
            Ok(found) => found,
            Err(error) => return Deferred::now(Err(Box::new(error))),
        };
        if let Err(error) = self.permit(target, msg.limits.as_ref()) {
            return Deferred::now(Err(Box::new(error)));
        }
        if let Some(ability) = msg.want.needs() {
            match self.can(pool, ability) {
                Some(Ok(())) => {}
                Some(Err(error)) => return Deferred::now(Err(Box::new(error))),
                None => {
                    let clock = self.clock;
                    return self.probe(pool, ability, ctx, async move |manager| {
                        msg.timeout = Some(time.saturating_sub(clock.now().since(asked)));
                        let result = manager.send(msg).await;
                        result.unwrap_or(Err(Box::new(GetProcError::ShuttingDown)))
                    });
                }
            }
        }
        let (client, known) = self.watch_client(&msg.client, ctx);
        known.who = msg.who.or(known.who.take());
        self.next_request += 1;
        let request = RequestId(self.next_request);
        let affinity = msg.want.affinity(self.settings.db_tag);
        let deadline = asked + time;
        let lane = msg.want.lane;
        let waiting = Waiting {
            replier: None,
            client,
            label: None,
            want: msg.want,
            call: msg.call,
            target,
            asked,
        };
        let mut turn = Turn::at(asked);
        turn.arriving = Some((request, waiting));
        self.turn(
            &mut turn,
            Event::GetProc {
                request,
                client,
                target,
                lane,
                affinity,
                deadline,
            },
            ctx,
        );
        if let Some(answer) = turn.answer {
            return Deferred::now(answer);
        }
        let (answer, replier) = deferred();
        if let Some((id, mut request)) = turn.arriving {
            request.replier = Some(replier);
            request.label = Some(self.pools.label(request.target));
            self.requests.insert(id, request);
        }
        answer
    }
}

impl Handler<RetProc> for ProcManager {
    type Result = bool;

    fn handle(&mut self, msg: RetProc, ctx: &mut Self::Context) -> bool {
        if !self.core.holds(msg.client, msg.proc, msg.token) {
            return false;
        }
        let process = self
            .procs
            .get(&msg.proc)
            .expect("PM-2: an assigned process is known");
        let now = self.clock.now();
        if msg.status == ReturnStatus::Fail {
            // First: a prompt that its holder sent before, and that comes later, hears that the process ends.
            let told = PromptError::Exited(ExitReport::stopped(None));
            process.shared.set_exit_error(told);
        }
        process.shared.unassign(now);
        let condition = msg.condition(process);
        self.charge(msg.proc, ctx);
        self.rest_later(msg.proc, ctx);
        let RetProc {
            client,
            proc,
            token,
            status,
        } = msg;
        self.metrics_of(proc.pool).returned(match status {
            ReturnStatus::Ok => ReturnKind::Ok,
            ReturnStatus::Fail => ReturnKind::Fail,
            ReturnStatus::Lost => ReturnKind::Lost,
        });
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

impl Handler<Down> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: Down, ctx: &mut Self::Context) {
        let client = ClientId(msg.actor.0);
        if let Some(proc) = self.actors.remove(&msg.actor) {
            self.process_down(proc, msg.reason, ctx);
        } else if self.clients.remove(&client).is_some() {
            self.client_down(client, msg.reason == ExitReason::Normal, ctx);
        } else if let Some(name) = self.name_of_beside(msg.actor) {
            self.beside_down(name, &msg.reason, ctx);
        }
    }
}

impl ProcManager {
    fn client_down(&mut self, client: ClientId, normal: bool, ctx: &mut Context<Self>) {
        for proc in self.core.held_by(client) {
            self.charge(proc, ctx);
        }
        let requests = self.core.requests_of(client);
        let held = self.core.held_by(client);
        held.iter().for_each(|proc| self.rest_later(*proc, ctx));
        let now = self.clock.now();
        let conditions = held
            .into_iter()
            .filter_map(|proc| {
                let shared = &self.procs.get(&proc)?.shared;
                self.metrics_of(proc.pool).returned(ReturnKind::Lost);
                let condition = shared.condition_on_loss(shared.token()?);
                shared.unassign(now);
                Some((proc, condition))
            })
            .collect();
        let down = Event::ClientDown {
            client,
            normal,
            conditions,
        };
        self.event(down, ctx);
        // Not before: one whose time is up by now is refused first.
        for request in requests {
            self.requests.remove(&request);
        }
    }
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
                self.tell_start(proc, &process);
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
            warn!(log, "a process did not learn, was not reset, or did not forget";
                  "generation" => proc.number, "pool" => &*self.pools.at(proc.pool).name,
                  "error" => &failure.reason);
        }
        self.charge(proc, ctx);
        self.rest_later(proc, ctx);
        let mut turn = Turn::at(now);
        turn.cause = msg.result.err();
        self.turn(&mut turn, Event::TeachOrResetDone { proc, ok }, ctx);
    }
}

impl Handler<OsProcIdle> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: OsProcIdle, ctx: &mut Self::Context) {
        self.event(Event::OsProcIdle { proc: msg.proc }, ctx);
    }
}

impl Handler<Require> for ProcManager {
    type Result = Deferred<Result<(), GetProcError>>;

    fn handle(&mut self, msg: Require, ctx: &mut Self::Context) -> Self::Result {
        let Some(pool) = self.pools.own(&msg.language) else {
            let error = GetProcError::UnknownQueryLanguage(msg.language.to_string());
            return Deferred::now(Err(error));
        };
        if let Some(known) = self.can(pool, msg.ability) {
            return Deferred::now(known);
        }
        // To find out would be to start a process.
        if let Err(error) = self.permit(Target::Pool(pool), msg.limits.as_ref()) {
            return Deferred::now(Err(error));
        }
        self.probe(pool, msg.ability, ctx, async move |manager| {
            let result = manager.send(msg).await;
            result.unwrap_or(Err(GetProcError::ShuttingDown))
        })
    }
}

impl Handler<GetProcCount> for ProcManager {
    type Result = u32;

    fn handle(&mut self, _: GetProcCount, _: &mut Self::Context) -> u32 {
        self.core.proc_count()
    }
}

impl Handler<GetStaleProcCount> for ProcManager {
    type Result = u32;

    fn handle(&mut self, _: GetStaleProcCount, _: &mut Self::Context) -> u32 {
        self.core.stale_proc_count()
    }
}

impl Handler<GetResetConfig> for ProcManager {
    type Result = MessageResult<GetResetConfig>;

    fn handle(&mut self, _: GetResetConfig, _: &mut Self::Context) -> Self::Result {
        MessageResult(Arc::clone(&self.settings.reset_config))
    }
}

impl Handler<SetThresholdTs> for ProcManager {
    type Result = u32;

    fn handle(&mut self, _: SetThresholdTs, ctx: &mut Self::Context) -> u32 {
        let count = self.core.proc_count();
        self.event(Event::SetThresholdTs, ctx);
        self.unthrottle_all(ctx);
        count
    }
}

impl Handler<TerminateStaleProcs> for ProcManager {
    type Result = ();

    fn handle(&mut self, _: TerminateStaleProcs, ctx: &mut Self::Context) {
        self.event(Event::TerminateStaleProcs, ctx);
    }
}

impl Handler<ReloadConfig> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: ReloadConfig, ctx: &mut Self::Context) {
        let runs = self.runs();
        let before = std::mem::replace(&mut self.settings, msg.0);
        // What was lent so far keeps the arguments of reset that it was lent with.
        self.pools.iter_mut().for_each(|pool| pool.lender = None);
        let events = self.follow_settings(Some(&before));
        self.events(events, ctx);
        self.unthrottle_all(ctx);
        self.watch_memory(ctx);
        self.try_all_cells();
        if runs.must_be_replaced(&self.runs()) {
            self.event(Event::SetThresholdTs, ctx);
        }
    }
}

/// Ends all processes, then itself: its end tells that no child is left (PM-9).
impl Handler<Stop> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        self.shutting_down = true;
        self.prober.tell(msg);
        self.event(Event::Shutdown, ctx);
        if msg.now {
            let all = self.procs.keys().chain(self.openers.keys());
            let all: Vec<_> = all.copied().collect();
            all.into_iter()
                .for_each(|proc| self.stop(proc, false, None));
        }
        self.finish_shutdown(ctx);
    }
}
