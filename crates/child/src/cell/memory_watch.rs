//! The limit of a cell's memory where no control group keeps it: the launcher looks at what all its processes have.
//!
//! SUMMARY   [`MemoryWatch`] says when to look, and whether they have more than they may.
//! PROMISES  Looks every [`INTERVAL`] at most, and not while the cell rests. Pages and sockets that several processes share
//!           count once: they are told apart only where all together seem to have too much. Page tables count, and
//!           each socket for what it may hold ([`SOCKET_MAX`]).
//! CALLED    By the launcher, which is outside the cell and may read of all that is in it.
//!           Memory that could be there without being mapped is refused by the filter of system calls.
//! LIMITS    A cell may have more for an [`INTERVAL`].

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::CellSpec;
use super::cgroup::Cgroup;
use super::layers::Layer;
use crate::usage::{self, status_bytes};

/// The time from one look to the next.
const INTERVAL: Duration = Duration::from_millis(250);

/// The most that one socket holds of what was sent, in bytes: what Linux allows unless told otherwise. How much it
/// holds now cannot be read.
const SOCKET_MAX: u64 = 208 << 10;

/// Most processes that are checked: more than a limit of processes allows, unless there is none.
const PROCESSES_MAX: usize = 4096;

/// Files by which this process finds out whether it can look at others.
const NEEDED: [&str; 3] = [
    "/proc/self/status",
    "/proc/self/smaps_rollup",
    "/proc/thread-self/children",
];

/// Looks at a cell's memory from time to time.
pub(super) struct MemoryWatch {
    /// In bytes.
    max: u64,
    /// `None` while the cell rests.
    next: Option<Instant>,
}

/// Returns whether this process can read what others have.
pub(super) fn is_possible() -> bool {
    NEEDED.iter().all(|file| fs::read(file).is_ok())
}

/// Returns whether a cell is watched: where that is possible, and nothing better keeps its limit.
pub(super) fn is_wanted(spec: &CellSpec, cgroup: &Cgroup, is_possible: bool) -> bool {
    is_possible && spec.memory_max > 0 && !cgroup.held.contains(&Layer::Memory)
}

impl MemoryWatch {
    pub(super) fn new(spec: &CellSpec) -> Self {
        Self {
            max: spec.memory_max,
            next: Some(Instant::now() + INTERVAL),
        }
    }

    /// Returns how long to wait for the next look; `None` while there is none.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.next
            .map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// The cell rests from now on, or no longer does. Either is a time to look: in between there may never be one.
    pub(super) fn rests(&mut self, is_at_rest: bool) -> bool {
        self.next = (!is_at_rest).then(|| Instant::now() + INTERVAL);
        self.is_exceeded()
    }

    /// Returns whether it was time to look, and the cell has more than it may.
    pub(super) fn is_due_and_exceeded(&mut self) -> bool {
        if self.next.is_none_or(|next| next > Instant::now()) {
            return false;
        }
        self.next = Some(Instant::now() + INTERVAL);
        self.is_exceeded()
    }

    fn is_exceeded(&self) -> bool {
        let processes: Vec<u32> = usage::below(std::process::id(), PROCESSES_MAX)
            .into_iter()
            .map(|(pid, _)| pid)
            .collect();
        let each =
            |pid: &u32| resident(*pid).unwrap_or(0) + descriptors(*pid).count() as u64 * SOCKET_MAX;
        let at_most: u64 = processes.iter().map(each).sum();
        if at_most <= self.max {
            return false;
        }
        let each = |pid: &u32| proportional(*pid).or_else(|| resident(*pid)).unwrap_or(0);
        let pages: u64 = processes.iter().map(each).sum();
        let sockets: BTreeSet<_> = processes.iter().flat_map(|pid| sockets(*pid)).collect();
        pages + sockets.len() as u64 * SOCKET_MAX > self.max
    }
}

/// Returns what a process has, in bytes, with all that it shares.
fn resident(pid: u32) -> Option<u64> {
    sum_of(
        &format!("/proc/{pid}/status"),
        &["VmRSS:", "VmSwap:", "VmPTE:"],
    )
}

/// Returns what a process has, in bytes, with its part of what it shares.
fn proportional(pid: u32) -> Option<u64> {
    let pages = sum_of(&format!("/proc/{pid}/smaps_rollup"), &["Pss:", "SwapPss:"])?;
    Some(pages + sum_of(&format!("/proc/{pid}/status"), &["VmPTE:"])?)
}

/// The first of the names has to be there.
fn sum_of(file: &str, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let mut each = names.iter().map(|name| status_bytes(&text, name));
    let first = each.next()??;
    Some(first + each.flatten().sum::<u64>())
}

/// Returns where the descriptors of a process are listed.
fn descriptors(pid: u32) -> impl Iterator<Item = PathBuf> {
    let listed = fs::read_dir(format!("/proc/{pid}/fd"));
    listed
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// Returns the sockets of a process, by names that they have in all processes.
fn sockets(pid: u32) -> impl Iterator<Item = PathBuf> {
    let targets = descriptors(pid).filter_map(|path| fs::read_link(path).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:"))
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
