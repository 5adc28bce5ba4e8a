//! How much memory processes use, as the operating system tells.
//!
//! SUMMARY   Reads it from time to time, for pools that have a limit of it, and tells the ProcManager.
//! PROMISES  Read off the arbiter, one reading at a time; nothing is read and no timer fires where no
//!           pool has a limit.
//! LIMITS    Linux. A process counts with all processes of its group, by resident memory; peaks between
//!           two readings are not seen.

use std::time::Duration;

use actix::prelude::*;
use rustc_hash::FxHashMap;

use super::PoolReporter;
use crate::messages::pool_reporter::{GetLimitedProcs, MemoryRead, WatchMemory};
use crate::otp::tell::Tell;
use child::usage::status_bytes;
use policy::pool::ProcId;

/// The time from the end of a reading to the next one.
const PERIOD: Duration = Duration::from_secs(2);

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
                let read = blocking::run("memory", move || of_groups(&limited)).await;
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
