//! Caller: a client of the pool inside this program.
//!
//! SUMMARY   [`Caller`] holds processes, as a connection does for an external client. Dropping it returns them.
//! SOURCE    couch_query_servers: get_os_process/1.
//! DIFFERS   A failed reset is retried a bounded number of times, with a delay (D15).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::auth::rights::CallerLimits;
use crate::messages::proc_manager::{
    CallError, GetLanguage, GetProc, GetProcError, GetResetConfig, Lease, ManagerAddress, Require,
    TakeFrom, Want,
};
use crate::messages::process::{
    AnswerSender, AnswerTo, Frame, Prompt, PromptError, ResetAndAnswer,
};
use crate::otp::{Pid, PidGuard, Tell};
use crate::query_server::abilities::Ability;
use crate::query_server::call::Call;
use crate::query_server::language::LanguageName;
use crate::query_server::status::Holder;
use policy::pool::ReturnStatus;

/// Maximum number of processes that a compound call tries to reset.
const RESET_TRIES: u32 = 3;

/// The delay before the first retry; it doubles.
const RESET_RETRY_DELAY: Duration = Duration::from_millis(20);

/// The ProcManager under its registered name.
#[derive(Clone)]
pub struct Manager(Rc<dyn Fn() -> ManagerAddress>);

impl Manager {
    /// `address` returns the current manager. It is called for each client, for each caller on another thread, and
    /// whenever a manager is gone.
    pub fn new(address: impl Fn() -> ManagerAddress + 'static) -> Self {
        Self(Rc::new(address))
    }
}

/// A client of the pool inside this program. Dropping it returns its processes.
pub struct Caller {
    shared: Rc<Shared>,
    /// The call that its processes work for.
    call: Option<Arc<Call>>,
}

/// Shared by all calls of a client.
struct Shared {
    manager: Manager,
    /// The manager's address as last looked up: a lookup costs more than a call.
    address: RefCell<ManagerAddress>,
    client: Pid,
    /// The pools and languages that it may use; `None`: any.
    limits: RefCell<Option<CallerLimits>>,
    /// Shown as the holder of its processes.
    who: RefCell<Option<Arc<Holder>>>,
    /// `None` if the client lives elsewhere.
    _pid_guard: Option<PidGuard>,
}

impl Caller {
    /// Makes a client of a manager.
    pub fn new(manager: impl Into<Manager>) -> Self {
        let pid_guard = PidGuard::new();
        Self::of(pid_guard.pid(), manager.into(), Some(pid_guard))
    }

    /// Makes a caller for a client that lives elsewhere, for example a connection. Its processes are returned when
    /// that client ends.
    pub(crate) fn in_the_name_of(client: Pid, manager: impl Into<Manager>) -> Self {
        Self::of(client, manager.into(), None)
    }

    fn of(client: Pid, manager: Manager, pid_guard: Option<PidGuard>) -> Self {
        let address = RefCell::new((manager.0)());
        let shared = Shared {
            manager,
            address,
            client,
            limits: RefCell::default(),
            who: RefCell::default(),
            _pid_guard: pid_guard,
        };
        Self {
            shared: Rc::new(shared),
            call: None,
        }
    }

    /// Returns the same client, for a call.
    pub(crate) fn for_call(&self, call: Arc<Call>) -> Self {
        Self {
            shared: Rc::clone(&self.shared),
            call: Some(call),
        }
    }

    /// Returns a constructor, for another thread, of a caller with the same client and call. The processes that it
    /// takes are returned when this client ends.
    pub(crate) fn elsewhere(&self) -> impl FnOnce() -> Self + Send + use<> {
        let shared = &self.shared;
        let (limits, who) = (shared.limits.borrow().clone(), self.who());
        // The manager may have been restarted since the last lookup. Its name is known on this thread only.
        let (address, client) = ((shared.manager.0)(), shared.client.clone());
        let call = self.call.clone();
        move || {
            let manager = Manager::new(move || address.clone());
            let caller = Self {
                call,
                ..Self::in_the_name_of(client, manager)
            };
            caller.hold_to(limits);
            caller.speak_for(who);
            caller
        }
    }

    /// Returns the call that its processes work for.
    pub(crate) fn call(&self) -> Option<&Arc<Call>> {
        self.call.as_ref()
    }

    /// Returns the shown holder of its processes.
    pub(crate) fn who(&self) -> Option<Arc<Holder>> {
        self.shared.who.borrow().clone()
    }

    /// Limits the pools and languages that it may use from now on; `None`: any.
    pub(crate) fn hold_to(&self, limits: Option<CallerLimits>) {
        self.shared.limits.replace(limits);
    }

    /// Sets the shown holder of its processes.
    pub(crate) fn speak_for(&self, who: Option<Arc<Holder>>) {
        self.shared.who.replace(who);
    }

    /// Returns the client that it requests processes for.
    pub fn client(&self) -> &Pid {
        &self.shared.client
    }

    /// Takes a process (`get_proc`). Without a `timeout`, the configured one applies.
    ///
    /// # Errors
    /// See [`GetProcError`].
    pub async fn get_proc(
        &self,
        want: Want,
        timeout: Option<Duration>,
    ) -> Result<Lease, GetProcError> {
        let shared = &self.shared;
        let request = GetProc {
            client: shared.client.clone(),
            want,
            timeout,
            limits: shared.limits.borrow().clone(),
            who: self.who(),
            call: self.call.clone(),
        };
        let asked = self.call.as_ref().map(|call| (call, Instant::now()));
        let question = shared.address.borrow().get_proc.send(request);
        let answer = question.await.map_err(|_| self.manager_is_gone())?;
        if let (Some(call), Err(error)) = (&self.call, &answer)
            && let Some(pool) = error.pool()
        {
            call.refused_by(pool);
        }
        let mut lease = answer.map_err(|error| *error)?;
        lease.loan = asked.map(|(call, asked)| {
            let Lease {
                lender,
                process,
                token,
                ..
            } = &lease;
            call.lend(asked, &lender.pool, *token, &process.shared)
        });
        Ok(lease)
    }

    /// Returns the arguments of `reset`.
    ///
    /// # Errors
    /// [`GetProcError::ShuttingDown`]: there is no manager now.
    pub async fn reset_config(&self) -> Result<Arc<str>, GetProcError> {
        let call = self
            .shared
            .address
            .borrow()
            .reset_config
            .send(GetResetConfig);
        call.await.map_err(|_| self.manager_is_gone())
    }

    /// Looks up the manager again, so that the next call finds its successor. Returns the error of the current call.
    fn manager_is_gone(&self) -> GetProcError {
        let shared = &self.shared;
        shared.address.replace((shared.manager.0)());
        GetProcError::ShuttingDown
    }

    /// Requires an ability of a language's query servers. If it is not known yet, they are probed. Requests for
    /// design documents include this check.
    ///
    /// # Errors
    /// [`GetProcError::Unable`]; [`GetProcError::NotForCaller`]; or there is no such language, or no manager.
    pub async fn require(
        &self,
        language: &LanguageName,
        ability: Ability,
    ) -> Result<(), GetProcError> {
        let question = Require {
            language: language.clone(),
            ability,
            limits: self.shared.limits.borrow().clone(),
        };
        let call = self.shared.address.borrow().require.send(question);
        call.await.unwrap_or_else(|_| Err(self.manager_is_gone()))
    }

    /// Returns the language of a pool or a group.
    ///
    /// # Errors
    /// [`GetProcError::NoSuchPool`], or there is no manager.
    pub async fn language_of(&self, from: TakeFrom) -> Result<LanguageName, GetProcError> {
        let call = (self.shared.address.borrow().language).send(GetLanguage(from));
        call.await.unwrap_or_else(|_| Err(self.manager_is_gone()))
    }

    /// Takes a process and resets it.
    ///
    /// # Errors
    /// [`CallError::GetProc`] or, after a few processes, [`CallError::Reset`].
    pub async fn get_clean_proc(&self, want: &Want) -> Result<Lease, CallError> {
        let get = async || self.get_proc(want.clone(), None).await;
        let (lease, ()) = get_clean_proc(get, Lease::reset).await?;
        Ok(lease)
    }
}

/// Takes a process with `get` and resets it with `reset`. If the reset fails, gives the process back and takes another
/// after a delay. Returns the process and the result of `reset`.
///
/// # Errors
/// Those of `get`; [`CallError::Reset`] after the last try.
pub(crate) async fn get_clean_proc<T>(
    mut get: impl AsyncFnMut() -> Result<Lease, GetProcError>,
    mut reset: impl AsyncFnMut(&Lease) -> Result<T, PromptError>,
) -> Result<(Lease, T), CallError> {
    let mut tries_left = RESET_TRIES;
    let mut delay = RESET_RETRY_DELAY;
    loop {
        let lease = get().await?;
        let error = match reset(&lease).await {
            Ok(value) => return Ok((lease, value)),
            Err(error) => error,
        };
        lease.ret_proc(ReturnStatus::Fail).await;
        tries_left -= 1;
        if tries_left == 0 {
            return Err(CallError::Reset(error));
        }
        actix_rt::time::sleep(delay).await;
        delay *= 2;
    }
}

impl Lease {
    /// Sends a command and waits for its answer. Without a `timeout`, that of the process applies.
    ///
    /// Several commands may be sent before the first is answered; answers arrive in the same order.
    ///
    /// # Errors
    /// See [`PromptError`].
    pub async fn prompt(
        &self,
        line: Bytes,
        timeout: Option<Duration>,
    ) -> Result<Bytes, PromptError> {
        let loan = self.loan.clone();
        let answer = self
            .process
            .prompt_for(loan, self.token, line, timeout)
            .await;
        if let Some(loan) = &self.loan {
            loan.call.take(loan.take(), answer.is_err());
        }
        answer
    }

    /// Sends several commands, each ended by a line feed; their answers go to `answers`, see [`AnswerTo`].
    pub fn prompts(&self, lines: Bytes, timeout: Option<Duration>, answers: AnswerSender) {
        // A lost message drops `answers`, which signals the end of the process.
        self.process.prompts.tell(Prompt {
            token: self.token,
            lines,
            timeout,
            verbatim: false,
            loan: self.loan.clone(),
            answer_to: AnswerTo::Several(answers),
        });
    }

    /// Sends `reset` with the configuration that came with the process, and requires `true`.
    ///
    /// # Errors
    /// See [`PromptError`]; any answer other than `true` counts as a broken protocol.
    pub async fn reset(&self) -> Result<(), PromptError> {
        self.prompt_framed((Some(self.reset_line()), None, None), None)
            .await?
            .map(drop)
    }

    /// Like [`Self::reset`], but sends nothing if the previous call has already reset the process in this way.
    ///
    /// # Errors
    /// Those of [`Self::reset`].
    pub(crate) async fn ready(&self) -> Result<(), PromptError> {
        if self.is_ready() {
            Ok(())
        } else {
            self.reset().await
        }
    }

    /// Returns whether the previous call has reset the process as this one needs it.
    fn is_ready(&self) -> bool {
        let shared = &self.process.shared;
        let is_ready = shared.is_left_reset(self.reset_line());
        if is_ready {
            shared.take_first();
        }
        is_ready
    }

    /// Sends the first command of a call, after a `reset` if one is needed: both `together`, which wakes the query
    /// server only once, or one after the other. If `is_fenced`, also sends the fence, see [`Self::fence`]. Returns the
    /// answer to the command.
    ///
    /// # Errors
    /// Those of [`Self::reset`], and those of a process that had already ended.
    pub(crate) async fn prompt_first(
        &self,
        line: &Bytes,
        timeout: Option<Duration>,
        (is_fenced, together): (bool, bool),
    ) -> ResetAndAnswer {
        let mut reset = (!self.is_ready()).then(|| self.reset_line());
        if !together && reset.take().is_some() {
            self.reset().await?;
        }
        let fence = is_fenced.then(|| self.fence_line());
        self.prompt_framed((reset, Some(line), fence), timeout)
            .await
    }

    /// Sends the fence after the last command of a call, and waits for its answer: this proves that no unsolicited
    /// line arrived, and leaves the process as the next call needs it. Nothing may be sent after the fence.
    ///
    /// # Errors
    /// See [`PromptError`]; an extra answer counts as a broken protocol.
    pub(crate) async fn fence(&self) -> Result<(), PromptError> {
        self.prompt_framed((None, None, Some(self.fence_line())), None)
            .await?
            .map(drop)
    }

    async fn prompt_framed(&self, lines: Frame<'_>, timeout: Option<Duration>) -> ResetAndAnswer {
        let (reset, line, fence) = lines;
        let count = [reset.is_some(), line.is_some(), fence.is_some()];
        let count = count.into_iter().filter(|is_sent| *is_sent).count();
        let loan = self.loan.clone();
        let framed = self
            .process
            .prompt_framed(loan, self.token, lines, timeout)
            .await;
        if let Some(loan) = &self.loan {
            let failed = !matches!(framed, Ok(Ok(_)));
            (0..count).for_each(|_| loan.call.take(loan.take(), failed));
        }
        framed
    }

    fn reset_line(&self) -> &Bytes {
        let reports = self.loan.as_ref().is_some_and(|loan| loan.call.reports);
        &self.lender.resets[usize::from(reports)]
    }

    /// The `reset` that the next call needs, unless that call wants a report.
    fn fence_line(&self) -> &Bytes {
        &self.lender.resets[0]
    }
}
