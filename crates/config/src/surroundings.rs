//! The process environment of the configuration: variables and user.
//!
//! SUMMARY   [`Surroundings`] holds them as data; only [`Surroundings::of_process`] queries the operating system.
//! CALLED    By subcommands, before they load the configuration or look for the service.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The environment and the user of a process.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Environment variables, name and value.
    pub variables: Vec<(OsString, OsString)>,
    /// The effective user id.
    pub user_id: u32,
}

impl Surroundings {
    /// Returns those of this process, as of the first call: afterwards a program may remove secrets from its
    /// environment.
    pub fn of_process() -> Self {
        static FIRST_READ: OnceLock<Surroundings> = OnceLock::new();
        FIRST_READ
            .get_or_init(|| Self {
                variables: std::env::vars_os().collect(),
                user_id: rustix::process::geteuid().as_raw(),
            })
            .clone()
    }

    /// Returns the value of a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_os_str())
            .filter(|value| !value.is_empty())
    }

    /// Returns the default path of the service's socket.
    ///
    /// Only its owner can enter the directory: `$XDG_RUNTIME_DIR/settee`; else
    /// `/run/settee` for root; else `settee` in the user's state directory (`$XDG_STATE_HOME` or
    /// `~/.local/state`); else, for a user without a home, `/tmp/settee-UID`.
    pub fn socket_path(&self) -> PathBuf {
        let directory = match self.absolute("XDG_RUNTIME_DIR") {
            Some(runtime) => runtime.join("settee"),
            None if self.user_id == 0 => PathBuf::from("/run/settee"),
            None => self.state_directory(),
        };
        directory.join("settee.sock")
    }

    /// Returns the default path of the store: `/var/lib/settee` for root; else
    /// `settee` in the user's state directory (`$XDG_STATE_HOME` or `~/.local/state`); else, for a
    /// user without a home, `/tmp/settee-UID`.
    pub fn store_path(&self) -> PathBuf {
        let directory = match self.user_id {
            0 => PathBuf::from("/var/lib/settee"),
            _ => self.state_directory(),
        };
        directory.join("settee.redb")
    }

    fn state_directory(&self) -> PathBuf {
        let home = || Some(self.absolute("HOME")?.join(".local/state"));
        match self.absolute("XDG_STATE_HOME").or_else(home) {
            Some(state) => state.join("settee"),
            None => PathBuf::from(format!("/tmp/settee-{}", self.user_id)),
        }
    }

    /// The XDG base directory specification ignores relative paths.
    fn absolute(&self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.variable(name)?);
        path.is_absolute().then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(user_id: u32, variables: &[(&str, &str)]) -> String {
        let variables = variables
            .iter()
            .map(|(n, v)| (n.into(), v.into()))
            .collect();
        let path = Surroundings { variables, user_id }.socket_path();
        path.to_string_lossy().into_owned()
    }

    #[test]
    fn the_socket_is_in_the_runtime_directory_or_else_the_state_directory() {
        let home = ("HOME", "/home/ann");
        let runtime = ("XDG_RUNTIME_DIR", "/run/user/7");
        assert_eq!(
            socket(7, &[home, runtime]),
            "/run/user/7/settee/settee.sock"
        );
        assert_eq!(socket(0, &[("HOME", "/root")]), "/run/settee/settee.sock");
        assert_eq!(
            socket(7, &[home]),
            "/home/ann/.local/state/settee/settee.sock"
        );
        let state = ("XDG_STATE_HOME", "/state");
        assert_eq!(socket(7, &[home, state]), "/state/settee/settee.sock");
        assert_eq!(socket(7, &[]), "/tmp/settee-7/settee.sock");
    }

    #[test]
    fn the_store_is_in_the_state_directory() {
        let store = |user_id, variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(n, v)| (n.into(), v.into()));
            let variables = variables.collect();
            let path = Surroundings { variables, user_id }.store_path();
            path.to_string_lossy().into_owned()
        };
        let (home, state) = (("HOME", "/home/ann"), ("XDG_STATE_HOME", "/state"));
        assert_eq!(store(0, &[home, state]), "/var/lib/settee/settee.redb");
        assert_eq!(store(7, &[home, state]), "/state/settee/settee.redb");
        assert_eq!(
            store(7, &[home]),
            "/home/ann/.local/state/settee/settee.redb"
        );
        assert_eq!(store(7, &[]), "/tmp/settee-7/settee.redb");
    }

    #[test]
    fn empty_and_relative_directories_are_ignored() {
        let variables = [
            ("XDG_RUNTIME_DIR", ""),
            ("XDG_STATE_HOME", "x"),
            ("HOME", "/h"),
        ];
        assert_eq!(socket(7, &variables), "/h/.local/state/settee/settee.sock");
    }
}
