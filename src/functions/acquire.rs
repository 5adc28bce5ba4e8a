//! Getting a process that is ready for a call, and giving it back.
//!
//! PROMISES  A process is reset before anything else is asked of it; reset and first prompt are sent
//!           together. A process that cannot be reset is replaced, a bounded number of times. A call ends with a
//!           `reset`, the fence: without an answer of `true` to that its value is not handed out. The next call
//!           finds the process reset, and sends none of its own.
//! SOURCE    couch_query_servers: get_os_process/1, get_ddoc_process/2, with_ddoc_proc/2.
//! DIFFERS   An error answer of a function does not end the process. A fatal error, a timeout and a
//!           broken protocol do.

use std::time::Duration;

use bytes::Bytes;

use super::{FunctionError, QueryServers};
use crate::functions::caller::get_clean_proc;
use crate::messages::function::{InDdoc, InLanguage};
use crate::messages::proc_manager::CallError;
use crate::messages::proc_manager::{Lease, Want};
use crate::messages::process::PromptError;
use crate::query_server::abilities::Ability;
use crate::query_server::language::LanguageName;
use crate::query_server::prompt::Command;
use policy::pool::ReturnStatus;

/// What a process answered, or why it did not.
pub(super) type Answer = Result<Bytes, PromptError>;

impl InDdoc {
    /// Returns the request to the pool.
    pub(super) fn want(&self) -> Want {
        Want::ddoc(self.db.clone(), self.ddoc.clone()).from(self.from.clone())
    }
}

impl InLanguage {
    /// Returns the request to the pool.
    pub(super) fn want(&self) -> Want {
        Want::language(self.language.clone())
            .from(self.from.clone())
            .of(self.db.clone())
    }
}

impl QueryServers {
    /// Gives functions the language of their pool or group if their call names none.
    pub(super) async fn settle_language(&self, at: &mut InLanguage) -> Result<(), FunctionError> {
        if at.language.as_str().is_empty() {
            let language = self.caller.language_of(at.from.clone()).await;
            at.language = language.map_err(CallError::GetProc)?;
        }
        Ok(())
    }

    /// Takes a process, has it reset, and sends it a first command, if `is_fenced` with the fence behind it. Returns the
    /// process and the answer. The process may be gone by then.
    pub(super) async fn prompt_clean(
        &self,
        want: &Want,
        line: Bytes,
        timeout: Option<Duration>,
        is_fenced: bool,
    ) -> Result<(Lease, Answer), FunctionError> {
        let mut together = true;
        let get = async || self.caller.get_proc(want.clone(), timeout).await;
        let reset = async |lease: &Lease| {
            if std::mem::take(&mut together) {
                return lease.prompt_first(&line, timeout, (is_fenced, true)).await;
            }
            // A query server may hold its answer to `reset` back while it works on the next command.
            // Sent one after the other, they show which of them fails.
            lease.prompt_first(&line, timeout, (is_fenced, false)).await
        };
        Ok(get_clean_proc(get, reset).await?)
    }

    /// Takes a process for a single command, has its answer read by `read`, and gives it back.
    pub(super) async fn prompt_once<T>(
        &self,
        want: &Want,
        line: Bytes,
        timeout: Option<Duration>,
        read: impl FnOnce(Bytes) -> Result<T, FunctionError>,
    ) -> Result<T, FunctionError> {
        // A list that it begins is open behind it, and takes no `reset`.
        let is_fenced = Command::of(&line) != Some(Command::OpenList);
        let (lease, answer) = self.prompt_clean(want, line, timeout, is_fenced).await?;
        let result = answer.map_err(FunctionError::from).and_then(read);
        give_back(lease, &result).await;
        result
    }

    /// Requires that the query servers of a language have an ability. The pool checks what design
    /// documents need.
    pub(super) async fn require(
        &self,
        language: &LanguageName,
        ability: Ability,
    ) -> Result<(), FunctionError> {
        let able = self.caller.require(language, ability).await;
        Ok(able.map_err(CallError::GetProc)?)
    }
}

/// Gives a process back; an error tells whether it can be used again.
pub(super) async fn give_back<T>(lease: Lease, result: &Result<T, FunctionError>) {
    let status = result
        .as_ref()
        .err()
        .map_or(ReturnStatus::Ok, FunctionError::return_status);
    lease.give_back(status).await;
}
