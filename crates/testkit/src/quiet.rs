//! Finds leftover children in the system's process table.
//!
//! LIMITS    Reads `/proc`, so Linux only. A zombie with another parent is not ours to reap, and does not count.

use std::fs;

/// A row of the process table.
struct ProcessEntry {
    pid: u32,
    state: char,
    parent: u32,
    group: u32,
}

/// Returns the processes that are in one of the groups or in `pids`.
pub(crate) fn alive(groups: &[u32], pids: &[u32]) -> Vec<u32> {
    let this = std::process::id();
    let counts = |entry: &ProcessEntry| {
        let ours = groups.contains(&entry.group) || pids.contains(&entry.pid);
        ours && (entry.state != 'Z' || entry.parent == this)
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|file| {
        let pid = file.file_name().to_str()?.parse().ok()?;
        read_entry(pid)
    })
    .filter(counts)
    .map(|entry| entry.pid)
    .collect()
}

/// Reads a process's row. Its fields follow the program's name, which is in parentheses and may contain anything.
fn read_entry(pid: u32) -> Option<ProcessEntry> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    Some(ProcessEntry {
        pid,
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_found_by_its_pid_and_by_its_group() {
        let this = std::process::id();
        let group = read_entry(this).unwrap().group;
        assert_eq!(alive(&[], &[this]), [this]);
        assert!(alive(&[group], &[]).contains(&this));
        assert_eq!(alive(&[], &[]), [0; 0]);
    }
}
