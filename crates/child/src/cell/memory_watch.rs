//! A cell's memory limit without a control group: the launcher samples the memory of all its processes.
//!
//! SUMMARY   [`MemoryWatch`] schedules samples, and compares them with the limit.
//! PROMISES  Takes a sample at most every [`INTERVAL`], and none while the cell is suspended. Shared pages and sockets
//!           count once, but this is determined only when the total seems to exceed the limit. Page tables count, and
//!           each socket with its maximum content ([`SOCKET_MAX`]).
//! CALLED    By the launcher, which is outside the cell and may read all its processes. The system call filter
//!           refuses memory that could exist without a mapping.
//! LIMITS    A cell may exceed the limit for one [`INTERVAL`].

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::CellSpec;
use crate::usage::{self, CHECKED_MAX, status_bytes};

/// The time between two samples.
const INTERVAL: Duration = Duration::from_millis(250);

/// Maximum unread bytes of a socket: Linux's default. The current number cannot be read.
const SOCKET_MAX: u64 = 208 << 10;

/// Files whose readability shows whether this process can sample others.
const NEEDED: [&str; 3] = [
    "/proc/self/status",
    "/proc/self/smaps_rollup",
    "/proc/thread-self/children",
];

/// Samples a cell's memory periodically.
pub(super) struct MemoryWatch {
    /// In bytes.
    max: u64,
    /// `None` while the cell is suspended.
    next: Option<Instant>,
}

/// Returns whether this process can read the memory of others.
pub(super) fn is_possible() -> bool {
    NEEDED.iter().all(|file| fs::read(file).is_ok())
}

impl MemoryWatch {
    pub(super) fn new(spec: &CellSpec) -> Self {
        Self {
            max: spec.memory_max,
            next: Some(Instant::now() + INTERVAL),
        }
    }

    /// Returns the time until the next sample; `None` without one.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.next
            .map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// Called when the cell is suspended or resumed: takes a sample, and returns whether the cell exceeds its limit. No
    /// sample is due until it is resumed.
    pub(super) fn rests(&mut self, is_at_rest: bool) -> bool {
        self.next = (!is_at_rest).then(|| Instant::now() + INTERVAL);
        self.is_exceeded()
    }

    /// Returns whether a sample was due, and the cell exceeds its limit.
    pub(super) fn is_due_and_exceeded(&mut self) -> bool {
        if self.next.is_none_or(|next| next > Instant::now()) {
            return false;
        }
        self.next = Some(Instant::now() + INTERVAL);
        self.is_exceeded()
    }

    fn is_exceeded(&self) -> bool {
        let processes: Vec<u32> = usage::below(std::process::id(), CHECKED_MAX)
            .into_iter()
            .map(|(pid, _)| pid)
            .collect();
        let at_most: u64 = processes
            .iter()
            .map(|pid| resident(*pid).unwrap_or(0) + descriptors(*pid).count() as u64 * SOCKET_MAX)
            .sum();
        if at_most <= self.max {
            return false;
        }
        let pages: u64 = processes
            .iter()
            .map(|pid| proportional(*pid).or_else(|| resident(*pid)).unwrap_or(0))
            .sum();
        let sockets: BTreeSet<_> = processes.iter().flat_map(|pid| sockets(*pid)).collect();
        pages + sockets.len() as u64 * SOCKET_MAX > self.max
    }
}

/// Returns a process's memory, in bytes, including all shared memory.
fn resident(pid: u32) -> Option<u64> {
    sum_of(
        &format!("/proc/{pid}/status"),
        &["VmRSS:", "VmSwap:", "VmPTE:"],
    )
}

/// Returns a process's memory, in bytes, with its proportion of shared memory.
fn proportional(pid: u32) -> Option<u64> {
    let pages = sum_of(&format!("/proc/{pid}/smaps_rollup"), &["Pss:", "SwapPss:"])?;
    Some(pages + sum_of(&format!("/proc/{pid}/status"), &["VmPTE:"])?)
}

/// The first name is mandatory.
fn sum_of(file: &str, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let mut each = names.iter().map(|name| status_bytes(&text, name));
    Some(each.next()?? + each.flatten().sum::<u64>())
}

/// Returns a process's descriptors in `/proc`.
fn descriptors(pid: u32) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// Returns a process's sockets, by system-wide names.
fn sockets(pid: u32) -> impl Iterator<Item = PathBuf> {
    descriptors(pid)
        .filter_map(|path| fs::read_link(path).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_at_least_the_proportional_share() {
        if !is_possible() {
            return eprintln!("skipped: nothing can be read of a process here");
        }
        let pid = std::process::id();
        let (all, part) = (resident(pid).unwrap(), proportional(pid).unwrap());
        assert!(all >= part && part > 1 << 20, "{all} {part}");
        assert_eq!((resident(u32::MAX), proportional(u32::MAX)), (None, None));
    }
}
