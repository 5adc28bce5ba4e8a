//! The calls, casts and infos of the ProcManager, one handler each.

use std::sync::Arc;

use actix::prelude::*;
use slog::{info, warn};

use super::{Party, ProcManager, Request};
use crate::actors::deferred::{Deferred, deferred};
use crate::actors::lifeline::Down;
use crate::actors::supervisor::Stop;
use crate::messages::opener::{Exit, OpenerExit};
use crate::messages::proc_manager::{
    GetProc, GetProcCount, GetProcError, GetResetConfig, GetStaleProcCount, GetStatus, HelperDone,
    Lease, OsProcIdle, ReloadConfig, RetProc, SetThresholdTs, TakeFrom, TerminateStaleProcs, Want,
    What,
};
use crate::metrics::ReturnKind;
use crate::policy::pool::{
    Affinity, ClientId, Event, Lane, PoolId, ProcPhase, RequestId, ReturnStatus, Target,
};
use crate::query_server::language::LanguageName;
use crate::query_server::status::{PoolStatus, ProcStatus, ServiceStatus};

impl Handler<GetProc> for ProcManager {
    type Result = Deferred<Result<Lease, GetProcError>>;

    fn handle(&mut self, msg: GetProc, ctx: &mut Self::Context) -> Self::Result {
        let pool = match self.resolve(&msg.want) {
            Ok(pool) => pool,
            Err(error) => return Deferred::now(Err(error)),
        };
        if let Some(ability) = msg.want.needs() {
            match self.can(pool, ability) {
                Some(Ok(())) => {}
                Some(Err(error)) => return Deferred::now(Err(error)),
                None => return self.probe_and_ask_again(pool, ability, msg, ctx),
            }
        }
        let client = self.watch_client(&msg.client, ctx);
        self.next_request += 1;
        let request = RequestId(self.next_request);
        let affinity = match &msg.want.what {
            What::Any | What::Language(_) => None,
            What::Ddoc { db, ddoc } => {
                let db = self.settings.db_tag.key(db);
                Some(Affinity {
                    db,
                    ddoc: ddoc.key.clone(),
                })
            }
        };
        let asked = self.clock.now();
        let deadline = asked + msg.timeout.unwrap_or(self.settings.os_process_timeout);
        let waiting = Request {
            replier: None,
            client,
            want: msg.want,
            pool,
            asked,
        };
        self.arriving = Some((request, waiting));
        self.event_at(
            asked,
            Event::GetProc {
                request,
                client,
                target: Target::Pool(pool),
                lane: Lane::Interactive,
                share: None,
                affinity,
                deadline,
            },
            ctx,
        );
        if let Some(answer) = self.immediate.take() {
            return Deferred::now(answer);
        }
        let (answer, replier) = deferred();
        let waiting = self.arriving.take().map(|(id, mut request)| {
            request.replier = Some(replier);
            (id, request)
        });
        self.requests.extend(waiting);
        answer
    }
}

impl ProcManager {
    /// Finds the pool that may serve a request.
    fn resolve(&self, want: &Want) -> Result<PoolId, GetProcError> {
        let spoken = want.spoken();
        let language = match (&want.from, spoken) {
            (TakeFrom::Group(name), _) => {
                let error = format!("there is no group of pools named '{name}'");
                return Err(GetProcError::NoSuchPool(error));
            }
            (TakeFrom::Pool(name), _) => LanguageName::new(name),
            (_, Some(language)) => language.clone(),
            (_, None) => return Err(GetProcError::NoSuchPool("no pool is named".to_owned())),
        };
        let pool = self.pool_of.get(&language).copied();
        match (&want.from, pool) {
            (TakeFrom::Pool(name), _) if spoken.is_some_and(|spoken| *spoken != language) => {
                let spoken = spoken.map(LanguageName::as_str).unwrap_or_default();
                let error = format!("there is no pool named '{name}' for the language '{spoken}'");
                Err(GetProcError::NoSuchPool(error))
            }
            (TakeFrom::Pool(name), None) => {
                let error = format!("there is no pool named '{name}'");
                Err(GetProcError::NoSuchPool(error))
            }
            (_, None) => Err(GetProcError::UnknownQueryLanguage(language.to_string())),
            (_, Some(pool)) => Ok(pool),
        }
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
        process.shared.unassign(now);
        let kind = match (msg.lost, msg.status) {
            (true, _) => ReturnKind::Lost,
            (false, ReturnStatus::Ok) => ReturnKind::Ok,
            (false, ReturnStatus::Fail) => ReturnKind::Fail,
        };
        let RetProc {
            client,
            proc,
            token,
            status,
            ..
        } = msg;
        let condition = msg.condition(process);
        self.metrics_of(proc.pool).returned(kind);
        self.event_at(
            now,
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
        match self.parties.remove(&msg.party) {
            Some(Party::Proc(proc)) => self.process_down(proc, msg.reason, ctx),
            Some(Party::Client(client)) => self.client_down(client, ctx),
            None => {}
        }
    }
}

impl ProcManager {
    fn client_down(&mut self, client: ClientId, ctx: &mut Context<Self>) {
        self.clients.remove(&client);
        for request in self.core.requests_of(client) {
            self.requests.remove(&request);
        }
        let held = self.core.held_by(client);
        let now = self.clock.now();
        let conditions = held
            .into_iter()
            .filter_map(|proc| {
                let shared = &self.procs.get(&proc)?.shared;
                self.metrics_of(proc.pool).returned(ReturnKind::Lost);
                shared.unassign(now);
                Some((proc, shared.condition_on_loss()))
            })
            .collect();
        let down = Event::ClientDown {
            client,
            normal: false,
            conditions,
        };
        self.event(down, ctx);
    }
}

impl Handler<Exit> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: Exit, ctx: &mut Self::Context) {
        let proc = msg.proc;
        self.openers.remove(&proc);
        match msg.reason {
            OpenerExit::SpawnOk(process) => {
                self.parties
                    .insert(process.pulse.party(), Party::Proc(proc));
                process.pulse.monitor(ctx.address().recipient());
                self.procs.insert(proc, Arc::new(process));
                self.event(Event::SpawnOk { proc }, ctx);
            }
            OpenerExit::SpawnError(error) => {
                warn!(self.log, "cannot start a query server";
                      "generation" => proc.number, "error" => &error.reason);
                self.cause = Some(error.into());
                self.event(Event::SpawnError { proc }, ctx);
                self.finish_shutdown(ctx);
            }
        }
    }
}

impl Handler<HelperDone> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: HelperDone, ctx: &mut Self::Context) {
        let ok = msg.result.is_ok();
        self.cause = msg.result.err().map(|error| {
            warn!(self.log, "a process did not learn or was not reset";
                  "generation" => msg.proc.number, "error" => &error.reason);
            error.into()
        });
        self.event(Event::HelperDone { proc: msg.proc, ok }, ctx);
    }
}

impl Handler<OsProcIdle> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: OsProcIdle, ctx: &mut Self::Context) {
        self.event(Event::OsProcIdle { proc: msg.proc }, ctx);
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
    type Result = ();

    fn handle(&mut self, _: SetThresholdTs, ctx: &mut Self::Context) {
        info!(self.log, "all processes are replaced");
        self.event(Event::SetThresholdTs, ctx);
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
        let commands = |manager: &Self| -> Vec<String> {
            manager
                .pools
                .iter()
                .map(|pool| pool.command.clone())
                .collect()
        };
        let before = commands(self);
        self.settings = msg.0;
        self.add_missing_pools();
        let limits = self.settings.limits;
        for pool in (0..).map(PoolId).take(self.pools.len()) {
            self.event(Event::Configure { pool, limits }, ctx);
        }
        if commands(self)[..before.len()] != before {
            self.event(Event::SetThresholdTs, ctx);
        }
    }
}

impl Handler<GetStatus> for ProcManager {
    type Result = MessageResult<GetStatus>;

    fn handle(&mut self, msg: GetStatus, _: &mut Self::Context) -> Self::Result {
        let wanted = |name: &str| msg.pool.as_deref().is_none_or(|pool| pool == name);
        let pools = (0..).map(PoolId).zip(&self.pools);
        MessageResult(ServiceStatus {
            pools: pools
                .filter(|(_, pool)| wanted(pool.language.as_str()))
                .map(|(id, _)| self.pool_status(id))
                .collect(),
            proc_count: self.core.proc_count(),
            stale_proc_count: self.core.stale_proc_count(),
        })
    }
}

impl ProcManager {
    fn pool_status(&self, id: PoolId) -> PoolStatus {
        let pool = &self.pools[id.0 as usize];
        let status = self.core.status(id, self.clock.now());
        let milliseconds =
            |time: std::time::Duration| time.as_millis().try_into().unwrap_or(u64::MAX);
        PoolStatus {
            name: pool.language.to_string(),
            language: pool.language.to_string(),
            group: None,
            command: pool.command.clone(),
            hard_limit: status.settings.limits.hard_limit,
            soft_limit: status.settings.limits.soft_limit,
            used: status.used,
            free: status.free,
            free_tagged: status.free_tagged,
            opening: status.opening,
            stopping: status.stopping,
            waiting: status.waiting,
            longest_wait_ms: milliseconds(status.longest_wait),
            abilities: pool.abilities.by_name(),
            procs: status
                .procs
                .iter()
                .map(|proc| ProcStatus {
                    os_pid: self
                        .procs
                        .get(&proc.proc)
                        .and_then(|process| process.shared.os_pid),
                    state: match proc.phase {
                        ProcPhase::Idle => "idle",
                        ProcPhase::Assigned => "assigned",
                        ProcPhase::Teaching => "teaching",
                    }
                    .into(),
                    db: proc.db.as_deref().map(str::to_owned),
                    ddocs: proc.ddocs as usize,
                    uses: proc.uses,
                    age_ms: milliseconds(proc.age),
                    idle_ms: proc.idle.map_or(0, milliseconds),
                })
                .collect(),
        }
    }
}

/// Ends all processes, then itself: its last breath says that no child is left (PM-9).
impl Handler<Stop> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        self.shutting_down = true;
        self.cancel_probes(ctx);
        self.event(Event::Shutdown, ctx);
        if msg.now {
            let all: Vec<_> = self.procs.keys().copied().collect();
            all.into_iter().for_each(|proc| self.stop(proc, false));
        }
        self.finish_shutdown(ctx);
    }
}
