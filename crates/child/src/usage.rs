//! The system's reports on running children: processor time and memory.
//!
//! PROMISES  Never waits for a disk: [`cpu_time`] is a system call, the others read /proc. At most
//!           [`PROCESSES_READ_MAX`] processes of a cell are read, and 4096 to check whether it is suspended.
//! LIMITS    Finding a cell's processes needs a kernel that lists a process's children (`CONFIG_PROC_CHILDREN`).
//!           Times of processes other than the command are in steps of 10 ms; those of ended processes count once
//!           their parent has reaped them.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

pub use crate::posix::cpu_time;

/// Maximum processes of a cell that are read for its time and memory.
const PROCESSES_READ_MAX: usize = 256;

/// Maximum processes of a cell that are checked: more than a process limit allows, unless there is none.
pub(crate) const CHECKED_MAX: usize = 4096;

/// Length of a clock tick, the unit of times in `/proc`. The same on every Linux processor that Rust supports.
const MILLISECONDS_A_TICK: u64 = 10;

/// Returns the processor time of the children that a launcher has reaped.
pub(crate) fn cpu_time_waited_for(launcher: u32) -> Option<Duration> {
    let ticks = Stat::of(launcher)?.waited_ticks;
    Some(Duration::from_millis(ticks * MILLISECONDS_A_TICK))
}

/// Returns a child's peak memory since its start, or since it last reset the peak, in bytes.
pub fn memory_peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status_bytes(&status, "VmHWM:")
}

/// Returns the sum of the peak memories of the processes now in a launcher's cell, in bytes.
pub fn memory_peak_of_cell(launcher: u32) -> Option<u64> {
    // The first process is the service's own.
    let of_cell = below(launcher, PROCESSES_READ_MAX).into_iter().skip(1);
    let peaks: Vec<u64> = of_cell.filter_map(|(pid, _)| memory_peak(pid)).collect();
    (!peaks.is_empty()).then(|| peaks.iter().sum())
}

/// Returns the processor time of a launcher's cell, excluding the command's own.
pub fn cpu_time_beside(launcher: u32, command: u32) -> Duration {
    let ticks: u64 = below(launcher, PROCESSES_READ_MAX)
        .into_iter()
        .map(|(pid, stat)| match pid {
            pid if pid == command => stat.waited_ticks,
            _ => stat.own_ticks + stat.waited_ticks,
        })
        .sum();
    Duration::from_millis(ticks * MILLISECONDS_A_TICK)
}

/// A snapshot of a cell's activity. If two in a row are equal and stopped, nothing has run in between, and no process
/// remains that could resume another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// The processor time of all processes, including ended ones.
    pub cpu_time: Duration,
    /// Whether all threads have stopped or ended, or are in the kernel and will stop before leaving it.
    pub is_stopped: bool,
    /// State and context switches of each thread.
    threads: Vec<(PathBuf, String)>,
}

/// Returns the activity of a launcher's cell without its first process; `None` if the first process leads no pid
/// namespace, or is unreadable.
pub fn activity(launcher: u32) -> Option<Activity> {
    let all = below(launcher, CHECKED_MAX);
    let first = fs::read_to_string(format!("/proc/{}/status", all.first()?.0)).ok()?;
    let numbers = first.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    if numbers.split_ascii_whitespace().next_back() != Some("1") {
        return None;
    }
    let ticks = all
        .iter()
        .map(|(_, stat)| stat.own_ticks + stat.waited_ticks);
    let threads = all[1..]
        .iter()
        .flat_map(|(pid, stat)| tasks(*pid, stat.threads));
    let told = threads.filter_map(|task| {
        let status = fs::read_to_string(task.join("status")).ok()?;
        let is_told = |line: &&str| line.starts_with("State:") || line.contains("ctxt_switches:");
        Some((task, status.lines().filter(is_told).collect::<String>()))
    });
    let threads: Vec<_> = told.collect();
    let may_run = |told: &str| told.starts_with("State:\tR") || told.starts_with("State:\tS");
    Some(Activity {
        cpu_time: Duration::from_millis(ticks.sum::<u64>() * MILLISECONDS_A_TICK),
        is_stopped: !threads.iter().any(|(_, told)| may_run(told)),
        threads,
    })
}

/// Returns at most `most` processes below a launcher: the cell's first one, the command, and the others.
pub(crate) fn below(launcher: u32, most: usize) -> Vec<(u32, Stat)> {
    let Some(stat) = Stat::of(launcher) else {
        return Vec::new();
    };
    let mut found = vec![(launcher, stat)];
    let mut next = 0;
    while let Some((pid, stat)) = found.get(next).copied() {
        let there = children(pid, stat.threads)
            .into_iter()
            .filter_map(|pid| Some((pid, Stat::of(pid)?)));
        found.extend(there.take(most + 1 - found.len()));
        next += 1;
    }
    found.remove(0);
    found
}

/// Returns the folders of all threads of a process.
fn tasks(pid: u32, threads: u32) -> Vec<PathBuf> {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    if threads == 1 {
        return vec![tasks.join(pid.to_string())];
    }
    fs::read_dir(&tasks)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// Returns the children of all threads of a process.
fn children(pid: u32, threads: u32) -> Vec<u32> {
    let lists = tasks(pid, threads)
        .into_iter()
        .filter_map(|task| fs::read_to_string(task.join("children")).ok());
    let pids = |list: String| -> Vec<u32> {
        list.split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    };
    lists.flat_map(pids).collect()
}

/// A line of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process that started or adopted it.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// The number of its threads.
    pub threads: u32,
    /// Its processor time, and that of the children it has reaped.
    own_ticks: u64,
    waited_ticks: u64,
    /// When it started, in ticks since boot.
    pub started_ticks: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses a line. The program's name, in brackets, may contain anything.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.rsplit_once(')')?;
        // The first of these, the state, is field 3.
        let fields: Vec<&str> = rest.split_ascii_whitespace().take(20).collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let small = |field| number(field).and_then(|number| u32::try_from(number).ok());
        Some(Self {
            parent: small(4)?,
            group: small(5)?,
            threads: small(20)?,
            own_ticks: number(14)? + number(15)?,
            waited_ticks: number(16)? + number(17)?,
            started_ticks: number(22)?,
        })
    }
}

/// Returns the PID of the command started by a launcher: the first child of the cell's first process. Orphans adopted
/// by either are listed after it.
pub fn launched_command(launcher: u32) -> Option<u32> {
    let first_child = |pid| children(pid, 1).into_iter().next();
    first_child(first_child(launcher)?)
}

/// Reads an amount of memory from the text of `/proc/PID/status`, in bytes.
pub fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_time_and_memory_grow() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        let taken = vec![1_u8; 8 << 20];
        assert!(memory_peak(pid).unwrap() >= 8 << 20);
        while cpu_time(pid).unwrap() - before < Duration::from_millis(1) {
            std::hint::black_box(&taken);
        }
        assert_eq!(cpu_time(u32::MAX), None);
        assert_eq!(memory_peak(u32::MAX), None);
    }

    #[test]
    fn a_line_is_read_whatever_the_program_is_called() {
        let line = "12 (a) b (c)) S 1 34 35 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 4711";
        let stat = Stat {
            parent: 1,
            group: 34,
            threads: 9,
            own_ticks: 11,
            waited_ticks: 15,
            started_ticks: 4711,
        };
        assert_eq!(Stat::parse(line), Some(stat));
        for wrong in ["", "12 (a", "12 (a) S 1", "12 (a) S 1 x"] {
            assert_eq!(Stat::parse(wrong), None, "{wrong}");
        }
        let own = Stat::of(std::process::id()).unwrap();
        assert_eq!(own.parent, std::os::unix::process::parent_id());
    }

    #[test]
    fn an_amount_is_found_by_its_name() {
        let status = "Name:\tx\nVmHWM:\t    20 kB\n";
        assert_eq!(status_bytes(status, "VmHWM:"), Some(20 << 10));
        for wrong in ["", "VmHWM: 1", "VmHWM:\tx kB"] {
            assert_eq!(status_bytes(wrong, "VmHWM:"), None, "{wrong}");
        }
    }
}
