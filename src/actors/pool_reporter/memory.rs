//! How much memory processes use, as the operating system tells.
//!
//! SUMMARY   Reads it from time to time, for pools that have a limit of it, and tells the ProcManager.
//! PROMISES  Read off the arbiter, one reading at a time; nothing is read and no timer fires where no
//!           pool has a limit.
//! LIMITS    Linux. A process counts with all processes of its group and all below them, by resident memory, so that
//!           pages that several share count for each; peaks between two readings are not seen.

use std::fs;
use std::time::Duration;

use actix::prelude::*;
use rustc_hash::FxHashMap;

use super::PoolReporter;
use crate::messages::pool_reporter::{GetLimitedProcs, MemoryRead, WatchMemory};
use crate::otp::tell::Tell;
use child::usage::{Stat, status_bytes};
use policy::pool::ProcId;

/// The time from the end of a reading to the next one.
const PERIOD: Duration = Duration::from_secs(2);

/// How far above a process its leader is searched for.
const ANCESTORS_MAX: usize = 128;

impl PoolReporter {
    fn read_memory_later(&mut self, asked: WatchMemory, ctx: &mut Context<Self>) {
        self.checks_memory = true;
        ctx.run_later(PERIOD, |reporter, ctx| reporter.read_memory(asked, ctx));
    }

    fn read_memory(&mut self, asked: WatchMemory, ctx: &mut Context<Self>) {
        let reading = async move {
            let limited = asked.limited.send(GetLimitedProcs).await;
            // A manager that is gone limits nothing.
            let limited: FxHashMap<u32, ProcId> = limited.ok().flatten()?.into_iter().collect();
            if !limited.is_empty() {
                // Ends with the reading of a directory.
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

/// Returns what these leaders take: each child leads a process group of its own, and what it has started belongs to it
/// wherever it went.
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

/// Returns the statistics of every process. One that has ended meanwhile cannot be read.
fn all_stats() -> FxHashMap<u32, Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let stats = pids.filter_map(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, Stat::parse(&line)?))
    });
    stats.collect()
}

/// Finds the leader of a process's group, or else the nearest one above it.
fn leader_of(
    pid: u32,
    stat: &Stat,
    stats: &FxHashMap<u32, Stat>,
    leaders: &FxHashMap<u32, ProcId>,
) -> Option<ProcId> {
    let above = std::iter::successors(Some((pid, stat)), |(_, stat)| {
        Some((stat.parent, stats.get(&stat.parent)?))
    });
    // Numbers may be given anew while they are read, and then run in circles.
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
    fn our_own_group_takes_memory() {
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
