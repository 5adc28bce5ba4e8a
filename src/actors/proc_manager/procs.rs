//! The processes for operators: their current work (`settee ps`), the order to end one (`settee kill`), and their memory
//! use.
//!
//! SUMMARY   Rows combine the core's state of a process, as in `status`, with the process's own report of its work. For
//!           pools with a memory limit, memory is sampled and reported to the core.
//! PROMISES  Rows are made, and processor time and memory read, on a separate thread, one page at a time. Killing a
//!           process is an order to its actor; the core no longer lends an idle one, and handles its end like any
//!           other. One memory sample is taken at a time, off the arbiter. While no pool has a memory limit, no memory
//!           is sampled and no timer fires.
//! LIMITS    Linux. The memory of a process is the resident memory of its process group and all descendants: pages
//!           that they share are counted for each of them. Peaks between samples are missed.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use actix::prelude::*;
use blocking::Turns;
use rustc_hash::{FxHashMap, FxHashSet};
use strum::IntoStaticStr;

use super::{ProcManager, milliseconds};
use crate::config::language_name;
use crate::messages::pools::PoolError;
use crate::messages::process::ProcShared;
use crate::messages::ps::{
    KillError, KillProc, KnownHolder, KnownProc, ListProcs, PROCS_LISTED_MAX, ProcLife, proc_name,
};
use crate::query_server::call::micros;
use crate::query_server::status::{KilledProc, ProcPage, ProcRow};
use child::usage::{Stat, status_bytes};
use policy::pool::{ClientId, Event, PoolId, ProcId, ProcPhase, ProcStatus};

/// Serializes the readings.
static READINGS: Turns = Turns::new(1);

/// Time from the end of a memory sample to the next one.
const MEMORY_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum ancestors searched for a process's leader.
const ANCESTORS_MAX: usize = 128;

/// The state of a process, in list order.
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

/// A process with its data.
struct Listed {
    id: ProcId,
    state: State,
    row: ProcRow,
    /// `None` while it is being started.
    shared: Option<Arc<ProcShared>>,
}

impl Handler<ListProcs> for ProcManager {
    type Result = Result<Vec<KnownProc>, PoolError>;

    fn handle(&mut self, msg: ListProcs, _: &mut Self::Context) -> Self::Result {
        let pools: Vec<PoolId> = match &msg.pool {
            None => self.pools.iter().map(|(id, _)| id).collect(),
            Some(name) => self.pools_named(name),
        };
        if let Some(name) = msg.pool
            && pools.is_empty()
        {
            return Err(PoolError::NotFound(name));
        }
        let now = self.clock.now();
        let status = pools.iter().map(|pool| self.core.status(*pool, now));
        let core = status.flat_map(|status| status.procs);
        let mut core: FxHashMap<ProcId, ProcStatus> = core.map(|proc| (proc.proc, proc)).collect();
        let pools: FxHashSet<PoolId> = pools.into_iter().collect();
        Ok(self
            .openers
            .keys()
            .chain(self.procs.keys())
            .filter(|id| pools.contains(&id.pool))
            .filter_map(|id| self.known_proc(*id, core.remove(id)))
            .collect())
    }
}

impl Handler<KillProc> for ProcManager {
    type Result = Result<KilledProc, KillError>;

    fn handle(&mut self, msg: KillProc, ctx: &mut Self::Context) -> Self::Result {
        let Some(known) = self.proc_named(&msg.name) else {
            return Err(KillError::NotFound(msg.name));
        };
        let Listed {
            id,
            state,
            row: proc,
            shared,
        } = describe(known);
        let Some(shared) = shared else {
            return Err(KillError::Starting(msg.name));
        };
        let by = msg.by();
        let how = match state {
            State::Ending if !msg.now => "ending",
            // The service cannot wait for a pending prompt.
            _ if msg.now || shared.in_flight() > 0 => "killed",
            _ => "told",
        };
        if how != "ending" {
            self.stop(id, how == "told", Some(by));
            self.event(Event::StopIdle { proc: id }, ctx);
        }
        let how = how.to_owned();
        Ok(KilledProc { how, proc })
    }
}

/// What the manager knows of processes and their holders.
impl ProcManager {
    /// Describes a client, for display.
    pub(super) fn holder(&self, client: ClientId) -> KnownHolder {
        let known = self.clients.get(&client);
        KnownHolder {
            client,
            who: known.and_then(|known| known.who.clone()),
        }
    }

    /// Finds the pools with a name: at most one that stays, and any that are being removed.
    pub(super) fn pools_named(&self, name: &str) -> Vec<PoolId> {
        let name = language_name(name);
        self.pools
            .iter()
            .filter(|(_, pool)| *pool.name == *name)
            .map(|(id, _)| id)
            .collect()
    }

    /// Finds a process by its displayed name.
    fn proc_named(&self, name: &str) -> Option<KnownProc> {
        let (pool, number) = name.rsplit_once('/')?;
        let number = number.parse().ok()?;
        self.pools_named(pool).into_iter().find_map(|pool| {
            let id = ProcId { pool, number };
            self.known_proc(id, self.core.proc(id, self.clock.now()))
        })
    }

    fn known_proc(&self, id: ProcId, core: Option<ProcStatus>) -> Option<KnownProc> {
        let life = if let Some(process) = self.procs.get(&id) {
            let holder = core.as_ref().and_then(|core| core.holder);
            ProcLife::Started {
                shared: Arc::clone(&process.shared),
                holder: holder.map(|client| self.holder(client)),
                core,
            }
        } else {
            let since = self.openers.get(&id)?.since;
            ProcLife::Opening(self.clock.now().since(since))
        };
        let pool = self.pools.at(id.pool);
        Some(KnownProc {
            id,
            pool: Arc::clone(&pool.name),
            language: pool.language.clone(),
            life,
        })
    }
}

/// Describes processes: one page, busy ones first.
///
/// # Errors
/// No thread is available for it; may be temporary.
pub(crate) async fn page(procs: Vec<KnownProc>) -> io::Result<ProcPage> {
    READINGS
        .turn()
        .await
        .run("usage", move || {
            let mut listed: Vec<Listed> = procs.into_iter().map(describe).collect();
            let total_rows = listed.len();
            keep_first(&mut listed);
            let leader = |listed: &Listed| Some((listed.shared.as_ref()?.os_pid?, listed.id));
            let memory = of_leaders(&listed.iter().filter_map(leader).collect());
            let procs = listed.into_iter().map(|listed| {
                let cpu = listed.shared.and_then(|shared| shared.cpu_time());
                ProcRow {
                    cpu_us: cpu.map(micros),
                    memory: memory.get(&listed.id).copied(),
                    ..listed.row
                }
            });
            ProcPage {
                total_rows,
                procs: procs.collect(),
            }
        })
        .await
}

/// Describes a process, without resource usage.
fn describe(known: KnownProc) -> Listed {
    let KnownProc {
        id,
        pool,
        language,
        life,
    } = known;
    let (state, row, shared) = match life {
        ProcLife::Opening(age) => {
            let row = ProcRow {
                state_ms: milliseconds(age),
                ..ProcRow::default()
            };
            (State::Starting, row, None)
        }
        ProcLife::Started {
            shared,
            core,
            holder,
        } => {
            let (state, row) = describe_started(&shared, core.as_ref(), holder.as_ref());
            (state, row, Some(shared))
        }
    };
    let row = ProcRow {
        name: proc_name(&pool, id),
        pool: pool.to_string(),
        language: language.to_string(),
        state: <&str>::from(state).to_owned(),
        ..row
    };
    Listed {
        id,
        state,
        row,
        shared,
    }
}

fn describe_started(
    shared: &ProcShared,
    core: Option<&ProcStatus>,
    holder: Option<&KnownHolder>,
) -> (State, ProcRow) {
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
    let row = ProcRow {
        os_pid: shared.os_pid,
        state_ms: milliseconds(work.since.elapsed()),
        holder: holder.map(KnownHolder::describe),
        request_id: call.map(|call| call.request_id.to_string()),
        db: of_subject(subject.and_then(|subject| subject.db.as_ref()).or(tag)),
        ddoc: of_subject(subject.and_then(|subject| subject.ddoc.as_ref())),
        function: subject.map(|subject| subject.function.clone()),
        uses: core.map(|core| core.uses),
        // Read after `state_ms`, and not from the core, which was queried earlier: no state may seem older than its
        // process.
        age_ms: core.map(|_| milliseconds(shared.age())),
        ..ProcRow::default()
    };
    (state, row)
}

/// Sorts busy processes to the front, longest first, and drops those beyond the maximum.
fn keep_first(listed: &mut Vec<Listed>) {
    listed.sort_by_key(|listed| (listed.state, Reverse(listed.row.state_ms)));
    listed.truncate(PROCS_LISTED_MAX);
}

/// Samples of memory, for limits.
impl ProcManager {
    /// Samples the memory of processes from now on, if a pool limits it.
    pub(super) fn watch_memory(&mut self, ctx: &mut Context<Self>) {
        let is_limited = self.pools.iter().any(|(id, _)| self.limits_memory(id));
        if is_limited && !std::mem::replace(&mut self.checks_memory, true) {
            ctx.run_later(MEMORY_INTERVAL, Self::read_memory);
        }
    }

    fn limits_memory(&self, pool: PoolId) -> bool {
        self.core.settings(pool).is_some_and(|settings| {
            settings.recycle.memory_soft.is_some() || settings.recycle.memory_hard.is_some()
        })
    }

    fn read_memory(&mut self, ctx: &mut Context<Self>) {
        let leaders: FxHashMap<u32, ProcId> = self
            .procs
            .iter()
            .filter(|(id, _)| self.limits_memory(id.pool))
            .filter_map(|(id, process)| Some((process.shared.os_pid?, *id)))
            .collect();
        if leaders.is_empty() {
            self.checks_memory = false;
            return self.watch_memory(ctx);
        }
        // Ends after the directory is read.
        let reading = blocking::run("memory", move || of_leaders(&leaders)).into_actor(self);
        ctx.spawn(reading.map(|read, manager, ctx| {
            for (proc, bytes) in read.unwrap_or_default() {
                manager.event(Event::Memory { proc, bytes }, ctx);
            }
            manager.checks_memory = false;
            manager.watch_memory(ctx);
        }));
    }
}

/// Returns the memory of these leaders: each child leads its own process group, and its descendants outside the group
/// are included.
fn of_leaders(leaders: &FxHashMap<u32, ProcId>) -> FxHashMap<ProcId, u64> {
    let mut sums: FxHashMap<ProcId, u64> = FxHashMap::default();
    let stats = all_stats();
    for (pid, stat) in &stats {
        let Some(proc) = leader_of(*pid, stat, &stats, leaders) else {
            continue;
        };
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        let bytes = status
            .ok()
            .and_then(|status| status_bytes(&status, "VmRSS:"));
        *sums.entry(proc).or_default() += bytes.unwrap_or_default();
    }
    sums
}

/// Returns the statistics of every process that has not ended meanwhile.
fn all_stats() -> FxHashMap<u32, Stat> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, Stat::parse(&line)?))
        })
        .collect()
}

/// Finds the leader of a process's group, or else its nearest ancestor that leads one.
fn leader_of(
    pid: u32,
    stat: &Stat,
    stats: &FxHashMap<u32, Stat>,
    leaders: &FxHashMap<u32, ProcId>,
) -> Option<ProcId> {
    let above = std::iter::successors(Some((pid, stat)), |(_, stat)| {
        Some((stat.parent, stats.get(&stat.parent)?))
    });
    // PIDs may be reused during the scan, and then form a cycle.
    let mut above = above.take(ANCESTORS_MAX);
    leaders
        .get(&stat.group)
        .or_else(|| above.find_map(|(pid, _)| leaders.get(&pid)))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_state_is_older_than_its_process() {
        let id = ProcId {
            pool: PoolId(0),
            number: 1,
        };
        let shared = ProcShared::new(None);
        // The core was queried before the time passed.
        let core = ProcStatus {
            proc: id,
            phase: ProcPhase::Idle,
            db: None,
            ddocs: 0,
            isolates: 0,
            uses: 0,
            age: Duration::ZERO,
            idle: None,
            holder: None,
            memory: None,
        };
        while shared.age() < Duration::from_millis(2) {}
        let (_, row) = describe_started(&shared, Some(&core), None);
        assert!(row.state_ms >= 2 && row.age_ms >= Some(row.state_ms));
    }

    #[test]
    fn at_most_a_thousand_processes_are_listed_busy_ones_first_and_each_state_longest_first() {
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

    #[cfg(target_os = "linux")]
    #[test]
    fn the_memory_of_our_own_process_group_is_read() {
        let group = rustix::process::getpgrp().as_raw_nonzero().get() as u32;
        let proc = ProcId {
            pool: PoolId(0),
            number: 1,
        };
        let read = of_leaders(&[(group, proc)].into_iter().collect());
        assert_eq!(read.len(), 1);
        assert!(read[&proc] > 1 << 20, "{read:?}");
    }
}
