//! How much memory processes use, as the operating system tells.
//!
//! SUMMARY   Reads it from time to time, for pools that have a limit of it, and tells the core.
//! PROMISES  Read off the arbiter, one reading at a time; nothing is read and no timer fires where no
//!           pool has a limit.
//! LIMITS    Linux. A process counts with all processes of its group, by resident memory; peaks between
//!           two readings are not seen.

use std::time::Duration;

use actix::prelude::*;
use rustc_hash::FxHashMap;

use super::ProcManager;
use blocking;
use child::usage::status_bytes;
use policy::pool::{Event, PoolId, ProcId};

/// The time from the end of a reading to the next one.
const PERIOD: Duration = Duration::from_secs(2);

impl ProcManager {
    /// Reads the memory of processes from now on, for as long as a pool has a limit.
    pub(super) fn start_memory_check(&mut self, ctx: &mut Context<Self>) {
        let limited = self.pools.iter().any(|(id, _)| self.limits_memory(id));
        if limited && !self.checks_memory {
            self.checks_memory = true;
            ctx.run_later(PERIOD, Self::read_memory);
        }
    }

    fn limits_memory(&self, pool: PoolId) -> bool {
        self.core.settings(pool).is_some_and(|settings| {
            settings.recycle.memory_soft.is_some() || settings.recycle.memory_hard.is_some()
        })
    }

    fn read_memory(&mut self, ctx: &mut Context<Self>) {
        let procs = self.procs.iter();
        let limited = procs.filter(|(id, _)| self.limits_memory(id.pool));
        let pids: FxHashMap<u32, ProcId> = limited
            .filter_map(|(id, process)| Some((process.shared.os_pid?, *id)))
            .collect();
        if pids.is_empty() {
            self.checks_memory = false;
            return self.start_memory_check(ctx);
        }
        // Ends with the reading of a directory.
        let read = blocking::run("memory", move || of_groups(&pids)).into_actor(self);
        ctx.spawn(read.map(|read, manager, ctx| {
            manager.checks_memory = false;
            for (proc, bytes) in read.unwrap_or_default() {
                manager.event(Event::Memory { proc, bytes }, ctx);
            }
            manager.start_memory_check(ctx);
        }));
    }
}

/// Returns what the process groups of these leaders take: each child leads one of its own.
pub(super) fn of_groups(leaders: &FxHashMap<u32, ProcId>) -> Vec<(ProcId, u64)> {
    let mut sums: FxHashMap<ProcId, u64> = FxHashMap::default();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        if !is_process {
            continue;
        }
        // One that has ended meanwhile cannot be read.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some(proc) = group_of(&stat).and_then(|group| leaders.get(&group)) else {
            continue;
        };
        let status = std::fs::read_to_string(entry.path().join("status"));
        let bytes = status
            .ok()
            .and_then(|status| status_bytes(&status, "VmRSS:"));
        *sums.entry(*proc).or_default() += bytes.unwrap_or_default();
    }
    sums.into_iter().collect()
}

/// Takes the process group out of a line of `/proc/PID/stat`. The name of the program, in brackets,
/// may hold anything.
fn group_of(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    // The state is field 3, the group 5.
    rest.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::pool::PoolId;

    #[test]
    fn a_group_is_read_whatever_the_program_is_called() {
        assert_eq!(group_of("12 (a) b (c)) S 1 34 34 0 -1 4194560"), Some(34));
        for wrong in ["", "12 (a", "12 (a) S 1", "12 (a) S 1 x"] {
            assert_eq!(group_of(wrong), None, "{wrong}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn our_own_group_takes_memory() {
        let group = rustix::process::getpgrp().as_raw_nonzero().get() as u32;
        let proc = ProcId {
            pool: PoolId(0),
            number: 1,
        };
        let read = of_groups(&[(group, proc)].into_iter().collect());
        assert_eq!(read.len(), 1);
        assert!(read[0].1 > 1 << 20, "{read:?}");
    }
}
