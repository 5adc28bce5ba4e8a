//! A cell's user as the rest of the system sees it: a number reserved for the cell's lifetime.
//!
//! SUMMARY   [`CellUser::choose`] claims a number. [`CellUser::act`] makes it the launcher's effective user before
//!           the cell's first process starts, [`CellUser::map`] makes it the only user in the cell's namespace.
//! PROMISES  Resources that the kernel counts by user (`epoll` watches, pages of pipes, sockets in flight, keys,
//!           processes, pending signals, message queues, inotify instances) are the cell's own. No cell has root's
//!           number, as long as the launcher may give it another. If the number is shared, the reason is reported.
//! SOURCE    user_namespaces(7): the kernel also charges a namespace's owner, the effective user of the process that
//!           made it, so the launcher must already act as the cell's user. unix(7) for abstract names.
//! LIMITS    Names are claimed in a network namespace: two services that share a machine's users but not its network
//!           may claim the same number. With a subordinate range ([`super::subordinate`]) the kernel also charges
//!           inotify, namespaces, pending signals and message queues to the service's own user.

use std::fmt;
use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;

use rustix::process::{DumpableBehavior, Pid, Uid, getegid, geteuid, set_dumpable_behavior};
use rustix::thread::{self, CapabilitySet};
use serde::{Deserialize, Serialize};

use super::init::NOBODY;
use super::layers::Held;
use super::subordinate::{self, Handed, Numbers};
use super::{CellSpec, UserIds, os};

/// Numbers above those of human users, distributions, containers and domains, and below systemd's range of foreign
/// users.
pub const DEFAULT_RANGE: UserRange = UserRange {
    first: 2_100_000_000,
    last: 2_104_194_303,
};

/// Minimum length of a range, so that a few cells that are still ending do not exhaust it.
pub(super) const NUMBERS_MIN: u32 = 16;

/// The number that stands for no user.
const NO_USER: u32 = u32::MAX;

/// Prefix of a claimed number's name.
const NAME_PREFIX: &str = "settee-user-";

/// Maximum numbers tried for one claim.
const TRIES_MAX: u32 = 1000;

/// Capabilities for giving a cell another user's number, and for ending its processes.
const NEEDED: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::KILL, "CAP_KILL"),
];

/// A range of numbers otherwise unused on the machine, ends included: each is a user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserRange {
    first: u32,
    last: u32,
}

impl UserRange {
    /// Returns whether the range includes a user's number.
    pub fn contains(self, number: u32) -> bool {
        (self.first..=self.last).contains(&number)
    }

    fn count(self) -> u32 {
        self.last - self.first + 1
    }

    /// Returns the range's number for this process, by its process id: processes whose ids differ by a multiple of
    /// the range's length share it.
    pub(super) fn of_this_process(self) -> u32 {
        self.first + std::process::id() % self.count()
    }
}

impl TryFrom<String> for UserRange {
    type Error = String;

    /// Reads `FIRST-LAST`. A range that is too small, or includes a universally reserved number, is an error.
    fn try_from(text: String) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let ends = text
            .split_once('-')
            .and_then(|(first, last)| Some((number(first)?, number(last)?)));
        let (first, last) = ends.ok_or_else(|| format!("{text:?} is not FIRST-LAST"))?;
        let refused = |number, who| Err(format!("{number} is {who}"));
        match (first, last) {
            (0, _) => refused(0, "root"),
            (_, NO_USER) => refused(NO_USER, "no user"),
            _ if first > last || last - first < NUMBERS_MIN - 1 => {
                Err(format!("it has fewer than {NUMBERS_MIN} numbers"))
            }
            _ if (first..=last).contains(&NOBODY) => refused(NOBODY, "the user nobody"),
            _ => Ok(Self { first, last }),
        }
    }
}

impl From<UserRange> for String {
    fn from(range: UserRange) -> Self {
        range.to_string()
    }
}

impl fmt::Display for UserRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// The user of a cell.
pub(super) struct CellUser {
    /// The user of this process.
    own: UserIds,
    /// The cell's user, as seen from outside.
    pub outside: UserIds,
    /// Whether this process may give the cell's processes another user, and drop its groups.
    pub may_change: bool,
    /// Whether the number is otherwise unused, or why not.
    is_alone: Held,
    /// Whether the configuration names another user than the service's.
    is_configured: bool,
    /// How the configuration can grant access to files that the cell's user may not read.
    pub remedy: &'static str,
    /// Holds the claim, as does the cell's first process.
    _claim: Option<UnixDatagram>,
}

impl CellUser {
    /// Chooses a user. `handed` is a namespace with subordinate numbers made by the service, or why there is none.
    ///
    /// # Errors
    /// The configuration names another user, but this process may not switch to it.
    pub(super) fn choose(spec: &CellSpec, handed: Handed) -> Result<Self, String> {
        let own = own();
        let lacking = lacking();
        let mut user = Self {
            own,
            outside: own,
            may_change: lacking.is_none(),
            is_alone: Ok(()),
            is_configured: spec.user.is_some_and(|user| user != own),
            remedy: match own.uid {
                0 => "give the pool a user who may read it",
                _ => "set user_range = \"\"",
            },
            _claim: None,
        };
        if let Some(configured) = spec.user {
            user.outside = configured;
            match lacking {
                Some(lacking) if user.is_configured => {
                    return Err(format!(
                        "only root, or a service with {lacking}, can run a command as another user; remove 'user'"
                    ));
                }
                _ if user.is_configured => {}
                _ => user.is_alone = Err("'user' is the service's own".into()),
            }
            return Ok(user);
        }
        if let Err(why) = user.claim(spec.user_range, lacking, handed) {
            user.is_alone = Err(why);
            if user.may_change && own.uid == 0 && subordinate::exist(NOBODY, 1) {
                (user.outside.uid, user.outside.gid) = (NOBODY, NOBODY);
            }
        }
        Ok(user)
    }

    fn claim(
        &mut self,
        range: Option<UserRange>,
        lacking: Option<String>,
        handed: Handed,
    ) -> Result<(), String> {
        let range = range.ok_or("user_range of [query_server_config] is empty")?;
        let numbers = match lacking {
            None if !subordinate::exist(range.first, range.count()) => {
                return Err(format!(
                    "the numbers {range} of user_range do not exist in this user namespace, as /proc/self/uid_map shows"
                ));
            }
            None => Numbers {
                uid: range.first,
                gid: range.first,
                outside: range.first,
                count: range.count(),
            },
            Some(lacking) if self.own.uid == 0 => {
                return Err(format!("root lacks {lacking} here"));
            }
            Some(lacking) => {
                let numbers = subordinate::enter(handed)
                    .map_err(|why| format!("the service is not root and lacks {lacking}; {why}"))?;
                (self.own, self.may_change) = (own(), true);
                self.outside = self.own;
                numbers
            }
        };
        let (index, claim) = claim(numbers.outside, numbers.count).ok_or_else(|| {
            format!("all numbers tried in user_range or the subordinate range are taken (at most {TRIES_MAX} tried)")
        })?;
        self.outside = UserIds {
            uid: numbers.uid + index,
            gid: numbers.gid + index,
        };
        self._claim = Some(claim);
        Ok(())
    }

    /// Whether the cell's user, as seen from outside, differs from this process's user.
    pub(super) fn is_other(&self) -> bool {
        self.outside != self.own
    }

    /// Whether no process outside the cell has the number.
    pub(super) fn is_alone(&self) -> bool {
        self.is_alone.is_ok() && !self.is_configured
    }

    /// Whether the cell has a user of its own, claimed or configured, or why not.
    pub(super) fn held(&self) -> Held {
        self.is_alone.clone()
    }

    /// Makes the cell's user this process's effective user, which then owns new namespaces. File access and
    /// capabilities do not change.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn act(&self) -> io::Result<()> {
        if !self.is_other() {
            return Ok(());
        }
        let uid = Uid::from_raw(self.outside.uid);
        thread::set_thread_res_uid(None, uid, None)?;
        os::set_user_of_files(self.own.uid);
        let mut sets = thread::capabilities(None)?;
        sets.effective = sets.permitted;
        thread::set_capabilities(None, sets)?;
        // Switching users has hidden the /proc files about the cell's first process, even from itself.
        Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
    }

    /// Reverses [`Self::act`], to enter another control group and map another first process. Cannot fail after
    /// [`Self::act`] succeeded.
    pub(super) fn stop_acting(&self) {
        let own = Uid::from_raw(self.own.uid);
        let _ = self
            .is_other()
            .then(|| thread::set_thread_res_uid(None, own, None));
        let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    }

    /// Makes this user nobody, and the only user, in a process's user namespace.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn map(&self, process: Pid) -> io::Result<()> {
        let folder = PathBuf::from(format!("/proc/{}", process.as_raw_nonzero()));
        if !self.may_change {
            // The kernel requires this of an unprivileged process.
            fs::write(folder.join("setgroups"), "deny")?;
        }
        let map = |outside: u32| format!("{NOBODY} {outside} 1");
        // The files belong to the cell's user.
        os::set_user_of_files(self.outside.uid);
        let written = fs::write(folder.join("uid_map"), map(self.outside.uid))
            .and_then(|()| fs::write(folder.join("gid_map"), map(self.outside.gid)));
        os::set_user_of_files(self.own.uid);
        written
    }
}

fn own() -> UserIds {
    UserIds {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    }
}

/// Returns the required capabilities that this process lacks.
pub(super) fn lacking() -> Option<String> {
    let sets = thread::capabilities(None);
    let has = sets.map_or(CapabilitySet::empty(), |sets| sets.effective);
    let lacking: Vec<&str> = NEEDED
        .iter()
        .filter(|(one, _)| !has.contains(*one))
        .map(|(_, name)| *name)
        .collect();
    (!lacking.is_empty()).then(|| lacking.join(", "))
}

/// Claims one of the `count` numbers from `first` on. Returns its index in the range, and the socket that holds the
/// claim by an abstract name, which the system releases whenever the process ends. `None` if all tried are claimed.
fn claim(first: u32, count: u32) -> Option<(u32, UnixDatagram)> {
    let start = std::process::id() % count;
    (0..count.min(TRIES_MAX)).find_map(|at| {
        let index = (start + at) % count;
        let name = format!("{NAME_PREFIX}{}", first + index);
        let address = SocketAddr::from_abstract_name(name).ok()?;
        Some((index, UnixDatagram::bind_addr(&address).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_enough_numbers_and_no_reserved_user() {
        let read = |text: &str| UserRange::try_from(text.to_owned());
        let range = read("100-115").unwrap();
        assert_eq!((range.count(), range.to_string()), (16, "100-115".into()));
        assert!(range.contains(115) && !range.contains(116));
        let (first, last) = (1, 65533);
        assert_eq!(read(" 1 - 65533 "), Ok(UserRange { first, last }));
        assert_eq!(read(&DEFAULT_RANGE.to_string()), Ok(DEFAULT_RANGE));
        for (text, expected) in [
            ("", "FIRST-LAST"),
            ("100", "FIRST-LAST"),
            ("a-b", "FIRST-LAST"),
            ("-1-100", "FIRST-LAST"),
            ("100-4294967296", "FIRST-LAST"),
            ("0-100", "0 is root"),
            ("100-114", "fewer than 16"),
            ("115-100", "fewer than 16"),
            ("60000-70000", "65534 is the user nobody"),
            ("4000000000-4294967295", "no user"),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.contains(expected), "{text}: {fault}");
        }
    }

    #[test]
    fn a_number_is_claimed_once_and_free_again_when_its_holder_is_gone() {
        // Used only by this test: no range has it.
        let first = u32::MAX - 2;
        let one = claim(first, 2).unwrap();
        let other = claim(first, 2).unwrap();
        assert_ne!(one.0, other.0);
        assert!(claim(first, 2).is_none());
        let free = one.0;
        drop(one);
        assert_eq!(claim(first, 2).map(|(index, _)| index), Some(free));
    }
}
