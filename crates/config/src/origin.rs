//! The origin of a configuration value, and problems with it.
//!
//! SUMMARY   [`Origin`] accompanies every value from its source to the last message about it; [`Problem`] is one
//!           error: what, where, and the remedy.
//! PROMISES  A problem in a file names the file and the line.

use std::fmt;
use std::path::{Path, PathBuf};

/// The place that set a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The built-in defaults, `config/default.toml`.
    Default,
    /// A line of a configuration file; lines count from 1.
    File {
        /// The file, as named.
        path: PathBuf,
        /// The line of the key.
        line: usize,
    },
    /// An environment variable, by its full name.
    Environment(String),
    /// A command-line option, as typed.
    Flag(&'static str),
    /// A request over HTTP, to this daemon or another of the same database.
    Http,
    /// The service itself, which keeps the value in this file.
    Generated(PathBuf),
}

impl Origin {
    /// Returns whether it is a file in CouchDB's format.
    pub(super) fn is_ini(&self) -> bool {
        matches!(self, Self::File { path, .. } if is_ini(path))
    }
}

/// Returns whether the name is that of a file in CouchDB's format.
pub fn is_ini(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("ini"))
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "option {name}"),
            Self::Http => f.write_str("set over HTTP"),
            Self::Generated(path) => write!(f, "made at the first start, {}", path.display()),
        }
    }
}

/// One error in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}: {remedy}")]
pub struct Problem {
    /// Its place: an origin, or the name of an unreadable file.
    pub place: String,
    /// The error.
    pub what: String,
    /// The remedy.
    pub remedy: String,
    /// Whether the problem is a file's permissions, not the configuration itself.
    pub is_of_rights: bool,
}

impl Problem {
    /// Returns a problem at `place`.
    pub fn new(
        place: impl fmt::Display,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            place: place.to_string(),
            what: what.into(),
            remedy: remedy.into(),
            is_of_rights: false,
        }
    }
}

/// All errors of a configuration, in the order of its sources.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<Problem>,
}

/// Something without effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its place.
    pub origin: Origin,
    /// The setting, and why it has no effect.
    pub text: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.text)
    }
}
