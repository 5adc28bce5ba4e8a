//! Where processes come from: a pool in this program, or a running service.
//!
//! SUMMARY   [`Processes`] lends; [`Process`] is prompted. The two origins are one from here on.
//! PROMISES  An error keeps its [`Cause`] as the origin told it, for whoever has to pass it on.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::client::{Borrowed, Client, ClientError, ReturnStatus, ServiceError};
use crate::functions::caller::Caller;
use crate::messages::proc_manager::CallError;
use crate::messages::proc_manager::{GetProcError, Lease, TakeFrom, Want};
use crate::messages::process::{Fault, PromptError};
use crate::query_server::abilities::Ability;
use crate::query_server::language::LanguageName;
use crate::query_server::prompt;
use policy::pool::ReturnStatus as LeaseStatus;

/// Lends processes.
pub enum Processes {
    /// Those of a pool in this program.
    Pool(Rc<Caller>, TakeFrom),
    /// Those of a running service.
    Service(Client),
}

/// A process on loan.
pub enum Process {
    /// From a pool in this program.
    Pool(Box<Lease>),
    /// From a running service.
    Service(Client, Box<Borrowed>),
}

/// What the origin of a process said about an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// A pool in this program.
    Call(Box<CallError>),
    /// A service.
    Service(Box<ServiceError>),
}

/// Why there is no process or no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProcessError {
    /// The query server said no, and lives.
    #[error("{name}: {reason}")]
    Function {
        /// The error's name.
        name: String,
        /// Why.
        reason: String,
        /// The whole error.
        cause: Cause,
    },
    /// No answer came in time; the process was ended.
    #[error("{reason}")]
    Timeout {
        /// What happened, and what to do.
        reason: String,
        /// The whole error.
        cause: Cause,
    },
    /// The process ended, or did not keep to the protocol.
    #[error("{reason}")]
    Died {
        /// What happened.
        reason: String,
        /// The whole error; none for an answer that is of the protocol but of a wrong shape.
        cause: Option<Cause>,
    },
    /// The service is gone, or never was there.
    #[error("{0}")]
    Unavailable(String),
    /// No process could be had.
    #[error("{reason}")]
    NoProcess {
        /// What happened.
        reason: String,
        /// Whether it may work later; otherwise the configuration is wrong.
        retry: bool,
        /// The whole error.
        cause: Cause,
    },
}

impl ProcessError {
    /// Returns what the origin of the process said.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Function { cause, .. }
            | Self::Timeout { cause, .. }
            | Self::NoProcess { cause, .. } => Some(cause),
            Self::Died { cause, .. } => cause.as_ref(),
            Self::Unavailable(_) => None,
        }
    }

    fn wrong_answer(reason: String) -> Self {
        let cause = None;
        Self::Died { reason, cause }
    }
}

impl Processes {
    /// Requires that the query servers of a language can do something. Those of a service are not
    /// known from here: they are asked as it comes.
    ///
    /// # Errors
    /// [`ProcessError::NoProcess`].
    pub(super) async fn require(
        &self,
        language: &str,
        ability: Ability,
    ) -> Result<(), ProcessError> {
        match self {
            Self::Pool(caller, _) => Ok(caller
                .require(&LanguageName::new(language), ability)
                .await?),
            Self::Service(_) => Ok(()),
        }
    }

    /// Borrows a process and resets it. `None` as timeout is the configured one.
    ///
    /// # Errors
    /// [`ProcessError::NoProcess`], [`ProcessError::Unavailable`], or how the reset failed.
    pub async fn open(
        &self,
        language: &str,
        timeout: Option<Duration>,
    ) -> Result<Process, ProcessError> {
        match self {
            Self::Pool(caller, from) => {
                let want = Want::language(LanguageName::new(language)).from(from.clone());
                let lease = caller.get_clean_proc(&want, timeout).await?;
                Ok(Process::Pool(Box::new(lease)))
            }
            Self::Service(client) => {
                let borrowed = client
                    .get_proc(language, timeout)
                    .await
                    .map_err(no_process)?;
                let config = borrowed.config.as_deref().map_or("{}", RawValue::get);
                let reset = prompt::reset_for_calls(config, &LanguageName::new(language));
                let process = Process::Service(client.clone(), Box::new(borrowed));
                process.expect_true(reset, timeout).await?;
                Ok(process)
            }
        }
    }
}

impl Process {
    /// Sends a command and waits for its answer. Several may be on their way at a time. `None` as
    /// timeout is the process's own.
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub async fn prompt(
        &self,
        line: Bytes,
        timeout: Option<Duration>,
    ) -> Result<Bytes, ProcessError> {
        match self {
            Self::Pool(lease) => Ok(lease.prompt(line, timeout).await?),
            Self::Service(client, borrowed) => {
                let command: &RawValue = serde_json::from_slice(&line).map_err(|error| {
                    ProcessError::wrong_answer(format!("the prompt is no JSON: {error}"))
                })?;
                let answer = client.prompt(&borrowed.proc, &command, timeout).await?;
                Ok(Bytes::from(String::from(Box::<str>::from(answer))))
            }
        }
    }

    /// Sends a command that must be answered by `true`.
    ///
    /// # Errors
    /// See [`ProcessError`]; another answer counts as a broken protocol.
    pub(crate) async fn expect_true(
        &self,
        line: Bytes,
        timeout: Option<Duration>,
    ) -> Result<(), ProcessError> {
        let answer = self.prompt(line, timeout).await?;
        if answer.trim_ascii() == b"true" {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&answer)
            .chars()
            .take(100)
            .collect::<String>();
        Err(ProcessError::wrong_answer(format!(
            "the query server answered {text} instead of true"
        )))
    }

    /// Gives the process back; one that is not `usable` is stopped.
    pub async fn close(self, usable: bool) {
        match self {
            Self::Pool(lease) => {
                let status = if usable {
                    LeaseStatus::Ok
                } else {
                    LeaseStatus::Fail
                };
                lease.ret_proc(status).await;
            }
            Self::Service(client, borrowed) => {
                let status = if usable {
                    ReturnStatus::Ok
                } else {
                    ReturnStatus::Fail
                };
                // A service that is gone took it back already.
                drop(client.ret_proc(&borrowed.proc, status).await);
            }
        }
    }
}

impl From<CallError> for ProcessError {
    fn from(error: CallError) -> Self {
        let reason = error.to_string();
        match &error {
            CallError::GetProc(cause) => Self::NoProcess {
                reason,
                retry: cause.retryable() || cause.class().fault == Fault::Host,
                cause: Cause::Call(Box::new(error)),
            },
            CallError::Reset(_) => Self::Died {
                reason,
                cause: Some(Cause::Call(Box::new(error))),
            },
            CallError::Prompt(cause) => cause.clone().into(),
        }
    }
}

impl From<GetProcError> for ProcessError {
    fn from(error: GetProcError) -> Self {
        CallError::GetProc(error).into()
    }
}

impl From<PromptError> for ProcessError {
    fn from(error: PromptError) -> Self {
        let cause = Cause::Call(Box::new(CallError::Prompt(error.clone())));
        let died = |reason| Self::Died {
            reason,
            cause: Some(cause.clone()),
        };
        match error {
            PromptError::Function { name, reason, .. } => Self::Function {
                name,
                reason,
                cause,
            },
            PromptError::Timeout { timeout, .. } => Self::Timeout {
                reason: no_answer(timeout),
                cause,
            },
            PromptError::Protocol { what, excerpt } => died(format!(
                "the query server broke the protocol with {what} ('{excerpt}')"
            )),
            other => died(other.to_string()),
        }
    }
}

fn no_answer(timeout: Duration) -> String {
    format!(
        "no answer within {} ms ([couchdb] os_process_timeout): the function is slow or never ends",
        timeout.as_millis()
    )
}

impl From<ClientError> for ProcessError {
    fn from(error: ClientError) -> Self {
        let said = match error {
            ClientError::Service(said) => said,
            other => return Self::Unavailable(other.to_string()),
        };
        let reason = said.reason_text();
        match (said.name.as_str(), said.fault.as_str()) {
            ("timeout", _) => Self::Timeout {
                reason,
                cause: Cause::Service(said),
            },
            (_, "client") => Self::Function {
                name: said.name.clone(),
                reason,
                cause: Cause::Service(said),
            },
            _ => Self::Died {
                reason,
                cause: Some(Cause::Service(said)),
            },
        }
    }
}

fn no_process(error: ClientError) -> ProcessError {
    match error {
        ClientError::Service(said) => ProcessError::NoProcess {
            reason: said.to_string(),
            retry: said.retry,
            cause: Cause::Service(said),
        },
        _ => error.into(),
    }
}
