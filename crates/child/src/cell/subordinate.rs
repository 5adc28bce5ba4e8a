//! User numbers that a service without root may give to its cells: its subordinate ranges.
//!
//! SUMMARY   [`prepare`] makes a user namespace with the service's own user and the numbers that `/etc/subuid` and
//!           `/etc/subgid` grant it, using `newuidmap` and `newgidmap`, once for all cells. Launchers get it with
//!           [`handed`] and [`enter`] it; inside they may switch users like root outside.
//! CALLED    [`prepare`] before the program sets no_new_privs, and before it has threads.
//! SOURCE    newuidmap(1), subuid(5), setns(2).

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::getuid;
use rustix::thread::{self, LinkNameSpaceType, move_into_link_name_space};

use super::UserIds;
use super::own_os;
use super::user::{self, NUMBERS_MIN};
use crate::find_program;

/// The option of `settee cell` that holds a user namespace open.
pub const HOLD: &str = "--hold-users";

/// The users and groups of this process's namespace.
const MAPS: [&str; 2] = ["/proc/self/uid_map", "/proc/self/gid_map"];

/// A holder's message when its namespace is ready, one byte.
const READY: u8 = b'+';

/// The namespace made for launchers, or why there is none; unset if none is needed.
static PREPARED: OnceLock<Result<OwnedFd, String>> = OnceLock::new();

/// The prepared namespace as a launcher gets it, or why there is none; `None`: none was prepared.
pub(crate) type Handed = Option<Result<OwnedFd, String>>;

/// Numbers that a process may assign: as many users as groups.
pub(super) struct Numbers {
    /// The first user and the first group.
    pub uid: u32,
    pub gid: u32,
    /// The first user, outside of the namespace.
    pub outside: u32,
    pub count: u32,
}

/// Makes the namespace for launchers started from now on, if they need one.
pub fn prepare() {
    if !getuid().is_root() && user::lacking().is_some() {
        let _ = PREPARED.set(make());
    }
}

/// Returns a copy of the namespace, inherited by programs started by this one, or why there is none; `None` if none is
/// needed.
pub(crate) fn handed() -> Handed {
    let copy = |space: &OwnedFd| rustix::io::dup(space).map_err(|error| error.to_string());
    PREPARED
        .get()
        .map(|prepared| prepared.as_ref().map_err(Clone::clone).and_then(copy))
}

/// Enters the namespace that was passed, or one made here; returns its numbers.
///
/// # Errors
/// There is no namespace.
pub(super) fn enter(handed: Handed) -> Result<Numbers, String> {
    let space = handed.unwrap_or_else(make)?;
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::User)).map_err(|error| {
        format!("the namespace of its subordinate users cannot be entered: {error}")
    })?;
    // The longest range of each; the other one is the service's own.
    let [users, groups] = MAPS.map(|file| mapped(file).into_iter().max_by_key(|line| line.count));
    users
        .zip(groups)
        .map(|(users, groups)| Numbers {
            uid: users.inside,
            gid: groups.inside,
            outside: users.outside,
            count: users.count.min(groups.count),
        })
        .ok_or_else(|| "the namespace of its subordinate users has no users".to_owned())
}

/// A line of a user map.
struct Mapped {
    inside: u32,
    outside: u32,
    count: u32,
}

/// Returns whether all these users and groups exist here; some containers have few.
pub(super) fn exist(first: u32, count: u32) -> bool {
    let (first, end) = (u64::from(first), u64::from(first) + u64::from(count));
    let holds = |line: &Mapped| {
        let start = u64::from(line.inside);
        start <= first && end <= start + u64::from(line.count)
    };
    MAPS.iter().all(|file| mapped(file).iter().any(holds))
}

/// Returns the lines of a map.
fn mapped(file: &str) -> Vec<Mapped> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
            Some(Mapped {
                inside: numbers.next()??,
                outside: numbers.next()??,
                count: numbers.next()??,
            })
        })
        .collect()
}

/// Makes the namespace.
fn make() -> Result<OwnedFd, String> {
    let uid = getuid().as_raw();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let account = accounts(&users).find(|(_, ids)| ids.uid == uid);
    let name = account.map_or("", |(name, _)| name);
    let range = |file: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        subordinate(&text, name, uid)
            .ok_or_else(|| format!("{file} has no range of {NUMBERS_MIN} numbers for user {uid}"))
    };
    let (first_uid, uid_count) = range("/etc/subuid")?;
    let (first_gid, gid_count) = range("/etc/subgid")?;
    let (for_users, for_groups) = (program("newuidmap")?, program("newgidmap")?);
    if thread::no_new_privs().unwrap_or(true) {
        return Err(
            "newuidmap cannot give it its subordinate numbers, because no program may raise its rights \
             (NoNewPrivileges)"
                .into(),
        );
    }
    let mut holder = Holder::start()
        .map_err(|error| format!("no user namespace for subordinate users: {error}"))?;
    let process = holder.0.id();
    // Keeps this user, so file access does not change. Its group is dropped, since the system would otherwise keep
    // all of the service's groups for the cells.
    run(
        &for_users,
        process,
        &[(0, uid, 1), (1, first_uid, uid_count)],
    )?;
    run(&for_groups, process, &[(1, first_gid, gid_count)])?;
    let space = File::open(format!("/proc/{process}/ns/user"));
    holder.end();
    space.map(OwnedFd::from).map_err(|error| {
        format!("the namespace of its subordinate users cannot be opened: {error}")
    })
}

/// A process in its own user namespace.
struct Holder(Child);

impl Holder {
    fn start() -> io::Result<Self> {
        let child = Command::new(env::current_exe()?)
            .args(["cell", HOLD])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut holder = Self(child);
        let mut said = [0];
        let output = holder.0.stdout.as_mut();
        let read = output.map(|output| output.read_exact(&mut said));
        if !matches!(read, Some(Ok(()))) || said != [READY] {
            return Err(io::Error::other("the system refused it"));
        }
        Ok(holder)
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.end();
    }
}

/// Enters a user namespace, reports it, and stays until its input ends. Returns the exit status.
pub fn hold() -> i32 {
    let held = own_os::enter_user_namespace()
        .and_then(|()| io::stdout().write_all(&[READY]))
        .and_then(|()| io::stdout().flush())
        .and_then(|()| io::stdin().read_to_end(&mut Vec::new()));
    i32::from(held.is_err())
}

fn program(name: &str) -> Result<PathBuf, String> {
    find_program(Path::new(name))
        .map_err(|_| format!("it has subordinate users, but there is no program {name} in PATH"))
}

/// Runs a program that writes a map of (inside, outside, count).
fn run(program: &Path, process: u32, map: &[(u32, u32, u32)]) -> Result<(), String> {
    let arguments = std::iter::once(process).chain(
        map.iter()
            .flat_map(|(inside, outside, count)| [inside, outside, count])
            .copied(),
    );
    let output = Command::new(program)
        .args(arguments.map(|number| number.to_string()))
        .stdin(Stdio::null())
        .output();
    let told = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!("{} fails: {told}", program.display()))
}

/// Finds the range of a user, given by name or number, in a file of lines `USER:FIRST:COUNT`: its first number and its
/// length.
fn subordinate(text: &str, name: &str, uid: u32) -> Option<(u32, u32)> {
    let uid = uid.to_string();
    let mut ranges = text.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next().filter(|owner| !owner.is_empty())?;
        let range = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        (owner == name || owner == uid).then_some(range)
    });
    ranges.find(|(first, count)| *first > 0 && *count >= NUMBERS_MIN)
}

/// Returns the names and numbers of the users in the text of `/etc/passwd`.
pub fn accounts(text: &str) -> impl Iterator<Item = (&str, UserIds)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some((name, UserIds { uid, gid }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subordinate_range_is_found_by_name_and_by_number() {
        let text = "bob:1:2\n# ann\nann:100000:65536\n\n70:200000:65536\nann:300000:x\n:5:100\n";
        let found = |name, uid| subordinate(text, name, uid).map(|(first, _)| first);
        assert_eq!(found("ann", 7), Some(100_000));
        assert_eq!(found("", 70), Some(200_000));
        // Too few numbers.
        assert_eq!(found("bob", 8), None);
        assert_eq!(found("", 9), None);
    }

    #[test]
    fn users_are_read_as_the_system_has_them() {
        let text = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:7:70::/home/ann:/bin/sh\n";
        let uids: Vec<(&str, u32, u32)> = accounts(text)
            .map(|(name, ids)| (name, ids.uid, ids.gid))
            .collect();
        assert_eq!(uids, [("root", 0, 0), ("ann", 7, 70)]);
    }
}
