//! How a subcommand ends: exit codes and errors.
//!
//! SUMMARY   [`Exit`] lists the exit codes; [`CliError`] is printed to standard error when a subcommand fails.
//! PROMISES  A user's mistake is reported with what is wrong, where, and what to do, never as a backtrace.
//! SOURCE    The codes of `sysexits.h`, known to mail and service managers.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::output::print_error;
use crate::config::ConfigError;
use child::watches;

/// The program's exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
#[repr(u8)]
pub enum Exit {
    /// It did what was requested.
    Ok = 0,
    /// It found a nonconformity, a problem that is not critical, or a change that needs a restart.
    Failed = 1,
    /// Something that it checked does not work.
    Critical = 2,
    /// The command line is wrong (`EX_USAGE`).
    Usage = 64,
    /// The input data is wrong (`EX_DATAERR`).
    Data = 65,
    /// The named job, pool, process or problem does not exist (`EX_NOINPUT`).
    NotFound = 66,
    /// A required service does not answer (`EX_UNAVAILABLE`).
    Unavailable = 69,
    /// An error in the program itself (`EX_SOFTWARE`).
    Internal = 70,
    /// Reading or writing failed (`EX_IOERR`).
    Io = 74,
    /// A temporary failure, worth a later retry (`EX_TEMPFAIL`).
    TryAgain = 75,
    /// The user lacks permission (`EX_NOPERM`).
    NoPermission = 77,
    /// The configuration is wrong (`EX_CONFIG`).
    Config = 78,
    /// The process behind `attach` ended by itself, like a failing `couchjs`.
    ProcessEnded = 255,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The message if a subcommand's event loop cannot be started.
pub(super) const EVENT_LOOP: &str = "cannot start the event loop";

/// Why a subcommand failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}: {hint}")]
pub struct CliError {
    /// The exit code.
    pub code: Exit,
    /// What happened, and where. Several lines are several findings.
    pub message: String,
    /// The remedy.
    pub hint: String,
}

/// The result of a subcommand, or of a part of one.
pub type CliResult<T = ()> = Result<T, CliError>;

impl CliError {
    /// Makes an error.
    pub fn new(code: Exit, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// Returns an error about a file or another place.
    pub fn at(
        code: Exit,
        place: impl Display,
        what: impl Display,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(code, format!("{place}: {what}"), hint)
    }

    /// Returns the error of a failed read or write at `place`.
    pub fn io(place: impl Display, error: &io::Error) -> Self {
        let (code, hint) = match error.kind() {
            io::ErrorKind::PermissionDenied => (Exit::NoPermission, "give this user access to it"),
            io::ErrorKind::StorageFull => (Exit::Io, "make room on the device"),
            _ => (Exit::Io, "check the device or the other end"),
        };
        Self::at(code, place, error, hint)
    }

    /// Returns the error of a file that could not be created or rewritten.
    pub(super) fn new_file(path: &Path, error: &io::Error) -> Self {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Self::io(path.display(), error);
        }
        Self::new(
            Exit::Io,
            format!("{} already exists", path.display()),
            "name another file",
        )
    }

    /// Returns the error of an exhausted system resource.
    pub(super) fn no_room(what: impl Display, error: &io::Error) -> Self {
        Self::at(
            Exit::TryAgain,
            what,
            error,
            watches::remedy(error).unwrap_or("free some resources"),
        )
    }

    /// Returns the error if the system does not report this program's path.
    pub(super) fn no_program(error: &io::Error) -> Self {
        Self::at(
            Exit::Internal,
            "cannot find this program's own file",
            error,
            "mount /proc, or start it by its path",
        )
    }

    /// Writes the error to standard error, each line with the program's name. Returns its exit code.
    pub fn report(&self) -> ExitCode {
        let text: String = if self.message.contains('\n') {
            self.message
                .lines()
                .chain([self.hint.as_str()])
                .map(|line| format!("settee: {line}\n"))
                .collect()
        } else {
            format!("settee: {self}\n")
        };
        print_error(&text);
        self.code.into()
    }
}

/// Returns this program's path.
pub(super) fn own_program() -> CliResult<PathBuf> {
    std::env::current_exe().map_err(|error| CliError::no_program(&error))
}

/// Says in an error of reading or writing where it happened.
pub(super) trait IoAt<T> {
    /// Converts the error with [`CliError::io`].
    fn io_at(self, place: impl Display) -> CliResult<T>;
}

impl<T> IoAt<T> for io::Result<T> {
    fn io_at(self, place: impl Display) -> CliResult<T> {
        self.map_err(|error| CliError::io(place, &error))
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        match error.problems.as_slice() {
            [one] => {
                let code = if one.is_of_rights {
                    Exit::NoPermission
                } else {
                    Exit::Config
                };
                Self::at(code, &one.place, &one.what, &one.remedy)
            }
            several => Self::new(
                Exit::Config,
                error.to_string(),
                format!("{} problems in the configuration", several.len()),
            ),
        }
    }
}
