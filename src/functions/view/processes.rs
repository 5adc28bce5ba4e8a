//! The origin of processes: a pool in this program, or a running service.
//!
//! SUMMARY   [`Processes`] lends processes of either origin; [`Process`] takes prompts.
//! PROMISES  An error keeps the pool's [`CallError`], for callers that pass it on.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::client::{Borrowed, Client, ClientError, Report, Reported, ReturnStatus};
use crate::functions::caller::{Caller, get_clean_proc};
use crate::functions::decode::not_expected;
use crate::messages::proc_manager::{CallError, Lease, TakeFrom, TenantName, Want};
use crate::messages::process::{Fault, PromptError, is_true};
use crate::query_server::abilities::Ability;
use crate::query_server::call::Call;
use crate::query_server::language::LanguageName;
use crate::query_server::prompt;
use crate::query_server::prompt_error::TOO_MANY_ANSWERS;
use crate::query_server::told::{Level, LogLine, Told};
use policy::pool::ReturnStatus as LeaseStatus;

/// Lends processes.
pub enum Processes {
    /// From a pool in this program, for a tenant's functions.
    Pool(Rc<Caller>, TakeFrom, TenantName),
    /// From a running service; the call, if any, collects their reports.
    Service(Client, Option<Arc<Call>>),
}

/// A process on loan.
pub enum Process {
    /// From a pool in this program.
    Pool(Box<Lease>),
    /// From a running service.
    Service(Box<ServiceProcess>),
}

/// A process lent by a running service.
pub struct ServiceProcess {
    client: Client,
    borrowed: Borrowed,
    /// The `reset` sent at the beginning and the end of its work.
    reset: Bytes,
    /// The call that collects the process's reports.
    call: Option<Arc<Call>>,
}

/// Why there is no process or no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.text())]
pub struct ProcessError {
    /// The kind of error, for programs.
    pub kind: ProcessErrorKind,
    /// The failure and its remedy, for users.
    pub reason: String,
    /// The whole error, for a process of a pool in this program.
    pub cause: Option<Box<CallError>>,
}

/// Kinds of [`ProcessError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessErrorKind {
    /// The query server answered an error with this name, and continues.
    Function(String),
    /// No answer arrived in time; the process was ended.
    Timeout,
    /// The process ended, or broke the protocol.
    Died,
    /// The process printed too much, and was ended: its earlier answers may belong to other prompts.
    Shifted,
    /// The service has ended, or was never running.
    Unavailable,
    /// No process was available.
    NoProcess {
        /// Whether a retry may help; otherwise the configuration is wrong.
        retry: bool,
    },
}

impl ProcessError {
    fn new(kind: ProcessErrorKind, reason: String) -> Self {
        Self {
            kind,
            reason,
            cause: None,
        }
    }

    fn text(&self) -> String {
        match &self.kind {
            ProcessErrorKind::Function(name) => format!("{name}: {}", self.reason),
            _ => self.reason.clone(),
        }
    }
}

impl Processes {
    /// Requires that a language's query servers have an ability. Not checked for a service, whose abilities are
    /// unknown here.
    ///
    /// # Errors
    /// [`ProcessErrorKind::NoProcess`].
    pub(super) async fn require(
        &self,
        language: &str,
        ability: Ability,
    ) -> Result<(), ProcessError> {
        match self {
            Self::Pool(caller, ..) => Ok(caller
                .require(&LanguageName::new(language), ability)
                .await
                .map_err(CallError::GetProc)?),
            Self::Service(..) => Ok(()),
        }
    }

    /// Returns the call that the processes serve, if any.
    pub(crate) fn call(&self) -> Option<&Arc<Call>> {
        match self {
            Self::Pool(caller, ..) => caller.call(),
            Self::Service(_, call) => call.as_ref(),
        }
    }

    /// Borrows a process and resets it. Without a timeout the configured one applies.
    ///
    /// # Errors
    /// [`ProcessErrorKind::NoProcess`], [`ProcessErrorKind::Unavailable`], or how the reset failed.
    pub async fn open(
        &self,
        language: &str,
        timeout: Option<Duration>,
    ) -> Result<Process, ProcessError> {
        match self {
            Self::Pool(caller, from, tenant) => {
                let want = Want::language(LanguageName::new(language))
                    .from(from.clone())
                    .of(tenant.clone());
                let get = async || caller.get_proc(want.clone(), timeout).await;
                let (lease, ()) = get_clean_proc(get, Lease::ready).await?;
                Ok(Process::Pool(Box::new(lease)))
            }
            Self::Service(client, call) => {
                let borrowed = client
                    .get_proc(language, timeout)
                    .await
                    .map_err(no_process)?;
                let config = borrowed.config.as_deref().map_or("{}", RawValue::get);
                let language = LanguageName::new(language);
                let reset = prompt::reset_for_calls(config, &language, call.is_some());
                let process = Process::Service(Box::new(ServiceProcess {
                    client: client.clone(),
                    borrowed,
                    reset: reset.clone(),
                    call: call.clone(),
                }));
                if let Err(error) = process.expect_true(reset, timeout).await {
                    process.close(false).await;
                    return Err(error);
                }
                Ok(process)
            }
        }
    }
}

impl Process {
    /// Sends a command and waits for its answer. Several may be in flight. Without a timeout the process's own
    /// applies.
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
            Self::Service(process) => {
                let (answer, told) = process.prompt(line, timeout).await;
                if let Some((told, call)) = told.zip(process.call.as_ref()) {
                    call.take(*told, false);
                }
                answer
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
        if is_true(&answer) {
            return Ok(());
        }
        let reason = not_expected(&answer, "true");
        Err(ProcessError::new(ProcessErrorKind::Died, reason))
    }

    /// Resets the process at the end of its work, which verifies that it printed no extra lines.
    ///
    /// # Errors
    /// See [`ProcessError`]; an extra answer is [`ProcessErrorKind::Shifted`].
    pub(super) async fn fence(&self) -> Result<(), ProcessError> {
        match self {
            Self::Pool(lease) => Ok(lease.fence().await?),
            Self::Service(process) => {
                let answer = self.prompt(process.reset.clone(), None).await?;
                if is_true(&answer) {
                    Ok(())
                } else {
                    Err(PromptError::protocol(TOO_MANY_ANSWERS, &answer).into())
                }
            }
        }
    }

    /// Returns the process; one that is not `usable` is stopped.
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
            Self::Service(process) => {
                let status = if usable {
                    ReturnStatus::Ok
                } else {
                    ReturnStatus::Fail
                };
                // A service that has ended has already reclaimed it.
                let (client, proc) = (&process.client, &process.borrowed.proc);
                drop(client.ret_proc(proc, status).await);
            }
        }
    }
}

impl ServiceProcess {
    /// Sends a command and waits for its answer. Also returns the reports before it; if there is no answer to return,
    /// the call itself gets them.
    pub(super) async fn prompt(
        &self,
        line: Bytes,
        timeout: Option<Duration>,
    ) -> (Result<Bytes, ProcessError>, Option<Box<Told>>) {
        let command: &RawValue = serde_json::from_slice(&line).expect("VW-4: a prompt is JSON");
        let (client, proc) = (&self.client, &self.borrowed.proc);
        let text = |answer: Box<RawValue>| Bytes::from(String::from(Box::<str>::from(answer)));
        let Some(call) = &self.call else {
            let answer = client.prompt(proc, &command, timeout).await;
            return (answer.map(text).map_err(ProcessError::from), None);
        };
        match client.prompt_reported(proc, &command, timeout).await {
            Ok(Reported { outcome, report }) => {
                let told = told(report);
                match outcome {
                    Ok(answer) => (Ok(text(answer)), told),
                    Err(error) => {
                        call.take(told.map(|told| *told).unwrap_or_default(), true);
                        (Err(ClientError::Service(error).into()), None)
                    }
                }
            }
            Err(error) => (Err(error.into()), None),
        }
    }
}

/// Returns a service's report, if not empty.
fn told(report: Report) -> Option<Box<Told>> {
    let mut told = Told::default();
    (told.logs_dropped, told.errors_dropped) = (report.logs_dropped, report.errors_dropped);
    for line in report.logs {
        let level = serde_json::from_value(line.level.into()).unwrap_or(Level::Info);
        let message = line.message;
        told.log(LogLine { level, message });
    }
    report
        .errors
        .into_iter()
        .filter_map(|error| serde_json::from_value(error).ok())
        .for_each(|error| told.error(error));
    (!told.is_empty()).then(|| Box::new(told))
}

impl From<CallError> for ProcessError {
    fn from(error: CallError) -> Self {
        let (kind, reason) = match &error {
            CallError::GetProc(cause) => {
                let retry = cause.retryable() || cause.class().fault == Fault::Host;
                (ProcessErrorKind::NoProcess { retry }, error.to_string())
            }
            CallError::Prompt(PromptError::Function { name, reason, .. }) => {
                (ProcessErrorKind::Function(name.clone()), reason.clone())
            }
            CallError::Prompt(PromptError::Timeout { .. }) => {
                (ProcessErrorKind::Timeout, error.to_string())
            }
            CallError::Prompt(broken @ PromptError::Protocol { excerpt, .. }) => {
                let kind = if broken.is_shifted() {
                    ProcessErrorKind::Shifted
                } else {
                    ProcessErrorKind::Died
                };
                (kind, format!("{error}: {excerpt}"))
            }
            _ => (ProcessErrorKind::Died, error.to_string()),
        };
        Self {
            kind,
            reason,
            cause: Some(Box::new(error)),
        }
    }
}

impl From<PromptError> for ProcessError {
    fn from(error: PromptError) -> Self {
        CallError::Prompt(error).into()
    }
}

impl From<ClientError> for ProcessError {
    fn from(error: ClientError) -> Self {
        let ClientError::Service(said) = error else {
            return Self::new(ProcessErrorKind::Unavailable, error.to_string());
        };
        let kind = match (said.name.as_str(), said.fault.as_str()) {
            _ if said.shifted => ProcessErrorKind::Shifted,
            ("timeout", _) => ProcessErrorKind::Timeout,
            (name, "client") => ProcessErrorKind::Function(name.to_owned()),
            _ => ProcessErrorKind::Died,
        };
        Self::new(kind, said.reason_text())
    }
}

fn no_process(error: ClientError) -> ProcessError {
    match error {
        ClientError::Service(said) => {
            let kind = ProcessErrorKind::NoProcess { retry: said.retry };
            ProcessError::new(kind, said.to_string())
        }
        _ => error.into(),
    }
}
