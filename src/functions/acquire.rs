//! Borrows a process that is ready for a call, and returns it.
//!
//! PROMISES  A process is reset before anything else is sent to it; reset and first prompt are sent together. A
//!           process that cannot be reset is replaced, a bounded number of times. A call ends with a `reset`, the
//!           fence: unless its answer is `true`, the call's value is discarded. The next call finds the process
//!           reset, and sends no `reset`.
//! SOURCE    couch_query_servers: get_os_process/1, get_ddoc_process/2, with_ddoc_proc/2.
//! DIFFERS   An error answer of a function does not end the process; a fatal error, a timeout or a broken protocol
//!           does.

use std::time::Duration;

use bytes::Bytes;

use super::{FunctionError, FunctionResult, QueryServers};
use crate::functions::caller::get_clean_proc;
use crate::messages::function::{InDdoc, InLanguage};
use crate::messages::proc_manager::{CallError, Lease, Want};
use crate::messages::process::PromptError;
use crate::query_server::abilities::Ability;
use crate::query_server::language::LanguageName;
use crate::query_server::proc_shared::ProcFlag;
use crate::query_server::prompt::Command;
use policy::pool::ReturnStatus;

/// A process's answer, or the error.
pub(super) type Answer = Result<Bytes, PromptError>;

/// A request for the pool, and the timeout of the process's prompts.
pub(super) type TimedWant = (Want, Option<Duration>);

impl InDdoc {
    /// Returns the request for the pool.
    pub(super) fn want(&self) -> TimedWant {
        let want = Want::ddoc(self.db.clone(), self.ddoc.clone()).from(self.from.clone());
        (want, self.timeout)
    }
}

impl InLanguage {
    /// Returns the request for the pool.
    pub(super) fn want(&self) -> TimedWant {
        let want = Want::language(self.language.clone())
            .from(self.from.clone())
            .of(self.db.clone());
        (want, self.timeout)
    }
}

impl QueryServers {
    /// Borrows a process, resets it, and sends it a first command, followed by the fence if `is_fenced`. Returns the
    /// process and the answer. The process may be gone by then.
    pub(super) async fn prompt_clean(
        &self,
        (want, timeout): TimedWant,
        line: Bytes,
        is_fenced: bool,
    ) -> FunctionResult<(Lease, Answer)> {
        let mut together = true;
        let get = async || self.caller.get_proc(want.clone(), timeout).await;
        let reset = async |lease: &Lease| {
            // A query server may hold its answer to `reset` back while it works on the next command. Sent one after
            // the other, they show which of them fails.
            let frame = (is_fenced, std::mem::take(&mut together));
            lease.prompt_first(&line, timeout, frame).await
        };
        Ok(get_clean_proc(get, reset).await?)
    }

    /// Sends a single command to a borrowed process. Returns the answer, parsed with `read`.
    pub(super) async fn prompt_once<T>(
        &self,
        want: TimedWant,
        line: Bytes,
        read: impl FnOnce(Bytes) -> FunctionResult<T>,
    ) -> FunctionResult<T> {
        // A command that begins a list leaves it open, and a `reset` must not follow.
        let is_fenced = Command::of(&line) != Some(Command::OpenList);
        let (lease, answer) = self.prompt_clean(want, line, is_fenced).await?;
        let result = answer.map_err(FunctionError::from).and_then(read);
        give_back(lease, result).await
    }

    /// Requires an ability of a language's query servers. For design documents the pool checks this.
    pub(super) async fn require(
        &self,
        language: &LanguageName,
        ability: Ability,
    ) -> FunctionResult<()> {
        Ok(self
            .caller
            .require(language, ability)
            .await
            .map_err(CallError::GetProc)?)
    }
}

/// Returns a process to its pool, and then `result`; an error in it tells whether the process is still usable. If that
/// error came before the fence, the fence is sent now: extra answers replace the error.
pub(super) async fn give_back<T>(lease: Lease, mut result: FunctionResult<T>) -> FunctionResult<T> {
    let mut status = result
        .as_ref()
        .err()
        .map_or(ReturnStatus::Ok, FunctionError::return_status);
    let shared = &lease.process.shared;
    // A process with an open list takes no `reset`, and is replaced.
    if result.is_err()
        && status == ReturnStatus::Ok
        && !shared.is_left_by_call()
        && !shared.is(ProcFlag::ListOpen)
        && let Err(error) = lease.fence().await
    {
        status = ReturnStatus::Fail;
        if error.is_shifted() {
            result = Err(error.into());
        }
    }
    lease.give_back(status).await;
    result
}
