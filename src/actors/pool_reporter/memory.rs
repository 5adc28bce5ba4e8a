//! Memory use of processes, as reported by the operating system.
//!
//! SUMMARY   Samples it for pools with a memory limit, and reports it to the ProcManager.
//! PROMISES  Takes one sample at a time, off the arbiter. While no pool has a memory limit, nothing is read and no
//!           timer fires.
//! LIMITS    Linux. The memory of a process is the resident memory of its process group and all descendants: pages
//!           that they share are counted for each of them. Peaks between samples are missed.

use std::fs;
use std::time::Duration;

use actix::prelude::*;
use rustc_hash::FxHashMap;

use super::PoolReporter;
use crate::messages::pool_reporter::{GetLimitedProcs, MemoryRead, WatchMemory};
use crate::otp::tell::Tell;
use child::usage::{Stat, status_bytes};
use policy::pool::ProcId;

/// Time from the end of a sample to the next one.
const PERIOD: Duration = Duration::from_secs(2);

/// Maximum ancestors searched for a process's leader.
const ANCESTORS_MAX: usize = 128;

impl PoolReporter {
    fn read_memory_later(&mut self, asked: WatchMemory, ctx: &mut Context<Self>) {
        self.checks_memory = true;
        ctx.run_later(PERIOD, |reporter, ctx| reporter.read_memory(asked, ctx));
    }

    fn read_memory(&mut self, asked: WatchMemory, ctx: &mut Context<Self>) {
        let reading = async move {
            let limited = asked.limited.send(GetLimitedProcs).await;
            // Sampling ends if the manager is gone or no pool has a limit.
            let limited: FxHashMap<u32, ProcId> = limited.ok().flatten()?.into_iter().collect();
            if !limited.is_empty() {
                // Ends after the directory is read.
                let read = blocking::run("memory", move || of_leaders(&limited)).await;
                asked.read.tell(MemoryRead(read.unwrap_or_default()));
            }
            Some(asked)
        };
        ctx.spawn(reading.into_actor(self).map(|asked, reporter, ctx| {
            reporter.checks_memory = false;
            if let Some(asked) = asked {
                reporter.read_memory_later(asked, ctx);
            }
        }));
    }
}

impl Handler<WatchMemory> for PoolReporter {
    type Result = ();

    fn handle(&mut self, msg: WatchMemory, ctx: &mut Self::Context) {
        if !self.checks_memory {
            self.read_memory_later(msg, ctx);
        }
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
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let stats = pids.filter_map(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, Stat::parse(&line)?))
    });
    stats.collect()
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
    let group = leaders.get(&stat.group);
    group
        .or_else(|| above.find_map(|(pid, _)| leaders.get(&pid)))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::pool::PoolId;

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
