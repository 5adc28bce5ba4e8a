//! Why there is no process: whose fault it is, and whether to retry.

use std::sync::Arc;
use std::time::Duration;

use crate::messages::process::{Fault, PromptError};
use crate::query_server::abilities::Ability;
use policy::pool::Phase;

/// Why a compound call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No process was lent for the call.
    #[error(transparent)]
    GetProc(#[from] GetProcError),
    /// None of its processes could be reset.
    #[error("the query server could not be reset: {0}")]
    Reset(PromptError),
    /// The process answered with an error, or did not answer.
    #[error(transparent)]
    Prompt(#[from] PromptError),
}

/// Why there is no process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetProcError {
    /// No such language is configured. The client's fault.
    #[error("no query server is configured for the language '{0}'")]
    UnknownQueryLanguage(String),
    /// The timeout expired. Worth a retry.
    #[error("{}", timeout_text(*phase, *waited, raise, *retry_in))]
    Timeout {
        /// What it waited for.
        phase: Phase,
        /// How long it waited.
        waited: Duration,
        /// The limit that prevents more processes, in the operator's terms.
        raise: Arc<str>,
        /// How long until its database is lent a process again, if it has used up its share of processor time.
        retry_in: Option<Duration>,
    },
    /// A process could not be started.
    #[error("cannot start the query server for '{language}': {reason}")]
    SpawnFailed {
        /// The language.
        language: String,
        /// The error of the operating system or the language, and the remedy.
        reason: String,
        /// The host for lack of resources, the query server for a wrong command.
        fault: Fault,
    },
    /// A process could not be taught the design document.
    #[error("the query server for '{language}' did not accept {ddoc}: {reason}")]
    TeachFailed {
        /// The language.
        language: String,
        /// The design document's id.
        ddoc: String,
        /// The process's error, or how it ended.
        reason: String,
        /// How its process failed; `None` if it answered something other than `true`.
        error: Option<Box<PromptError>>,
    },
    /// The language's query servers lack an ability that the call requires. No process was prompted.
    #[error("the query server for '{language}' {ability}: {how}")]
    Unable {
        /// The language.
        language: String,
        /// The required ability.
        ability: Ability,
        /// How it is known that the ability is missing.
        how: Arc<str>,
    },
    /// There is no such pool, or none that may serve the request. The client's fault.
    #[error("{0}")]
    NoSuchPool(String),
    /// The caller may not use the pool. The client's fault.
    #[error("{0}")]
    NotForCaller(String),
    /// The pool's queue is full (`queue_max`). Worth a retry.
    #[error(
        "the pool '{pool}' is busy: its queue is full (queue_max); try again, raise \
         queue_max or max, or hold processes for a shorter time"
    )]
    PoolBusy {
        /// The pool.
        pool: Arc<str>,
    },
    /// The database has reached its maximum of waiting calls. Worth a retry.
    #[error(
        "the database '{tenant}' has as many waiting calls as it may have ({rule}); try again when some have ended, or \
         raise {rule}"
    )]
    TenantBusy {
        /// The part of the database's name that identifies the tenant (`db_tag`).
        tenant: Arc<str>,
        /// Where the bound is set, in the operator's terms.
        rule: Arc<str>,
    },
    /// The pool was removed, or is being removed, while the request waited.
    #[error("the pool '{pool}' was removed")]
    PoolRemoved {
        /// The pool.
        pool: Arc<str>,
    },
    /// Starts have failed, and are paused for a while. Worth a retry after that.
    #[error(
        "the pool '{pool}' starts no process for another {} s, because the last start failed: \
         {reason}",
        retry_in.as_millis().div_ceil(1000)
    )]
    Throttled {
        /// The pool.
        pool: Arc<str>,
        /// The cause: the command, how it ended, its last output.
        reason: Arc<str>,
        /// The time until the next start.
        retry_in: Duration,
    },
    /// The daemon is drained. Worth a retry at another daemon, or once it is undrained.
    #[error("this daemon is drained: it takes no calls until an operator undrains it")]
    Draining,
    /// The service is shutting down, or its manager is being restarted.
    #[error("the service is shutting down")]
    ShuttingDown,
}

/// The keys that determine how long a client waits for a process.
const WAIT_KEYS: &str = "(the limit is timeout_ms of the call, or [couchdb] os_process_timeout)";

fn timeout_text(phase: Phase, waited: Duration, raise: &str, retry_in: Option<Duration>) -> String {
    let waited = waited.as_millis();
    match phase {
        Phase::Queue if let Some(retry_in) = retry_in => format!(
            "no process was lent within {waited} ms: the database's functions have used up their share of processor time; \
             try again in {} s, or raise {raise}",
            retry_in.as_millis().div_ceil(1000)
        ),
        Phase::Queue => format!(
            "no process was free within {waited} ms; raise {raise}, or hold processes for a \
             shorter time"
        ),
        Phase::Open => format!("the query server did not start within {waited} ms {WAIT_KEYS}"),
        Phase::Teach => format!(
            "the query server did not learn the design document within {waited} ms {WAIT_KEYS}"
        ),
    }
}

/// An error in machine-readable form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorClass {
    /// The name on the wire: CouchDB's, if it has one.
    pub name: &'static str,
    /// The phase of the call.
    pub phase: &'static str,
    /// Who is at fault.
    pub fault: Fault,
    /// Whether a retry may help.
    pub retry: bool,
}

impl GetProcError {
    /// Returns the pool that lends no process, if the error concerns a single pool.
    pub(crate) fn pool(&self) -> Option<&Arc<str>> {
        match self {
            Self::PoolBusy { pool } | Self::PoolRemoved { pool } | Self::Throttled { pool, .. } => {
                Some(pool)
            }
            _ => None,
        }
    }

    /// Returns the error in machine-readable form.
    pub fn class(&self) -> ErrorClass {
        use Fault::{Client, Host, QueryServer, Settee};
        let (name, phase, fault, retry) = match self {
            Self::UnknownQueryLanguage(_) => ("unknown_query_language", "queue", Client, false),
            Self::Timeout { phase, .. } => match phase {
                Phase::Queue => ("timeout", "queue", Settee, true),
                Phase::Open => ("timeout", "open", QueryServer, true),
                Phase::Teach => ("timeout", "teach", QueryServer, true),
            },
            Self::SpawnFailed { fault, .. } => ("os_process_error", "open", *fault, *fault == Host),
            // The design document has a mistake, for example in a selector.
            Self::TeachFailed {
                error: Some(error), ..
            } if matches!(**error, PromptError::Function { fatal: false, .. }) => {
                ("compilation_error", "teach", Client, false)
            }
            Self::TeachFailed { error, .. } => {
                let error = error.as_deref();
                let name = match error {
                    Some(PromptError::Timeout { .. }) => "timeout",
                    _ => "os_process_error",
                };
                // That one process died while being taught does not mean that the next one will.
                let retry = error.is_some_and(PromptError::retryable);
                let is_ordered = error.is_some_and(|error| error.fault() == Host);
                let fault = if is_ordered { Host } else { QueryServer };
                (name, "teach", fault, retry)
            }
            Self::Unable { ability, .. } => match ability {
                Ability::Ddoc => ("not_implemented", "teach", QueryServer, false),
                _ => ("not_implemented", "prompt", QueryServer, false),
            },
            Self::NoSuchPool(_) => ("not_found", "queue", Client, false),
            Self::NotForCaller(_) => ("forbidden", "queue", Client, false),
            Self::PoolBusy { .. } => ("pool_busy", "queue", Settee, true),
            Self::TenantBusy { .. } => ("tenant_busy", "queue", Client, true),
            Self::PoolRemoved { .. } => ("pool_removed", "queue", Settee, false),
            Self::Throttled { .. } => ("throttled", "open", QueryServer, true),
            Self::Draining => ("draining", "queue", Settee, true),
            Self::ShuttingDown => ("shutting_down", "queue", Settee, true),
        };
        ErrorClass {
            name,
            phase,
            fault,
            retry,
        }
    }

    /// Returns whether a later retry may help.
    pub fn retryable(&self) -> bool {
        self.class().retry
    }
}
