//! How a child ended, as a status and as text.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// A shell adds this to the number of a signal.
const SIGNAL_STATUS: i32 = 128;

/// The largest signal number.
const SIGNAL_MAX: i32 = 64;

/// Returns a signal's name, and what it means for a child.
pub(super) fn signal_text(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGABRT => "SIGABRT (it aborted)",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV (it crashed)",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGTERM => "SIGTERM",
        libc::SIGSTOP => "SIGSTOP",
        libc::SIGTSTP => "SIGTSTP",
        libc::SIGTTIN => "SIGTTIN",
        libc::SIGTTOU => "SIGTTOU",
        libc::SIGXCPU => "SIGXCPU (its CPU limit)",
        libc::SIGSYS => "SIGSYS (a forbidden system call)",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(pub(super) ExitStatus);

impl Exit {
    /// Returns the status in a shell's form: 0 to 255, or 128 plus the signal's number; -1 if there is neither.
    pub fn status(self) -> i32 {
        self.0
            .code()
            .or_else(|| self.0.signal().map(|signal| SIGNAL_STATUS + signal))
            .unwrap_or(-1)
    }

    /// Returns whether it exited with a failure.
    pub(super) fn is_failure(self) -> bool {
        self.0.code().is_some_and(|code| code != 0)
    }

    /// Returns whether a signal ended it or, if it is a shell, the command whose status it passed on.
    pub(super) fn is_by_signal(self) -> bool {
        (SIGNAL_STATUS + 1..=SIGNAL_STATUS + SIGNAL_MAX).contains(&self.status())
    }

    /// Returns whether it exited successfully.
    pub fn is_success(self) -> bool {
        self.0.success()
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(126), _) => {
                f.write_str("exited with status 126 (the command cannot be executed)")
            }
            (Some(127), _) => f.write_str("exited with status 127 (the command was not found)"),
            (Some(status), _) => write!(f, "exited with status {status}"),
            (None, Some(signal)) => write!(f, "was killed by {}", signal_text(signal)),
            (None, None) => f.write_str("ended"),
        }
    }
}
