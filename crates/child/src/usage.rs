//! What the system tells of a running child: its time on processors, and its memory.
//!
//! PROMISES  Reads nothing that waits for a disk. [`cpu_time`] is a system call, the others are files of /proc.
//! LIMITS    Of one process alone: not of its own children. The command of a launched cell is found where the
//!           kernel tells the children of a process (`CONFIG_PROC_CHILDREN`).

use std::time::Duration;

use crate::posix;

/// Returns the time that a child has been on processors since it was started.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    posix::cpu_time(pid)
}

/// Returns the most memory that a child has had since it was started, in bytes.
pub fn memory_peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status_bytes(&status, "VmHWM:")
}

/// Returns the number of the command that a launcher has started: the first child of the first process of its cell.
/// Orphans that come to either of them stand behind it.
pub fn launched_command(launcher: u32) -> Option<u32> {
    first_child(first_child(launcher)?)
}

fn first_child(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok()
}

/// Takes an amount of memory out of `/proc/PID/status`, in bytes.
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
    fn an_amount_is_found_by_its_name() {
        let status = "Name:\tx\nVmHWM:\t    20 kB\n";
        assert_eq!(status_bytes(status, "VmHWM:"), Some(20 << 10));
        for wrong in ["", "VmHWM: 1", "VmHWM:\tx kB"] {
            assert_eq!(status_bytes(wrong, "VmHWM:"), None, "{wrong}");
        }
    }
}
