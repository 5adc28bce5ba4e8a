//! What each process does now, and the order to end one (`settee ps`, `settee kill`).
//!
//! SUMMARY   Rows are made of what the core says of a process, as `status` does, and of what the process says of its
//!           work. To kill one is an order to its actor; the core hears of its end as of any other.
//! PROMISES  Processor time and memory are read off the arbiter, one reading at a time.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use slog::info;
use strum::IntoStaticStr;
use tokio::sync::Semaphore;

use super::ProcManager;
use super::memory::of_groups;
use super::status::milliseconds;
use crate::config::language_name;
use crate::messages::pools::PoolError;
use crate::messages::process::ProcShared;
use crate::messages::ps::{KillError, KillProc, ListProcs, PROCS_LISTED_MAX, ProcName};
use crate::query_server::status::{KilledProc, ProcPage, ProcRow};
use child::usage;
use policy::pool::{ClientId, PoolId, ProcId, ProcPhase, ProcStatus as CoreProc, Token};

/// What a process does, in the order in which they are listed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum State {
    Running,
    Teaching,
    Lent,
    Starting,
    Ending,
    Idle,
}

/// A process with what is known of it.
struct Listed {
    id: ProcId,
    state: State,
    row: ProcRow,
    /// None while it is being started.
    shared: Option<Arc<ProcShared>>,
}

/// Holds the turn to read what processes take.
pub(super) struct UsageTurn(Arc<Semaphore>);

impl Default for UsageTurn {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Handler<ListProcs> for ProcManager {
    type Result = ResponseFuture<Result<ProcPage, PoolError>>;

    fn handle(&mut self, msg: ListProcs, _: &mut Self::Context) -> Self::Result {
        let pools = match &msg.pool {
            None => self.pools.iter().map(|(id, _)| id).collect(),
            Some(name) => self.pools_named(name),
        };
        if let Some(name) = msg.pool.filter(|_| pools.is_empty()) {
            return Box::pin(async { Err(PoolError::NotFound(name)) });
        }
        let mut listed = self.listed(&pools);
        let total_rows = listed.len();
        keep_first(&mut listed);
        let turn = Arc::clone(&self.usage_turn.0);
        Box::pin(async move {
            let _turn = turn.acquire().await;
            let measured: Vec<_> = listed
                .iter()
                .map(|listed| (listed.id, listed.shared.clone()))
                .collect();
            // Where there is no thread for it, they are shown without.
            let taken = blocking::run("usage", move || taken(&measured)).await;
            let mut taken = taken.unwrap_or_default().into_iter();
            let procs = listed.into_iter().map(|listed| {
                let (cpu, memory) = taken.next().unwrap_or_default();
                ProcRow {
                    cpu_us: cpu.map(|cpu| u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX)),
                    memory,
                    ..listed.row
                }
            });
            Ok(ProcPage {
                total_rows,
                procs: procs.collect(),
            })
        })
    }
}

/// Sorts those that work to the front, of these the ones that have done so longest, and leaves out what is beyond
/// the bound.
fn keep_first(listed: &mut Vec<Listed>) {
    listed.sort_by_key(|listed| (listed.state, Reverse(listed.row.state_ms)));
    listed.truncate(PROCS_LISTED_MAX);
}

/// Returns the processor time and the memory of each.
fn taken(measured: &[(ProcId, Option<Arc<ProcShared>>)]) -> Vec<(Option<Duration>, Option<u64>)> {
    let leader = |(id, shared): &(ProcId, Option<Arc<ProcShared>>)| {
        let pid = shared.as_ref()?.os_pid?;
        Some((pid, *id))
    };
    let memory = of_groups(&measured.iter().filter_map(leader).collect());
    let memory: FxHashMap<ProcId, u64> = memory.into_iter().collect();
    let measured = measured.iter().map(|(id, shared)| {
        let pid = shared.as_ref().and_then(|shared| shared.measured_pid());
        (pid.and_then(usage::cpu_time), memory.get(id).copied())
    });
    measured.collect()
}

impl Handler<KillProc> for ProcManager {
    type Result = Result<KilledProc, KillError>;

    fn handle(&mut self, msg: KillProc, _: &mut Self::Context) -> Self::Result {
        let name = language_name(&msg.name);
        let pool = name.rsplit_once('/').map_or("", |(pool, _)| pool);
        let mut listed = self.listed(&self.pools_named(pool)).into_iter();
        let found = listed.find(|listed| listed.row.name == name);
        let Some(Listed {
            id,
            state,
            row: proc,
            shared,
        }) = found
        else {
            return Err(KillError::NotFound(msg.name));
        };
        let Some(shared) = shared else {
            return Err(KillError::Starting(msg.name));
        };
        let by = msg.by();
        let how = match state {
            State::Ending if !msg.now => "ending",
            // What is asked of it cannot be waited for.
            _ if msg.now || shared.in_flight() > 0 => "killed",
            _ => "told",
        };
        if how != "ending" {
            info!(self.log, "process ended by order";
                  "pool" => &proc.pool, "generation" => id.number, "os_pid" => proc.os_pid, "user" => &*by,
                  "request_id" => &proc.request_id, "db" => &proc.db, "ddoc" => &proc.ddoc,
                  "function" => &proc.function);
            self.stop(id, how == "told", Some(by));
        }
        let how = how.to_owned();
        Ok(KilledProc { how, proc })
    }
}

impl ProcManager {
    /// Finds the pools of a name: one that stays, and others that are being removed.
    fn pools_named(&self, name: &str) -> Vec<PoolId> {
        let name = language_name(name);
        let named = self.pools.iter().filter(|(_, pool)| *pool.name == *name);
        named.map(|(id, _)| id).collect()
    }

    /// Returns the processes of some pools.
    fn listed(&self, pools: &[PoolId]) -> Vec<Listed> {
        let now = self.clock.now();
        let status = pools.iter().map(|pool| self.core.status(*pool, now));
        let known = status.flat_map(|status| status.procs);
        let known: FxHashMap<ProcId, CoreProc> = known.map(|proc| (proc.proc, proc)).collect();
        let pools: FxHashSet<PoolId> = pools.iter().copied().collect();
        let is_wanted = |id: &ProcId| pools.contains(&id.pool);
        let openings = self.openers.iter().filter(|(id, _)| is_wanted(id));
        let starting = openings.map(|(id, opening)| {
            let row = ProcRow {
                state_ms: milliseconds(now.since(opening.since)),
                ..self.row(*id, State::Starting)
            };
            Listed {
                id: *id,
                state: State::Starting,
                row,
                shared: None,
            }
        });
        let procs = self.procs.iter().filter(|(id, _)| is_wanted(id));
        let started =
            procs.map(|(id, process)| self.listed_proc(*id, known.get(id), &process.shared));
        starting.chain(started).collect()
    }

    /// Returns a process that is started. The core does not know one that it has told to end.
    fn listed_proc(&self, id: ProcId, core: Option<&CoreProc>, shared: &Arc<ProcShared>) -> Listed {
        let work = shared.work();
        let is_ending = shared.exit_error().is_some();
        let state = match core.filter(|_| !is_ending).map(|core| core.phase) {
            None => State::Ending,
            Some(ProcPhase::Idle) => State::Idle,
            Some(ProcPhase::Teaching) => State::Teaching,
            Some(ProcPhase::Assigned) if shared.in_flight() > 0 || work.call.is_some() => {
                State::Running
            }
            Some(ProcPhase::Assigned) => State::Lent,
        };
        let call = work.call.as_deref();
        let subject = call.map(|call| &call.subject);
        let of_subject = |part: Option<&Arc<str>>| part.map(|part| part.to_string());
        let tag = core.and_then(|core| core.db.as_ref());
        let holder = core.and_then(|core| core.holder);
        let row = ProcRow {
            os_pid: shared.os_pid,
            state_ms: milliseconds(work.since.elapsed()),
            holder: holder.map(|client| self.holder(client)),
            request_id: call.map(|call| call.request_id.to_string()),
            db: of_subject(subject.and_then(|subject| subject.db.as_ref()).or(tag)),
            ddoc: of_subject(subject.and_then(|subject| subject.ddoc.as_ref())),
            function: subject.map(|subject| subject.function.clone()),
            uses: core.map(|core| core.uses),
            age_ms: core.map(|core| milliseconds(core.age)),
            ..self.row(id, state)
        };
        Listed {
            id,
            state,
            row,
            shared: Some(Arc::clone(shared)),
        }
    }

    fn row(&self, id: ProcId, state: State) -> ProcRow {
        let pool = self.pools.at(id.pool);
        ProcRow {
            name: self.proc_name(id),
            pool: pool.name.to_string(),
            language: pool.language.to_string(),
            state: <&str>::from(state).to_owned(),
            ..ProcRow::default()
        }
    }

    /// Returns the name of a process, for people.
    pub(super) fn proc_name(&self, proc: ProcId) -> String {
        let pool = &*self.pools.at(proc.pool).name;
        ProcName { pool, proc }.to_string()
    }

    /// Returns who holds a process that has ended by order of somebody, under which assignment, and what they are told.
    pub(super) fn holder_to_tell(&self, proc: ProcId) -> Option<(ClientId, Token, String)> {
        let shared = &self.procs.get(&proc)?.shared;
        let report = shared.exit_error()?.exit_report();
        let report = report.filter(|report| report.by_order)?;
        let status = self.core.status(proc.pool, self.clock.now());
        let held = status.procs.iter().find(|held| held.proc == proc)?;
        let reason = format!("the process {}", report.told());
        Some((held.holder?, shared.token()?, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_a_thousand_are_listed_those_that_work_longest_first() {
        let listed = |(number, state): (u64, State)| Listed {
            id: ProcId {
                pool: PoolId(0),
                number,
            },
            state,
            row: ProcRow {
                state_ms: number,
                ..ProcRow::default()
            },
            shared: None,
        };
        let idle = (0..2000).map(|number| (number, State::Idle));
        let others = [
            (2000, State::Ending),
            (2001, State::Lent),
            (2002, State::Running),
            (2003, State::Running),
            (2004, State::Teaching),
            (2005, State::Starting),
        ];
        let mut all: Vec<Listed> = idle.chain(others).map(listed).collect();
        keep_first(&mut all);
        assert_eq!(all.len(), 1000);
        let numbers: Vec<u64> = all.iter().map(|listed| listed.id.number).collect();
        assert_eq!(
            numbers[..8],
            [2003, 2002, 2004, 2001, 2005, 2000, 1999, 1998]
        );
    }
}
