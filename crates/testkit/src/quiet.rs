//! Finds leftover children in the system's process table.
//!
//! LIMITS    Reads `/proc`, so Linux only. A zombie with another parent is not ours to reap, and does not count.

use std::fs;

/// Returns the processes that are in one of the groups or in `pids`.
pub(crate) fn alive(groups: &[u32], pids: &[u32]) -> Vec<u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|file| file.file_name().to_str()?.parse().ok())
        .filter(|pid| counts(*pid, groups, pids) == Some(true))
        .collect()
}

/// Returns whether a process counts, from its row of the table; `None` if it is gone. The row's fields follow the
/// program's name, which is in parentheses and may contain anything: the state, the parent, the group.
fn counts(pid: u32, groups: &[u32], pids: &[u32]) -> Option<bool> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let is_zombie = fields.next()? == "Z";
    let parent: u32 = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let is_ours = groups.contains(&group) || pids.contains(&pid);
    Some(is_ours && (!is_zombie || parent == std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_found_by_its_pid_and_by_its_group() {
        let this = std::process::id();
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let group = fields.split(' ').nth(2).unwrap().parse().unwrap();
        assert_eq!(alive(&[], &[this]), [this]);
        assert!(alive(&[group], &[]).contains(&this));
        assert_eq!(alive(&[], &[]), [0; 0]);
    }
}
