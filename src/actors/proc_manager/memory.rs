//! Memory use of processes, as reported by the operating system.
//!
//! SUMMARY   Samples it for pools with a memory limit, and reports it to the core.
//! PROMISES  Takes one sample at a time, off the arbiter. While no pool has a memory limit, nothing is read and no
//!           timer fires.
//! LIMITS    Linux. The memory of a process is the resident memory of its process group and all descendants: pages
//!           that they share are counted for each of them. Peaks between samples are missed.

use std::fs;
use std::time::Duration;

use actix::prelude::*;
use rustc_hash::FxHashMap;

use super::ProcManager;
use child::usage::{Stat, status_bytes};
use policy::pool::{Event, PoolId, ProcId};

/// Time from the end of a sample to the next one.
const PERIOD: Duration = Duration::from_secs(2);

/// Maximum ancestors searched for a process's leader.
const ANCESTORS_MAX: usize = 128;

impl ProcManager {
    /// Samples the memory of processes from now on, if a pool limits it.
    pub(super) fn watch_memory(&mut self, ctx: &mut Context<Self>) {
        let is_limited = self.pools.iter().any(|(id, _)| self.limits_memory(id));
        if is_limited && !std::mem::replace(&mut self.checks_memory, true) {
            ctx.run_later(PERIOD, Self::read_memory);
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
pub(super) fn of_leaders(leaders: &FxHashMap<u32, ProcId>) -> Vec<(ProcId, u64)> {
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
    sums.into_iter().collect()
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
        assert!(read[0].1 > 1 << 20, "{read:?}");
    }
}
