//! A pool's status: a snapshot, and counters since the start.
//!
//! SOURCE    couch_proc_manager's process_count and stale_proc_count; pidq's status.

use std::time::Duration;

use strum::IntoStaticStr;

use super::{
    ClientId, DbKey, Ledger, Pool, PoolId, PoolSettings, Proc, ProcId, ProcState, RemoveMode,
    StopReason,
};
use crate::time::Timestamp;

/// One pool at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// The settings in force.
    pub settings: PoolSettings,
    /// Lent (assigned) processes, and those that are learning, being reset or forgetting.
    pub used: u32,
    /// Idle processes.
    pub free: u32,
    /// Idle processes without room for another tenant: tagged ones, and full ones with isolates.
    pub free_tagged: u32,
    /// Openings in flight. Used, free and opening together count against the hard limit.
    pub opening: u32,
    /// Stopping processes. Of these, only those of a named pool beyond one reap batch count against the limit.
    pub stopping: u32,
    /// Requests in the queue.
    pub waiting: u32,
    /// The wait of the oldest waiter that its tenant's bounds do not hold back.
    pub longest_wait: Duration,
    /// How the pool is being removed, if it is.
    pub removing: Option<RemoveMode>,
    /// How much longer starts are paused, after failed starts.
    pub throttled: Option<Duration>,
    /// How much longer processes are started with stress on.
    pub stressed: Option<Duration>,
    /// The processes, oldest first.
    pub procs: Vec<ProcStatus>,
}

/// One process at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcStatus {
    pub proc: ProcId,
    pub phase: ProcPhase,
    /// The database it is tagged for.
    pub db: Option<DbKey>,
    /// The number of design documents it knows.
    pub ddocs: u32,
    /// The number of tenants with an isolate in it.
    pub isolates: u32,
    /// The number of its assignments.
    pub uses: u64,
    /// Time since its opening succeeded.
    pub age: Duration,
    /// Time since it became idle, while it is.
    pub idle: Option<Duration>,
    /// The client that holds it.
    pub holder: Option<ClientId>,
    /// Its memory when last measured, in bytes.
    pub memory: Option<u64>,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ProcPhase {
    /// Waiting for a client.
    Idle,
    /// With a client.
    Assigned,
    /// Learning a design document, being reset after a client, or forgetting its tenant.
    Teaching,
}

/// Counts of events in one pool since it was added; never decreased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolTotals {
    /// Assignments of a process to a client.
    pub taken: u64,
    /// Accepted returns with status ok, and processes of clients that ended normally.
    pub returned: u64,
    /// Accepted returns with status fail.
    pub failed: u64,
    /// Processes reclaimed because their client crashed, or dropped them without returning them.
    pub taken_back: u64,
    /// Openings that succeeded.
    pub started: u64,
    /// Processes that forgot their tenant instead of being replaced.
    pub forgot: u64,
    /// Isolates made.
    pub isolates_made: u64,
    /// Isolates evicted for others, or ended by their process.
    pub isolates_evicted: u64,
    /// Openings that failed.
    pub start_failures: u64,
    /// Processes that ended by themselves.
    pub died: u64,
    /// Requests refused because their deadline passed.
    pub timed_out: u64,
    /// Requests refused because the queue was full (`queue_max`).
    pub busy: u64,
    pub(super) stopped: [u64; StopReason::Shutdown as usize + 1],
}

impl PoolTotals {
    /// The number of processes stopped for this reason.
    pub const fn stopped(&self, why: StopReason) -> u64 {
        self.stopped[why as usize]
    }
}

impl ProcStatus {
    pub(super) fn of(id: ProcId, proc: &Proc, now: Timestamp) -> Self {
        let phase = match proc.state {
            ProcState::Idle => ProcPhase::Idle,
            ProcState::Assigned { .. } => ProcPhase::Assigned,
            ProcState::Teaching { .. }
            | ProcState::Resetting
            | ProcState::Forgetting { .. }
            | ProcState::Transitioning => ProcPhase::Teaching,
        };
        Self {
            proc: id,
            phase,
            db: proc.tenant.as_ref().and_then(|tenant| tenant.db().cloned()),
            ddocs: proc.ddocs.len() as u32,
            isolates: match proc.isolates_max {
                0 => 0,
                _ => proc.known().count() as u32,
            },
            uses: proc.uses,
            age: now.since(proc.born),
            idle: (phase == ProcPhase::Idle).then(|| now.since(proc.last_use)),
            holder: match proc.state {
                ProcState::Assigned { client, .. } => Some(client),
                _ => None,
            },
            memory: proc.memory,
        }
    }
}

impl PoolStatus {
    pub(super) fn of(id: PoolId, pool: &Pool, ledger: &Ledger, now: Timestamp) -> Self {
        let oldest = pool.waiters.oldest().and_then(|id| ledger.request(id));
        let procs = pool.procs.iter();
        let mut procs: Vec<ProcStatus> = procs
            .map(|(&number, proc)| ProcStatus::of(ProcId { pool: id, number }, proc, now))
            .collect();
        let left = |until: Timestamp| (now < until).then(|| until.since(now));
        procs.sort_unstable_by_key(|status| status.proc);
        Self {
            settings: pool.settings,
            used: (pool.procs.len() - pool.idle.len()) as u32,
            free: pool.idle.len() as u32,
            free_tagged: pool.idle.tagged_len() as u32,
            opening: pool.opening.len() as u32,
            stopping: pool.stopping.len() as u32,
            waiting: pool.waiters.len as u32,
            longest_wait: oldest.map_or(Duration::ZERO, |oldest| now.since(oldest.arrived)),
            removing: pool.life.removing,
            throttled: pool.life.throttle.until.0.and_then(left),
            stressed: pool.life.stress.0.and_then(left),
            procs,
        }
    }
}
