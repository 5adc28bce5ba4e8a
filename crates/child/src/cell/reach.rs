//! Paths that the user of a cell cannot read: finds the first closed part of the path to a file.
//!
//! CALLED    By the first process of a cell, once it runs as the cell's user, who is in no group.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::files;

/// Maximum number of links followed.
const LINKS_MAX: usize = 8;

/// Returns the closed part of the path to a program, or to the interpreter in its first line.
pub(super) fn closed_to_program(program: &Path) -> Option<PathBuf> {
    let executed = Access::READ_OK | Access::EXEC_OK;
    let mut all = [program.to_owned()]
        .into_iter()
        .chain(files::interpreters(program));
    all.find_map(|file| first_closed(&file, executed, LINKS_MAX))
}

/// Returns the closed part of the path to a file or folder that is read.
pub(super) fn closed(path: &Path) -> Option<PathBuf> {
    let wanted = if path.is_dir() {
        Access::READ_OK | Access::EXEC_OK
    } else {
        Access::READ_OK
    };
    first_closed(path, wanted, LINKS_MAX)
}

/// Returns the message, with the remedy.
pub(super) fn told(closed: &Path, remedy: &str) -> String {
    let closed = closed.display();
    format!(
        "the users of cells are in no group, so every path that a command reads, with its parent folders, must be \
         readable by others, and '{closed}' is not: `chmod o+rx '{closed}'`, or {remedy}"
    )
}

fn first_closed(path: &Path, wanted: Access, links: usize) -> Option<PathBuf> {
    let mut way: Vec<&Path> = path.ancestors().collect();
    way.reverse();
    for part in way {
        let is_end = part == path;
        let needed = if is_end { wanted } else { Access::EXEC_OK };
        if access(part, needed) != Err(Errno::ACCESS) {
            continue;
        }
        let (Ok(target), Some(folder), true) = (fs::read_link(part), part.parent(), links > 0)
        else {
            return Some(part.to_owned());
        };
        let rest = path.strip_prefix(part).ok()?;
        let linked = if is_end {
            folder.join(target)
        } else {
            folder.join(target).join(rest)
        };
        return first_closed(&linked, wanted, links - 1);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_open_paths_are_not_reported_as_closed() {
        assert_eq!(closed(Path::new("/usr")), None);
        assert_eq!(closed_to_program(Path::new("/bin/sh")), None);
        assert_eq!(closed(Path::new("/no/such/file")), None);
    }
}
