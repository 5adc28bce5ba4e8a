//! Errors for clients, and their form on the wire.
//!
//! SUMMARY   [`ErrorReply`] is the `error` member of a reply, made from the errors of the pool.
//! PROMISES  `name`, `reason`, `phase`, `fault` and `retry` are always present. Names are CouchDB's where it has
//!           them. Errors from the client's own functions are passed on unchanged.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use child::cell::report::MetLimit;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::messages::pools::PoolError;
use crate::messages::proc_manager::{CallError, GetProcError};
use crate::messages::process::{ExitReport, Fault, PromptError};
use crate::messages::ps::KillError;
use crate::otp::NoProc;

/// The subject of an error, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The database.
    pub db: Option<Arc<str>>,
    /// The design document's id.
    pub ddoc: Option<Arc<str>>,
    /// The function: its path in the design document, joined by `/`, or the name of its call.
    pub function: Option<String>,
    /// The id of its document.
    pub doc: Option<String>,
    /// The function's index in the call's list, from 0; not sent.
    pub index: Option<usize>,
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let members = [
            ("db", self.db.as_deref()),
            ("ddoc", self.ddoc.as_deref()),
            ("function", self.function.as_deref()),
            ("doc", self.doc.as_deref()),
        ];
        to.collect_map(members.into_iter().filter(|(_, value)| value.is_some()))
    }
}

/// The error of a reply.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorReply {
    /// Its name, for programs.
    pub name: String,
    /// What happened and the remedy: text, or any JSON that a query server gave as its reason.
    pub reason: Box<RawValue>,
    /// The step that failed: `queue`, `open`, `teach`, `reset`, `prompt`, `exit`, `write` or `session`; for a timeout
    /// the kind of command ([`Command::phase`](crate::query_server::prompt::Command::phase)).
    pub phase: &'static str,
    /// Who is at fault.
    pub fault: Fault,
    /// Whether a retry of the same call may succeed.
    pub retry: bool,
    /// The delay of a retry, if known, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<NonZero<u32>>,
    /// The maximum response time that was exceeded, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<NonZero<u32>>,
    /// Whether the query server ends because of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fatal: bool,
    /// Whether the query server printed too much: earlier answers may belong to other prompts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shifted: bool,
    /// How the query server ended, if it did.
    #[serde(flatten)]
    pub exit_report: Option<Box<ExitReport>>,
    /// The affected process, by the client's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proc: Option<Box<str>>,
    /// The affected function and its arguments.
    #[serde(flatten)]
    pub place: Option<Box<Place>>,
}

/// The retry delay of a call beyond its database's maximum: how long the running calls take is unknown.
const TENANT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Maximum bytes of a reason that quotes the client.
const REASON_BYTES_MAX: usize = 4096;

/// The name of the error of a call whose client disconnected.
const DISCONNECTED: &str = "disconnected";

/// The name of the error of a call cancelled by its client.
const CANCELLED: &str = "cancelled";

impl ErrorReply {
    fn new(name: &str, reason: &str, phase: &'static str, fault: Fault, retry: bool) -> Self {
        Self {
            name: name.to_owned(),
            reason: to_raw_value(reason).expect("JSON: a string is always JSON"),
            phase,
            fault,
            retry,
            retry_after_ms: None,
            limit_ms: None,
            fatal: false,
            shifted: false,
            exit_report: None,
            proc: None,
            place: None,
        }
    }

    /// A function, or its query server, gave an unusable answer.
    pub(crate) fn answer(name: &str, reason: &str, fault: Fault) -> Self {
        Self::new(name, reason, "prompt", fault, false)
    }

    /// The client's mistake, found before any work is done.
    fn of_client(name: &str, reason: impl AsRef<str>) -> Self {
        let reason = reason.as_ref();
        // The reason may quote the client.
        let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
        Self::new(name, reason, "queue", Fault::Client, false)
    }

    /// The client exceeds a limit.
    fn too_much(name: &str, reason: &str) -> Self {
        Self::new(name, reason, "queue", Fault::Client, true)
    }

    /// The request is malformed.
    pub fn bad_request(reason: impl AsRef<str>) -> Self {
        Self::of_client("bad_request", reason)
    }

    /// The request names a pool or a process that does not exist.
    pub fn not_found(reason: impl AsRef<str>) -> Self {
        Self::of_client("not_found", reason)
    }

    /// The request names a design document by its digest, and the service does not have it.
    pub(crate) fn unknown_ddoc() -> Self {
        let reason = "no design document of this id and 'sha256' is known for this database: send the whole text as 'ddoc'";
        Self::of_client("unknown_ddoc", reason)
    }

    /// The caller is unknown, or lacks permission.
    pub fn unauthorized(reason: impl AsRef<str>) -> Self {
        Self::of_client("unauthorized", reason)
    }

    /// The caller lacks permission.
    pub fn forbidden(reason: impl AsRef<str>) -> Self {
        Self::of_client("forbidden", reason)
    }

    /// The line is longer than allowed.
    pub fn line_too_long(limit: usize) -> Self {
        let reason = format!(
            "a line is longer than {limit} bytes ([server] line_max); the connection is closed"
        );
        Self::of_client("line_too_long", reason)
    }

    /// The connection has too many waiting requests, or too large ones.
    pub fn too_many_requests(limit: usize) -> Self {
        let reason = format!(
            "more than {limit} requests of this connection wait for a process, or the waiting ones are \
             too large: wait for replies, or use more connections"
        );
        Self::too_much("too_many_requests", &reason)
    }

    /// Too many logins are attempted.
    pub(crate) fn too_many_logins(reason: impl AsRef<str>) -> Self {
        Self::too_much("too_many_requests", reason.as_ref())
    }

    /// The caller holds the maximum number of the pool's processes.
    pub(crate) fn too_many_held(pool: &str, max: u32) -> Self {
        let reason = format!(
            "you hold {max} processes of the pool '{pool}', as many as one user or address may \
             (held_max): return one, or raise held_max of the pool"
        );
        Self::too_much("too_many_held", &reason)
    }

    /// The memory for requests and answers in flight is exhausted.
    pub(crate) fn no_room() -> Self {
        let reason = "requests and answers in flight use all of [server] in_flight_max: try again \
                      later";
        Self::new("too_many_requests", reason, "queue", Fault::Host, true)
    }

    /// The client does not read. Counted, but not sent.
    pub(crate) fn unread() -> Self {
        let reason = "the client did not read what it was sent";
        Self::new("timeout", reason, "write", Fault::Client, false)
    }

    /// The connection of a call closed before its end. Counted, but not sent.
    pub(crate) fn disconnected() -> Self {
        let reason = "the connection was closed before the end of the call";
        Self::new(DISCONNECTED, reason, "write", Fault::Client, true)
    }

    /// The client cancelled the call.
    pub(crate) fn cancelled() -> Self {
        let reason = "the client cancelled the call";
        Self::new(CANCELLED, reason, "prompt", Fault::Client, true)
    }

    /// Returns whether it is the error of a call whose client disconnected.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.name == DISCONNECTED
    }

    /// A service's connection has reached its maximum duration.
    pub(crate) fn session_too_long(limit: Duration) -> Self {
        let reason = format!(
            "the connection has lasted {} s, the maximum (session_timeout): connect again",
            limit.as_secs_f64()
        );
        Self::new("timeout", &reason, "session", Fault::Client, true)
    }

    /// The request was not answered: our own fault.
    pub fn internal() -> Self {
        let reason = "the request was lost inside the service; its log may tell why";
        Self::new("internal_error", reason, "queue", Fault::Settee, true)
    }

    /// The process is not held with this token.
    pub fn not_holder() -> Self {
        PromptError::NotHolder.into()
    }

    /// Returns whether it occurred while a process ran the call, unless the client cancelled or disconnected.
    pub(crate) fn is_of_functions(&self) -> bool {
        let has_run = !["queue", "open", "write", "session"].contains(&self.phase);
        has_run && self.name != CANCELLED
    }

    /// Returns whether a process ended because of it.
    pub(crate) fn ended_its_process(&self) -> bool {
        self.fatal || self.exit_report.is_some() || self.limit_ms.is_some()
    }

    /// Returns the reason in words, or JSON text.
    pub(crate) fn reason_text(&self) -> String {
        let json = self.reason.get();
        serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())
    }

    /// Adds the affected process.
    pub fn about(mut self, proc: impl ToString) -> Self {
        self.proc = Some(proc.to_string().into());
        self
    }

    /// Adds the affected function.
    pub fn at(mut self, place: Box<Place>) -> Self {
        self.place = (*place != Place::default()).then_some(place);
        self
    }
}

impl From<GetProcError> for ErrorReply {
    fn from(error: GetProcError) -> Self {
        let class = error.class();
        let reason = error.to_string();
        let mut reply = Self::new(class.name, &reason, class.phase, class.fault, class.retry);
        match error {
            GetProcError::Throttled { retry_in, .. }
            | GetProcError::Timeout {
                retry_in: Some(retry_in),
                ..
            } => reply.retry_after_ms = milliseconds(retry_in),
            GetProcError::TenantBusy { .. } => {
                reply.retry_after_ms = milliseconds(TENANT_RETRY_AFTER);
            }
            GetProcError::TeachFailed {
                error: Some(error), ..
            } => {
                reply.exit_report = error.exit_report().cloned().map(Box::new);
            }
            _ => {}
        }
        reply
    }
}

fn milliseconds(time: Duration) -> Option<NonZero<u32>> {
    NonZero::new(u32::try_from(time.as_millis()).unwrap_or(u32::MAX))
}

/// The manager has ended: the service is stopping, or the manager is being restarted.
impl From<NoProc> for ErrorReply {
    fn from(_: NoProc) -> Self {
        GetProcError::ShuttingDown.into()
    }
}

impl From<PoolError> for ErrorReply {
    fn from(error: PoolError) -> Self {
        let reason = error.to_string();
        match error {
            PoolError::NotFound(_) => Self::not_found(reason),
            PoolError::Exists(_) => Self::of_client("file_exists", reason),
            PoolError::BadSettings(_) => Self::bad_request(reason),
            PoolError::ShuttingDown => GetProcError::ShuttingDown.into(),
        }
    }
}

impl From<KillError> for ErrorReply {
    fn from(error: KillError) -> Self {
        let reason = error.to_string();
        match error {
            KillError::NotFound(_) => Self::not_found(reason),
            KillError::Starting(_) => Self::new("conflict", &reason, "open", Fault::Settee, true),
        }
    }
}

impl From<PromptError> for ErrorReply {
    fn from(error: PromptError) -> Self {
        let (name, phase) = match &error {
            PromptError::Function { name, .. } => (name.as_str(), "prompt"),
            PromptError::Timeout { command, .. } => ("timeout", command.phase()),
            PromptError::NotRun { .. } => ("not_run", "prompt"),
            PromptError::Exited(exit_report) => match exit_report.met {
                Some(MetLimit::Memory(_)) => ("out_of_memory", "exit"),
                Some(MetLimit::Processes(_)) | None => ("os_process_error", "exit"),
            },
            PromptError::Protocol { .. } => ("os_process_error", "prompt"),
            PromptError::BadPrompt => ("bad_request", "prompt"),
            PromptError::TooMany { .. } => ("too_many_requests", "prompt"),
            PromptError::NotHolder => ("not_holder", "prompt"),
        };
        let reason = match &error {
            PromptError::Protocol { excerpt, .. } if !excerpt.is_empty() => {
                format!("{error}: {excerpt}")
            }
            _ => error.to_string(),
        };
        let mut reply = Self::new(name, &reason, phase, error.fault(), error.retryable());
        reply.shifted = error.is_shifted();
        match error {
            PromptError::Function {
                raw_reason, fatal, ..
            } => {
                reply.fatal = fatal;
                if let Ok(raw) = RawValue::from_string(raw_reason) {
                    reply.reason = raw;
                }
            }
            PromptError::Exited(exit_report) => reply.exit_report = Some(Box::new(exit_report)),
            PromptError::Timeout { timeout, .. } => reply.limit_ms = milliseconds(timeout),
            _ => {}
        }
        reply
    }
}

impl From<CallError> for ErrorReply {
    fn from(error: CallError) -> Self {
        match error {
            CallError::GetProc(error) => error.into(),
            CallError::Prompt(error) => error.into(),
            CallError::Reset(error) => Self {
                phase: "reset",
                ..error.into()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::query_server::prompt::Command;
    use policy::pool::Phase;

    fn wire(error: impl Into<ErrorReply>) -> Value {
        serde_json::to_value(error.into()).unwrap()
    }

    #[test]
    fn an_error_without_details_has_five_members() {
        let error = GetProcError::Timeout {
            phase: Phase::Open,
            waited: Duration::from_millis(70),
            raise: "os_process_limit".into(),
            retry_in: None,
        };
        let expected = json!({
            "name": "timeout",
            "reason": "the query server did not start within 70 ms (the limit is timeout_ms of the call, or [couchdb] \
                       os_process_timeout)",
            "phase": "open", "fault": "query_server", "retry": true,
        });
        assert_eq!(wire(error), expected);
    }

    #[test]
    fn the_end_of_a_process_is_reported_with_its_exit_and_standard_error() {
        let error = PromptError::Exited(ExitReport {
            exit: Some("exited with status 2".into()),
            status: Some(2),
            stderr: vec!["usage".into()],
            ..ExitReport::default()
        });
        let wire = wire(ErrorReply::from(error).about("1.2.3"));
        assert_eq!(wire["name"], "os_process_error");
        assert_eq!(wire["phase"], "exit");
        assert_eq!(wire["exit"], "exited with status 2");
        assert_eq!(wire["status"], 2);
        assert_eq!(wire["stderr"], json!(["usage"]));
        assert_eq!(wire["proc"], "1.2.3");
    }

    #[test]
    fn a_functions_own_error_is_passed_on_unchanged() {
        let error = PromptError::Function {
            name: "not_found".into(),
            reason: "ignored".into(),
            raw_reason: "{\"a\": 1.0}".into(),
            fatal: true,
        };
        let text = serde_json::to_string(&ErrorReply::from(error)).unwrap();
        assert!(text.contains("\"reason\":{\"a\": 1.0}"), "{text}");
        assert!(text.contains("\"fatal\":true"), "{text}");
    }

    #[test]
    fn an_error_names_the_function_and_its_document_as_far_as_they_are_known() {
        let place = Place {
            db: Some("shop".into()),
            function: Some("shows/s".into()),
            ..Place::default()
        };
        let wire = wire(ErrorReply::not_holder().at(Box::new(place)));
        assert_eq!(
            (&wire["db"], &wire["function"]),
            (&json!("shop"), &json!("shows/s"))
        );
        assert!(wire.get("ddoc").is_none() && wire.get("doc").is_none());
    }

    #[test]
    fn a_failed_reset_of_a_compound_call_is_reported_as_such() {
        let timeout = PromptError::Timeout {
            timeout: Duration::from_secs(5),
            command: Command::Other,
            held_back: false,
            tenant_key: None,
        };
        assert_eq!(wire(timeout.clone())["phase"], "prompt");
        assert_eq!(wire(CallError::Reset(timeout))["phase"], "reset");
    }

    #[test]
    fn a_function_that_takes_too_long_is_to_blame_and_not_worth_a_retry() {
        let timeout = |command| PromptError::Timeout {
            timeout: Duration::from_millis(300),
            command,
            held_back: false,
            tenant_key: None,
        };
        let looping = wire(timeout(Command::DdocCall));
        let members = ["name", "phase", "fault", "retry", "limit_ms"];
        assert_eq!(
            members.map(|name| looping[name].clone()),
            [
                json!("timeout"),
                json!("ddoc call"),
                json!("function"),
                json!(false),
                json!(300)
            ]
        );
        assert_eq!(wire(timeout(Command::Reset))["fault"], "query_server");
        let behind = wire(PromptError::NotRun {
            because: Box::new(timeout(Command::DdocCall)),
        });
        assert_eq!(
            (&behind["name"], &behind["retry"]),
            (&json!("not_run"), &json!(true))
        );
    }
}
