//! The orderly end of a tunnel: returns the process, and reports to the client whether it was alive.
//!
//! SUMMARY   A process may end after answering its last command, which only shows at the next prompt. So a process that
//!           must be reset is reset here, and the connection ends only after the answer to the reset.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::holding::Holding;
use super::relay::Resume;
use crate::client::END_MARK;
use crate::messages::client_error::ErrorReply;
use crate::messages::proc_manager::Lease;
use crate::messages::process::{ProcShared, PromptError};
use policy::pool::{Condition, ReturnStatus};

/// The outcome of a tunnel's process.
#[derive(Default, Serialize)]
pub(super) struct TunnelEnd {
    alive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<String>,
    /// Why there was no process at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Box<ErrorReply>>,
    /// The client's timeout for answers, in milliseconds, for the next service.
    #[serde(skip_serializing_if = "Option::is_none")]
    patience_ms: Option<u128>,
    /// The state for another service to continue from.
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<Resume>,
}

impl TunnelEnd {
    pub fn of(shared: &ProcShared) -> Self {
        shared.exit_error().map_or_else(Self::alive, Self::over)
    }

    /// Returns the outcome of a process that has ended.
    pub fn over(exit_error: &PromptError) -> Self {
        let exit = match exit_error {
            PromptError::Exited(exit_report) => exit_report.told(),
            error => format!("was given up: {error}"),
        };
        Self::ended(&exit)
    }

    /// Returns the outcome if the process is alive, or if there was none at the end.
    pub fn alive() -> Self {
        Self {
            alive: true,
            ..Self::default()
        }
    }

    /// Returns the outcome of a tunnel that ended early; `how` follows "the process".
    pub fn ended(how: &str) -> Self {
        Self {
            exit: Some(how.to_owned()),
            ..Self::default()
        }
    }

    /// Lets a client with this timeout continue the conversation at another service.
    pub fn with_resume(mut self, resume: Option<Resume>, patience: Duration) -> Self {
        self.patience_ms = resume.is_some().then_some(patience.as_millis());
        self.resume = resume;
        self
    }

    /// Returns the outcome for a client that has no process and will get none.
    pub fn refused(error: impl Into<ErrorReply>) -> Self {
        Self {
            error: Some(Box::new(error.into())),
            ..Self::default()
        }
    }

    /// Returns the last line of the connection.
    pub fn line(&self) -> Vec<u8> {
        let mut line = vec![END_MARK];
        // Flags and strings always serialize.
        line.extend(serde_json::to_vec(self).unwrap_or_default());
        line.push(b'\n');
        line
    }
}

/// Gives back a process whose prompts are all answered; returns whether it is alive.
pub(super) async fn give_back(lease: Lease) -> TunnelEnd {
    let shared = Arc::clone(&lease.process.shared);
    let is_fit = match shared.condition_on_loss(lease.token) {
        // After the return the manager makes it forget, or replaces it.
        Condition::Clean | Condition::NeedsForgetting => true,
        Condition::NeedsReset => lease.reset().await.is_ok(),
        Condition::Broken => false,
    };
    // Otherwise the lease is dropped, and the manager replaces the process.
    if is_fit {
        lease.ret_proc(ReturnStatus::Ok).await;
    }
    TunnelEnd::of(&shared)
}

impl Holding {
    /// Gives back the process like [`give_back`].
    pub async fn finish(&self) -> TunnelEnd {
        match self.take() {
            Some(lease) => give_back(lease).await,
            None => TunnelEnd::of(&self.shared),
        }
    }
}
