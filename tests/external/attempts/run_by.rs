//! The user that runs a service: root, or an ordinary user with a unique number.
//!
//! PROMISES  No other process counts against the limits of an ordinary user. The service sees its own `passwd`,
//!           `subuid` and `subgid`, mounted over the machine's in a mount namespace. The machine itself is not changed.
//! LIMITS    Requires root.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunBy {
    Root,
    /// An ordinary user with a range in `/etc/subuid`.
    UserWithNumbers,
    User,
}

/// The first user ids of services and of cells, above all others in these tests.
const USERS: u32 = 2_099_000_000;
const USERS_OF_CELLS: u32 = 2_090_000_000;

/// Number of user ids for the cells of a service.
const CELLS_MAX: u32 = 64;

/// At least the number of variants of [`RunBy`].
const KINDS: u32 = 4;

/// Sets up new namespaces, and then starts a program:
/// `sh -c BEFORE..SETUP..AFTER sh FOLDER USER PROGRAM..`.
const BEFORE: &str = r#"
set -e
folder=$1 user=$2 limits=
shift 2
for file in passwd subuid subgid; do
    [ ! -e "$folder/$file" ] || mount --bind "$folder/$file" "/etc/$file"
done
"#;
const AFTER: &str = r#"
exec $limits setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
"#;

impl RunBy {
    /// Returns the users that a service can have on this machine, and prints why others are impossible.
    pub fn possible() -> Vec<Self> {
        if !geteuid().is_root() {
            println!("not tried: creating namespaces and users requires root");
            return Vec::new();
        }
        let files = ["/etc/subuid", "/etc/subgid", "/usr/bin/newuidmap"];
        let lacking = files.iter().find(|file| !Path::new(file).exists());
        if let Some(file) = lacking {
            println!("not tried as {}: there is no {file}", Self::UserWithNumbers);
        }
        let all = [Self::Root, Self::UserWithNumbers, Self::User].into_iter();
        all.filter(|it| *it != Self::UserWithNumbers || lacking.is_none())
            .collect()
    }

    pub fn user(self) -> u32 {
        match self {
            Self::Root => 0,
            _ => USERS + KINDS * std::process::id() + self as u32,
        }
    }

    /// Returns the first and the last user id for its cells.
    pub fn cells(self) -> (u32, u32) {
        let first = USERS_OF_CELLS + CELLS_MAX * (KINDS * std::process::id() + self as u32);
        (first, first + CELLS_MAX - 1)
    }

    /// Makes this user the owner of everything in a folder.
    pub fn owns(self, folder: &Path) {
        let user = self.user();
        let mut chown = Command::new("chown");
        chown.args(["-hR", &format!("{user}:{user}")]).arg(folder);
        assert!(chown.status().unwrap().success());
    }

    /// Returns `inner`, with its environment, as a command that runs as this user in new namespaces. Writes the user's
    /// `passwd` to `folder`, and its `subuid` and `subgid` if it has them. `setup` has more shell commands to run in
    /// the namespaces.
    pub fn command(
        self,
        folder: &Path,
        namespaces: &[&str],
        setup: &str,
        inner: &Command,
    ) -> Command {
        let user = self.user();
        if self != Self::Root {
            let users = fs::read_to_string("/etc/passwd").unwrap();
            let line = format!("settee-tests:x:{user}:{user}::/:/bin/sh\n");
            fs::write(folder.join("passwd"), users + &line).unwrap();
        }
        if self == Self::UserWithNumbers {
            let range = format!("{user}:{}:{CELLS_MAX}\n", self.cells().0);
            for file in ["subuid", "subgid"] {
                fs::write(folder.join(file), &range).unwrap();
            }
        }
        let mut command = Command::new("unshare");
        command.arg("--mount").args(namespaces);
        command.args(["sh", "-c", &format!("{BEFORE}{setup}{AFTER}"), "sh"]);
        command.arg(folder).arg(user.to_string());
        command.arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

impl fmt::Display for RunBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "root",
            Self::UserWithNumbers => "a user with subordinate ids",
            Self::User => "a user without subordinate ids",
        })
    }
}
