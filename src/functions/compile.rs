//! `try_compile`: checks whether a function compiles.
//!
//! SOURCE    couch_query_servers: try_compile/4.

use bytes::Bytes;

use super::decode::{broken, text};
use super::{FunctionErrorKind, FunctionResult, QueryServers};
use crate::messages::client_error::Place;
use crate::messages::function::TryCompile;
use crate::messages::proc_manager::CallError;
use crate::messages::process::PromptError;
use crate::query_server::prompt;

impl QueryServers {
    /// Checks whether a function compiles (`try_compile`).
    ///
    /// # Errors
    /// `compilation_error` with the reference's message if it does not compile, or if compiling it ends the query
    /// server; see [`FunctionError`](super::FunctionError) for the rest.
    pub async fn try_compile(&self, call: &TryCompile) -> FunctionResult<()> {
        let line = prompt::line(&("add_fun", &call.fun));
        self.prompt_once(call.at.want(), line, |answer| accepted(&answer))
            .await
            .map_err(|mut error| {
                if let FunctionErrorKind::Call(CallError::Prompt(prompt)) = &error.kind
                    && let Some(reason) = in_words(call, prompt)
                {
                    error.kind = FunctionErrorKind::Compilation {
                        reason,
                        error: prompt.clone(),
                    };
                }
                error.at(Place {
                    function: Some(format!("{}/{}", call.name, call.kind)),
                    index: Some(0),
                    ..Place::default()
                })
            })
    }
}

/// Requires the answer `true`.
pub(super) fn accepted(answer: &Bytes) -> FunctionResult<()> {
    if text(answer) == "true" {
        return Ok(());
    }
    Err(broken(answer, "true"))
}

/// Returns the reference's message for a function that does not compile; `None` for other errors.
fn in_words(call: &TryCompile, error: &PromptError) -> Option<String> {
    let TryCompile { kind, name, .. } = call;
    let failed = format!("Compilation of the {kind} function in the '{name}' view failed");
    match error {
        PromptError::Function { name, reason, .. } if name == "compilation_error" => {
            Some(format!("{failed}: {reason}"))
        }
        PromptError::Exited(exit_report) => {
            let status = exit_report.status?;
            Some(format!("{failed} with exit status: {status}"))
        }
        _ => None,
    }
}
