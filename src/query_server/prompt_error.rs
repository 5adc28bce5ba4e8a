//! Why a prompt has no answer, and whose fault it is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use child::cell::report::MetLimit;

use super::prompt::Command;

/// The party at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The caller, or a function that it sent.
    Client,
    /// A function that exceeds its time limit, or does not end.
    Function,
    /// The query server.
    QueryServer,
    /// The machine: memory, processes, files, permissions.
    Host,
    /// Settee itself.
    Settee,
}

/// The end of a sentence about a process that we stopped, in an exit report.
const TOLD_TO_STOP: &str = "was told to stop";

/// The protocol violation of a child that printed without any prompt.
pub(crate) const UNASKED: &str = "output that nobody asked for";

/// The protocol violation of a child that printed more after the last answer.
pub(crate) const TOO_MANY_ANSWERS: &str = "more answers than prompts, as when a function prints,";

/// Exit statuses, in a shell's form, of a child ended by SIGKILL or SIGTERM.
const KILLED: i32 = 128 + libc::SIGKILL;
const TERMINATED: i32 = 128 + libc::SIGTERM;

/// How a child ended and its last output, to explain errors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExitReport {
    /// The exit as text: `exited with status 1`, `killed by SIGKILL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
    /// The exit status in a shell's form: 0 to 255, or 128 plus the signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// The child's last lines on standard error, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
    /// The limit of its cell that it reached, if any: it needed more.
    #[serde(skip)]
    pub met: Option<MetLimit>,
    /// Whether the host is at fault: an operator stopped the process, or the machine prevented its start.
    #[serde(skip)]
    pub is_hosts_fault: bool,
}

impl ExitReport {
    /// Describes a process that we stopped; `by` is the user who ordered it, if any.
    pub(crate) fn stopped(by: Option<&str>) -> Self {
        let exit = by.map_or_else(
            || TOLD_TO_STOP.to_owned(),
            |by| format!("was killed by order of {by}"),
        );
        Self {
            exit: Some(exit),
            is_hosts_fault: by.is_some(),
            ..Self::default()
        }
    }

    /// Returns whether the process was ended by a user's order, or from outside this service: by the system or the
    /// machine's operator.
    pub(crate) fn is_from_outside(&self) -> bool {
        self.is_hosts_fault || matches!(self.status, Some(KILLED | TERMINATED))
    }

    /// Returns how it ended and its last output, as text that follows its name.
    pub(crate) fn told(&self) -> String {
        let exit = self.exit.as_deref().unwrap_or("ended");
        if self.stderr.is_empty() {
            exit.to_owned()
        } else {
            format!("{exit}; its last words: {}", self.stderr.join(" | "))
        }
    }
}

impl fmt::Display for ExitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the query server {}", self.told())
    }
}

/// Why a prompt has no answer.
///
/// # Source
/// couch_os_process, prompt/2. The reference reports one event (a process that has ended) in four ways, depending on
/// who notices it when; here they are one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// The query server answered with an error line. It continues and is still usable.
    #[error("{name}: {reason}")]
    Function {
        /// The error's name, such as `not_found` or `compilation_error`.
        name: String,
        /// The reason: a string's text, or JSON text.
        reason: String,
        /// The reason as JSON text.
        raw_reason: String,
        /// Whether the query server ends because of it.
        fatal: bool,
    },
    /// No answer arrived in time. The process was killed. If the prompt runs functions, the function is at fault;
    /// otherwise the query server, and another one may succeed.
    #[error("{}", timeout_text(*timeout, *command, *held_back, tenant_key.as_deref()))]
    Timeout {
        /// The time it had.
        timeout: Duration,
        /// The command.
        command: Command,
        /// Whether the process's cell has throttled it, during this prompt or before.
        held_back: bool,
        /// The key of the tenant's timeout, if that was the effective one.
        tenant_key: Option<Arc<str>>,
    },
    /// The prompt was queued behind another one that ended the process. Worth a retry.
    #[error("the prompt was not run, because an earlier one ended the process: {because}")]
    NotRun {
        /// The error of the earlier one.
        because: Box<PromptError>,
    },
    /// The process ended before it answered. Worth a retry with another one.
    #[error("{0}")]
    Exited(ExitReport),
    /// The process broke the protocol and was killed. Worth a retry with another one, although a query server that
    /// does so once tends to repeat it.
    #[error("the query server broke the protocol with {what} and was killed")]
    Protocol {
        /// A description of its output.
        what: &'static str,
        /// The beginning of the line.
        excerpt: String,
    },
    /// The prompt is invalid: not an array, or more than one line. The caller's fault.
    #[error("a prompt must be one JSON array on one line")]
    BadPrompt,
    /// The process has too many unanswered prompts or unsent bytes. Wait for answers.
    #[error("too many prompts are waiting for this process, at most {limit}")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The caller does not hold the process, or no longer does.
    #[error("the process is not held under this token")]
    NotHolder,
}

fn timeout_text(
    timeout: Duration,
    command: Command,
    held_back: bool,
    tenant_key: Option<&str>,
) -> String {
    let (limit, phase) = (timeout.as_millis(), command.phase());
    let (what, end) = if command.runs_functions() {
        (
            "the function",
            "its process was killed: it is slow, or never ends",
        )
    } else {
        ("the query server", "was killed")
    };
    let mut text = format!("{what} did not answer within {limit} ms and {end} ({phase}; ");
    match tenant_key {
        Some(key) => text.push_str(&format!("the limit is that of its database, {key})")),
        None => text.push_str(
            "the limit is timeout_ms of the call, prompt_timeout of the service, or [couchdb] os_process_timeout)",
        ),
    }
    if held_back {
        text.push_str("; its pool's cpu_max has throttled it");
    }
    text
}

/// Maximum characters quoted of an unexpected text.
const QUOTED_CHARACTERS: usize = 200;

pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(QUOTED_CHARACTERS).collect()
}

/// Maximum bytes quoted of a bad line.
const EXCERPT_BYTES: usize = 200;

impl PromptError {
    /// Makes the error of a line that broke the protocol.
    pub(crate) fn protocol(what: &'static str, line: &[u8]) -> Self {
        Self::Protocol {
            what,
            excerpt: String::from_utf8_lossy(&line[..line.len().min(EXCERPT_BYTES)]).into_owned(),
        }
    }

    /// Returns how the process ended, if it did.
    pub const fn exit_report(&self) -> Option<&ExitReport> {
        match self {
            Self::Exited(exit_report) => Some(exit_report),
            _ => None,
        }
    }

    /// Returns whether a process that ended because of it did so on its own: it ended or broke the protocol without
    /// being asked to stop.
    pub(crate) fn is_own_end(&self) -> bool {
        match self {
            Self::Exited(exit_report) => {
                !exit_report.is_hosts_fault && exit_report.exit.as_deref() != Some(TOLD_TO_STOP)
            }
            Self::Protocol { .. } | Self::Function { fatal: true, .. } => true,
            Self::NotRun { because } => because.is_own_end(),
            _ => false,
        }
    }

    /// Returns whether the process printed too much: then earlier answers may belong to other prompts.
    pub(crate) fn is_shifted(&self) -> bool {
        match self {
            Self::Protocol { what, .. } => [UNASKED, TOO_MANY_ANSWERS].contains(what),
            Self::NotRun { because } => because.is_shifted(),
            _ => false,
        }
    }

    /// Returns the party at fault.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Timeout { command, .. } if command.runs_functions() => Fault::Function,
            Self::NotRun { because } => because.fault(),
            Self::Exited(exit_report) if exit_report.is_hosts_fault => Fault::Host,
            Self::Exited(exit_report) if exit_report.met.is_some() => Fault::Client,
            Self::Function { .. } | Self::BadPrompt | Self::TooMany { .. } | Self::NotHolder => {
                Fault::Client
            }
            Self::Timeout { .. } | Self::Exited(_) | Self::Protocol { .. } => Fault::QueryServer,
        }
    }

    /// Returns whether the same call may succeed with another process.
    pub const fn retryable(&self) -> bool {
        match self {
            Self::Timeout { command, .. } => !command.runs_functions(),
            // Another process would reach the same limit.
            Self::Exited(exit_report) => exit_report.met.is_none(),
            Self::Protocol { .. } | Self::TooMany { .. } | Self::NotRun { .. } => true,
            Self::Function { .. } | Self::BadPrompt | Self::NotHolder => false,
        }
    }

    /// Returns whether the process is no longer usable.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. }
                | Self::Exited(_)
                | Self::Protocol { .. }
                | Self::NotRun { .. }
                | Self::Function { fatal: true, .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_names_the_keys_that_allow_more() {
        for (command, who) in [
            (Command::Map, "the function did not answer within 200 ms"),
            (
                Command::Teach,
                "the query server did not answer within 200 ms",
            ),
        ] {
            let timeout = Duration::from_millis(200);
            let text = PromptError::Timeout {
                timeout,
                command,
                held_back: false,
                tenant_key: None,
            }
            .to_string();
            assert!(text.starts_with(who), "{text}");
            for key in [
                "timeout_ms",
                "prompt_timeout",
                "[couchdb] os_process_timeout",
            ] {
                assert!(text.contains(key), "{text}");
            }
        }
    }
}
