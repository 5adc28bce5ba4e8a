//! What the configuration takes from the process it runs in: environment and user.
//!
//! SUMMARY   [`Surroundings`] is that as data; [`Surroundings::of_process`] is the one place that
//!           asks the operating system.
//! CALLED    By subcommands, before they load the configuration or look for the service.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The environment and the user of a process.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Environment variables, name and value.
    pub variables: Vec<(OsString, OsString)>,
    /// The effective user id.
    pub user_id: u32,
}

impl Surroundings {
    /// Returns those of this process.
    pub fn of_process() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            user_id: rustix::process::geteuid().as_raw(),
        }
    }

    /// Returns the value of a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let found = self.variables.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.as_os_str())
            .filter(|value| !value.is_empty())
    }

    /// Returns where the service's socket is when nothing says otherwise.
    ///
    /// The directory is one that only its owner can enter: `$XDG_RUNTIME_DIR/settee`; else
    /// `/run/settee` for root; else `settee` in the user's state directory (`$XDG_STATE_HOME` or
    /// `~/.local/state`); else, for a user without a home, `/tmp/settee-UID`.
    pub fn socket_path(&self) -> PathBuf {
        self.socket_directory().join("settee.sock")
    }

    fn socket_directory(&self) -> PathBuf {
        let absolute = |name| {
            let path = PathBuf::from(self.variable(name)?);
            // The XDG base directory specification has relative paths ignored.
            path.is_absolute().then_some(path)
        };
        if let Some(runtime) = absolute("XDG_RUNTIME_DIR") {
            return runtime.join("settee");
        }
        if self.user_id == 0 {
            return PathBuf::from("/run/settee");
        }
        let state =
            absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        match state {
            Some(state) => state.join("settee"),
            None => PathBuf::from(format!("/tmp/settee-{}", self.user_id)),
        }
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
    fn the_socket_stands_where_only_its_user_can_enter() {
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
    fn empty_and_relative_directories_are_ignored() {
        let variables = [
            ("XDG_RUNTIME_DIR", ""),
            ("XDG_STATE_HOME", "x"),
            ("HOME", "/h"),
        ];
        assert_eq!(socket(7, &variables), "/h/.local/state/settee/settee.sock");
    }
}
